"""FileUndo: checkpoints before and after the turns of a session, and the undo of what turns did to files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Literal

import msgspec

from ouro.errors import OuroError, UsageError
from ouro.events import Notice
from ouro.memory.backend import Undoable
from ouro.memory.manager import MemoryManager
from ouro.safety import Checkpoints, Restored, TurnFiles, clean_checkpoints
from ouro.session.session_tasks import SessionTasks
from ouro.utils.text import join_names, plural

FIRST_TIMEOUT = 20.0
"""Seconds that the first change of a turn waits for its checkpoint; the first one of a large folder takes long."""
UNDONE = "Undone"
"""How the line about what was undone begins; the other lines say what was not."""
_NAMED = 3
_CLEAN_EVERY = 86_400.0


class FileUndo(msgspec.Struct, eq=False):
    """Takes checkpoints in the background; a turn that changes nothing waits for none."""

    checkpoints: Checkpoints
    transcript: MemoryManager
    tasks: SessionTasks
    keep_days: int
    max_bytes: int
    _number: int = 0
    """The message of the current turn."""
    _before: asyncio.Task[bool] | None = None
    """The checkpoint before the current turn; None where it cannot be undone."""
    _last: asyncio.Task[bool] | None = None
    _changes: bool = False
    """The current turn may have changed files."""
    _is_off: bool = False
    _told_user: set[str] = msgspec.field(default_factory=set)

    def turn_began(self) -> None:
        """Start the checkpoint of the files as they are now."""
        self._begin(self.transcript.next_number)

    def message_added(self) -> None:
        """A message that steers the turn begins a part of it that can be undone alone; only its next change waits."""
        if self.transcript.transcript.last_number > self._number:
            if self._changes and self._before is not None:
                self._start("after")
            self._begin(self.transcript.transcript.last_number)

    def _begin(self, number: int) -> None:
        self._changes = False
        self._number = number
        self._before = None if self._is_off else self._start("before")

    async def before_change(self) -> None:
        """Wait until the files are kept as they were before the turn."""
        if self._before is not None:
            self._changes = True
            done, _ = await asyncio.wait([self._before], timeout=FIRST_TIMEOUT)
            if not done:
                self._before = None
                self._warn("The first checkpoint of this folder takes long: changes of this turn cannot be undone.")

    async def turn_ended(self) -> None:
        """Keep the files as they are after a turn that may have changed some."""
        if self._changes and self._before is not None:
            await asyncio.wait([self._start("after")])

    async def settled(self) -> None:
        """Wait for the checkpoints of the turns so far."""
        if self._last is not None:
            await asyncio.wait([self._last])

    def _start(self, moment: Literal["before", "after"]) -> asyncio.Task[bool]:
        self._last = asyncio.create_task(self._take(moment, self._number, self._last), name="checkpoint")
        return self._last

    async def find(self, number: int) -> Undoable | None:
        """What the turns since message `number` of the current branch did to files; None if nothing."""
        turns = await self._turns(lambda turn: turn.number >= number and not turn.undone)
        return await self._undoable(turns, self.checkpoints.undo, UNDONE)

    async def find_undone(self, numbers: Collection[int]) -> Undoable | None:
        """What was undone of the turns that began with these messages; None if nothing."""
        turns = await self._turns(lambda turn: bool(turn.undone), numbers)
        return await self._undoable(turns, self.checkpoints.redo, "Changed again")

    async def _undoable(
        self, turns: list[TurnFiles], change: Callable[[list[TurnFiles]], Restored], verb: str
    ) -> Undoable | None:
        changed = {found.path for turn in turns for found in await asyncio.to_thread(self.checkpoints.changes, turn)}

        async def carry_out() -> Sequence[str]:
            return _describe_restored(await asyncio.to_thread(change, turns), verb)

        return Undoable(plural(len(changed), "file"), carry_out) if changed else None

    async def diff(self, number: int) -> str:
        """What changed since before message `number`, also by others; empty if nothing. Raises UsageError."""
        return await asyncio.to_thread(self.checkpoints.diff, await self._first_since(number))

    async def undo_part(self, number: int, path: str, hunk: str) -> Sequence[str]:
        """Undo what the turns since message `number` did to a file, or one hunk of `diff`. Raises UsageError."""
        if hunk:
            first = await self._first_since(number)
            return _describe_restored(await asyncio.to_thread(self.checkpoints.undo_hunk, first, path, hunk), UNDONE)
        turns = await self._turns(lambda turn: turn.number >= number and not turn.undone)
        lines = _describe_restored(await asyncio.to_thread(self.checkpoints.undo, turns, path), UNDONE)
        if not lines:
            raise UsageError(
                f"No turn since then changed a file `{path}`.", "`/diff 1` shows what the last one changed."
            )
        return lines

    async def _first_since(self, number: int) -> TurnFiles:
        turns = await self._turns(lambda turn: turn.number >= number and bool(turn.before))
        if not turns:
            raise UsageError("There is no checkpoint since that message: no turn changed files.")
        return turns[0]

    async def _turns(
        self, wanted: Callable[[TurnFiles], bool], numbers: Collection[int] | None = None
    ) -> list[TurnFiles]:
        """Those of these messages, or of the current branch, that are wanted; oldest first."""
        await self.settled()
        if numbers is None:
            numbers = {entry.number for entry in self.transcript.transcript.entries}
        turns = await asyncio.to_thread(self.checkpoints.turns)
        return [turn for turn in turns if turn.number in numbers and wanted(turn)]

    async def _take(self, moment: Literal["before", "after"], number: int, earlier: asyncio.Task[bool] | None) -> bool:
        if earlier is not None and not await earlier:
            return False
        try:
            await asyncio.to_thread(self.checkpoints.take, number, moment)
            if moment == "before":
                await asyncio.to_thread(self._clean)
        except (OSError, OuroError) as error:
            self._is_off = True
            self._warn(f"Changes of files cannot be undone in this session: {error}")
            return False
        if moment == "after" and (skipped := sorted(self.checkpoints.skipped - self._told_user)):
            self._told_user.update(skipped)
            what = "too large, not readable or a repository of its own"
            self.tasks.emit(Notice(f"`/undo` does not restore {join_names(skipped, _NAMED)}: {what}."))
        return True

    def _clean(self) -> None:
        """Delete old checkpoints, once a day."""
        base = self.checkpoints.folder.parent
        stamp = base / "cleaned"
        if not stamp.exists() or time.time() - stamp.stat().st_mtime > _CLEAN_EVERY:
            stamp.touch(mode=0o600)
            with suppress(OSError):  # those of another workspace: this session does not need it
                clean_checkpoints(base, days=self.keep_days, max_bytes=self.max_bytes, keep=self.checkpoints.folder)

    def _warn(self, text: str) -> None:
        if text not in self._told_user:
            self._told_user.add(text)
            self.tasks.warn(text)


def _describe_restored(restored: Restored, verb: str) -> list[str]:
    lines = [f"{verb}: {join_names(restored.paths, _NAMED)}."] if restored.paths else []
    if restored.merged:
        lines.append(f"Your own changes stay in {join_names(restored.merged, _NAMED)}.")
    return [*lines, *(f"{path} is left as it is: {why}." for path, why in restored.left.items())]
