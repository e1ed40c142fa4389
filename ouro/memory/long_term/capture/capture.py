"""Capture: a model without tools decides what becomes a note.

A note that a model writes from the user's words alone counts as the user's. A note from the
assistant's words may repeat files, pages or outputs that came into the session before: it becomes a
pending proposal (M1). So if anything came from outside, the user's words are read separately first.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ouro.errors import NoteError, OuroError
from ouro.events import NoteKept
from ouro.memory.index import findable, word_starts
from ouro.memory.long_term.capture.forget_requests import is_forgotten
from ouro.memory.long_term.capture.meaning_question import MeaningQuestion
from ouro.memory.long_term.capture.operations import (
    Operation,
    OperationLimits,
    RefusedOperation,
    Verb,
)
from ouro.memory.long_term.capture.session_notes import Contradiction
from ouro.memory.long_term.capture.session_parts import Spoken
from ouro.memory.long_term.capture.small_model import is_carried_out, is_lasting
from ouro.memory.long_term.capture.statement_questions import words_and_numbers
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.long_term.git.values import MESSAGE, TurnRef
from ouro.memory.long_term.notes.note import Note, Trigger, new_id
from ouro.memory.long_term.notes.notebook import WrittenNote, note_event, proposal_event
from ouro.memory.long_term.notes.validity import TENTATIVE_CONFIDENCE
from ouro.memory.long_term.supersession import fold_words
from ouro.messages import Message
from ouro.utils.log import log

if TYPE_CHECKING:
    from ouro.memory.backend import RecalledRecord
    from ouro.memory.long_term.capture.session_notes import SessionNotes
    from ouro.memory.long_term.capture.session_parts import SessionPart
    from ouro.memory.transcript import Transcript

MAX_SHOWN_NOTES = 12
MAX_SHOWN_LINES = 20
PART_TIMEOUT = 180.0
"""Seconds the classifier may take for one part of a session."""
_MIN_OWN_SHARE = 0.4
"""Share of a note's words that the user must have said, for the user to be its source."""
_MIN_CHARACTERS = 12
"""The minimum of text, in characters, about which a model is asked."""
_MAX_MESSAGE_FOR_NOTE = 300
"""A message with more characters may say more than what was captured from it."""
_FINGERPRINTS = "captured"
"""The record of a repository with the fingerprints of the texts that were captured."""
_MAX_FINGERPRINTS = 2_000
_AFTER_EVERY_TIME = "~"
"""Stands for the time of words that are never captured again: it sorts after every ISO time."""


def _no_turns(_messages: Sequence[Message], _turn: int) -> frozenset[int]:
    """Return no turns: it is not known which turns of the session passed their checks."""
    return frozenset()


class Captured(msgspec.Struct):
    """What one capture wrote, proposed, refused, and must ask the user about."""

    written: list[WrittenNote] = []
    proposed: list[Note] = []
    contradictions: list[Contradiction] = []
    doubts: list[tuple[Note, Note]] = []
    """Core lines, each with a statement that may replace it: the model says so, no common word does.
    """
    refused: list[RefusedOperation] = []

    def events(self, *, silent: bool) -> list[NoteKept]:
        """The events to show: one for each written note, unless `silent`, and one for all
        proposals together.
        """
        events: list[NoteKept] = []
        if not silent:
            events += map(note_event, self.written)
        if self.proposed:
            events.append(proposal_event(self.proposed))
        return events


class _Excerpt(msgspec.Struct, frozen=True):
    """What one request to the classifier is about."""

    spoken: Sequence[Spoken]
    own: Sequence[Spoken]
    """The messages whose words count as the user's."""
    turn: TurnRef
    trigger: Trigger
    recalled: Sequence[str] = ()
    """The notes that were sent to the model in these turns: the turns may confirm them."""
    sources: Sequence[str] = ()
    """What came into the session from outside before these messages."""
    checked: frozenset[int] = frozenset()
    """The turns that ended with passing checks."""
    lines: Mapping[str, Note] = {}
    """The lines of the core, by id; `_read_excerpt` adds them."""


