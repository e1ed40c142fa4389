"""Capture: what of these turns is worth keeping. Beside the conversation, by a model that sees words and no tools.

What a model makes of the person's words alone is the person's. What it makes of the assistant's words, when the
assistant had read files, pages or outputs by then, may be theirs: it waits as a proposal (THREATS M1). So where
anything came from outside, the person's words are read on their own first."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from ouro.errors import LongTermMemoryError, ModelError, NoteError, OuroError
from ouro.memory.long_term.capture.operations import Ground, Operation, Refused, is_answer, read_operations
from ouro.memory.long_term.capture.request import Spoken, capture_request, is_own
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.long_term.git.values import MESSAGE, SESSION, TURN, Origin, Scope
from ouro.memory.long_term.notes.note import Note, Source, Trigger, new_id
from ouro.memory.long_term.notes.notebook import Notebook, Written
from ouro.memory.long_term.notes.validity import Anchors
from ouro.messages import Message
from ouro.utils.log import log
from ouro.utils.text import clean

SHOWN = 12
"""Notes that the classifier is shown."""
_LEAST_OWN_SHARE = 0.4
"""Of a note's words, for it to count as what the person said."""
_LEAST_SAID = 12
"""Characters of all words, for a model to be asked at all."""
_WORD = re.compile(r"\w{3,}")


class CaptureParts(msgspec.Struct, frozen=True):
    """What capture is made of."""

    ask: Callable[[list[Message]], Awaitable[str]]
    """The classifier. Raises ModelError."""
    notebook: Notebook
    nearest: Callable[[Sequence[Spoken], int], Sequence[Note]]
    """The notes nearest to what was said, at most so many; may block."""
    propose: Callable[[Note, Sequence[str]], None]
    """Keep a note that waits for the person, and what had been read by then; may block."""
    categories: Mapping[str, Scope]
    mark: str
    said_before: Callable[[Scope], SaidBefore]
    root: str = ""
    """The repository, for the names of files."""
    anchors: Anchors | None = None
    main_branch: Callable[[], str] = lambda: ""
    """The branch that work is merged into: what is learned on another one is known there only. May block."""
    asks: bool = False
    """Everything waits for the person."""
    alone: Callable[[Callable[[], Captured]], Awaitable[Captured]] = asyncio.to_thread
    """Runs in a thread what writes, while nothing else writes."""


class Moment(msgspec.Struct, frozen=True):
    """Where in which session it is captured."""

    session_id: str
    turn: int
    trigger: Trigger
    recalled: tuple[str, ...] = ()
    """The notes that the model was handed meanwhile: they may have been borne out."""


class Captured(msgspec.Struct, frozen=True):
    """What came of a capture."""

    written: tuple[Written, ...] = ()
    proposed: tuple[Note, ...] = ()
    refused: tuple[Refused, ...] = ()


class _Reading(msgspec.Struct, frozen=True):
    """What a classifier was asked about."""

    spoken: Sequence[Spoken]
    said: set[str]
    """The words of the person."""
    moment: Moment
    sources: Sequence[str]

    @property
    def since(self) -> str:
        return self.spoken[0].at


