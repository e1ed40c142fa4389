"""CaptureObserver: decides when to capture notes. Runs in the background; turns never wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import aclosing
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ouro.display import Question
from ouro.errors import OuroError
from ouro.events import NoteKept, Notice, Reply
from ouro.memory.backend import CapturedRecord
from ouro.memory.long_term.capture.session_parts import (
    Spoken,
    find_backlog,
    save_to_session_not_open,
    split_uncaptured,
    spoken_in,
    turns_since,
)
from ouro.memory.long_term.git.files import is_note_name
from ouro.memory.long_term.git.values import TurnRef
from ouro.memory.long_term.manager import LongTermMemoryManager
from ouro.memory.long_term.notes.note import Note
from ouro.memory.long_term.notes.notebook import Notebook, WrittenNote, note_event, notes_event
from ouro.memory.manager import MemoryManager
from ouro.memory.sessions.session_catalog import SessionCatalog
from ouro.memory.side_calls import SessionChannel
from ouro.utils.log import log
from ouro.utils.prohibitions import forbidden_names
from ouro.utils.text import clean, escape_invisible, one_line

if TYPE_CHECKING:
    from ouro.memory.long_term.capture.capture import Capture, Captured
    from ouro.memory.long_term.capture.meaning_question import MeaningQuestion
    from ouro.memory.long_term.capture.session_notes import Contradiction
    from ouro.memory.long_term.editor import MemoryEditor
    from ouro.memory.long_term.notes.note import Trigger
    from ouro.memory.transcript import Transcript

KEEP_BOTH, REPLACE, KEEP_OLD, IN_REPO = (
    "keep both",
    "the new one replaces it",
    "the old one stays",
    "the new one is for this project",
)
_CHANGES_OF_REPEATED = ("confirm", "supersede", "refine")
"""Changes that show that the user has made a correction before."""
_MAX_CADENCE = 10
_MAX_SKIPPED_TRIGGERS = 7
"""The most triggers that are ignored after several failures in a row."""
_PAGE_MESSAGES = 200
"""Messages that are loaded from the session file at once."""


class CaptureObserver(msgspec.Struct, eq=False, dict=True):
    """Captures the messages of one session, and of earlier sessions of its project."""

    memory: MemoryManager
    manager: LongTermMemoryManager
    """Serializes writes of long-term memory."""
    make: Callable[[], Capture]
    session_catalog: SessionCatalog
    channel: SessionChannel
    cadence: int = 5
    """Turns between two captures, 1 to 10."""
    silent: bool = False
    """Emit no event for notes that are written. Proposals are shown nevertheless."""
    busy: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    """Held while a model is asked in the background: one at a time, captures first."""
    _has_answered: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set once a turn has ended: work on earlier sessions waits for it."""
    _is_waiting: bool = False
    """Whether a capture waits for `busy`: it reads what another would read, so none is added."""
    _failures: int = 0
    """How many captures failed in a row."""
    _triggers_to_skip: int = 0
    """See `_record_failure`."""

    def start(self) -> None:
        """Begin to capture the backlog, after the first answer; returns at once."""
        self.channel.start("catch up", self._catch_up())

    def turn_ended(self) -> None:
        """Capture in the background if enough turns have passed, or the user stated a rule. Also
        forgets what the user asked for, compares what the agent wrote into memory, and confirms
        tentative notes. After the first turn `_catch_up`, which waits for an answer, continues. Returns at once.
        """
        self._has_answered.set()
        self.channel.start("forget", self._forget_as_asked())
        self.channel.start("compare memory", self._compare_lines_of_agent())
        self.channel.start("confirm notes", self._confirm_tentative_notes())
        if self._is_due():
            self._request_capture("cadence")

    def compacted(self) -> None:
        """Capture in the background the messages that a summary replaces; returns at once."""
        self._request_capture("compaction")

    @cached_property
    def _capturer(self) -> Capture:
        return self.make()

    @property
    def question(self) -> MeaningQuestion:
        """What a model is asked about a statement."""
        return self._capturer.question

    def _is_due(self) -> bool:
        """Whether notes are to be made now: `cadence` turns were not captured yet; or at least one,
        and the user states a rule in the last turn.
        """
        transcript = self.memory.transcript
        turns = turns_since(transcript.entries, transcript.captured)
        cadence = min(max(self.cadence, 1), _MAX_CADENCE)
        return turns >= cadence or (turns > 0 and _states_rule(transcript))

    def _request_capture(self, trigger: Trigger) -> None:
        """Start a capture in the background, unless one is waiting already, or this trigger is
        skipped after failures.
        """
        if self.memory.read_only:
            return
        if self._triggers_to_skip:
            self._triggers_to_skip -= 1
            return
        if not self._is_waiting:
            self._is_waiting = True
            self.channel.start("capture", self._run_capture(trigger))

    async def _run_capture(self, trigger: Trigger) -> None:
        """Capture as soon as no other model is asked in the background. Errors are logged."""
        async with self.busy:
            self._is_waiting = False
            if trigger == "cadence" and not self._is_due():
                return  # the capture before this one read these turns
            try:
                await self._capture(trigger)
            except (OuroError, OSError, TimeoutError) as error:
                self._record_failure(error)
            else:
                self._failures = 0

    def _record_failure(self, error: Exception) -> None:
        """Log an error of a capture. After the first failure the next trigger tries again; after
        more failures in a row 1, 3 and at most `_MAX_SKIPPED_TRIGGERS` triggers are skipped.
        """
        log.warning("capture: %s", str(error) or type(error).__name__)
        self._triggers_to_skip = min(2**self._failures - 1, _MAX_SKIPPED_TRIGGERS)
        self._failures += 1

    async def _forget_as_asked(self) -> None:
        """Forget the entries that the user asked to forget in the last turn, if the agent has not
        done so, and show it. An error is logged.
        """
        from ouro.memory.long_term.capture.forget_requests import find_requests, forget_requested

        requests = find_requests(_spoken_in_last_turn(self.memory.transcript))
        if self.memory.read_only or not requests:
            return
        try:
            await self.manager.with_editor(lambda editor: forget_requested(editor, requests))
        except (OuroError, OSError) as error:
            log.warning("capture: nothing was forgotten: %s", error)

    async def _confirm_tentative_notes(self) -> None:
        """Confirm the tentative notes about the files of the last turn, if its checks passed. An
        error is logged.
        """
        transcript = self.memory.transcript
        entries = [entry for entry in transcript.entries if entry.number >= transcript.last_prompt]
        messages = [entry.message for entry in entries]
        turn = TurnRef(self.memory.session_id, transcript.turns)
        if self.memory.read_only or not any(message.tool_calls for message in messages):
            return
        try:
            capture = self._capturer
            if turn.turn not in await asyncio.to_thread(capture.find_checked, messages, turn.turn):
                return
            notes = capture.notes
            confirmations = await self.manager.run_under_lock(
                lambda: notes.confirm_tentative_notes(messages, turn)
            )
        except (OuroError, OSError) as error:
            log.warning("capture: tentative notes are not confirmed: %s", error)
            return
        self._show(map(note_event, confirmations))

    async def _compare_lines_of_agent(self) -> None:
        """Look for what contradicts the lines that the agent wrote into the core since the last
        call.
        """
        lines = await self.manager.take_unchecked_lines()
        if lines:
            from ouro.memory.long_term.contradictions import compare_added_lines

            await compare_added_lines(self.manager, self.channel, self.question, added=lines)

    async def _capture(self, trigger: Trigger) -> None:
        """Capture the messages of this session that were not captured yet, and record the last one
        that was read.
        """
        memory = self.memory
        await memory.pager.finish_loading()
        # A compaction may have removed uncaptured messages from RAM, or they were never loaded.
        while memory.pager.has_earlier:
            first_loaded = memory.transcript.entries[0].number
            has_all_uncaptured = first_loaded <= memory.transcript.captured + 1
            if has_all_uncaptured:
                break
            await memory.pager.load_earlier(_PAGE_MESSAGES)
        transcript = memory.transcript
        parts = list(
            split_uncaptured(transcript.entries, transcript.captured, transcript.unloaded_turns)
        )
        if parts:
            results = self._capturer.run_parts(transcript, parts, memory.session_id, trigger)
            async with aclosing(results):
                async for part, captured in results:
                    self._show_captured(captured)
                    if part:
                        memory.record_later(CapturedRecord(part.upto, memory.now()))
        memory.pager.unload_old_messages()

    async def _catch_up(self) -> None:
        """Maintain old notes, then capture the backlog. It waits for the first answer of the
        session.
        """
        await self._has_answered.wait()
        try:
            capture = self._capturer
            await self._archive_and_share(capture)
            await self._capture_backlog(capture)
        except (OuroError, OSError, TimeoutError) as error:
            self._record_failure(error)

    async def _archive_and_share(self, capture: Capture) -> None:
        """Archive the notes that nothing has confirmed for long, share those of merged branches,
        and link the core lines to the notes on their subjects. Shows what was changed, unless
        `silent`.
        """
        outdated = await asyncio.to_thread(capture.notes.find_outdated)
        await asyncio.to_thread(capture.notes.relate_core)
        notebook = capture.notes.notebook
        if outdated.to_archive:
            archive = partial(notebook.archive, outdated.to_archive, "capture")
            archived = await self.manager.run_under_lock(archive)
            self._show(notes_event("archive", archived, "that nothing has confirmed for long"))
        if outdated.to_share:
            share = partial(notebook.share, outdated.to_share, "capture")
            shared = await self.manager.run_under_lock(share)
            self._show(notes_event("share", shared, "of a branch that is merged now"))

    def _show(self, events: Iterable[NoteKept]) -> None:
        """Emit events of changed notes, unless `silent`."""
        if not self.silent:
            for event in events:
                self.channel.emit(event)

    async def _capture_backlog(self, capture: Capture) -> None:
        """Capture what is left of earlier sessions that ended before all of it was captured, and
        record in each session up to where it is captured.
        """
        store = self.session_catalog.store
        backlog = find_backlog(self.session_catalog, self.memory.session_id)
        async with self.busy, aclosing(backlog):
            async for session_id, transcript, parts in backlog:
                results = capture.run_parts(transcript, parts, session_id, "session-end")
                async with aclosing(results):
                    async for part, captured in results:
                        self._show_captured(captured, session_id)
                        if part is None:
                            continue
                        # With the time of the last record, so that the session stays in its
                        # place in lists.
                        record = CapturedRecord(part.upto, transcript.last_at)
                        await save_to_session_not_open(store, session_id, record)

    def _show_captured(self, captured: Captured, earlier_session: str = "") -> None:
        """Show what was captured, and ask the user in the background about contradictions and
        doubts. `earlier_session` is the id of the session if it is not the present one.
        """
        for event in captured.events(silent=self.silent):
            self.channel.emit(replace(event, session=earlier_session))
        for contradiction in captured.contradictions:
            # `_ask_about_line` asks which of both holds, not only whether to accept the change.
            self.manager.report([contradiction.pending], asks=False)
            self.channel.start("ask about memory", self._ask_about_line(contradiction))
        for old, new in captured.doubts:
            self.channel.start("ask about memory", self._ask_about_doubt(old, new))
        for written in captured.written:
            if written.change == "contradict":
                self.channel.start("ask about notes", self._ask_about_notes(written.note))
            else:
                self._offer_check(written)

    def _offer_check(self, written: WrittenNote) -> None:
        """Offer to enforce a written note, if the user has made this correction before, or if it
        forbids a file or a command by name.
        """
        note = written.note
        is_repeated = written.change in _CHANGES_OF_REPEATED and note.category == "corrections"
        is_prohibition = written.change == "add" and bool(forbidden_names(note.text))
        if not is_repeated and not is_prohibition:
            return
        text = one_line(clean(note.text), 200)
        is_note = is_note_name(
            f"{note.id}.md"
        )  # else a core line, which the command finds by its text
        argument = note.id[:12] if is_note else text
        reason = "You have corrected this before" if is_repeated else "Remembered as a prohibition"
        self.channel.emit(Notice(f"{reason}: {text} · To have it enforced: /check {argument}"))

    async def _ask_about_notes(self, new: Note) -> None:
        """Ask the user which of two notes holds: the note `new`, or the older one that it
        contradicts. Then do what the user chose. Without an answer both stay.
        """
        notebook = self._capturer.notes.notebook
        contradicted_ids = [edge.id for edge in new.related if edge.relationship == "contradicts"]
        old_file = await asyncio.to_thread(notebook.find, contradicted_ids[0])
        old = old_file.note
        choice = await self._ask_which_holds(f"note:{new.id}", new, old)
        if not choice:
            return
        written = await self.manager.run_under_lock(
            lambda: resolve_notes(notebook, new.id, old.id, answer=choice)
        )
        if written:
            self.channel.emit(note_event(written))

    async def _ask_about_line(self, contradiction: Contradiction) -> None:
        """Ask the user whether a core line or the note that contradicts it holds, and do what they
        choose; without an answer the change stays pending.
        """
        choice = await self._ask_which_holds(
            f"memory:{contradiction.pending.proposal}", contradiction.note, contradiction.line
        )
        if choice:
            await self.manager.with_editor(
                lambda editor: resolve_line(editor, contradiction, choice)
            )

    async def _ask_about_doubt(self, old: Note, new: Note) -> None:
        """Ask the user whether the statement `new`, which is written already, replaces the core
        line `old`. If so, remove the line. Without an answer both stay.
        """
        choice = await self._ask_which_holds(
            f"memory-doubt:{old.id}", new, old, choices=(KEEP_BOTH, REPLACE)
        )
        if choice == REPLACE:
            await self.manager.with_editor(lambda editor: forget_line(editor, old))

    async def _ask_which_holds(
        self, question_id: str, new: Note, old: Note, choices: tuple[str, ...] = ()
    ) -> str:
        """Ask the user which of two statements holds. Returns the chosen text of `choices`, by
        default all that are possible; empty without an answer.
        """
        if not choices:
            choices = (KEEP_BOTH, REPLACE, KEEP_OLD)
            if new.scope == "user" and "repo" in self._capturer.notes.notebook.scopes:
                choices = (*choices, IN_REPO)
        old_day = old.confirmed_at[:10] or old.created_at[:10]
        details = f"- before ({old_day}): {old.text}\n- now: {new.text}"
        question = Question(
            "This contradicts what is remembered. Which one holds?",
            choices,
            details=escape_invisible(details),
        )
        answer = await self.channel.ask(question_id, question)
        return answer.answers[0] if isinstance(answer, Reply) and answer.answers else ""


