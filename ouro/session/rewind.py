"""Rewind: go back in a session, to its branches, and into copies of it. Nothing is lost by it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from ouro.errors import OuroError, UsageError
from ouro.memory.backend import RewindRecord, RewindScope
from ouro.memory.manager import MemoryManager
from ouro.messages import Image
from ouro.utils.log import log

if TYPE_CHECKING:
    from ouro.memory.sessions.session_reader import WholeSession
    from ouro.memory.transcript import TranscriptBranch as Left
    from ouro.memory.transcript import TranscriptEntry

SHELL_NOTE = "I ran this in a shell:\n\n$ "
"""The beginning of a message that holds a shell line of the user and its output: not a message that was typed."""


class Point(msgspec.Struct, frozen=True):
    """A message of the user that the session can be rewound to."""

    number: int
    at: str
    text: str
    messages: int
    """How many would be undone: this one and all after it."""
    calls: int
    """Tool calls among them."""
    images: tuple[Image, ...] = ()


class Branch(msgspec.Struct, frozen=True):
    """Messages that a rewind has left. They are kept, and the session can continue there."""

    number: int
    """Of its last message."""
    since: int
    """The message of the current branch after which it begins; 0: the start."""
    at: str
    """The time of its last message."""
    texts: tuple[str, ...]
    """The messages of the user in it."""
    messages: int
    calls: int


class Rewound(msgspec.Struct, frozen=True):
    """The result of a rewind: the message to edit and send again, and what to tell the user."""

    text: str = ""
    images: tuple[Image, ...] = ()
    notices: tuple[str, ...] = ()


class Undoable(Protocol):
    """What turns did outside of the transcript, and can be undone with a rewind."""

    @property
    def what(self) -> str:
        """In a few words: `2 changes`."""
        ...

    @property
    def undo(self) -> Callable[[], Awaitable[Sequence[str]]]:
        """Undoes it; returns what to tell the user, a line each."""
        ...


class Undoer(Protocol):
    """Finds what turns did outside of the transcript, in one scope: files, long-term memory."""

    async def find(self, number: int) -> Undoable | None:
        """What was done since message `number` on the current branch; None if nothing was."""
        ...


class Rewind:
    """The earlier messages and the branches of a session, and the ways back to them.

    Args:
        memory: the session's messages.
        is_running: whether a turn runs.
        on_change: is called when the transcript is another one.
        undoers: undo what turns did outside the transcript, by scope.
        settled: waits until all that the last turn did can be undone.
    """

    def __init__(
        self,
        memory: MemoryManager,
        is_running: Callable[[], bool],
        on_change: Callable[[], None],
        undoers: Mapping[RewindScope, Undoer],
        settled: Callable[[], Awaitable[None]],
    ) -> None:
        self._memory = memory
        self._is_running = is_running
        self._on_change = on_change
        self._undoers = undoers
        self._settled = settled

    async def whole(self) -> WholeSession:
        """All records of the session, with rewound and compacted ones.

        Raises:
            SessionNotFound: it has no messages yet.
        """
        return await self._memory.whole()

    def points(self) -> tuple[Point, ...]:
        """The messages of the user on this branch, as far as they are loaded; oldest first."""
        found: list[Point] = []
        calls = 0
        for messages, entry in enumerate(reversed(self._memory.transcript.entries), 1):
            calls += len(entry.message.tool_calls)
            if _is_typed(entry):
                found.append(_point(entry, messages, calls))
        return tuple(reversed(found))

    def branches(self) -> tuple[Branch, ...]:
        """The branches that rewinds have left, in the order of their beginning."""
        return tuple(map(_branch, self._memory.transcript.branches))

    @property
    def lacks_branches(self) -> bool:
        """Whether there may be more branches: those that begin at messages that were not loaded at first."""
        return self._memory.transcript.lacks_branches

    @property
    def has_earlier(self) -> bool:
        return self._memory.pager.has_earlier

    async def earlier(self, count: int = 200) -> None:
        await self._memory.pager.earlier(count)

    async def can_rewind(self, number: int) -> Mapping[RewindScope, str]:
        """What can be undone together with the messages from `number` on, by scope, in a few words."""
        return {scope: found.what for scope, found in (await self._undoable(number, self._undoers)).items()}

    async def rewind(self, number: int, scopes: Collection[RewindScope] = ()) -> Rewound:
        """Go back to before the user's message `number`; return it, to be edited.

        Args:
            number: of a message in `points`.
            scopes: what to undo together with the messages.

        Raises:
            UsageError: a turn runs, the session is read-only, or there is no such message.
            SaveFailed: it is not on disk; the transcript is as it was.
        """
        self._check()
        entry = self._entry(number)
        undoable = await self._undoable(number, scopes)
        await self._go(await self._before(entry), ("conversation", *undoable))
        notices: list[str] = []
        for scope, found in undoable.items():
            notices.extend(await _undo(scope, found))
        return Rewound(entry.message.text, entry.message.parts_of(Image), tuple(notices))

    async def visit(self, number: int) -> None:
        """Continue at the end of a branch.

        Raises:
            UsageError: a turn runs, the session is read-only, or there is no such branch.
            SaveFailed: it is not on disk; the transcript is as it was.
        """
        self._check()
        if number not in {branch.number for branch in self.branches()}:
            raise UsageError(f"There is no branch that ends with message {number}.", commands=["rewind"])
        await self._go(number)

    async def undo(self) -> Rewound:
        """Undo the last message of the user, and all that followed it.

        Raises:
            UsageError: a turn runs, the session is read-only, or there is no message yet.
            SaveFailed: as for `rewind`.
        """
        self._check()
        while not (points := self.points()) and self.has_earlier:
            await self.earlier()
        if not points:
            raise UsageError("There is nothing to undo: the session has no messages.")
        return await self.rewind(points[-1].number)

    async def redo(self) -> None:
        """Undo the last rewind; as often as there were rewinds.

        Raises:
            UsageError: a turn runs, the session is read-only, or a message was sent since.
            SaveFailed: as for `rewind`.
        """
        self._check()
        undone = self._memory.transcript.undone
        if not undone:
            raise UsageError("There is nothing to redo.", commands=["rewind"])
        await self._go(undone[-1])

    async def fork(self, number: int | None = None, title: str = "") -> str:
        """Copy the session, or the part before the user's message `number`; return the id of the copy.

        The id is empty if there is nothing before that message.

        Raises:
            UsageError: there is no message yet, or no such message.
            SaveFailed: there is no copy.
        """
        transcript = self._memory.transcript
        if not transcript.last_number:
            raise UsageError("There is nothing to fork: the session has no messages.")
        end = transcript.last_number if number is None else await self._before(self._entry(number))
        return await self._memory.fork(end, title) if end else ""

    def _entry(self, number: int) -> TranscriptEntry:
        entry = next((entry for entry in self._memory.transcript.entries if entry.number == number), None)
        if entry is None or not _is_typed(entry):
            raise UsageError(f"There is no message {number} of yours to rewind to.", commands=["rewind"])
        return entry

    async def _before(self, entry: TranscriptEntry) -> int:
        """The number of the message before it on the branch; 0: it is the first."""
        if self._memory.pager.has_earlier and self._memory.transcript.before(entry.number) == 0:
            await self._memory.pager.earlier(1)
        return self._memory.transcript.before(entry.number)

    async def _go(self, number: int, scopes: Sequence[RewindScope] = ("conversation",)) -> None:
        await self._memory.record(RewindRecord(number, self._memory.now(), tuple(scopes)))
        self._on_change()

    async def _undoable(self, number: int, scopes: Collection[RewindScope]) -> dict[RewindScope, Undoable]:
        found: dict[RewindScope, Undoable] = {}
        await self._settled()
        for scope, undoer in self._undoers.items():
            try:
                if scope in scopes and (undoable := await undoer.find(number)) is not None:
                    found[scope] = undoable
            except OuroError as error:
                log.warning("what could be undone in %s: %s", scope, error)
        return found

    def _check(self) -> None:
        if self._is_running():
            raise UsageError("The agent is at work.", "Interrupt it, or wait until it is done, then rewind.")
        if self._memory.read_only:
            raise UsageError("This session is open read-only.", "/fork continues in a copy.")


async def _undo(scope: RewindScope, found: Undoable) -> Sequence[str]:
    """The session is rewound by now: an error is reported, not raised."""
    try:
        return await found.undo()
    except OuroError as error:
        return (f"Not undone in {scope}: {error}",)


def _is_typed(entry: TranscriptEntry) -> bool:
    message = entry.message
    is_said = bool(message.text.strip() or message.parts_of(Image))
    return message.role == "user" and is_said and not message.text.startswith(SHELL_NOTE)


def _point(entry: TranscriptEntry, messages: int, calls: int) -> Point:
    return Point(entry.number, entry.at, entry.message.text, messages, calls, entry.message.parts_of(Image))


def _branch(left: Left) -> Branch:
    entries = left.entries
    texts = tuple(entry.message.text for entry in entries if _is_typed(entry))
    calls = sum(len(entry.message.tool_calls) for entry in entries)
    return Branch(entries[-1].number, left.since, entries[-1].at, texts, len(entries), calls)
