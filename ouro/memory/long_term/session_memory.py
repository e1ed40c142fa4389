"""SessionMemory: long-term memory of one open session. MemoryRewind: what the turns of a rewind
wrote there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence, Set
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from ouro.errors import OuroError, UsageError
from ouro.events import Event, NotesRecalled, Notice, Prompted, ToolStarted
from ouro.memory.backend import Undoable
from ouro.memory.long_term.git.values import MESSAGE, REWIND, SESSION, UNDOES, Commit, TurnRef
from ouro.memory.manager import MemoryManager
from ouro.messages import Message
from ouro.utils.log import log
from ouro.utils.text import clean, local_time, one_line, plural

if TYPE_CHECKING:
    from ouro.memory.index import Lookup
    from ouro.memory.long_term.capture.observer import CaptureObserver
    from ouro.memory.long_term.editor import MemoryEditor
    from ouro.memory.long_term.git.values import Scope
    from ouro.memory.long_term.maintenance.background import MemoryMaintenance
    from ouro.memory.long_term.manager import LongTermMemoryManager
    from ouro.memory.long_term.prompt_block import MemoryReceipt
    from ouro.memory.long_term.recall.dead_ends import DeadEnds
    from ouro.memory.long_term.recall.turn_recall import TurnRecall
    from ouro.memory.long_term.statement_effect import OpenStatement, StatementEffect

_WRITING_TOOLS = {"write", "edit", "notebook_edit", "apply_patch", "shell"}
_LISTING_DELAY = 0.25
"""Seconds after a message until the folders of memory are listed: the request goes first."""
_MAX_COMMITS = 100
"""The number of commits of each scope that `changes_since` reads."""
_MAX_SEARCHED_COMMITS = 500
"""The number of commits of each scope among which a rewind looks."""
_ORIGINS_UNDONE_WITH_TURN = ("agent", "capture", "outside")
"""Origins of what is undone with a turn; `outside` with the session's trailer: a commit of the
agent in a shell.

