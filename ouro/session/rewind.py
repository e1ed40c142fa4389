"""Rewind: go back in a session, go to its branches, and copy it; undo what turns did to files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec

from ouro.errors import OuroError, UsageError
from ouro.memory.backend import MessageRecord, RewindRecord, RewindScope, Undoable
from ouro.memory.compaction import is_own_words
from ouro.memory.manager import MemoryManager
from ouro.messages import SHELL_NOTE, Image, Message
from ouro.session.file_undo import FileUndo
from ouro.utils.log import log
from ouro.utils.text import plural

if TYPE_CHECKING:
    from ouro.utils.git_diff import DiffedFile

_Action: TypeAlias = Literal["undone", "done again"]
_CONVERSATION: tuple[RewindScope, ...] = ("conversation",)


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
    is_steered: bool = False
    """It arrived during a turn; the turn began with an earlier message."""


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

    async def find_undoable(self, number: int) -> Undoable | None:
        """What can be undone of the turns from message `number` of the current branch on; None if
        they changed nothing in this scope.
        """

    async def find_redoable(self, numbers: Collection[int]) -> Undoable | None:
        """What can be redone of the turns that began with these messages; None if nothing was
        undone.
        """


class UndoObserver(Protocol):
    """Gets what the user undid and redid in files."""

    def on_files_undone(self, messages: Sequence[Message], turn: int, reason: str) -> None:
        """Called after the user undid what these messages did to files.

        Args:
            turn: the number of the last turn to which one of the messages belongs.
            reason: why, in the words of the user; it may be empty.
        """

    def on_files_redone(self) -> None:
        """Called after the user redid changes of files."""


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
    wait_for_changes: Callable[[], Awaitable[None]]
    """Waits until everything that the last turn did can be undone."""
    observer: UndoObserver | None = None

    def points(self) -> tuple[Point, ...]:
        """The loaded messages of the user on this branch, oldest first."""
        points: list[Point] = []
        call_count = 0
        # From the newest message on: each point has the counts of what a rewind to it would undo.
        for message_count, entry in enumerate(reversed(self.memory.transcript.entries), 1):
            call_count += len(entry.message.tool_calls)
            if _is_typed(entry):
                points.append(
                    Point(
                        number=entry.number,
                        at=entry.at,
                        text=entry.message.text,
                        messages=message_count,
                        calls=call_count,
                        images=entry.message.parts_of(Image),
                        is_steered=entry.steered,
                    )
                )
        return tuple(reversed(points))

    @property
    def scopes(self) -> tuple[RewindScope, ...]:
        """The scopes that can be undone together with messages."""
        return tuple(self.undoers)

    async def last_turn(self) -> Point:
        """The message that began the last turn, not one that steered it. If the user has only
        steered turns that ouro began itself, the first of these messages.

        Raises UsageError if the session has no messages of the user.
        """
        await self.find_number_back()  # raises if there is no message
        while True:
            points = self.points()
            turn_starts = [point for point in points if not point.is_steered]
            if turn_starts:
                return turn_starts[-1]
            if not self.has_earlier:
                return points[0]
            await self.load_earlier()

    async def last_change(self, scopes: Collection[RewindScope]) -> tuple[Point, str] | None:
        """The message that began the last turn with changes in `scopes`, and in a few words what
        was changed from there on. None if no loaded turn has changed anything.
        """
        points = self.points()
        turn_starts = [point for point in points if not point.is_steered]
        # The user may have only steered turns that ouro began itself: take the first message.
        turn_starts = turn_starts or list(points[:1])
        last_change = None
        # Binary search for the last turn from which on something can be undone: what is undone from
        # an earlier message on includes that of a later one.
        low, high = 0, len(turn_starts)
        while low < high:
            middle = (low + high) // 2
            undoable, _ = await self._find_undoable(scopes, turn_starts[middle].number)
            if undoable:
                what = ", ".join(change.what for change in undoable.values())
                last_change = (turn_starts[middle], what)
                low = middle + 1
            else:
                high = middle
        return last_change

    def branches(self) -> tuple[Branch, ...]:
        """The branches that rewinds have left, in the order of their beginning."""
        branches: list[Branch] = []
        for branch in self.memory.transcript.branches:
            last_entry = branch.entries[-1]
            texts = tuple(entry.message.text for entry in branch.entries if _is_typed(entry))
            calls = sum(len(entry.message.tool_calls) for entry in branch.entries)
            size = len(branch.entries)
            branches.append(
                Branch(
                    last_entry.number,
                    branch.since,
                    last_entry.at,
                    texts,
                    messages=size,
                    calls=calls,
                )
            )
        return tuple(branches)

    @property
    def lacks_branches(self) -> bool:
        """Whether `branches` may be incomplete: those that begin at messages which are not loaded
        are missing.
        """
        return self.memory.transcript.lacks_branches

    @property
    def has_earlier(self) -> bool:
        return self.memory.pager.has_earlier

    @property
    def has_anything(self) -> bool:
        """Whether there is a message or a branch to go to."""
        return bool(self.has_earlier or self.points() or self.branches())

    async def load_earlier(self, count: int = 200) -> None:
        await self.memory.pager.load_earlier(count)

    async def describe_undoable(self, number: int) -> Mapping[RewindScope, str]:
        """What can be undone together with the messages from `number` on: a few words for each
        scope that has something.
        """
        undoable_of, _ = await self._find_undoable(self.undoers, number)
        return {scope: undoable.what for scope, undoable in undoable_of.items()}

    async def describe_redoable(self, end: int | None = None) -> Mapping[RewindScope, str]:
        """What can be redone: a few words for each scope that has something.

        Args:
            end: the last message of the branch to visit; None for the branch that the last rewind
                has left.
        """
        if end is None:
            end = self._redo_end()
        texts: dict[RewindScope, str] = {}
        if end is not None:
            restored = self.memory.transcript.entries_to(end)
            if restored:
                texts["conversation"] = plural(len(restored), "message")
            else:  # the last rewind went on to a later message: its redo removes messages again
                texts["conversation"] = f"back from message {self.memory.transcript.last_number}"
        redoable_of, _ = await self._find_redoable(end, self.undoers)
        for scope, redoable in redoable_of.items():
            texts[scope] = redoable.what
        return texts

    async def rewind(
        self, number: int, scopes: Collection[RewindScope] = _CONVERSATION, reason: str = ""
    ) -> Rewound:
        """Undo in `scopes` what was done since the user's message `number`, which is one of `points`.

        With the scope `conversation`, the session continues before that message, and the result
        has its text and images, for editing. Without it only files or memory change.

        Args:
            reason: why, in the words of the user; it may be empty.

        Raises:
            UsageError: the message is not one of `points`, or there is nothing to undo.
        """
        self._require_idle()
        entry = self._find_user_message(number)
        undoable, failures = await self._find_undoable(scopes, number)
        # Looked up before `_continue_at` removes the messages from the branch.
        undone_messages, turn = self._messages_since(number), self.memory.transcript.turns
        if "conversation" in scopes:
            await self._continue_at(await self._number_before(entry), undoable)
        elif not undoable:
            raise UsageError(" ".join(failures) or "Nothing was changed there.")
        notices = [*failures, *await _carry_out_each(undoable, "undone")]
        if "files" in undoable and self.observer:
            self.observer.on_files_undone(undone_messages, turn, reason)
        if "conversation" not in scopes:
            return Rewound(notices=tuple(notices))
        return Rewound(entry.message.text, entry.message.parts_of(Image), tuple(notices))

    async def diff(self, back: int) -> str:
        """The changes of files since before one of the user's messages (`back` as in
        `find_number_back`), with the ids of the hunks; empty if there are none.
        """
        return await self.files().diff(await self.find_number_back(back))

    def _messages_since(self, number: int) -> list[Message]:
        """The messages of this branch from `number` on."""
        entries = self.memory.transcript.entries
        return [entry.message for entry in entries if entry.number >= number]

    async def undo_file(self, path: str, hunk: str, back: int, reason: str = "") -> Sequence[str]:
        """Undo what the turns did to one file since one of the user's messages; returns lines for
        the user. A file that an undo left for the user to decide is restored instead.

        Args:
            hunk: undo only the hunk with this id in `diff`; empty: all of the file.
            back: the message, as in `find_number_back`.
        """
        self._require_idle()
        files = self.files()
        await files.recover()
        if path in files.unsure and not hunk:
            return await files.restore_unsure(path)
        number = await self.find_number_back(back)
        lines = await files.undo_in_file(number, path, hunk)
        if self.observer:
            undone_messages = self._messages_since(number)
            self.observer.on_files_undone(undone_messages, self.memory.transcript.turns, reason)
        return lines

    async def undo_from_diff(self, file: DiffedFile, hunk: str = "") -> Sequence[str]:
        """Undo one hunk of a file, or all that the diff shows of it if `hunk` is empty; returns
        lines for the user. Raises UsageError if it cannot be undone.
        """
        self._require_idle()
        return await self.files().undo_from_diff(file, hunk)

    async def redo_from_diff(self) -> Sequence[str]:
        """Undo the last `undo_from_diff`; returns lines for the user. Raises UsageError if there is
        none.
        """
        self._require_idle()
        return await self.files().redo_from_diff()

    def unsure_files(self) -> Sequence[str]:
        """Files that the last undo left as they are, because others may have changed them."""
        files = self.undoers.get("files")
        return tuple(files.unsure) if isinstance(files, FileUndo) else ()

    async def restore_unsure(self) -> Sequence[str]:
        """Restore the files of `unsure_files`; returns lines for the user."""
        self._require_idle()
        return await self.files().restore_unsure()

    async def keep_unsure(self) -> None:
        """Leave the files of `unsure_files` as they are."""
        await self.files().keep_unsure()

    def files(self) -> FileUndo:
        """The undo of files. Raises UsageError if checkpoints are off."""
        files = self.undoers.get("files")
        if not isinstance(files, FileUndo):
            raise UsageError(
                "There are no checkpoints of files here.", "Set `checkpoints.enabled: true`."
            )
        return files

    async def find_number_back(self, back: int = 1) -> int:
        """The number of one of the user's messages, counted from the end: `back` is 1 for the last
        one. Earlier messages are loaded if needed. Raises UsageError if there are fewer.
        """
        while len(points := self.points()) < back and self.has_earlier:
            await self.load_earlier()
        if not points:
            raise UsageError("There is nothing to undo: the session has no messages.")
        if not 1 <= back <= len(points):
            count = f"1 to {len(points)}" if len(points) > 1 else "1: there is only one message"
            raise UsageError(f"The number of messages back is {count}.", commands=["rewind"])
        return points[-back].number

    async def visit(self, number: int, scopes: Collection[RewindScope] = ()) -> Sequence[str]:
        """Continue at the end of the branch whose last message is `number`, and redo in `scopes`
        what was undone of it. Returns lines for the user. Raises UsageError if there is no such
        branch.
        """
        self._require_idle()
        if number not in {branch.number for branch in self.branches()}:
            raise UsageError(
                f"There is no branch that ends with message {number}.", commands=["rewind"]
            )
        redoable, failures = await self._find_redoable(number, scopes)
        await self._continue_at(number, redoable)
        return [*failures, *await _carry_out_each(redoable, "done again")]

    async def undo(
        self, scopes: Collection[RewindScope] = ("conversation", "files"), reason: str = ""
    ) -> Rewound:
        """Undo in `scopes` the last turn, with the messages that steered it. By default memory stays:
        what was learned may hold all the same.
        """
        self._require_idle()
        return await self.rewind((await self.last_turn()).number, scopes, reason)

    async def redo(
        self, scopes: Collection[RewindScope] = ("conversation", "files", "memory")
    ) -> Sequence[str]:
        """Undo the last rewind, and redo in `scopes` what was undone, by default all of it. If a
        message was sent since, the messages stay, and only files and memory are redone. Returns
        lines for the user. Raises UsageError if there is nothing to redo.
        """
        self._require_idle()
        end = self._redo_end()
        redoable, failures = await self._find_redoable(end, scopes)
        redoes_messages = end is not None and "conversation" in scopes
        if not redoes_messages and not redoable:
            reason = " ".join(failures) or "There is nothing to redo."
            raise UsageError(reason, commands=["rewind"])
        if end is not None and redoes_messages:
            await self._continue_at(end, redoable)
        lines = [*failures, *await _carry_out_each(redoable, "done again")]
        if "files" in redoable and self.observer:
            self.observer.on_files_redone()
        return lines

    def _redo_end(self) -> int | None:
        """The message at which the session was before the last rewind, where a redo continues. None
        if there was no rewind, or a message was sent since.
        """
        undone = self.memory.transcript.undone
        return undone[-1] if undone else None

    async def _find_redoable(
        self, end: int | None, scopes: Collection[RewindScope]
    ) -> tuple[dict[RewindScope, Undoable], list[str]]:
        """What can be redone in each of the scopes: of the turns on the current branch, and of
        those that a visit of message `end` restores (None: only of the current branch). And lines
        for the user about the scopes that failed.

        The turns of the current branch count, because the user may have undone files without
        messages.
        """
        transcript = self.memory.transcript
        restored = () if end is None else transcript.entries_to(end)
        numbers = {entry.number for entry in (*transcript.entries, *restored)}
        return await self._find_changes(
            scopes, lambda undoer: undoer.find_redoable(numbers), "done again"
        )

    async def _find_undoable(
        self, scopes: Collection[RewindScope], number: int
    ) -> tuple[dict[RewindScope, Undoable], list[str]]:
        """What can be undone in each of the scopes, of the turns from message `number` on. And
        lines for the user about the scopes that failed.
        """
        return await self._find_changes(
            scopes, lambda undoer: undoer.find_undoable(number), "undone"
        )

    async def fork(self, number: int | None = None, title: str = "") -> str:
        """Copy the session, or its part before the user's message `number`. Returns the id of the
        copy; empty, and nothing is copied, if there is no message before it. Raises UsageError if
        the session has no messages.
        """
        transcript = self.memory.transcript
        if not transcript.last_number:
            raise UsageError("There is nothing to fork: the session has no messages.")
        end = transcript.last_number
        if number is not None:
            end = await self._number_before(self._find_user_message(number))
        return await self.memory.fork(end, title) if end else ""

    def _find_user_message(self, number: int) -> MessageRecord:
        """The message of the user with this number. Raises UsageError if there is none, or the user
        did not type it.
        """
        for entry in self.memory.transcript.entries:
            if entry.number == number and _is_typed(entry):
                return entry
        raise UsageError(
            f"You cannot rewind to message {number}: it is not one of your messages.",
            commands=["rewind"],
        )

    async def _number_before(self, entry: MessageRecord) -> int:
        """The number of the message before `entry`; 0 if `entry` is the first of the session. If it
        is only the first that is loaded, an earlier one is loaded.
        """
        transcript = self.memory.transcript
        if transcript.number_before(entry.number) == 0 and self.memory.pager.has_earlier:
            await self.memory.pager.load_earlier(1)
        return self.memory.transcript.number_before(entry.number)

    async def _continue_at(self, number: int, undoable: Mapping[RewindScope, Undoable]) -> None:
        """Continue the session after message `number`: write the record of the rewind.

        The changes in `undoable`, which the caller carries out afterwards, are prepared first. So
        the next start can finish them if ouro is killed. If the record cannot be written, the
        preparation is cancelled.
        """
        scopes: tuple[RewindScope, ...] = ("conversation", *undoable)
        for scope_undo in undoable.values():
            if scope_undo.prepare is not None:
                await scope_undo.prepare()
        try:
            await self.memory.record(RewindRecord(number, self.memory.now(), scopes))
        except BaseException:
            for scope_undo in undoable.values():
                if scope_undo.cancel is not None:
                    scope_undo.cancel()
            raise
        self.on_change()

    async def _find_changes(
        self,
        scopes: Collection[RewindScope],
        find: Callable[[Undoer], Awaitable[Undoable | None]],
        what: _Action,
    ) -> tuple[dict[RewindScope, Undoable], list[str]]:
        """What `find` returns for each of these scopes, without those that have no changes; and
        lines for the user about those that failed. Waits until the changes of the last turn are
        stored.
        """
        undoable_of: dict[RewindScope, Undoable] = {}
        failures: list[str] = []
        await self.wait_for_changes()
        for scope, undoer in self.undoers.items():
            if scope not in scopes:
                continue
            try:
                undoable = await find(undoer)
            except OuroError as error:
                log.warning("what could be %s in %s: %s", what, scope, error)
                failures.append(_failure(scope, what, error))
                continue
            if undoable is not None:
                undoable_of[scope] = undoable
        return undoable_of, failures

    def _require_idle(self) -> None:
        """Raise UsageError if a turn runs or the session is read-only."""
        if self.is_running():
            raise UsageError(
                "The agent is at work.", "Interrupt it, or wait until it is done, then rewind."
            )
        if self.memory.read_only:
            raise UsageError("This session is open read-only.", "/fork continues in a copy.")


async def _carry_out_each(undoable: Mapping[RewindScope, Undoable], what: _Action) -> list[str]:
    """Carry out the undo or redo of each scope; returns lines for the user, also about what failed.

    Args:
        undoable: how each scope is undone. A redo is the undo of an earlier rewind.
        what: the word for it in the line about a failure.
    """
    notices: list[str] = []
    for scope, scope_undo in undoable.items():
        try:
            notices += await scope_undo.undo()
        except OuroError as error:  # not raised: the messages are rewound already
            notices.append(_failure(scope, what, error))
    return notices


def _failure(scope: RewindScope, what: _Action, error: OuroError) -> str:
    """A line for the user about a scope in which nothing was undone or redone."""
    return f"Not {what} in {scope}: {error}"


def _is_typed(entry: MessageRecord) -> bool:
    """Whether the user wrote the message to the agent, and not a shell line."""
    return is_own_words(entry.message) and not entry.message.text.startswith(SHELL_NOTE)
