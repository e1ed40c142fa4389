"""The texts of notes and sessions that a message names: `@note:mem_3f6c1e`, `@session:slow parser`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ouro.errors import UsageError
from ouro.memory.sessions.session_catalog import SessionCatalog
from ouro.safety import Permissions
from ouro.session.attachments import Attachments
from ouro.session.session import SessionExtensions
from ouro.tools.files_seen import FilesSeen

if TYPE_CHECKING:
    from ouro.memory.long_term import LongTermMemoryManager, MemoryEditor

_HALF_LIFE_DAYS = 30.0
"""For the confidence of a note, which a mention does not show: any value will do."""


def make_attachments(
    seen: FilesSeen,
    permissions: Permissions,
    memory: LongTermMemoryManager | None,
    catalog: SessionCatalog,
    extensions: SessionExtensions,
) -> Attachments:
    """The reader of what messages name: files, notes, sessions and resources of MCP servers."""
    readers = {"note": partial(_read_note, memory), "session": partial(_read_session, catalog)}
    resources = partial(_read_resources, extensions)
    return Attachments(
        seen,
        permissions,
        readers=readers,
        instructions_for=extensions.instructions.for_paths,
        read_resources=resources,
    )


async def _read_resources(extensions: SessionExtensions, text: str) -> str:
    """The resources of MCP servers that a message names; empty if there are no servers."""
    if not extensions.servers.by_name:
        return ""
    from ouro.mcp import read_named_resources  # too heavy for sessions without servers

    return await read_named_resources(extensions.servers, text)


async def _read_note(memory: LongTermMemoryManager | None, name: str) -> str:
    """The text of the note with the id `name`, or with these words. Raises UsageError if memory is
    off, or there is no such note.
    """
    if memory is None:
        raise UsageError("memory is off")

    # Too heavy for sessions without memory.
    from ouro.memory.long_term import details_of

    def read(editor: MemoryEditor) -> str:
        return details_of(editor, name, _HALF_LIFE_DAYS).entry.text

    return await memory.with_editor(read, quiet=True)


async def _read_session(catalog: SessionCatalog, name: str) -> str:
    """The title, the summary, the first message and the last messages of a session, as text for the
    model. Raises SessionNotFound if `name` (an id, or words) does not name exactly one.
    """
    info = await catalog.find(name)
    excerpt = await catalog.preview(info)
    messages: list[tuple[str, str]] = [("user", excerpt.first), *excerpt.last]
    message_lines = [f"{role}: {text}" for role, text in messages]
    return "\n\n".join(filter(None, (f"Session: {info.title}", excerpt.summary, *message_lines)))
