"""Notes and sessions that a message names: `@note:mem_3f6c1e`, `@session:the slow parser`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ouro.errors import UsageError
from ouro.mcp import read_named_resources
from ouro.memory.sessions.session_catalog import SessionCatalog
from ouro.safety import Permissions
from ouro.session.attachments import Attachments
from ouro.session.session import SessionExtensions
from ouro.tools.files_seen import FilesSeen

_HALF_LIFE_DAYS = 30.0

if TYPE_CHECKING:
    from ouro.memory.long_term import LongTermMemoryManager, MemoryEditor


def make_attachments(
    seen: FilesSeen,
    permissions: Permissions,
    memory: LongTermMemoryManager | None,
    catalog: SessionCatalog,
    extensions: SessionExtensions,
) -> Attachments:
    """The reader of what messages name: files, notes, sessions and resources of MCP servers."""
    others = {"note": partial(_read_note, memory), "session": partial(_read_session, catalog)}
    resources = partial(read_named_resources, extensions.servers)
    return Attachments(seen, permissions, others, extensions.instructions.for_paths, resources)


async def _read_note(memory: LongTermMemoryManager | None, named: str) -> str:
    """The text of a note by its id or words. Raises UsageError: memory is off, or there is no such
    note.
    """
    if memory is None:
        raise UsageError("memory is off")

    # Too heavy for sessions without memory.
    from ouro.memory.long_term import details_of

    def read(editor: MemoryEditor) -> str:
        return details_of(editor, named, _HALF_LIFE_DAYS).entry.text

    return await memory.with_editor(read, quiet=True)


async def _read_session(catalog: SessionCatalog, named: str) -> str:
    """The title, the summary, the first and the last messages."""
    info = await catalog.find(named)
    excerpt = await catalog.preview(info)
    messages: list[tuple[str, str]] = [("user", excerpt.first), *excerpt.last]
    said = [f"{role}: {text}" for role, text in messages]
    return "\n\n".join(filter(None, (f"Session: {info.title}", excerpt.summary, *said)))