def _spoken_in_last_turn(transcript: Transcript) -> list[Spoken]:
    """What the user said in the last turn; nothing if it had memory off."""
    last_prompt = [
        entry
        for entry in transcript.entries
        if entry.number == transcript.last_prompt and not entry.private
    ]
    return spoken_in(last_prompt)


def _states_rule(transcript: Transcript) -> bool:
    """Whether the user stated in the last turn something that lasts (`always`, `from now on`). A
    turn with memory off does not count.
    """
    from ouro.memory.long_term.capture.small_model import is_lasting, statements_in

    spoken = _spoken_in_last_turn(transcript)
    texts = [message.text for message in spoken if message.is_own]
    statements = chain.from_iterable(map(statements_in, texts))
    return any(map(is_lasting, statements))


def resolve_notes(notebook: Notebook, new_id: str, old_id: str, answer: str) -> WrittenNote | None:
    """Do what the user chose (`answer`) about two notes that contradict each other. Returns the
    note that was changed; None for another answer: both stay as they are. Blocks; raises as
    `Notebook`.
    """
    new = notebook.find(new_id).note
    other_edges = [edge for edge in new.related if edge.id != old_id]
    unlinked = replace(new, related=tuple(other_edges))
    if answer == KEEP_BOTH:
        return notebook.rewrite(notebook.link(unlinked, "add", related=[old_id]), "person")
    if answer == REPLACE:
        return notebook.rewrite(notebook.link(unlinked, "supersede", old_id), "person")
    if answer == KEEP_OLD:
        # None is archived if the user did so in another window.
        return next(iter(notebook.archive([new_id], "person")), None)
    if answer == IN_REPO:
        return notebook.rewrite(replace(unlinked, scope="repo"), "person")
    return None


