"""Rewind: go back in a session, to its branches, and into copies of it. Nothing is lost by it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from ouro.errors import OuroError, UsageError
from ouro.memory.backend import RewindRecord, RewindScope, Undoable
from ouro.memory.manager import MemoryManager
from ouro.messages import SHELL_NOTE, Image
from ouro.session.file_undo import FileUndo
from ouro.utils.log import log
from ouro.utils.text import plural

if TYPE_CHECKING:
    from ouro.memory.backend import MessageRecord

_FILES: tuple[RewindScope, ...] = ("files",)


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


class Undoer(Protocol):
    """Finds what can be undone, and done again, in one scope: files, long-term memory."""

    async def find(self, number: int) -> Undoable | None:
        """What turns did since a message of the current branch."""

    async def find_undone(self, numbers: Collection[int]) -> Undoable | None:
        """What was undone of the turns that began with these messages."""


class Rewind(msgspec.Struct, frozen=True, eq=False):
    """The earlier messages and the branches of a session, and the ways back to them.

    Every change raises UsageError where a turn runs or the session is read-only, and SaveFailed where it cannot be
    written; the transcript is as it was then.
    """

    memory: MemoryManager
    is_running: Callable[[], bool]
    """Whether a turn runs."""
    on_change: Callable[[], None]
    """Is called when the transcript is another one."""
    undoers: Mapping[RewindScope, Undoer]
    """Undo what turns did outside the transcript."""
    settled: Callable[[], Awaitable[None]]
    """Waits until all that the last turn did can be undone."""

    def points(self) -> tuple[Point, ...]:
        """The messages of the user on this branch, as far as they are loaded; oldest first."""
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
        """Whether there may be more branches: those that begin at messages that were not loaded at first."""
        return self.memory.transcript.lacks_branches

    @property
    def has_earlier(self) -> bool:
        return self.memory.pager.has_earlier

    async def earlier(self, count: int = 200) -> None:
        await self.memory.pager.earlier(count)

    async def can_rewind(self, number: int) -> Mapping[RewindScope, str]:
        """What can be undone together with the messages from `number` on, by scope, in a few words."""
        return {scope: found.what for scope, found in (await self._undoable(self.undoers, number)).items()}

    async def can_redo(self, end: int | None = None) -> Mapping[RewindScope, str]:
        """What can be done again, by scope, in a few words.

        Args:
            end: the last message of a branch to visit; None: the last rewind is undone.
        """
        end = self._redo_end() if end is None else end
        offered: dict[RewindScope, str] = {}
        if end is not None:
            ahead, behind = self.memory.transcript.ahead(end), self.memory.transcript.last_number
            offered["conversation"] = plural(len(ahead), "message") if ahead else f"back from message {behind}"
        return offered | {scope: found.what for scope, found in (await self._redoable(end, self.undoers)).items()}

    async def rewind(self, number: int, scopes: Collection[RewindScope] = (), *, conversation: bool = True) -> Rewound:
        """Go back to before the user's message `number`; return it, to be edited.

        Args:
            number: of a message in `points`; raises UsageError for another one.
            scopes: what to undo together with the messages.
            conversation: whether the messages are undone; if not, no message is returned.
        """
        self._check()
        entry = self._entry(number)
        undoable = await self._undoable(scopes, number)
        if conversation:
            await self._go(await self._before(entry), undoable)
        elif not undoable:
            raise UsageError("Nothing was changed there.")
        notices = await _carry_out(undoable, "undone")
        if not conversation:
            return Rewound(notices=tuple(notices))
        return Rewound(entry.message.text, entry.message.parts_of(Image), tuple(notices))

    async def diff(self, back: int) -> str:
        """What changed in files since before the user's message `back` messages ago, with the ids of the hunks."""
        return await self._files().diff(await self.number_back(back))

    async def undo_file(self, path: str, hunk: str, back: int) -> Sequence[str]:
        """Undo what the turns since then did to one file, or one hunk of `diff`; returns what to tell the user."""
        self._check()
        return await self._files().undo_part(await self.number_back(back), path, hunk)

    def _files(self) -> FileUndo:
        files = self.undoers.get("files")
        if not isinstance(files, FileUndo):
            raise UsageError("There are no checkpoints of files here.", "Set `checkpoints.enabled: true`.")
        return files

    async def number_back(self, back: int = 1) -> int:
        """The number of the user's message that many messages ago. Raises UsageError: there are fewer."""
        while len(points := self.points()) < back and self.has_earlier:
            await self.earlier()
        if not points:
            raise UsageError("There is nothing to undo: the session has no messages.")
        if not 1 <= back <= len(points):
            raise UsageError(f"Give a number of messages from 1 to {len(points)}.", commands=["rewind"])
        return points[-back].number

    async def visit(self, number: int, scopes: Collection[RewindScope] = ()) -> Sequence[str]:
        """Continue at the end of a branch, and do again in `scopes` what was undone of it; returns what to tell."""
        self._check()
        if number not in {branch.number for branch in self.branches()}:
            raise UsageError(f"There is no branch that ends with message {number}.", commands=["rewind"])
        redoable = await self._redoable(number, scopes)
        await self._go(number, redoable)
        return await _carry_out(redoable, "done again")

    async def undo(self, scopes: Collection[RewindScope] = _FILES, *, conversation: bool = True) -> Rewound:
        """Undo the last message of the user, all that followed it, and what it did in `scopes`."""
        self._check()
        return await self.rewind(await self.number_back(), scopes, conversation=conversation)

    async def redo(self, scopes: Collection[RewindScope] = ("conversation", "files", "memory")) -> Sequence[str]:
        """Undo the last rewind, where no message was sent since; or only what was undone in files and memory.

        Returns:
            What to tell the user.
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
        """Where the session was before the last rewind; None if a message was sent since."""
        undone = self.memory.transcript.undone
        return undone[-1] if undone else None

    async def _redoable(self, end: int | None, scopes: Collection[RewindScope]) -> dict[RewindScope, Undoable]:
        """What was undone of the turns on the current branch, and of those that going to `end` brings back.

        Whether the messages come back with it is another question: files can be wanted without them.
        """
        transcript = self.memory.transcript
        ahead = () if end is None else transcript.ahead(end)
        numbers = {entry.number for entry in (*transcript.entries, *ahead)}
        return await self._found(scopes, lambda undoer: undoer.find_undone(numbers))

    async def _undoable(self, scopes: Collection[RewindScope], number: int) -> dict[RewindScope, Undoable]:
        return await self._found(scopes, lambda undoer: undoer.find(number))

    async def fork(self, number: int | None = None, title: str = "") -> str:
        """Copy the session, or the part before message `number`; return the id of the copy, empty if that is empty."""
        transcript = self.memory.transcript
        if not transcript.last_number:
            raise UsageError("There is nothing to fork: the session has no messages.")
        end = transcript.last_number if number is None else await self._before(self._entry(number))
        return await self.memory.fork(end, title) if end else ""

    def _entry(self, number: int) -> MessageRecord:
        entry = next((entry for entry in self.memory.transcript.entries if entry.number == number), None)
        if entry is None or not _is_typed(entry):
            raise UsageError(f"There is no message {number} of yours to rewind to.", commands=["rewind"])
        return entry

    async def _before(self, entry: MessageRecord) -> int:
        """The number of the message before it on the branch; 0: it is the first."""
        if self.memory.pager.has_earlier and self.memory.transcript.before(entry.number) == 0:
            await self.memory.pager.earlier(1)
        return self.memory.transcript.before(entry.number)

    async def _go(self, number: int, undoable: Mapping[RewindScope, Undoable]) -> None:
        await self.memory.record(RewindRecord(number, self.memory.now(), ("conversation", *undoable)))
        self.on_change()

    async def _found(
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
            raise UsageError("The agent is at work.", "Interrupt it, or wait until it is done, then rewind.")
        if self.memory.read_only:
            raise UsageError("This session is open read-only.", "/fork continues in a copy.")


async def _carry_out(undoable: Mapping[RewindScope, Undoable], what: str) -> list[str]:
    """Undo, or do again, in each scope; returns what to tell the user."""
    notices: list[str] = []
    for scope, found in undoable.items():
        try:
            notices += await found.undo()
        except OuroError as error:  # the messages are where they are to be by now
            notices.append(f"Not {what} in {scope}: {error}")
    return notices


def _is_typed(entry: MessageRecord) -> bool:
    message = entry.message
    has_content = bool(message.text.strip() or message.parts_of(Image))
    return message.role == "user" and has_content and not message.text.startswith(SHELL_NOTE)