class Capture(msgspec.Struct, eq=False):
    """Asks the classifier for operations, and carries them out."""

    notes: SessionNotes
    question: MeaningQuestion
    run_alone: Callable[[Callable[[], None]], Awaitable[None]] = asyncio.to_thread
    """Runs a function that writes memory in a thread, while nothing else writes."""
    asks: bool = False
    """Every note becomes a proposal."""
    find_checked: Callable[[Sequence[Message], int], frozenset[int]] = _no_turns
    """Returns the turns among messages, up to the turn of that number, that ended with passing
    checks.
    """

    async def run_parts(
        self,
        transcript: Transcript,
        parts: Iterable[SessionPart],
        session_id: str,
        trigger: Trigger,
    ) -> AsyncGenerator[tuple[SessionPart | None, Captured], None]:
        """Make notes of these parts of a session, and yield each part with what was captured from
        it. Raises ModelError or TimeoutError; if something of the current part was captured before,
        it is yielded first, with None: the part is to be read again.
        """
        # Kept here, because the transcript grows meanwhile and may be compacted.
        earlier_entries, entries = transcript.kept_entries, transcript.entries
        is_whole = transcript.is_whole
        # What was sent in an old session may be gone or changed: only what is near now is shown.
        is_old = trigger == "crystallization"
        recalled = {} if is_old else dict(transcript.recalled)
        for part in parts:
            messages = [entry.message for entry in (*earlier_entries, *entries[: part.end])]
            turn = TurnRef(session_id, part.turn)
            captured = Captured()
            try:
                async with asyncio.timeout(PART_TIMEOUT):
                    sources = await asyncio.to_thread(
                        self.notes.find_outside_sources, messages, is_whole=is_whole
                    )
                    checked = self.find_checked(messages, part.turn)
                    await self.run(
                        part.spoken,
                        turn,
                        trigger,
                        recalled=_ids_of_sent_notes(part, recalled),
                        sources=sources,
                        checked=checked,
                        captured=captured,
                    )
            except (OuroError, OSError, TimeoutError):
                # The first of two requests may have written notes: they are shown all the same.
                yield None, captured
                raise
            yield part, captured

    async def run(
        self,
        spoken: Sequence[Spoken],
        turn: TurnRef,
        trigger: Trigger,
        recalled: Sequence[str] = (),
        sources: Sequence[str] = (),
        checked: frozenset[int] = frozenset(),
        captured: Captured | None = None,
    ) -> Captured:
        """Make notes of what was said. Raises ModelError.

        Args:
            recalled: the ids of notes that were sent to the model in these turns.
            sources: what had come into the session from outside by then. The user's words are then
                read alone first, and a second request reads everything; its notes are proposals.
            checked: the numbers of the turns that ended with passing checks.
            captured: what is captured is added to it, also by the first of two requests if the
                second one fails; None: to an empty one.
        """
        captured = Captured() if captured is None else captured
        own_messages = [message for message in spoken if message.is_own]
        other_messages = [message for message in spoken if not message.is_own]
        is_small = self.question.is_small()
        # A note from the user's words alone counts as the user's (see the module). A small model
        # reads only the user's words.
        is_own_alone = bool(sources) or is_small
        excerpts = [
            _Excerpt(
                spoken=own_messages if is_own_alone else spoken,
                own=own_messages,
                turn=turn,
                trigger=trigger,
                recalled=recalled,
                checked=checked,
            )
        ]
        if sources and not is_small and _has_enough_text(other_messages):
            # The second request. No words count as the user's own in it.
            excerpts.append(
                _Excerpt(
                    spoken=spoken,
                    own=[],
                    turn=turn,
                    trigger=trigger,
                    recalled=recalled,
                    sources=sources,
                )
            )
        for excerpt in excerpts:
            if _has_enough_text(excerpt.spoken):
                await self._read_excerpt(excerpt, captured)
        for operation in captured.refused:
            log.info("capture: refused (%s): %s", operation.reason, operation.said)
        return captured

    async def _read_excerpt(self, excerpt: _Excerpt, captured: Captured) -> None:
        """Ask the classifier about an excerpt, carry out its operations, and add what became of them
        to `captured`. Raises ModelError.
        """
        core_lines = await asyncio.to_thread(self.notes.core_lines)
        excerpt = replace(excerpt, lines={line.id: line for line in core_lines})
        shown_notes = await asyncio.to_thread(self._choose_shown_notes, excerpt)
        limits = OperationLimits(
            shown_notes,
            self.question.categories,
            self.notes.notebook.scopes,
            root=str(self.notes.root),
        )
        operations, refused = await self.question.read(excerpt.spoken, excerpt.own, limits)
        captured.refused += refused
        is_only_user = list(excerpt.own) == list(excerpt.spoken)
        if is_only_user:  # only the user can be the source, whatever the model says
            operations = tuple(replace(operation, source="user") for operation in operations)
        await self.run_alone(lambda: self._apply_all(operations, excerpt, captured))

    def _choose_shown_notes(self, excerpt: _Excerpt) -> list[Note]:
        """Return the notes that the classifier sees: the recalled ones, those nearest to what was
        said, and the core lines with the most words of the user.
        """
        # The recalled notes, and the nearest.
        notes: dict[str, Note] = {}
        for note_id in excerpt.recalled[:MAX_SHOWN_NOTES]:
            with suppress(NoteError):  # deleted meanwhile
                notes[note_id] = self.notes.notebook.find(note_id).note
        for note in self.notes.find_nearest(excerpt.spoken, MAX_SHOWN_NOTES):
            notes.setdefault(note.id, note)

        # The core lines.
        words_of_user: set[str] = set()
        for message in excerpt.spoken:
            if message.role == "user":
                words_of_user |= word_starts(message.text)
        common_counts = {
            line.id: len(words_of_user & word_starts(line.text)) for line in excerpt.lines.values()
        }
        # Lines without a common word, too: another language, or other words for the same thing.
        nearest_ids = sorted(common_counts, key=lambda line_id: -common_counts[line_id])
        shown_lines = [excerpt.lines[line_id] for line_id in nearest_ids[:MAX_SHOWN_LINES]]
        return [*notes.values(), *shown_lines]

    def _apply_all(
        self, operations: Sequence[Operation], excerpt: _Excerpt, captured: Captured
    ) -> None:
        """Carry out operations, and add what became of each to `captured`. An operation that fails
        counts as refused, and the next one is carried out.
        """
        for operation in operations:
            try:
                if operation.verb == "confirm":
                    self._confirm(operation, excerpt, captured)
                else:
                    self._apply(operation, excerpt, captured)
            except (OuroError, OSError) as error:
                reason = error.message if isinstance(error, OuroError) else str(error)
                said = operation.text or operation.target
                captured.refused.append(RefusedOperation(said, reason))

    def _confirm(self, operation: Operation, excerpt: _Excerpt, captured: Captured) -> None:
        """Confirm the core line or note that an operation names. A core line does not record when
        it was confirmed, so this is only shown. A note is not confirmed if the user is asked about
        every note (`asks`). If something came from outside, only a note that was recalled is
        confirmed: the operation may repeat what came from there.
        """
        if line := excerpt.lines.get(operation.target):
            captured.written.append(WrittenNote("confirm", line, line.scope))
        elif not self.asks and (not excerpt.sources or operation.target in excerpt.recalled):
            turn = replace(excerpt.turn, message=excerpt.spoken[-1].number)
            trailers = turn.trailers("capture")
            captured.written.append(
                self.notes.notebook.confirm(operation.target, "capture", trailers)
            )

    def _apply(self, operation: Operation, excerpt: _Excerpt, captured: Captured) -> None:
        """Write or propose the note of an operation. If a core line has the same words, nothing is
        written: if the user said so, it is shown that the line is confirmed.

        Raises NoteError if the text was captured before, the user asked to forget it, or the changes
        of its turn show it.
        """
        repository = self.notes.repository(operation.scope)
        if _was_captured_since(repository, operation.text, excerpt.spoken[0].at):
            raise NoteError("it was captured before")
        if is_forgotten(operation.text, excerpt.own):
            raise NoteError("the user asked to forget it")
        if operation.verb == "add" and _is_shown_by_changes(operation.text, excerpt.spoken):
            raise NoteError("the changes of the same turn show it")
        same_line = _find_same_line(operation.text, excerpt.lines.values())
        if same_line is None:
            self._add(operation, excerpt, captured, repository)
        elif operation.source == "user":
            captured.written.append(WrittenNote("confirm", same_line, same_line.scope))

    def _add(
        self,
        operation: Operation,
        excerpt: _Excerpt,
        captured: Captured,
        repository: GitRepository,
    ) -> None:
        """Write or propose the note of an operation, and record that its text was captured.

        It is proposed in four cases: it contradicts a core line, whose place it would take;
        something came from outside; the user is asked about every note; or it is doubtful that the
        user meant it.
        """
        core_line = excerpt.lines.get(operation.target)
        # Core lines are no notes: a note is not linked to one.
        verb = "add" if core_line else operation.verb
        related = [note_id for note_id in operation.related if note_id not in excerpt.lines]
        note, message = self._make_note(operation, excerpt)
        note = self.notes.notebook.link(note, verb, operation.target, related)
        must_ask = excerpt.sources or self.asks or operation.certainty == "doubtful"

        # Propose it, or write it. What was proposed once is not captured again, also if the user
        # rejects it; what was written is, if the user says it again later.
        said_until = _AFTER_EVERY_TIME
        if core_line and operation.verb == "contradict":
            note = self.notes.notebook.add_times(note)
            captured.contradictions.append(
                self.notes.propose_instead(core_line, note, excerpt.sources)
            )
        elif must_ask:
            note = self.notes.notebook.add_times(note)
            self.notes.propose(note, excerpt.sources, operation.certainty)
            captured.proposed.append(note)
        else:
            said_until = excerpt.spoken[-1].at
            if note.source == "assistant" and note.turn not in excerpt.checked:
                note = _as_tentative(note, message)
            corrected_line = core_line if operation.verb == "supersede" else None
            is_sure = operation.certainty == "compared"
            written = self._write_statement(
                note, verb, message, corrected=corrected_line, is_sure=is_sure
            )
            captured.written.append(written)
            # The note did not replace the line that the model says it does: the user decides.
            if corrected_line and written.change == "add":
                captured.doubts.append((corrected_line, written.note))
        _record_fingerprint(repository, note.text, said_until)

    def _write_statement(
        self, note: Note, verb: Verb, message: Spoken, corrected: Note | None, *, is_sure: bool
    ) -> WrittenNote:
        """Write what the user said in `message` into the core if it belongs there, instead of the
        core line `corrected`. Everything else becomes a note.

        Args:
            note: the statement as the model wrote it. For the core, a short message is written in
                the words of the user.
            is_sure: the subjects of the statement and of `corrected` were compared.
        """
        may_be_core_line = note.source == "user" and not note.branch and not note.until
        if may_be_core_line:
            statement = message.text if len(message.text) <= _MAX_MESSAGE_FOR_NOTE else note.text
            corrected_text = corrected.text if corrected else ""
            written = self.notes.keep_in_core(
                note, statement, message.number, corrected_text, is_sure=is_sure
            )
            if written:
                return written
        return self.notes.notebook.add(note, "capture", {MESSAGE: str(message.number)}, verb)

    def _make_note(self, operation: Operation, excerpt: _Excerpt) -> tuple[Note, Spoken]:
        """Make the note of an operation. Returns it with the message from which it was made: the
        one that has the most words in common with it, first of those that the entry which it
        changes has not; if several have as many, a message of the user.
        """
        in_repo = operation.scope == "repo"
        changed_text = self._find_changed_text(operation, excerpt)
        words = words_and_numbers(operation.text)
        added_words = words - words_and_numbers(changed_text)

        def count_common(said: Spoken) -> tuple[int, int, bool]:
            said_words = words_and_numbers(said.text)
            return len(added_words & said_words), len(words & said_words), said.role == "user"

        message = max(excerpt.spoken, key=count_common)
        is_users = operation.source == "user" and _has_said(operation, excerpt.own, changed_text)
        main_branch = self.notes.main_branch() if in_repo and message.branch else ""
        is_on_other_branch = main_branch != "" and message.branch != main_branch
        note = Note(
            id=new_id(),
            text=operation.text,
            scope=operation.scope,
            category=operation.category,
            session_id=excerpt.turn.session,
            turn=message.turn or excerpt.turn.turn,
            trigger=excerpt.trigger,
            source="user" if is_users else "assistant",
            confidence=operation.confidence,
            branch=message.branch if is_on_other_branch else None,
            entities=operation.entities,
            relations=operation.relations,
            until=operation.until,
            search_words=operation.search_words,
            anchors=self.notes.anchors.of(operation.entities) if in_repo else (),
        )
        return note, message

    def _find_changed_text(self, operation: Operation, excerpt: _Excerpt) -> str:
        """The text of the core line or note that an operation changes; empty if it adds, or the
        entry was deleted meanwhile. Blocks.
        """
        if not operation.target:
            return ""
        if line := excerpt.lines.get(operation.target):
            return line.text
        try:
            return self.notes.notebook.find(operation.target).note.text
        except NoteError:
            return ""


