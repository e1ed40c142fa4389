"""MemoryDeeds: what the keys of the memory browser do to what is marked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ouro.errors import UsageError

if TYPE_CHECKING:
    from ouro.session import Browsing, Listed, Scope


@dataclass(frozen=True, slots=True)
class Aim:
    """What is marked; what is empty is not."""

    note: str = ""
    core: Listed | None = None
    proposal: str = ""
    commit: str = ""
    hunk: int = 0


class MemoryDeeds:
    """Each deed gives what is to be told of it; nothing where nothing was done.

    Args:
        edit: lends the terminal to the person's editor.
        last_commit: what was done here last, to be taken back.
    """

    def __init__(self, memory: Browsing, edit: Callable[[str], Awaitable[str]], last_commit: str) -> None:
        self._memory = memory
        self._edit = edit
        self.last_commit = last_commit

    async def do(self, name: str, aim: Aim) -> str:
        """Do what the action of that name says.

        Raises:
            UsageError: it does not go with what is marked.
        """
        if name == "take_back":
            return await self._take_back(aim)
        self.last_commit = ""
        if name in ("accept", "reject"):
            return await self._answer(aim.proposal, accepts=name == "accept")
        if name == "edit_note" and aim.core is not None:
            return await self._edit_core(aim.core)
        if not aim.note:
            raise UsageError("That is for notes.")
        if name == "edit_note":
            return await self._edit_note(aim.note)
        deeds = {
            "confirm_note": (self._memory.confirm, "Confirmed: it still holds."),
            "archive_note": (self._memory.archive, "Archived: kept, but not recalled."),
            "restore_note": (self._memory.restore, "It is back."),
        }
        deed, told = deeds[name]
        self.last_commit = await deed(aim.note)
        return told

    async def _take_back(self, aim: Aim) -> str:
        """The marked hunk or commit; elsewhere what was done here last."""
        commit, hunk = (aim.commit, aim.hunk) if aim.commit else (self.last_commit, 0)
        if not commit:
            raise UsageError("Nothing was done here that could be taken back.")
        done = await self._memory.take_back(commit, hunk)
        self.last_commit = ""
        left = f" {len(done.conflicts)} changes stay: their lines have changed since." if done.conflicts else ""
        return f"Taken back{f' hunk {hunk} of' if hunk else ''}: {done.commit.subject}.{left}"

    async def _answer(self, proposal: str, *, accepts: bool) -> str:
        if not proposal:
            raise UsageError("That is for proposals.")
        await (self._memory.accept if accepts else self._memory.reject)(proposal)
        return "Accepted." if accepts else "Rejected. The history of git has it still."

    async def _edit_core(self, listed: Listed) -> str:
        scope: Scope = "user" if listed.scope == "user" else "repo"
        before = await self._memory.core_text(scope, listed.name)
        after = await self._edit(before)
        if after.strip() == before.strip():
            return ""
        await self._memory.write_core(scope, listed.name, after)
        return "Kept as you wrote it."

    async def _edit_note(self, note_id: str) -> str:
        before = await self._memory.note_text(note_id)
        after = await self._edit(before)
        if after.strip() == before.strip():
            return ""
        self.last_commit = await self._memory.rewrite(note_id, after)
        return "Kept as you wrote it."
