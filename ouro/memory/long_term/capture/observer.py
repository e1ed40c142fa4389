"""Learning: when what was said is captured into notes. Beside the conversation, which never waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ouro.display import Question
from ouro.errors import OuroError
from ouro.events import NoteKept, Reply
from ouro.memory.backend import CapturedRecord, RecalledRecord
from ouro.memory.long_term.capture.backlog import Missed, MissedSession, Piece, turns_since, uncaptured
from ouro.memory.long_term.git.values import Scope
from ouro.memory.long_term.manager import LongTermMemoryManager
from ouro.memory.long_term.notes.note import Note
from ouro.memory.long_term.notes.notebook import Notebook, Written
from ouro.memory.manager import MemoryManager
from ouro.memory.message_tree import TranscriptEntry
from ouro.memory.side_calls import SessionChannel
from ouro.memory.transcript import Transcript
from ouro.utils.log import log
from ouro.utils.repository import branch_in_note
from ouro.utils.text import escaped

if TYPE_CHECKING:
    from ouro.memory.long_term.capture.capture import Captured
    from ouro.memory.long_term.capture.learner import Learner
    from ouro.memory.long_term.notes.note import Note, Trigger

IDLE_SECONDS = 20.0
"""So long after the start, or after the first turn, what was missed is caught up with."""
LONGEST_SECONDS = 180.0
"""A classifier may take for one piece; then it has failed."""
_MOST_SKIPPED = 7
"""Triggers that are passed over after several failures in a row."""
_PAGE = 200
"""Messages that are read at once."""


class LearningParts(msgspec.Struct, frozen=True):
    """What Learning is made of."""

    memory: MemoryManager
    knowledge: LongTermMemoryManager
    learner: Callable[[], Learner]
    """Made when it is first needed."""
    missed: Missed
    channel: SessionChannel
    cadence: int = 5
    """Turns between two captures."""
    silent: bool = False
    """The person is not told of what is written; what waits for them is told all the same."""
    idle: float = IDLE_SECONDS


class _Said(msgspec.Struct, frozen=True):
    """A conversation as it was when a capture began: it goes on meanwhile, and may be compacted."""

    kept: Sequence[TranscriptEntry]
    """What a compaction keeps from before the others."""
    entries: Sequence[TranscriptEntry]
    recalled: Mapping[int, RecalledRecord]
    is_whole: bool

    @classmethod
    def of(cls, transcript: Transcript) -> _Said:
        return cls(transcript.kept, transcript.entries, dict(transcript.recalled), transcript.is_whole)


class Learning:
    """For one session."""

    def __init__(self, parts: LearningParts) -> None:
        self._parts = parts
        self._memory = parts.memory
        self._made: Learner | None = None
        self._channel = parts.channel
        self._has_spoken = asyncio.Event()
        self.busy = asyncio.Lock()
        """Held while a model is asked out of band: one at a time, captures first."""
        self._wanted: Trigger | None = None
        self._failures = 0
        self._skips = 0

    def start(self) -> None:
        """Begin to catch up on what was missed, once the user has had their first answer; returns at once."""
        self._channel.start("catch up", self._catch_up())

    def turn_ended(self) -> None:
        """Capture, where enough turns have come; gives back at once."""
        self._has_spoken.set()
        transcript = self._memory.transcript
        if turns_since(transcript.entries, transcript.captured) >= self._parts.cadence:
            self._begin("cadence")

    def compacted(self) -> None:
        """Capture what a summary stands for now; gives back at once."""
        self._begin("compaction")

    @property
    def _learner(self) -> Learner:
        if self._made is None:
            self._made = self._parts.learner()
        return self._made

    def _begin(self, trigger: Trigger) -> None:
        if self._memory.read_only:
            return
        if self._skips:
            self._skips -= 1
            return
        if self._wanted is None:
            self._wanted = trigger
            self._channel.start("capture", self._run())

    async def _run(self) -> None:
        async with self.busy:
            trigger, self._wanted = self._wanted or "cadence", None
            try:
                await self._capture(trigger)
            except (OuroError, OSError, TimeoutError) as error:
                self._fail(error)
            else:
                self._failures = 0

    def _fail(self, error: Exception) -> None:
        """Nobody is told: the next trigger tries again, after several failures not each of them."""
        log.warning("capture: %s", error or type(error).__name__)
        self._skips = min(2**self._failures - 1, _MOST_SKIPPED)
        self._failures += 1

    async def _capture(self, trigger: Trigger) -> None:
        """This session, up to now."""
        await self._load_uncaptured()
        transcript, said = self._memory.transcript, _Said.of(self._memory.transcript)
        for piece in list(uncaptured(said.entries, transcript.captured, branch_in_note, transcript.turns_gone)):
            await self._capture_piece(piece, said, self._memory.session_id, trigger)
            self._memory.note(CapturedRecord(piece.upto, self._memory.now()))
        self._memory.let_go()

    async def _load_uncaptured(self) -> None:
        """What nobody has captured may have left memory with a compaction, or was never loaded."""
        memory = self._memory
        await memory.read_all()
        while memory.has_earlier and memory.transcript.entries[0].number > memory.transcript.captured + 1:
            await memory.earlier(_PAGE)

    async def _capture_piece(self, piece: Piece, said: _Said, session_id: str, trigger: Trigger) -> None:
        from ouro.memory.long_term.capture.capture import Moment  # what reads answers of models, for who has some

        messages = [each.message for each in (*said.kept, *said.entries[: piece.place])]
        moment = Moment(session_id, piece.turn, trigger, _recalled(said.recalled, piece))
        async with asyncio.timeout(LONGEST_SECONDS):
            done = await self._learner.capture(piece, messages, moment, is_whole=said.is_whole)
        self._tell(done)

    async def _catch_up(self) -> None:
        """Never before the first request: then what was missed is captured, and old notes are looked after."""
        try:
            async with asyncio.timeout(self._parts.idle):
                await self._has_spoken.wait()
        except TimeoutError:
            log.info("capture: nobody is waiting, what was missed is caught up with")
        try:
            await self._look_after_notes()
            async with self.busy, aclosing(self._parts.missed.sessions()) as sessions:
                async for session in sessions:
                    await self._capture_missed(session)
        except (OuroError, OSError, TimeoutError) as error:
            self._fail(error)

    async def _capture_missed(self, session: MissedSession) -> None:
        said = _Said.of(session.transcript)
        for piece in session.pieces:
            await self._capture_piece(piece, said, session.id, "session-end")
            await asyncio.to_thread(self._parts.missed.keep, session, piece)

    async def _look_after_notes(self) -> None:
        from ouro.memory.long_term.notes.note_events import together

        done = await self._learner.upkeep()
        if done.faded:
            self._tell_unless_silent(together("archive", done.faded, "that nothing has confirmed for long"))
        if done.shared:
            self._tell_unless_silent(together("share", done.shared, "of a branch that is merged now"))

    def _tell(self, done: Captured) -> None:
        from ouro.memory.long_term.notes.note_events import kept, proposed

        self._tell_unless_silent(map(kept, done.written))
        if done.proposed:
            self._channel.emit(proposed(done.proposed))
        for each in done.written:
            if each.change == "contradict":
                self._channel.start("ask about notes", self._ask(each.note))

    async def _ask(self, new: Note) -> None:
        """Which of two notes holds; where nobody answers, both stay."""
        from ouro.memory.long_term.notes.note_events import kept

        notebook = self._learner.notebook
        old = await asyncio.to_thread(notebook.find, contradicted(new))
        answer = await self._channel.ask(f"note:{new.id}", question_about(new, old.note, notebook.scopes))
        if isinstance(answer, Reply) and answer.answers:
            said = answer.answers[0]
            done = await self._parts.knowledge.alone(lambda: resolve(notebook, new.id, old.note.id, said))
            if done is not None:
                self._channel.emit(kept(done))

    def _tell_unless_silent(self, events: Iterable[NoteKept]) -> None:
        if not self._parts.silent:
            for each in events:
                self._channel.emit(each)


def _recalled(recalled: Mapping[int, RecalledRecord], piece: Piece) -> tuple[str, ...]:
    """The notes that the model was handed for the messages of a piece."""
    items = (
        item
        for each in piece.spoken
        if (record := recalled.get(each.number))
        for item in record.items
        if item.state == "loaded"
    )
    return tuple(dict.fromkeys(item.id for item in items))


BOTH, NEW, OLD, HERE = "keep both", "the new one replaces it", "the old one stays", "the new one is for this project"


def contradicted(note: Note) -> str:
    """The id of the note that this one contradicts; empty where it contradicts none."""
    return next((edge.id for edge in note.related if edge.relationship == "contradicts"), "")


def question_about(new: Note, old: Note, scopes: Sequence[Scope]) -> Question:
    """What the person is asked, with both notes."""
    can_narrow = new.scope == "user" and "repo" in scopes
    choices = (BOTH, NEW, OLD, *((HERE,) if can_narrow else ()))
    details = f"- before ({old.confirmed_at[:10] or old.created_at[:10]}): {old.text}\n- now: {new.text}"
    return Question("Two notes say otherwise than each other. Which holds?", choices, details=escaped(details))


def resolve(notebook: Notebook, new_id: str, old_id: str, answer: str) -> Written | None:
    """Do what the person said; None where both stay as they are. Blocks.

    Raises:
        NoteError: one of them is gone by now.
        LongTermMemoryError, OSError: it could not be written.
    """
    new = notebook.find(new_id).note
    apart = replace(new, related=tuple(edge for edge in new.related if edge.id != old_id))
    match answer:
        case str() if answer == BOTH:
            return notebook.rewrite(notebook.tied(apart, old_id, "relates-to"), "person")
        case str() if answer == NEW:
            return notebook.rewrite(notebook.successor(old_id, apart), "person")
        case str() if answer == OLD:
            return notebook.archive([new_id], "person")[0]
        case str() if answer == HERE:
            return notebook.rewrite(replace(apart, scope="repo"), "person")
        case _:
            return None