def _has_said(operation: Operation, own: Sequence[Spoken], changed_text: str) -> bool:
    """Whether the user said enough words of a note that a model attributes to the user.

    A correction need not repeat what it corrects (`no, 6543`, about `The database listens on
    5433`). So the words of the changed entry count, which are as approved as the entry is, if the
    user said a word that the note adds, or, if it adds none, a word of the entry. What only the
    assistant said stays the assistant's.

    Args:
        own: the messages whose words count as the user's.
        changed_text: the text of the entry that the operation changes; empty if it adds.
    """
    words = words_and_numbers(operation.text)
    words_of_user = set[str]().union(*(words_and_numbers(said.text) for said in own))
    changed_words = words_and_numbers(changed_text)
    named_words = (words - changed_words) or changed_words
    is_correction = operation.certainty == "compared" or not named_words.isdisjoint(words_of_user)
    if is_correction:
        words_of_user |= changed_words
    return len(words & words_of_user) >= _MIN_OWN_SHARE * len(words)


def _ids_of_sent_notes(part: SessionPart, records: Mapping[int, RecalledRecord]) -> tuple[str, ...]:
    """The ids of the notes that were sent to the model with the messages of a part, each once.
    `records` has what was recalled for each message, by its number.
    """
    ids: dict[str, None] = {}
    for message in part.spoken:
        record = records.get(message.number)
        for item in record.items if record else ():
            if item.state == "loaded":
                ids[item.id] = None
    return tuple(ids)


