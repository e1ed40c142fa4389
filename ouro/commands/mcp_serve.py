"""`ouro mcp serve`: what other agents get of memory."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec

from ouro.commands import memory_notes
from ouro.commands.action import MemoryAccess
from ouro.commands.render import as_text
from ouro.memory import long_term
from ouro.utils.text import clean, one_line

if TYPE_CHECKING:
    from ouro.commands.shell import ShellContext

MAX_TEXT = 1_200
"""Characters of one hit."""


async def serve(context: ShellContext) -> None:
    from ouro.mcp.serve import serve as serve_memory

    await serve_memory(FolderMemory(context, context.folder.settings.mcp.remember))


class FolderMemory(msgspec.Struct, frozen=True):
    """Memory as it is in the current folder: the user's, and that of the repository if it is trusted."""

    context: ShellContext
    allowed: Collection[str]
    """Clients whose memories need no approval."""

    async def search(self, query: str, limit: int) -> str:
        answer = await memory_notes.search(self.context, [query], limit)
        hits = [hit for hit in answer.value if "not approved" not in hit["badges"]]
        texts = [_quoted(number, hit) for number, hit in enumerate(hits, 1)]
        return "\n".join(texts) or "No matches. Try other words."

    async def read(self, entry: str) -> str:
        answer = await memory_notes.show(self.context, entry)
        return clean(as_text(answer.view))

    async def remember(self, text: str, client: str) -> str:
        is_allowed = client in self.allowed

        def work(memory: MemoryAccess) -> long_term.ProposedText:
            return long_term.propose_text(memory.editor, text, client, is_allowed=is_allowed)

        done = await self.context.memory(work)
        return {
            "pending": f"Waiting for approval in ouro: {done.place} (`ouro memory accept {done.id}`).",
            "kept": f"Remembered in {done.place}.",
            "known": f"Already remembered: {done.place}.",
        }[done.state]

    async def entries(self) -> list[tuple[str, str]]:
        def work(memory: MemoryAccess) -> list[tuple[str, str]]:
            editor = memory.editor
            core = [
                (f"{scope.scope}/{name}.md", f"core memory: {name}")
                for scope in editor.scopes
                for name in scope.store.core
                if editor.text(scope.scope, f"{name}.md")
            ]
            notes = long_term.note_entries(editor)
            return [*core, *((note.id, one_line(note.text, 100)) for note in notes)]

        return await self.context.memory(work)


def _quoted(number: int, hit: dict[str, object]) -> str:
    """A hit as quoted data, with its id and source: every line is marked, so that it is not read as instructions."""
    text = clean(str(hit["text"]))[:MAX_TEXT]
    lines = [f"   > {line}" for line in text.splitlines()]
    badges = hit["badges"]
    marks = " · ".join((str(hit["source"]), *(badges if isinstance(badges, tuple) else ())))
    return "\n".join([f"{number}. {hit['id']} · {marks}", *lines])
