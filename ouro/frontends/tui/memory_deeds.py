"""MemoryDeeds: what the keys of the memory browser do to what is marked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ouro.errors import UsageError

if TYPE_CHECKING:
    from ouro.session import Browsing, Listed


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
        self._edit_text = edit
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
        if name == "edit_note":
            return await self._edit(aim)
        if not aim.note:
            raise UsageError("That is for notes.")
        deeds = {
            "confirm_note": (self._memory.confirm, "Confirmed: it still holds."),
            "archive_note": (self._memory.archive, "Archived: kept, but not recalled."),
            "restore_note": (self._memory.confirm, "It is back."),
        }
        deed, told = deeds[name]
        self.last_commit = await deed(aim.note)
        return told

    async def _take_back(self, aim: Aim) -> str:
        """The marked hunk or commit; elsewhere what was done here last."""
        from ouro.session import named  # heavier than the first picture may be

        commit, hunk = (aim.commit, aim.hunk) if aim.commit else (self.last_commit, 0)
        if not commit:
            raise UsageError("Nothing was done here that could be taken back.")
        done = await self._memory.take_back(commit, hunk)
        self.last_commit = ""
        left = f" {len(done.conflicts)} changes stay: their lines have changed since." if done.conflicts else ""
        return f"Taken back{f' hunk {hunk} of' if hunk else ''}: {named(done.commits)}.{left}"

    async def _answer(self, proposal: str, *, accepts: bool) -> str:
        if not proposal:
            raise UsageError("That is for proposals.")
        await (self._memory.accept if accepts else self._memory.reject)(proposal)
        return "Accepted." if accepts else "Rejected. The history of git has it still."

    async def _edit(self, aim: Aim) -> str:
        named = f"{aim.core.scope}/{aim.core.name}" if aim.core is not None else aim.note
        if not named:
            raise UsageError("Only notes and lines of the core can be edited.")
        opened = await self._memory.open_file(named)
        saved = await self._memory.save(opened, await self._edit_text(opened.text))
        self.last_commit = saved.undo
        if not saved.changed:
            return "Nothing was changed."
        return "Kept as you wrote it." + "".join(f" But {each}." for each in saved.complaints)