def _is_shown_by_changes(text: str, spoken: Sequence[Spoken]) -> bool:
    """Whether the files that a turn changed show what a text says: tools received its words in the
    turn of one of the messages. A text that says that it lasts is never shown by them.
    """
    if is_lasting(text):
        return False
    return any(is_carried_out(text, message.tool_input) for message in spoken)


def _find_same_line(text: str, lines: Iterable[Note]) -> Note | None:
    """The first core line with the same words as a text; None if there is none."""
    words = fold_words(text)
    for line in lines:
        if fold_words(line.text) == words:
            return line
    return None


def _as_tentative(note: Note, message: Spoken) -> Note:
    """The note marked as tentative since the day of the message, with a low confidence: neither a
    check nor the user has confirmed it.
    """
    confidence = min(note.confidence, TENTATIVE_CONFIDENCE)
    return replace(note, tentative=message.day.isoformat(), confidence=confidence)


def _was_captured_since(repository: GitRepository, text: str, since: str) -> bool:
    """Whether a text was captured from words that were said at the time `since` or later, or was
    ever proposed. The order of its words does not count. Blocks.

    What the user removed must not come back, unless the user says it again later.
    """
    wanted = _fingerprint(text)
    for fingerprint, said_until in _read_fingerprints(repository):
        # What was only proposed is recorded with a time after every other.
        if fingerprint == wanted and said_until >= since:
            return True
    return False


