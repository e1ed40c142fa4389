"""LongTermMemoryManager: the actions on all scopes of long-term memory, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from ouro.errors import OuroError, UsageError, reason_of
from ouro.events import CoreChanged, Notice, Reply
from ouro.memory.long_term.git.values import SESSION, Scope, TurnRef, UndoResult
from ouro.memory.long_term.listing_schedule import ListingSchedule
from ouro.memory.long_term.prompt_block import MemoryPrompt
from ouro.memory.long_term.scope import MemoryScopes, ScopeMemory, switch
from ouro.memory.long_term.store import GitMemoryStore
from ouro.memory.long_term.trust.proposals import (
    KEEP,
    LEAVE,
    Proposal,
    question_about,
    texts_digest,
)
from ouro.memory.long_term.trust.provenance import Provenance
from ouro.memory.long_term.trust.running_turns import TurnMarks
from ouro.memory.side_calls import SessionChannel
from ouro.messages import Message
from ouro.utils.git import find_root
from ouro.utils.log import log

if TYPE_CHECKING:
    from ouro.memory.index import Index
    from ouro.memory.long_term.core_consolidator import LongTermMemoryConsolidator
    from ouro.memory.long_term.editor import MemoryEditor
    from ouro.memory.long_term.timeline import Timeline

_Result = TypeVar("_Result")
_CONSOLIDATED_RECORD = "consolidated"
"""The record of the texts that need no consolidation: the input and the output of the last run."""
_MAX_OWN_COMMITS = 100
"""The number of latest commits of a scope that are searched for those of a session."""
_ORIGINS_BY_USER = ("person", "import", "undo")
"""Origins that are shown also with `write: silent`, because the user asked for the change."""


class LongTermMemoryManager:
    """The actions of the user and the agent on all scopes, one after the other; what they changed
    is shown, and what is pending is asked about. First `start`.

    Args:
        prompt: records what the model and the user were sent.
        marks: records which sessions run a turn.
        write: how the user learns of each write: an event with undo, a question before it, or nothing.
    """

    def __init__(
        self,
        scopes: MemoryScopes,
        prompt: MemoryPrompt,
        channel: SessionChannel,
        cwd: Path,
        make_consolidator: Callable[[], LongTermMemoryConsolidator],
        marks: TurnMarks,
        write: Literal["tell", "ask", "silent"] = "tell",
    ) -> None:
        self.prompt = prompt
        self.cwd = cwd
        self._channel = channel
        self._scopes = scopes.opened
        self._allowed_stores = scopes.stores  # also those that are switched off
        self._make_consolidator = make_consolidator
        self._marks = marks
        self._asks = write == "ask"
        """The user wants to confirm every change."""
        self._is_silent = write == "silent"
        self._is_open = False
        """Events and warnings are shown."""
        self._warnings = dict.fromkeys(scopes.problems)  # each is shown once
        # An asyncio lock is fair: actions run in the order of their calls.
        self._lock = asyncio.Lock()
        self._finishing_turn: asyncio.Task[None] | None = None
        """The task that decides about what the last turn wrote; None before the first turn ended."""
        self.listings = ListingSchedule(
            self._scopes, channel, self._run_or_warn, refresh=self._refresh
        )
        self._had_jobs_at_end = False
        """Whether jobs of the agent ran in the background when the last turn ended."""
        self._used_tools = True
        """The turn may have written memory; False only if it is known that it used no tool."""
        self._last_turn = TurnRef(marks.session, turn=0)
        """The turn that the user's actions belong to: the one that ended last."""
        self._has_consolidated = False
        """Whether a consolidation was begun in this session (`_consolidate_if_grown`)."""
        self._unchecked_lines: tuple[tuple[Scope, str], ...] = ()
        """What the next `take_unchecked_lines` returns."""

    def start(self) -> None:
        """Show the warnings and pending changes so far, and begin to consolidate a core that has
        grown. Called when the session is open.
        """
        if all(scope.is_clean for scope in self._scopes):
            self._marks.clear()  # all of memory is trusted: what killed sessions wrote is, too
        self._is_open = True
        for text in self._warnings:
            self._channel.emit(Notice(text, "warning"))
        self.report([*chain.from_iterable(scope.foreign_events() for scope in self._scopes)])
        self._consolidate_if_grown()

    @property
    def stores(self) -> tuple[GitMemoryStore, ...]:
        """The stores of the scopes in use, user before repo."""
        return tuple(scope.store for scope in self._scopes)

    @property
    def scopes(self) -> tuple[Scope, ...]:
        return tuple(scope.name for scope in self._scopes)

    def switch(self, on: bool) -> Path:
        """Switch the memory of this repository on or off, from the next session on; returns its
        folder. Raises UsageError if the settings allow no memory of the repository. Blocks.
        """
        for store in self._allowed_stores:
            if store.scope == "repo":
                switch(store, on=on)
                return store.folder
        raise UsageError(
            "This repository has no memory of its own here.", "See `memory.repo.enabled`."
        )

    def versions(self) -> dict[str, str]:
        """The version of the trusted texts of each scope, by scope."""
        return {scope.name: scope.version for scope in self._scopes}

    def timeline(self) -> Timeline:
        """The history of the scopes in use. Blocks, also in its methods."""
        from ouro.memory.long_term.timeline import Timeline  # most sessions never need it

        bases: dict[str, str] = {}
        for scope in self._scopes:
            bases |= scope.undo_bases
        return Timeline(self.stores, bases)

    def proposals(self) -> tuple[Proposal, ...]:
        """Pending changes. Blocks for a moment."""
        return tuple(chain.from_iterable(scope.proposals() for scope in self._scopes))

    def hold(self, at: str, session_id: str) -> frozenset[tuple[Scope, str]]:
        """A resumed session uses memory as it was at the time `at`: from now on no changes of the
        core are sent. Returns the files to leave out, which are those that have changed since
        then: scope and name of each, as `_changed_since` describes. Blocks.
        """
        self.prompt.is_held = True
        return self._changed_since(at, session_id)

    def _changed_since(self, at: str, session_id: str) -> frozenset[tuple[Scope, str]]:
        """Scope and name of each file that is new or different since the last commit of a session;
        if it made none, since the time `at`. Files that were removed since are left out. Blocks.
        """
        second = datetime.fromisoformat(at).replace(microsecond=0)  # git records whole seconds
        changed_files: set[tuple[Scope, str]] = set()
        for store in self.stores:
            if not store.repository.exists:
                continue
            earlier_blobs = store.repository.tree(_commit_before(store, second, session_id))
            current_blobs = store.repository.tree(store.get_current_head())
            for name, blob in current_blobs.items():
                if earlier_blobs.get(name) != blob:
                    changed_files.add((store.scope, name))
        return frozenset(changed_files)

    async def begin_turn(self, sent: Sequence[Message]) -> str:
        """Read what others wrote since the last turn, and record that a turn runs now.

        Returns the text to send with the user's message: the changes of memory compared with what
        the messages `sent` say, and notes for the model. Empty if there are none, or on an error,
        which becomes a warning.
        """
        # The end of the last turn removes the mark of this session: it comes first.
        await self.wait_until_settled()
        await self.listings.begin_turn()
        self._used_tools = False
        await asyncio.to_thread(self._marks.begin)
        try:
            return await asyncio.to_thread(self.prompt.take_changes_and_notes, sent)
        except (OuroError, OSError) as error:
            self._warn(f"Memory: {reason_of(error)}")
            return ""

    async def tool_ended(self, messages: Sequence[Message], is_whole: bool, at: TurnRef) -> None:
        """After a tool call of the turn `at`: decide whether what it wrote into memory is trusted.

        Args:
            messages: the transcript so far; all of it if `is_whole`.
        """

        def approve() -> list[CoreChanged]:
            """Decide about the files of each scope; there is no event to show."""
            for scope in self._scopes:
                scope.observe(self._marks.session)
            find_provenance = self._make_provenance_finder(messages, is_whole)
            for scope in self._scopes:
                scope.tool_ended(find_provenance, at, asks=self._asks)
            return []

        await self._run_or_warn("approve what was written", approve)

    def recording(
        self, path: Path, before: bytes | None, after: bytes | None
    ) -> AbstractContextManager[None]:
        """Return a context in which a file tool writes the file `path`. If that is a file of
        memory, the write is recorded, so that it is known which turn made it. Blocks.

        Args:
            before, after: the contents of the file; None: there is none.
        """
        for scope in self._scopes:
            folder = scope.store.folder.resolve()
            if path.is_relative_to(folder):
                return scope.recording(
                    self._marks.session, str(path.relative_to(folder)), before, after
                )
        return nullcontext()

    def turn_ended(self, messages: Sequence[Message], is_whole: bool, at: TurnRef) -> None:
        """After a turn: commit what it wrote or make it pending, in the background. Arguments as
        for `tool_ended`.

        Later writes run after this; readers wait for `wait_until_settled`. After it,
        `_used_tools` is True again: only the begin of a turn makes sure that no tool was used yet.
        """
        self._last_turn = at
        self.listings.turn_ended()
        had_jobs_at_begin = self._had_jobs_at_end
        self._had_jobs_at_end = self._marks.has_jobs()
        had_jobs = had_jobs_at_begin or self._had_jobs_at_end
        used_tools, self._used_tools = self._used_tools, True
        work = self._finish_turn(tuple(messages), is_whole, had_jobs, used_tools)
        self._finishing_turn = asyncio.create_task(work, name="settle memory")

    async def wait_until_settled(self) -> None:
        """Wait until what the last turn wrote is committed or pending."""
        if self._finishing_turn is not None:
            await asyncio.wait([self._finishing_turn])

    async def take_unchecked_lines(self) -> tuple[tuple[Scope, str], ...]:
        """The core lines that the agent wrote since the last call and that no rule could compare
        with the rest of memory: scope and text. `CaptureObserver` asks a model about them.
        """
        await self.wait_until_settled()
        lines, self._unchecked_lines = self._unchecked_lines, ()
        return lines

    async def accept(self, proposal: str) -> None:
        """Accept a pending change. Raises UsageError if no change has that id."""
        await self.with_editor(lambda editor: editor.accept(proposal), refreshes=False)

    async def reject(self, proposal: str) -> None:
        """Drop a pending change, and note for the model that the user does not want it; the git
        history keeps it. Raises as `accept`.
        """
        from ouro.memory.long_term.trust.change_descriptions import subject_of

        def reject(editor: MemoryEditor) -> None:
            unwanted = subject_of(editor.reject(proposal).edits)
            self.prompt.note(f"The user does not want this in memory: {unwanted}")

        await self.with_editor(reject, refreshes=False)

    async def undo(self, commit: str, hunk: int = 0, *, rewind: int = 0) -> UndoResult:
        """Undo a commit with all of its turn, or only the hunk with the number `hunk`, from 1 (0:
        all). Later changes stay. If the undo is part of a rewind, `rewind` is the number of the
        message before which the rewind ends; else 0. Raises as `MemoryEditor.undo`.
        """
        return await self.with_editor(lambda editor: editor.undo(commit, hunk, rewind=rewind))

    async def run_under_lock(self, act: Callable[[], _Result]) -> _Result:
        """Run a function in a thread while nothing else here writes memory, and return its result.
        If the caller is cancelled, the function still runs to its end.
        """
        return await self.with_editor(lambda _editor: act(), refreshes=False)

    async def with_editor(
        self,
        act: Callable[[MemoryEditor], _Result],
        index: Callable[[], Index] | None = None,
        *,
        quiet: bool = False,
        refreshes: bool = True,
    ) -> _Result:
        """Run an action in a thread while nothing else here writes memory, and show what it
        changed, also if it raises. Returns its result. If the caller is cancelled, the action still
        runs to its end.

        Args:
            index: returns the search index, for `MemoryEditor`; None: it reads the files.
            quiet: show nothing; the caller does.
            refreshes: first read what others wrote since the last action.
        """
        from ouro.memory.long_term.editor import MemoryEditor

        async def work() -> _Result:
            """Run the action under the lock. Show what others changed, then what the action did."""
            async with self._lock:
                if refreshes:
                    self.report(await asyncio.to_thread(self._refresh))
                editor = MemoryEditor(
                    self._scopes,
                    index,
                    moment=self._last_turn,
                    worktree=find_root(self.cwd),
                )
                try:
                    return await asyncio.to_thread(act, editor)
                finally:  # an action that fails may have changed one scope
                    self.report(editor.events, quiet=quiet)

        return await asyncio.shield(work())

    async def consolidate(self, scope: Scope) -> str:
        """Merge and compress the core of a scope with a model; returns what was done in one line.
        The texts before and after are recorded: about these no model is asked again.

        Raises UsageError if that scope is not in use here, or changed meanwhile.
        """
        from ouro.memory.long_term.editor import MemoryEditor

        scope_memory = MemoryEditor(self._scopes).scope(scope)
        texts_before = {f"{name}.md": text for name, text in scope_memory.texts.items()}
        digest_before = texts_digest(scope_memory.texts)
        outcome = await self._make_consolidator().consolidate(dict(scope_memory.texts))
        if outcome.texts:
            changes = {f"{name}.md": text for name, text in outcome.texts.items()}
            subject = f"Consolidate: {outcome.summary}"

            def write(editor: MemoryEditor) -> None:
                editor.events += scope_memory.write(
                    changes, subject, self._last_turn, "consolidation", seen=texts_before
                )

            await self.with_editor(write, refreshes=False)
        if outcome.has_answer:  # else the model is asked again
            scope_memory.store.repository.create(with_git=False)
            scope_memory.store.repository.write_record(
                _CONSOLIDATED_RECORD, f"{digest_before} {texts_digest(scope_memory.texts)}"
            )
        return outcome.summary

    def report(
        self, events: Sequence[CoreChanged], *, quiet: bool = False, asks: bool = True
    ) -> None:
        """Show changes of the core, and warn of what could not be written. The user is asked about
        each pending change in the background, unless the caller does that (`asks=False`). Nothing
        but warnings is shown before `start`, or if `quiet`. With `write: silent` only pending
        changes are shown, and those that the user asked for.
        """
        self._warn_of_files()
        self.prompt.record(events)
        if not self._is_open or quiet:
            return
        for event in events:
            if event.proposal or not self._is_silent or event.origin in _ORIGINS_BY_USER:
                self._channel.emit(event)
            if event.proposal and asks:
                self._channel.start("ask about memory", self._ask(event.proposal))

    async def close(self) -> None:
        """Wait for writes to end; show no more events."""
        await self.wait_until_settled()
        await self.listings.close()
        async with self._lock:
            self._is_open = False

    def _make_provenance_finder(
        self, messages: Sequence[Message], is_whole: bool
    ) -> Callable[[], Provenance]:
        """Returns a function that finds the provenance of what this turn writes, from its messages.
        Call that only if a file has changed: it reads all messages, and most tool calls write
        nothing. Each scope must have observed other turns before: that decides which folders are
        clean.
        """
        clean_folders = [scope.store.folder for scope in self._scopes if scope.is_clean]
        is_confined = self._marks.is_confined
        return cache(
            lambda: Provenance(
                messages, clean_folders, self.cwd, is_whole=is_whole, is_confined=is_confined
            )
        )

    def tool_started(self) -> None:
        """The turn uses tools: from now on it may write memory."""
        self._used_tools = True

    def _refresh(self, max_age: float = 0.0, *, defers_listing: bool = False) -> list[CoreChanged]:
        """Read what others have changed in all scopes. Returns the events to show. Arguments as for
        `ScopeMemory.refresh`.
        """
        has_jobs = self._marks.has_jobs() or self._had_jobs_at_end
        agent_was_idle = not has_jobs and not self._marks.at_work()
        events: list[CoreChanged] = []
        for scope in self._scopes:
            events += scope.refresh(
                agent_was_idle=agent_was_idle, max_age=max_age, defers_listing=defers_listing
            )
        return events

    async def _finish_turn(
        self, messages: Sequence[Message], is_whole: bool, had_jobs: bool, used_tools: bool
    ) -> None:
        """Commit what a turn wrote, or make it pending, and consolidate a core that has grown.
        Errors become warnings.
        """
        try:
            await self._run_or_warn(
                "commit what was written",
                lambda: self._decide_about_turn(messages, is_whole, had_jobs, used_tools),
            )
            self._consolidate_if_grown()
        except Exception as error:  # noqa: BLE001  # a bug: the files stay, the next start finds them
            log.exception("memory could not be settled")
            text = f"Memory: what the turn wrote is not committed ({error}). See `ouro.log`."
            self._warn(text)

    def _decide_about_turn(
        self, messages: Sequence[Message], is_whole: bool, had_jobs: bool, used_tools: bool
    ) -> list[CoreChanged]:
        """Decide about what the last turn wrote, in all scopes: it is committed or made pending.
        Returns the events to show. Blocks.

        Args:
            had_jobs: jobs of the agent ran in the background: they may have written, too.
            used_tools: the turn may have written.
        """
        for scope in self._scopes:
            scope.observe(self._marks.session)
        provenance = self._make_provenance_finder(messages, is_whole)()
        texts_before = [dict(scope.texts) for scope in self._scopes]
        may_others_write = had_jobs or self._marks.at_work(but=self._marks.session)
        # No agent can have written the other changes in the files: they are the user's.
        is_rest_of_user = provenance.knows_all_writing and not may_others_write
        events: list[CoreChanged] = []
        for scope in self._scopes:
            events += scope.turn_ended(
                provenance,
                self._last_turn,
                asks=self._asks,
                is_rest_of_user=is_rest_of_user,
                used_tools=used_tools or may_others_write,
            )
        events += self._remove_replaced_entries(texts_before)
        self.prompt.note_pending_and_refused(events)
        self._marks.end()  # before the next turn marks its start
        return events

    def _remove_replaced_entries(
        self, texts_before: Sequence[Mapping[str, str]]
    ) -> list[CoreChanged]:
        """Remove the entries that core lines of the agent's turn replace, by the rules of
        `forget.remove_replaced_entries`. Undoing the turn restores them. Returns the events to
        show. The added lines that these rules cannot compare join those that wait for
        `take_unchecked_lines`.

        Args:
            texts_before: the core texts of each scope before the turn.
        """
        added_lines = frozenset(_added_lines(self._scopes, texts_before))
        if not added_lines:
            return []
        from ouro.memory.long_term.forget import remove_replaced_entries

        events, unchecked = remove_replaced_entries(self._scopes, self._last_turn, added_lines)
        # A turn may end before the lines of an earlier one were taken. None is kept twice.
        self._unchecked_lines = tuple(dict.fromkeys((*self._unchecked_lines, *unchecked)))
        return events

    async def _run_or_warn(self, what: str, act: Callable[[], list[CoreChanged]]) -> None:
        """Run a function in a thread, under the lock, and show the events that it returns; an error
        is shown as a warning. `what` names the action in the log.
        """

        async def work() -> None:
            try:
                async with self._lock:
                    events = await asyncio.to_thread(act)
            except (OuroError, OSError) as error:
                log.warning("memory: cannot %s: %s", what, error)
                self._warn(f"Memory: {reason_of(error)}")
            else:
                self.report(events)

        await asyncio.shield(work())

    async def _ask(self, proposal_id: str) -> None:
        """Ask the user about a pending change, and accept or reject it as they answer. Does nothing
        if it is not pending any more. With any other answer it stays pending, and a warning shows
        how to decide; a question that was dismissed (an empty reply) needs no warning.
        """
        pending = await asyncio.to_thread(self.proposals)
        proposal = next((proposal for proposal in pending if proposal.id == proposal_id), None)
        if proposal is None:
            return
        answer = await self._channel.ask(f"memory:{proposal.id}", question_about(proposal))
        if answer == Reply((KEEP,)):
            await self.accept(proposal.id)
        elif answer == Reply((LEAVE,)):
            await self.reject(proposal.id)
        elif answer != Reply():
            text = (
                f"The change of memory is still pending: /memory accept {proposal.id}, or reject."
            )
            self._channel.emit(Notice(text, "warning"))

    def _warn(self, text: str) -> None:
        """Show a warning, once. Before the session is open it is stored for `start`."""
        if text in self._warnings:
            return
        self._warnings[text] = None
        if self._is_open:
            self._channel.emit(Notice(text, "warning"))

    def _warn_of_files(self) -> None:
        """Warn of a history that cannot be written, and of files whose changes were reverted."""
        for scope in self._scopes:
            if notice := scope.store.obstacle_notice:
                self._warn(notice)
            for file in scope.refused:
                self._warn(
                    f"Memory ({scope.name}): {file.name} {file.reason}; it is as it was before."
                )

    def _consolidate_if_grown(self) -> None:
        """Begin to consolidate each core with more tokens than the threshold; once in a session. A
        core is left out if a model was already asked about exactly this text, or something in it
        waits for approval.
        """
        if self._has_consolidated or not self._is_open:
            return
        limit = self.prompt.threshold
        grown_scopes = [scope for scope in self._scopes if scope.is_clean and scope.tokens > limit]
        scopes_to_consolidate = [
            scope.name for scope in grown_scopes if not _was_consolidated(scope)
        ]
        if not scopes_to_consolidate:
            return

        async def consolidate() -> None:
            for scope in scopes_to_consolidate:
                log.info("memory: consolidated %s: %s", scope, await self.consolidate(scope))

        self._has_consolidated = True
        self._channel.start("consolidate memory", consolidate())