def forget_line(editor: MemoryEditor, line: Note) -> None:
    """Remove the core lines with the scope and text of `line`. Blocks; raises as
    `MemoryEditor.write`.
    """
    from ouro.memory.long_term.entry_lookup import core_entries
    from ouro.memory.long_term.forget import forget_entries

    lines = core_entries(editor, sources=False)
    same = [entry for entry in lines if (entry.scope, entry.text) == (line.scope, line.text)]
    forget_entries(editor, same)


def resolve_line(editor: MemoryEditor, contradiction: Contradiction, answer: str) -> None:
    """Do what the user chose (`answer`) about a core line and the note that contradicts it, which
    is proposed to replace the line. Does nothing if the proposal is not pending any more. If both
    are kept, the text of the note becomes a line in the same file; in the repository if the user
    chose that. Blocks; raises as `MemoryEditor.write`.
    """
    from ouro.memory.long_term.placement import Placement
    from ouro.memory.long_term.remember import write_text

    scope = editor.scope(contradiction.line.scope)
    pending = {proposal.id: proposal for proposal in scope.proposals()}
    proposal = pending.get(contradiction.pending.proposal)
    if proposal is None:
        return  # the user answered it in another window
    if answer == REPLACE:
        editor.events += scope.accept(proposal, editor.moment)
    if answer in (KEEP_BOTH, IN_REPO):
        target_scope = "repo" if answer == IN_REPO else contradiction.line.scope
        write_text(
            editor,
            Placement(
                text=contradiction.note.text,
                scope=target_scope,
                category=contradiction.file.removesuffix(".md"),
                is_note=False,
                why="",
            ),
        )
    if answer in (KEEP_BOTH, KEEP_OLD, IN_REPO):
        scope.reject(proposal, editor.moment)