class Capture:
    """Reads what was said, and keeps what is worth it."""

    def __init__(self, parts: CaptureParts) -> None:
        self._parts = parts

    async def run(self, spoken: Sequence[Spoken], moment: Moment, sources: Sequence[str] = ()) -> Captured:
        """Keep what is worth it of `spoken`, which came after the last capture.

        Args:
            sources: what had come into the conversation from outside by then.

        Raises:
            ModelError: the classifier did not answer, or nothing that can be understood; nothing was written of it.
        """
        own = [each for each in spoken if is_own(each)]
        if not sources:
            return await self._read(spoken, own, moment, ())
        first = await self._read(own, own, moment, ())
        rest = [each for each in spoken if each not in own]
        second = await self._read(spoken, [], moment, sources) if _is_enough(rest) else Captured()
        written, proposed = (*first.written, *second.written), (*first.proposed, *second.proposed)
        return Captured(written, proposed, (*first.refused, *second.refused))

    async def _read(
        self, spoken: Sequence[Spoken], own: Sequence[Spoken], moment: Moment, sources: Sequence[str]
    ) -> Captured:
        if not _is_enough(spoken):
            return Captured()
        shown = await asyncio.to_thread(self._shown, spoken, moment)
        answer = await self._parts.ask(capture_request(spoken, shown, self._parts.categories, self._parts.mark))
        if not is_answer(answer):
            raise ModelError(f"The classifier answered nothing that can be understood: {clean(answer)[:80]!r}")
        ground = Ground(shown, self._parts.categories, self._parts.notebook.scopes, self._parts.root)
        operations, refused = read_operations(answer, ground)
        if own == list(spoken):
            operations = tuple(replace(each, source="user") for each in operations)
        reading = _Reading(spoken, {word for each in own for word in _words(each.text)}, moment, sources)
        done = await self._parts.alone(lambda: self._do_all(operations, reading))
        refused = (*refused, *done.refused)
        for each in refused:
            log.info("capture: refused (%s): %s", each.reason, each.said)
        return replace(done, refused=refused)

    def _shown(self, spoken: Sequence[Spoken], moment: Moment) -> list[Note]:
        """What was recalled, which may have been borne out, and what is nearest."""
        found: dict[str, Note] = {}
        for note_id in moment.recalled[:SHOWN]:
            try:
                found[note_id] = self._parts.notebook.find(note_id).note
            except NoteError:
                continue  # gone meanwhile
        for note in self._parts.nearest(spoken, SHOWN):
            found.setdefault(note.id, note)
        return list(found.values())

    def _do_all(self, operations: Sequence[Operation], reading: _Reading) -> Captured:
        written: list[Written] = []
        proposed: list[Note] = []
        refused: list[Refused] = []
        for each in operations:
            try:
                if each.verb == "confirm":
                    written += self._confirmed(each, reading)
                elif self._parts.said_before(each.scope).knows(each.text, reading.since):
                    refused.append(Refused(each.text, "it was captured before"))
                elif reading.sources or self._parts.asks:
                    proposed.append(self._proposed(each, reading))
                else:
                    written.append(self._written(each, reading))
            except (LongTermMemoryError, OSError) as error:
                reason = error.message if isinstance(error, OuroError) else str(error)
                log.warning("capture: not kept (%s): %s", reason, each.text or each.target)
                refused.append(Refused(each.text or each.target, reason))
        return Captured(tuple(written), tuple(proposed), tuple(refused))

    def _confirmed(self, operation: Operation, reading: _Reading) -> list[Written]:
        """What may be from outside bears out only what the model was handed; it makes nothing known that was not."""
        moment = reading.moment
        if self._parts.asks or (reading.sources and operation.target not in moment.recalled):
            return []
        trailers = {SESSION: moment.session_id, TURN: str(moment.turn), MESSAGE: str(reading.spoken[-1].number)}
        return [self._parts.notebook.confirm(operation.target, _ORIGIN, trailers)]

    def _proposed(self, operation: Operation, reading: _Reading) -> Note:
        """Nothing is replaced by what may be from outside: it can only be put to the person."""
        book, (note, _) = self._parts.notebook, self._note(operation, reading)
        match operation.verb:
            case "supersede":
                note = book.successor(operation.target, note)
            case "refine":
                note = book.tied(note, operation.target, "refines")
            case "contradict":
                note = book.tied(note, operation.target, "contradicts")
        note = book.dated(note)
        self._parts.propose(note, reading.sources)
        self._parts.said_before(note.scope).add_for_good(note.text)
        return note

    def _written(self, operation: Operation, reading: _Reading) -> Written:
        book, target = self._parts.notebook, operation.target
        note, whence = self._note(operation, reading)
        trailers = {MESSAGE: str(whence.number)}
        match operation.verb:
            case "supersede":
                written = book.supersede(target, note, _ORIGIN, trailers)
            case "refine":
                written = book.connect(note, target, "refines", _ORIGIN, trailers)
            case "contradict":
                written = book.connect(note, target, "contradicts", _ORIGIN, trailers)
            case _:
                written = book.add(note, _ORIGIN, trailers)
        self._parts.said_before(note.scope).add(note.text, reading.spoken[-1].at)
        return written

    def _note(self, operation: Operation, reading: _Reading) -> tuple[Note, Spoken]:
        """The note, and the message that says the most of it."""
        in_repo, moment, words = operation.scope == "repo", reading.moment, _words(operation.text)
        whence = max(reading.spoken, key=lambda each: (len(words & _words(each.text)), each.role == "user"))
        note = Note(
            id=new_id(),
            text=operation.text,
            scope=operation.scope,
            category=operation.category,
            session_id=moment.session_id,
            turn=whence.turn or moment.turn,
            trigger=moment.trigger,
            source=_source(operation, reading.said),
            confidence=operation.confidence,
            branch=self._branch(whence) if in_repo else None,
            entities=operation.entities,
            relations=operation.relations,
            anchors=self._parts.anchors.of(operation.entities) if in_repo and self._parts.anchors else (),
        )
        return note, whence

    def _branch(self, whence: Spoken) -> str | None:
        main = self._parts.main_branch() if whence.branch else ""
        return whence.branch if main and whence.branch != main else None


_ORIGIN: Origin = "capture"


def _is_enough(spoken: Sequence[Spoken]) -> bool:
    return sum(len(each.text) for each in spoken) >= _LEAST_SAID


def _source(operation: Operation, said: set[str]) -> Source:
    """What a model calls the person's counts as theirs only where enough of its words are."""
    words = _words(operation.text)
    own = sum(word in said for word in words)
    return "user" if operation.source == "user" and own >= _LEAST_OWN_SHARE * len(words) else "assistant"


def _words(text: str) -> set[str]:
    return {word[:5] for word in _WORD.findall(text.casefold())}


_NAME = "captured"
_MOST = 2_000
_FOR_GOOD = "~"
"""Sorts behind every time."""
_SAID_BEFORE_WORD = re.compile(r"\w{3,}")


class SaidBefore:
    """Of one scope; kept beside its history, as prints that cannot be read back. Blocks: use from a thread."""

    def __init__(self, history: GitRepository) -> None:
        self._history = history

    def knows(self, text: str, since: str) -> bool:
        """Whether this was written already from words of which some were said at `since` or later, or proposed ever.

        Words of the same meaning in another order count as the same; said again later, it is new.
        """
        found = _print(text)
        return any(each == found and at >= since for each, at in self._lines())

    def add(self, text: str, until: str) -> None:
        """It was written, from words of which the last were said at `until`."""
        self._history.create()
        with self._history.alone():
            lines = [*self._lines(), (_print(text), until)][-_MOST:]
            self._history.keep(_NAME, "\n".join(f"{found} {at}" for found, at in lines))

    def add_for_good(self, text: str) -> None:
        """It was proposed: once is enough."""
        self.add(text, _FOR_GOOD)

    def _lines(self) -> list[tuple[str, str]]:
        parted = (line.partition(" ") for line in self._history.own(_NAME).splitlines())
        return [(found, at) for found, _, at in parted]


def _print(text: str) -> str:
    words = sorted({word[:5] for word in _SAID_BEFORE_WORD.findall(text.casefold())}) or [text.casefold()]
    return hashlib.sha256(" ".join(words).encode(errors="replace")).hexdigest()[:16]