def _was_consolidated(scope: ScopeMemory) -> bool:
    """Whether a model was already asked to consolidate exactly these texts."""
    return (
        texts_digest(scope.texts)
        in scope.store.repository.read_record(_CONSOLIDATED_RECORD).split()
    )


def _commit_before(store: GitMemoryStore, second: datetime, session_id: str) -> str:
    """The id of the newest commit that the session has made or that is older than `second`; empty
    if there is none. A commit of the session is found only among the newest `_MAX_OWN_COMMITS`.
    """
    from ouro.memory.long_term.git.history import commit_at

    latest_commits = store.log(_MAX_OWN_COMMITS)
    for commit in latest_commits:
        is_own = commit.trailers.get(SESSION) == session_id
        if is_own or datetime.fromisoformat(commit.at) < second:
            return commit.id
    is_whole_history = len(latest_commits) < _MAX_OWN_COMMITS
    if is_whole_history:
        return ""
    # git includes the named second itself.
    return commit_at(store.repository, (second - timedelta(seconds=1)).isoformat())


def _added_lines(
    scopes: Iterable[ScopeMemory], texts_before: Iterable[Mapping[str, str]]
) -> Iterator[tuple[Scope, str]]:
    """Yield the scope and text of each line that is in the core now, and was not before, without
    list marks and in no order.
    """
    for scope, earlier_texts in zip(scopes, texts_before, strict=True):
        for name, text in scope.texts.items():
            earlier_text = earlier_texts.get(name, "")
            if text == earlier_text:
                continue
            from ouro.memory.long_term.notes.note import strip_list_mark  # only for a changed core

            lines = {*map(strip_list_mark, text.splitlines())}
            earlier_lines = {*map(strip_list_mark, earlier_text.splitlines())}
            for line in lines - earlier_lines:
                yield scope.name, line