What the user remembered or undid with a command stays.
"""
_Result = TypeVar("_Result")


class _RunningTurn(NamedTuple):
    """A turn, and the messages by which is judged what it writes."""

    messages: Sequence[Message]
    """The messages so far."""
    is_whole: bool
    """Whether these are all messages of the session."""
    ref: TurnRef


class SessionMemory:
    """Connects a session with its long-term memory, also if memory is off.

    Args:
        memory: of the messages of this session; programs find long-term memory through it.
        manager: None if long-term memory is off.
        lookup: searches sessions and memory; None if memory is off.
        recall: finds notes for each message; None if memory is off.
        capture: makes notes of the session; None if it is not interactive or capture is off.
        maintenance: summaries, merging and crystallizing; None if the session is not saved.
        half_life_days: after which the confidence in an inferred note halves.
    """

    def __init__(
        self,
        memory: MemoryManager,
        manager: LongTermMemoryManager | None,
        lookup: Lookup | None,
        recall: TurnRecall | None,
        capture: CaptureObserver | None,
        maintenance: MemoryMaintenance | None,
        half_life_days: float,
    ) -> None:
        memory.long_term = manager
        self.manager = manager
        self.lookup = lookup
        self.capture = capture
        self.maintenance = maintenance
        self.half_life_days = half_life_days
        self.is_held = False
        """Memory is used as of the time when the session was last used."""
        self._memory = memory
        self.recall = recall
        self.other_projects = recall.other_projects if recall else None

    async def effect_of(self, statement: OpenStatement) -> StatementEffect | None:
        """What a model says that a statement does to memory; None if memory or capture is off, or
        the model has no answer.
        """
        if self.capture is None or self.manager is None:
            return None
        from ouro.memory.long_term.statement_effect import ask_effect

        return await ask_effect(self.capture.question, statement, self.manager.scopes)

    @asynccontextmanager
    async def receiving(self) -> AsyncGenerator[None]:
        """A context in which a sync or an import adds to memory. At its end, also with an error, what
        was added is compared with the rest of memory in the background, to find contradictions.
        """
        if self.manager is None:
            yield
            return
        texts_before = await self._read_texts()
        try:
            yield
        except OuroError:  # a sync that cannot send may have received
            await self._compare_received(texts_before)
            raise
        await self._compare_received(texts_before)

    async def _compare_received(self, texts_before: Set[tuple[Scope, str]]) -> None:
        """Compare the entries that are not in `texts_before` with the rest of memory, in the
        background.
        """
        if self.manager is None:
            return
        service = self.capture or self.maintenance
        received = sorted(await self._read_texts() - texts_before)
        if service and received:
            from ouro.memory.long_term.contradictions import compare_received_entries

            question = self.capture.question if self.capture else None
            work = compare_received_entries(self.manager, service.channel, question, received)
            service.channel.start("compare received memory", work)

    async def _read_texts(self) -> set[tuple[Scope, str]]:
        """The scope and text of each entry in use."""
        from ouro.memory.long_term.contradictions import texts_in_use

        return await self.with_editor(texts_in_use, quiet=True)

    def start(self) -> None:
        """Start the services of memory. Called when the session is open. If a memory is shared, the
        user is also asked about notes whose last day has passed.
        """
        for service in (self.manager, self.recall, self.capture, self.maintenance):
            if service:
                service.start()
        if not (self.manager and self.maintenance and self.maintenance.is_automatic):
            return
        self.manager.listings.list_after(0)  # a user writes the first message meanwhile
        if any(store.is_shared for store in self.manager.stores):
            from ouro.memory.long_term.team import ask_owner  # needed only for shared memory

            channel = self.maintenance.channel
            channel.start("expired notes", ask_owner(self.manager, channel))

    def require(self) -> LongTermMemoryManager:
        """The manager of long-term memory. Raises UsageError if memory is off here."""
        if self.manager is None:
            raise UsageError(
                "Memory is off here.", "Reason: `memory.enabled`, --no-memory or --ephemeral."
            )
        return self.manager

    @property
    def recalled(self) -> NotesRecalled:
        """The receipt of the notes that were recalled in the last turn."""
        return self.recall.last if self.recall else NotesRecalled(items=(), way="off")

    @property
    def recalled_count(self) -> int:
        """The number of notes sent with the last message."""
        return len(self.recall.loaded_items()) if self.recall else 0

    @property
    def last_recalled(self) -> str:
        """The local time at which a note was last sent to a model in this session; empty if none
        was.
        """
        times = [record.at for record in self._memory.transcript.recalled.values()]
        return local_time(max(times, default=""))

    @property
    def rewind(self) -> MemoryRewind | None:
        """Undoes what turns wrote into memory; None if memory is off."""
        return MemoryRewind(self._memory, self.manager) if self.manager else None

    def hold(self, at: str, session_id: str) -> None:
        """Use memory as it was after the last commit of a session, or at the time `at` if it made
        none. Does nothing if memory is off. Blocks.

        Entries that changed since are neither sent nor recalled. Notes that were archived since
        stay archived.
        """
        if self.manager is None:
            return
        changed = self.manager.hold(at, session_id)
        self.is_held = True
        if self.recall:
            self.recall.hold(changed)

    def receipt(self) -> MemoryReceipt:
        """The parts of memory that were sent when the session began, and the changes since then.
        Raises UsageError if memory is off.
        """
        return self.require().prompt.receipt

    async def before_turn(self, text: str) -> str:
        """The text to send with the user's message: what the last session was about, changes of the
        core, and recalled notes. Empty if there is none of these. Without a manager only what
        recall finds, if there is a recall.
        """
        if self.manager is None:
            return await self.recall.recall_for(text) if self.recall else ""
        changes = await self.manager.begin_turn(self._memory.context())
        notes = await self.recall.recall_for(text) if self.recall else ""
        last_session = await self.maintenance.carry_over() if self.maintenance else ""
        return "\n\n".join(filter(None, (last_session, changes, notes)))

    def recording(
        self, path: Path, before: bytes | None, after: bytes | None
    ) -> AbstractContextManager[None]:
        """The context in which a file tool writes a file: a write into memory is recorded before it
        happens.
        """
        return self.manager.recording(path, before, after) if self.manager else nullcontext()

    async def for_subagent(self, task: str) -> str:
        """The notes that are relevant to the task of a subagent; they are in no receipt."""
        recalled = await self.recall.find(task) if self.recall else None
        return recalled.text if recalled else ""

    async def tool_finished(self, tool: str) -> None:
        """Decide about what a tool wrote into memory. Await it before the next tool runs: the text
        is checked against the messages so far (M13).
        """
        if self.manager and tool in _WRITING_TOOLS:
            turn = self._running_turn()
            await self.manager.tool_ended(turn.messages, turn.is_whole, turn.ref)

    async def notes_about_files(self, paths: Sequence[str]) -> str:
        """The text to send with the results of tools that used these files: notes about them and
        about what the tools did. Empty if there are none.
        """
        return await self.recall.recall_about_files(paths) if self.recall else ""

    def on_event(self, event: Event) -> list[Event]:
        """React to an event of the turn; returns the events to show after it."""
        if self.manager and isinstance(event, ToolStarted):
            self.manager.tool_started()
        if self.manager and isinstance(event, Prompted):
            self.manager.listings.list_after(_LISTING_DELAY)
        return self.recall.on_event(event) if self.recall else []

    async def broken_rules(self) -> list[Event]:
        """A warning for each remembered rule that the turn broke; none on an error, which is
        logged.
        """
        try:
            broken = await self.recall.broken_rules() if self.recall else {}
        except (OuroError, OSError) as error:
            log.warning("memory: the rules of the turn are not judged: %s", error)
            return []
        warnings = [_describe_broken_rule(key, text) for key, text in broken.items()]
        return [Notice(text, "warning") for text in warnings]

    @property
    def undo_observer(self) -> DeadEnds | None:
        """Learns what the user undid in files: it may be a dead end. None if nothing is learned."""
        return self.recall.dead_ends if self.recall else None

    def turn_ended(self) -> None:
        """Commit what the turn wrote, and capture notes, in the background; returns at once."""
        if self.manager:
            turn = self._running_turn()
            self.manager.turn_ended(turn.messages, turn.is_whole, turn.ref)
        for service in (self.recall, self.capture, self.maintenance):
            if service:
                service.turn_ended()

    def compacted(self) -> None:
        """Capture the messages that a summary replaces, in the background; returns at once."""
        if self.capture:
            self.capture.compacted()

    async def wait_until_settled(self) -> None:
        """Wait until what the last turn wrote is committed or pending, and its dead ends are found."""
        if self.manager:
            await self.manager.wait_until_settled()
        if observer := self.undo_observer:
            await observer.wait_until_settled()

    async def update_index(self) -> None:
        """Index the session and what the last turn wrote into memory, once that is settled.

        A session that is not interactive does not wait for this, because it would exit later: the
        next search or session indexes it.
        """
        if self.lookup is None:
            return
        self.lookup.mark_turn_done()
        if self.maintenance is not None and self.maintenance.is_automatic:
            await self.wait_until_settled()
            await self.lookup.keep_up()

    async def with_editor(
        self, act: Callable[[MemoryEditor], _Result], *, quiet: bool = False
    ) -> _Result:
        """Run an action of the user in a thread with a `MemoryEditor`, while nothing else here
        writes memory.

        Args:
            quiet: the caller shows what changed; no event is emitted.
        """
        lookup = self.lookup
        index = None if lookup is None else lambda: lookup.search().index
        return await self.require().with_editor(act, index, quiet=quiet)

    def changes_since(self, at: str) -> Mapping[str, int]:
        """The number of commits by others than this session since a time, by scope; at most
        `_MAX_COMMITS` each. Scopes without any are left out. Blocks.
        """
        since = datetime.fromisoformat(at).replace(microsecond=0)  # git records whole seconds
        counts: dict[str, int] = {}
        for store in self.manager.stores if self.manager else ():
            try:
                commits = store.log(_MAX_COMMITS)
            except OuroError as error:
                log.warning("changes of memory since %s: %s", at, error)
                continue
            commits_of_others = [
                commit
                for commit in commits
                if commit.trailers.get(SESSION) != self._memory.session_id
                and datetime.fromisoformat(commit.at) >= since
            ]
            if commits_of_others:
                counts[store.scope] = len(commits_of_others)
        return counts

    async def close(self) -> None:
        """Wait for writes to memory; no events are shown after this."""
        if self.manager:
            await self.manager.close()

    def _running_turn(self) -> _RunningTurn:
        """What `LongTermMemoryManager` needs to judge the turn that runs, or has just ended."""
        memory, transcript = self._memory, self._memory.transcript
        # The messages that a compaction keeps are not among `memory.messages()`.
        kept_messages = [entry.message for entry in transcript.kept_entries]
        return _RunningTurn(
            messages=(*kept_messages, *memory.messages()),
            is_whole=not memory.pager.has_earlier,
            ref=TurnRef(memory.session_id, transcript.turns, transcript.last_prompt),
        )


def _describe_broken_rule(entry_id: str, rule: str) -> str:
    """The warning about a rule that the turn broke. For `/check` a note is named by its id, a core
    line by its text.
    """
    text = one_line(clean(rule), 200)
    argument = entry_id[:12] if entry_id.startswith("mem_") else text
    return f"This turn broke a remembered rule: {text} To make it a check: /check {argument}"


class MemoryRewind:
    """Finds the commits of the turns that a rewind removes, and undoes them turn by turn."""

    def __init__(self, memory: MemoryManager, manager: LongTermMemoryManager) -> None:
        self._memory = memory
        self._manager = manager

    async def find_undoable(self, number: int) -> Undoable | None:
        """What a rewind can undo of memory: the changes that were made on the current branch in the
        message `number` and after it. None if there are none.
        """
        session_commits = await asyncio.to_thread(self._list_commits)
        removed_messages = {
            str(entry.number) for entry in self._memory.transcript.entries if entry.number >= number
        }
        commits = [
            commit
            for commit in _not_undone(session_commits)
            if commit.origin in _ORIGINS_UNDONE_WITH_TURN
            and commit.trailers.get(MESSAGE) in removed_messages
        ]
        if not commits:
            return None
        return Undoable(
            plural(len(commits), "change"),
            lambda: self._undo_each(commits, "undone", rewind=number),
        )

    async def find_redoable(self, numbers: Collection[int]) -> Undoable | None:
        """What of memory can be done again after rewinds: the changes in these messages that the
        rewinds undid. None if there are none, or all are done again already.
        """
        session_commits = await asyncio.to_thread(self._list_commits)
        undone_ids = set(chain.from_iterable(map(_undone_by, session_commits)))
        rewinds = {str(number) for number in numbers}
        undo_commits = [
            commit
            for commit in session_commits
            if commit.trailers.get(REWIND) in rewinds and commit.id not in undone_ids
        ]
        if not undo_commits:
            return None

        async def redo() -> Sequence[str]:
            """Undo the undo commits: that does the changes again."""
            failures = await self._undo_each(undo_commits, "done again")
            count = len(undo_commits) - len(failures)
            if count:
                return [f"Memory: {plural(count, 'change')} again.", *failures]
            return failures

        return Undoable(plural(len(undo_commits), "change"), redo)

    async def _undo_each(
        self, commits: Sequence[Commit], what: Literal["undone", "done again"], *, rewind: int = 0
    ) -> list[str]:
        """Undo each of these commits, with all that its turn wrote. Returns a message for each that
        could not be undone.

        Args:
            what: the word of the message for it: to undo an undo does the change again.
            rewind: the number of the message before which a rewind ends, if this is part of one;
                else 0.
        """
        messages: list[str] = []
        undone_ids: set[str] = set()  # the commits of one turn are undone together
        for commit in commits:
            if commit.id in undone_ids:
                continue
            try:
                change = await self._manager.undo(commit.id, rewind=rewind)
            except OuroError as error:
                messages.append(f"Not {what} in memory: {commit.subject}. {error.message}")
            else:
                undone_ids.update(undone.id for undone in change.commits)
        return messages

    def _list_commits(self) -> list[Commit]:
        """The commits of this session in all scopes, newest first. Blocks."""
        all_commits = chain.from_iterable(
            store.log(_MAX_SEARCHED_COMMITS) for store in self._manager.stores
        )
        session_commits = [
            commit
            for commit in all_commits
            if commit.trailers.get(SESSION) == self._memory.session_id
        ]
        return sorted(
            session_commits, key=lambda commit: datetime.fromisoformat(commit.at), reverse=True
        )


def _not_undone(commits: Sequence[Commit]) -> list[Commit]:
    """The commits without undone ones and without the undo commits. They must be given newest
    first: an undo comes before what it undoes. An undo that was undone itself undoes nothing.
    """
    undone_ids: set[str] = set()
    in_force: list[Commit] = []
    for commit in commits:
        if commit.id in undone_ids:
            continue
        if commit.origin == "undo":
            undone_ids.update(_undone_by(commit))
        else:
            in_force.append(commit)
    return in_force


def _undone_by(commit: Commit) -> list[str]:
    """The ids of the commits that a commit undoes."""
    return commit.trailers.get(UNDOES, "").split()
