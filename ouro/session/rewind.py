"""Rewind: go back in a session, go to its branches, and copy it; undo what turns did to files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Literal, Protocol

import msgspec

from ouro.errors import OuroError, UsageError, plain_error
from ouro.events import Notice
from ouro.memory.backend import MessageRecord, RewindRecord, RewindScope, Undoable
from ouro.memory.compaction import is_own_words
from ouro.memory.manager import MemoryManager
from ouro.messages import SHELL_NOTE, Image
from ouro.safety import Checkpoints, Restored, TurnFiles, clean_checkpoints
from ouro.session.session_tasks import SessionTasks
from ouro.utils.log import log
from ouro.utils.text import join_names, plural

_CONVERSATION: tuple[RewindScope, ...] = ("conversation",)
FIRST_TIMEOUT = 20.0
"""Seconds that the first change of a turn waits for its checkpoint; the first checkpoint of a large
folder is slow.
"""
UNDONE = "Undone"
"""The beginning of the line about what was undone; the other lines are about what was not."""
_NAMED = 3
_CLEAN_EVERY = 86_400.0


class Point(msgspec.Struct, frozen=True):
    """A message of the user that the session can be rewound to."""

    number: int
    at: str
    text: str
    messages: int
    """The number of messages that would be undone: this one and all after it."""
    calls: int
    """Tool calls among them."""
    images: tuple[Image, ...] = ()


class Branch(msgspec.Struct, frozen=True):
    """Messages that a rewind has left. They are kept, and the session can continue there."""

    number: int
    """The number of its last message."""
    since: int
    """The message of the current branch after which it begins; 0: the start."""
    at: str
    """The time of its last message."""
    texts: tuple[str, ...]
    """The messages of the user in it."""
    messages: int
    calls: int


class Rewound(msgspec.Struct, frozen=True):
    """The result of a rewind: the message to edit and send again, and lines for the user."""

    text: str = ""
    images: tuple[Image, ...] = ()
    notices: tuple[str, ...] = ()


class Undoer(Protocol):
    """Finds what can be undone and redone in one scope: files, long-term memory."""

    async def find(self, number: int) -> Undoable | None:
        """What turns did since a message of the current branch."""

    async def find_undone(self, numbers: Collection[int]) -> Undoable | None:
        """What was undone of the turns that began with these messages."""


class FileUndo(msgspec.Struct, eq=False):
    """Takes checkpoints in the background; a turn that changes nothing does not wait for one."""

    checkpoints: Checkpoints
    transcript: MemoryManager
    tasks: SessionTasks
    keep_days: int
    max_bytes: int
    _number: int = 0
    """The message of the current turn."""
    _before: asyncio.Task[bool] | None = None
    """The checkpoint before the current turn; None if the turn cannot be undone."""
    _last: asyncio.Task[bool] | None = None
    _changes: bool = False
    """Whether the current turn may have changed files."""
    _is_off: bool = False
    _told_user: set[str] = msgspec.field(default_factory=set)

    def turn_began(self) -> None:
        """Start the checkpoint of the files as they are now."""
        self._begin(self.transcript.next_number)

    def message_added(self) -> None:
        """Take a checkpoint for a message that steers the turn: what follows can be undone
        separately.
        """
        if self.transcript.transcript.last_number > self._number:
            if self._changes and self._before is not None:
                self._start("after")
            self._begin(self.transcript.transcript.last_number)

    def _begin(self, number: int) -> None:
        self._changes = False
        self._number = number
        self._before = None if self._is_off else self._start("before")

    async def before_change(self) -> None:
        """Wait for the checkpoint of the files before the turn."""
        if self._before is not None:
            self._changes = True
            done, _ = await asyncio.wait([self._before], timeout=FIRST_TIMEOUT)
            if not done:
                self._before = None
                self._warn(
                    "The first checkpoint of this folder takes long: changes of this turn cannot be"
                    " undone."
                )

    async def turn_ended(self) -> None:
        """Take a checkpoint after a turn that may have changed files."""
        if self._changes and self._before is not None:
            await asyncio.wait([self._start("after")])

    async def settled(self) -> None:
        if self._last is not None:
            await asyncio.wait([self._last])

    def _start(self, moment: Literal["before", "after"]) -> asyncio.Task[bool]:
        self._last = asyncio.create_task(
            self._take(moment, self._number, self._last), name="checkpoint"
        )
        return self._last

    async def find(self, number: int) -> Undoable | None:
        turns = await self._turns(lambda turn: turn.number >= number and not turn.undone)
        return await self._undoable(turns, self.checkpoints.undo, UNDONE)

    async def find_undone(self, numbers: Collection[int]) -> Undoable | None:
        turns = await self._turns(lambda turn: bool(turn.undone), numbers)
        return await self._undoable(turns, self.checkpoints.redo, "Changed again")

    async def _undoable(
        self, turns: list[TurnFiles], change: Callable[[list[TurnFiles]], Restored], verb: str
    ) -> Undoable | None:
        changed = {
            found.path
            for turn in turns
            for found in await asyncio.to_thread(self.checkpoints.changes, turn)
        }

        async def carry_out() -> Sequence[str]:
            return _describe_restored(await asyncio.to_thread(change, turns), verb)

        return Undoable(plural(len(changed), "file"), carry_out) if changed else None

    async def diff(self, number: int) -> str:
        """What changed since before message `number`, also by others; empty if nothing. Raises
        UsageError.
        """
        return await asyncio.to_thread(self.checkpoints.diff, await self._first_since(number))

    async def undo_part(self, number: int, path: str, hunk: str) -> Sequence[str]:
        """Undo what the turns since message `number` did to a file, or one hunk of `diff`. Raises
        UsageError.
        """
        if hunk:
            first = await self._first_since(number)
            return _describe_restored(
                await asyncio.to_thread(self.checkpoints.undo_hunk, first, path, hunk), UNDONE
            )
        turns = await self._turns(lambda turn: turn.number >= number and not turn.undone)
        lines = _describe_restored(
            await asyncio.to_thread(self.checkpoints.undo, turns, path), UNDONE
        )
        if not lines:
            raise UsageError(
                f"No turn since then changed a file `{path}`.",
                "`/diff 1` shows what the last one changed.",
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
        """The wanted turns of these messages, or of the current branch; oldest first."""
        await self.settled()
        if numbers is None:
            numbers = {entry.number for entry in self.transcript.transcript.entries}
        turns = await asyncio.to_thread(self.checkpoints.turns)
        return [turn for turn in turns if turn.number in numbers and wanted(turn)]

    async def _take(
        self, moment: Literal["before", "after"], number: int, earlier: asyncio.Task[bool] | None
    ) -> bool:
        if earlier is not None and not await earlier:
            return False
        try:
            await asyncio.to_thread(self.checkpoints.take, number, moment)
            if moment == "before":
                await asyncio.to_thread(self._clean)
        except (OSError, OuroError) as error:
            self._is_off = True
            self._warn(f"Changes of files cannot be undone in this session: {plain_error(error)}")
            return False
        if moment == "after" and (skipped := sorted(self.checkpoints.skipped - self._told_user)):
            self._told_user.update(skipped)
            what = "too large, not readable or a repository of its own"
            self.tasks.emit(
                Notice(f"`/undo` does not restore {join_names(skipped, _NAMED)}: {what}.")
            )
        return True

    def _clean(self) -> None:
        """Delete old checkpoints, once a day."""
        base = self.checkpoints.folder.parent
        stamp = base / "cleaned"
        if not stamp.exists() or time.time() - stamp.stat().st_mtime > _CLEAN_EVERY:
            stamp.touch(mode=0o600)
            # An error concerns another workspace, which this session does not need.
            with suppress(OSError):
                clean_checkpoints(
                    base,
                    days=self.keep_days,
                    max_bytes=self.max_bytes,
                    keep=self.checkpoints.folder,
                )

    def _warn(self, text: str) -> None:
        if text not in self._told_user:
            self._told_user.add(text)
            self.tasks.warn(text)


def _describe_restored(restored: Restored, verb: str) -> list[str]:
    lines = [f"{verb}: {join_names(restored.paths, _NAMED)}."] if restored.paths else []
    if restored.merged:
        lines.append(f"Your own changes stay in {join_names(restored.merged, _NAMED)}.")
    return [*lines, *(f"{path} is left as it is: {why}." for path, why in restored.left.items())]


class Rewind(msgspec.Struct, frozen=True, eq=False):
    """The earlier messages and the branches of a session, and how to go to them.

    Every change raises UsageError if a turn runs or the session is read-only, and SaveFailed if it
    cannot be written; the transcript is then unchanged.
    """

    memory: MemoryManager
    is_running: Callable[[], bool]
    on_change: Callable[[], None]
    """Called after the transcript was replaced."""
    undoers: Mapping[RewindScope, Undoer]
    settled: Callable[[], Awaitable[None]]
    """Waits until everything that the last turn did can be undone."""

    def points(self) -> tuple[Point, ...]:
        """The loaded messages of the user on this branch, oldest first."""
        found: list[Point] = []
        calls = 0
        for messages, entry in enumerate(reversed(self.memory.transcript.entries), 1):
            calls += len(entry.message.tool_calls)
            if _is_typed(entry):
                message = entry.message
                images = message.parts_of(Image)
                found.append(Point(entry.number, entry.at, message.text, messages, calls, images))
        return tuple(reversed(found))

    def branches(self) -> tuple[Branch, ...]:
        """The branches that rewinds have left, in the order of their beginning."""
        return tuple(
            Branch(
                branch.entries[-1].number,
                branch.since,
                branch.entries[-1].at,
                tuple(entry.message.text for entry in branch.entries if _is_typed(entry)),
                len(branch.entries),
                sum(len(entry.message.tool_calls) for entry in branch.entries),
            )
            for branch in self.memory.transcript.branches
        )

    @property
    def lacks_branches(self) -> bool:
        """Whether there may be more branches, which begin at messages that were not loaded at
        first.
        """
        return self.memory.transcript.lacks_branches

    @property
    def has_earlier(self) -> bool:
        return self.memory.pager.has_earlier

    async def load_earlier(self, count: int = 200) -> None:
        await self.memory.pager.load_earlier(count)

    async def can_rewind(self, number: int) -> Mapping[RewindScope, str]:
        """What can be undone together with the messages from `number` on, by scope, in a few words."""
        return {
            scope: found.what
            for scope, found in (await self._undoable(self.undoers, number)).items()
        }

    async def can_redo(self, end: int | None = None) -> Mapping[RewindScope, str]:
        """What can be redone, by scope, in a few words.

        `end`: the last message of a branch to visit; None: the last rewind is undone.
        """
        end = self._redo_end() if end is None else end
        offered: dict[RewindScope, str] = {}
        if end is not None:
            restored, behind = (
                self.memory.transcript.entries_to(end),
                self.memory.transcript.last_number,
            )
            offered["conversation"] = (
                plural(len(restored), "message") if restored else f"back from message {behind}"
            )
        return offered | {
            scope: found.what for scope, found in (await self._redoable(end, self.undoers)).items()
        }

    async def rewind(self, number: int, scopes: Collection[RewindScope] = _CONVERSATION) -> Rewound:
        """Undo in `scopes` what followed the user's message `number`, one of `points`; raises
        UsageError for another.

        With the conversation, the session continues before the message, which is returned for
        editing.
        """
        self._check()
        entry = self._entry(number)
        undoable = await self._undoable(scopes, number)
        if "conversation" in scopes:
            await self._go(await self._before(entry), undoable)
        elif not undoable:
            raise UsageError("Nothing was changed there.")
        notices = await _carry_out(undoable, "undone")
        if "conversation" not in scopes:
            return Rewound(notices=tuple(notices))
        return Rewound(entry.message.text, entry.message.parts_of(Image), tuple(notices))

    async def diff(self, back: int) -> str:
        """What changed in files since before the user's message `back` messages ago, with the ids
        of the hunks.
        """
        return await self._files().diff(await self.number_back(back))

    async def undo_file(self, path: str, hunk: str, back: int) -> Sequence[str]:
        """Undo what the turns since then did to one file, or one hunk of `diff`; returns lines for
        the user.
        """
        self._check()
        return await self._files().undo_part(await self.number_back(back), path, hunk)

    def _files(self) -> FileUndo:
        files = self.undoers.get("files")
        if not isinstance(files, FileUndo):
            raise UsageError(
                "There are no checkpoints of files here.", "Set `checkpoints.enabled: true`."
            )
        return files

    async def number_back(self, back: int = 1) -> int:
        """The number of the user's message that many messages ago. Raises UsageError: there are
        fewer.
        """
        while len(points := self.points()) < back and self.has_earlier:
            await self.load_earlier()
        if not points:
            raise UsageError("There is nothing to undo: the session has no messages.")
        if not 1 <= back <= len(points):
            raise UsageError(
                f"Give a number of messages from 1 to {len(points)}.", commands=["rewind"]
            )
        return points[-back].number

    async def visit(self, number: int, scopes: Collection[RewindScope] = ()) -> Sequence[str]:
        """Continue at the end of a branch, and redo in `scopes` what was undone of it; returns
        lines for the user.
        """
        self._check()
        if number not in {branch.number for branch in self.branches()}:
            raise UsageError(
                f"There is no branch that ends with message {number}.", commands=["rewind"]
            )
        redoable = await self._redoable(number, scopes)
        await self._go(number, redoable)
        return await _carry_out(redoable, "done again")

    async def undo(self, scopes: Collection[RewindScope] = ("conversation", "files")) -> Rewound:
        """Undo in `scopes` the last message of the user and all that followed it."""
        self._check()
        return await self.rewind(await self.number_back(), scopes)

    async def redo(
        self, scopes: Collection[RewindScope] = ("conversation", "files", "memory")
    ) -> Sequence[str]:
        """Undo the last rewind if no message was sent since; or only redo what was undone in files
        and memory.

        Returns lines for the user.
        """
        self._check()
        end = self._redo_end()
        redoable = await self._redoable(end, scopes)
        returns = end is not None and "conversation" in scopes
        if not (returns or redoable):
            raise UsageError("There is nothing to redo.", commands=["rewind"])
        if end is not None and returns:
            await self._go(end, redoable)
        return await _carry_out(redoable, "done again")

    def _redo_end(self) -> int | None:
        """The last message before the last rewind; None if a message was sent since."""
        undone = self.memory.transcript.undone
        return undone[-1] if undone else None

    async def _redoable(
        self, end: int | None, scopes: Collection[RewindScope]
    ) -> dict[RewindScope, Undoable]:
        """What was undone of the turns on the current branch, and of the turns that a visit of
        `end` restores.

        This does not depend on the messages: the user may want the files without them.
        """
        transcript = self.memory.transcript
        restored = () if end is None else transcript.entries_to(end)
        numbers = {entry.number for entry in (*transcript.entries, *restored)}
        return await self._find(scopes, lambda undoer: undoer.find_undone(numbers))

    async def _undoable(
        self, scopes: Collection[RewindScope], number: int
    ) -> dict[RewindScope, Undoable]:
        return await self._find(scopes, lambda undoer: undoer.find(number))

    async def fork(self, number: int | None = None, title: str = "") -> str:
        """Copy the session, or the part before message `number`; returns the id of the copy, empty
        if it is empty.
        """
        transcript = self.memory.transcript
        if not transcript.last_number:
            raise UsageError("There is nothing to fork: the session has no messages.")
        end = transcript.last_number if number is None else await self._before(self._entry(number))
        return await self.memory.fork(end, title) if end else ""

    def _entry(self, number: int) -> MessageRecord:
        entry = next(
            (entry for entry in self.memory.transcript.entries if entry.number == number), None
        )
        if entry is None or not _is_typed(entry):
            raise UsageError(
                f"You cannot rewind to message {number}: it is not one of your messages.",
                commands=["rewind"],
            )
        return entry

    async def _before(self, entry: MessageRecord) -> int:
        if (
            self.memory.pager.has_earlier
            and self.memory.transcript.number_before(entry.number) == 0
        ):
            await self.memory.pager.load_earlier(1)
        return self.memory.transcript.number_before(entry.number)

    async def _go(self, number: int, undoable: Mapping[RewindScope, Undoable]) -> None:
        await self.memory.record(
            RewindRecord(number, self.memory.now(), ("conversation", *undoable))
        )
        self.on_change()

    async def _find(
        self, scopes: Collection[RewindScope], find: Callable[[Undoer], Awaitable[Undoable | None]]
    ) -> dict[RewindScope, Undoable]:
        found: dict[RewindScope, Undoable] = {}
        await self.settled()
        for scope, undoer in self.undoers.items():
            try:
                if scope in scopes and (undoable := await find(undoer)) is not None:
                    found[scope] = undoable
            except OuroError as error:
                log.warning("what could be undone in %s: %s", scope, error)
        return found

    def _check(self) -> None:
        if self.is_running():
            raise UsageError(
                "The agent is at work.", "Interrupt it, or wait until it is done, then rewind."
            )
        if self.memory.read_only:
            raise UsageError("This session is open read-only.", "/fork continues in a copy.")


async def _carry_out(undoable: Mapping[RewindScope, Undoable], what: str) -> list[str]:
    notices: list[str] = []
    for scope, found in undoable.items():
        try:
            notices += await found.undo()
        except OuroError as error:  # at this point the messages are rewound already
            notices.append(f"Not {what} in {scope}: {error}")
    return notices


def _is_typed(entry: MessageRecord) -> bool:
    return is_own_words(entry.message) and not entry.message.text.startswith(SHELL_NOTE)
