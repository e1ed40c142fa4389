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
"""How a message begins that tells the model of the person's own shell line: nothing that was typed as a message."""


class Point(msgspec.Struct, frozen=True):
    """A message of the person that the conversation can go back to."""

    number: int
    at: str
    text: str
    messages: int
    """That would go: this one, and all that came after it."""
    calls: int
    """Tool calls among them."""
    images: tuple[Image, ...] = ()


class Branch(msgspec.Struct, frozen=True):
    """What was left by going back. It is kept, and the conversation can go on there again."""

    number: int
    """Of its last message."""
    since: int
    """The message behind which it parts from what is on the screen; 0: the start."""
    at: str
    """When its last message was said."""
    texts: tuple[str, ...]
    """What the person said in it."""
    messages: int
    calls: int


class Rewound(msgspec.Struct, frozen=True):
    """What a way back gives: the message to edit and say again, and what there is to tell."""

    text: str = ""
    images: tuple[Image, ...] = ()
    told: tuple[str, ...] = ()


class Undoable(Protocol):
    """What was done outside the transcript and can be undone with it."""

    @property
    def what(self) -> str:
        """In a few words: `2 changes`."""
        ...

    @property
    def undo(self) -> Callable[[], Awaitable[Sequence[str]]]:
        """Undoes it; returns messages for the user, one a line."""
        ...


class Undoer(Protocol):
    """Finds what was done outside the conversation, in one scope: files, long-term memory."""

    async def find(self, number: int) -> Undoable | None:
        """What was done since message `number`, on the line that goes on now; None where that is nothing."""
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
            SessionNotFound: nothing was said in it yet.
        """
        return await self._memory.whole()

    def points(self) -> tuple[Point, ...]:
        """The person's messages on this line, as far as they are loaded; oldest first."""
        found: list[Point] = []
        calls = 0
        for messages, entry in enumerate(reversed(self._memory.transcript.entries), 1):
            calls += len(entry.message.tool_calls)
            if _is_said_by_person(entry):
                found.append(_point(entry, messages, calls))
        return tuple(reversed(found))

    def branches(self) -> tuple[Branch, ...]:
        """What was left by going back, in the order in which it parts from this line."""
        return tuple(_branch(each) for each in self._memory.transcript.branches)

    @property
    def lacks_branches(self) -> bool:
        """Whether there may be more branches than these: those that part from what was not loaded at first."""
        return self._memory.transcript.lacks_branches

    @property
    def has_earlier(self) -> bool:
        """Whether there are older messages that are not loaded."""
        return self._memory.pager.has_earlier

    async def earlier(self, count: int = 200) -> None:
        """Load older messages."""
        await self._memory.pager.earlier(count)

    async def can_rewind(self, number: int) -> Mapping[RewindScope, str]:
        """What can be taken back with the conversation, from message `number` on; each with what it would be."""
        return {scope: found.what for scope, found in (await self._undoable(number, self._undoers)).items()}

    async def rewind(self, number: int, scopes: Collection[RewindScope] = ()) -> Rewound:
        """Go on before the person's message `number`; gives it, to be edited.

        Args:
            number: of a message in `points`.
            scopes: what is to be taken back beside the conversation.

        Raises:
            UsageError: a turn is under way, the session is read-only, or there is no such message.
            SaveFailed: it is not on disk; the conversation is as it was.
        """
        self._refuse_where_it_cannot_be()
        entry = self._entry(number)
        undoable = await self._undoable(number, scopes)
        await self._go(await self._before(entry), ("conversation", *undoable))
        told: list[str] = []
        for scope, found in undoable.items():
            told.extend(await _taken_back(scope, found))
        return Rewound(entry.message.text, entry.message.parts_of(Image), tuple(told))

    async def visit(self, number: int) -> None:
        """Go on where a branch was left.

        Raises:
            UsageError: a turn is under way, the session is read-only, or there is no such branch.
            SaveFailed: it is not on disk; the conversation is as it was.
        """
        self._refuse_where_it_cannot_be()
        if number not in {each.number for each in self.branches()}:
            raise UsageError(f"There is no branch that ends with message {number}.", commands=["rewind"])
        await self._go(number)

    async def undo(self) -> Rewound:
        """Take back the person's last message, and all that came of it.

        Raises:
            UsageError: a turn is under way, the session is read-only, or nothing was said yet.
            SaveFailed: as for `rewind`.
        """
        self._refuse_where_it_cannot_be()
        while not (points := self.points()) and self.has_earlier:
            await self.earlier()
        if not points:
            raise UsageError("There is nothing to undo: nothing was said yet.")
        return await self.rewind(points[-1].number)

    async def redo(self) -> None:
        """Go back to where the conversation was before the last way back; as often as there were ways back.

        Raises:
            UsageError: a turn is under way, the session is read-only, or something was said since.
            SaveFailed: as for `rewind`.
        """
        self._refuse_where_it_cannot_be()
        undone = self._memory.transcript.undone
        if not undone:
            raise UsageError("There is nothing to redo.", commands=["rewind"])
        await self._go(undone[-1])

    async def fork(self, number: int | None = None, title: str = "") -> str:
        """Copy the session, up to before the person's message `number` where that is given; gives the copy's id.

        Before the first message there is nothing to copy: the id is empty then, as that of a new session is.

        Raises:
            UsageError: nothing was said yet, or there is no such message.
            SaveFailed: there is no copy.
        """
        transcript = self._memory.transcript
        if not transcript.last_number:
            raise UsageError("Nothing was said yet: there is nothing to fork.")
        end = transcript.last_number if number is None else await self._before(self._entry(number))
        return await self._memory.fork(end, title) if end else ""

    def _entry(self, number: int) -> TranscriptEntry:
        entry = next((each for each in self._memory.transcript.entries if each.number == number), None)
        if entry is None or not _is_said_by_person(entry):
            raise UsageError(f"There is no message {number} of yours to go back to.", commands=["rewind"])
        return entry

    async def _before(self, entry: TranscriptEntry) -> int:
        """The number of what stands before a message on the line; 0: it is the first."""
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
                log.warning("what could be taken back of %s: %s", scope, error)
        return found

    def _refuse_where_it_cannot_be(self) -> None:
        if self._is_running():
            raise UsageError("The agent is at work: interrupt it, or wait until it is done, before you go back.")
        if self._memory.read_only:
            raise UsageError("This session is open read-only: it stays as it is.", "/fork goes on in a copy.")


async def _taken_back(scope: RewindScope, found: Undoable) -> Sequence[str]:
    """The conversation has gone back by now: what cannot be taken back beside it is told."""
    try:
        return await found.undo()
    except OuroError as error:
        return (f"Not taken back in {scope}: {error}",)


def _is_said_by_person(entry: TranscriptEntry) -> bool:
    message = entry.message
    is_said = bool(message.text.strip() or message.parts_of(Image))
    return message.role == "user" and is_said and not message.text.startswith(SHELL_NOTE)


def _point(entry: TranscriptEntry, messages: int, calls: int) -> Point:
    return Point(entry.number, entry.at, entry.message.text, messages, calls, entry.message.parts_of(Image))


def _branch(left: Left) -> Branch:
    entries = left.entries
    texts = tuple(each.message.text for each in entries if _is_said_by_person(each))
    calls = sum(len(each.message.tool_calls) for each in entries)
    return Branch(entries[-1].number, left.since, entries[-1].at, texts, len(entries), calls)