def _record_fingerprint(repository: GitRepository, text: str, said_until: str) -> None:
    """Record, outside of the git history, that a text was captured from words that were last said
    at the time `said_until`. Blocks.
    """
    repository.create(with_git=False)
    with repository.hold_lock():
        records = [*_read_fingerprints(repository), (_fingerprint(text), said_until)]
        newest_records = records[-_MAX_FINGERPRINTS:]
        lines = [f"{fingerprint} {time}" for fingerprint, time in newest_records]
        repository.write_record(_FINGERPRINTS, "\n".join(lines))


def _read_fingerprints(repository: GitRepository) -> list[tuple[str, str]]:
    """Read the fingerprints of captured texts, oldest first, each with the time at which its words
    were last said. Blocks.
    """
    lines = repository.read_record(_FINGERPRINTS).splitlines()
    fields = (line.partition(" ") for line in lines)
    return [(fingerprint, said_until) for fingerprint, _, said_until in fields]


def _fingerprint(text: str) -> str:
    """A hash of the words and numbers of a text, the same for every order of them. A text without
    any is hashed as it is.
    """
    # Without the short numbers, `gate 4` was never captured once `gate 17` was rejected. Longer
    # ones are among the words: so earlier records match.
    short_numbers = {number for number in re.findall(r"\d+", text) if len(number) < 3}
    words = sorted(word_starts(text) | short_numbers) or [text.casefold()]
    return hashlib.sha256(" ".join(words).encode(errors="replace")).hexdigest()[:16]


def _has_enough_text(spoken: Sequence[Spoken]) -> bool:
    """Whether there is enough text to ask a model about it."""
    # `findable` puts spaces around Chinese characters, so that each counts as three letters.
    return sum(len(findable(message.text)) for message in spoken) >= _MIN_CHARACTERS
