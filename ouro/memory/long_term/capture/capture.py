"""Capture: a model without tools decides what becomes a note.

What a model makes of the user's words alone counts as the user's. What it makes of the assistant's words after files,
pages or outputs came into the session may come from those: it becomes a pending proposal (M1). So if anything came
from outside, the user's words are read separately first.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from ouro.errors import LongTermMemoryError, ModelError, NoteError, OuroError
from ouro.memory.long_term.capture.operations import (
    Operation,
    OperationLimits,
    RefusedOperation,
    is_answer,
    read_operations,
)
from ouro.memory.long_term.capture.request import Spoken, capture_request, is_own
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.long_term.git.values import MESSAGE, SESSION, TURN, Origin, Scope
from ouro.memory.long_term.notes.note import Note, Source, Trigger, new_id
from ouro.memory.long_term.notes.notebook import Notebook, Written
from ouro.memory.long_term.notes.validity import Anchors
from ouro.messages import Message
from ouro.utils.log import log
from ouro.utils.text import clean

MAX_SHOWN_NOTES = 12
_MIN_OWN_SHARE = 0.4
"""Share of a note's words that the user must have said, for the user to be its source."""
_MIN_CHARACTERS = 12
"""The least amount of text for which a model is asked."""
_ORIGIN: Origin = "capture"
_WORD = re.compile(r"\w{3,}")


class CaptureNotes(Protocol):
    """What capture needs of notes (`SessionNotes`)."""

    notebook: Notebook
    anchors: Anchors

    def main_branch(self) -> str:
        """The branch that work is merged into; a note of another branch is recalled there only."""
        ...

    def repository(self, scope: Scope) -> GitRepository: ...

    def nearest(self, spoken: Sequence[Spoken], count: int) -> Sequence[Note]: ...

    def outside_sources(self, messages: Sequence[Message], *, is_whole: bool) -> tuple[str, ...]: ...

    def propose(self, note: Note, sources: Sequence[str], session_id: str) -> None:
        """Write a note as a pending proposal; `sources` came into the session before."""
        ...


class CaptureMoment(msgspec.Struct, frozen=True):
    session_id: str
    turn: int
    trigger: Trigger
    recalled: tuple[str, ...] = ()
    """The notes that went to the model meanwhile: the turns may confirm them."""


class Captured(msgspec.Struct, frozen=True):
    written: tuple[Written, ...] = ()
    proposed: tuple[Note, ...] = ()
    refused: tuple[RefusedOperation, ...] = ()


class _Excerpt(msgspec.Struct, frozen=True):
    spoken: Sequence[Spoken]
    user_words: set[str]
    moment: CaptureMoment
    sources: Sequence[str]


class Capture:
    """Asks the classifier, and writes the notes.

    Args:
        notes: those of the session.
        ask: the classifier. Raises ModelError.
        mark: surrounds quoted text in requests.
        categories: of notes, each with its usual scope.
        alone: runs in a thread what writes, while nothing else writes.
        asks: every note becomes a proposal.
        root: of the repository, for the names of files.
    """

    def __init__(
        self,
        notes: CaptureNotes,
        ask: Callable[[list[Message]], Awaitable[str]],
        mark: str,
        categories: Mapping[str, Scope],
        alone: Callable[[Callable[[], Captured]], Awaitable[Captured]] = asyncio.to_thread,
        *,
        asks: bool = False,
        root: str = "",
    ) -> None:
        self._notes = notes
        self._ask = ask
        self._mark = mark
        self._categories = categories
        self._alone = alone
        self._asks = asks
        self._root = root

    async def run(self, spoken: Sequence[Spoken], moment: CaptureMoment, sources: Sequence[str] = ()) -> Captured:
        """Make notes of `spoken`, the messages since the last capture.

        Args:
            sources: what had come into the session from outside by then.

        Raises:
            ModelError: the classifier did not answer, or not as asked; nothing was written.
        """
        own = [message for message in spoken if is_own(message)]
        if not sources:
            return await self._read(spoken, own, moment, ())
        first = await self._read(own, own, moment, ())
        rest = [message for message in spoken if message not in own]
        second = await self._read(spoken, [], moment, sources) if _is_enough(rest) else Captured()
        written, proposed = (*first.written, *second.written), (*first.proposed, *second.proposed)
        return Captured(written, proposed, (*first.refused, *second.refused))

    async def run_in(
        self, spoken: Sequence[Spoken], moment: CaptureMoment, messages: Sequence[Message], *, is_whole: bool = True
    ) -> Captured:
        """As `run`; what came from outside is found in `messages`, the session up to the last of `spoken`."""
        sources = await asyncio.to_thread(lambda: self._notes.outside_sources(messages, is_whole=is_whole))
        return await self.run(spoken, moment, sources)

    async def _read(
        self, spoken: Sequence[Spoken], own: Sequence[Spoken], moment: CaptureMoment, sources: Sequence[str]
    ) -> Captured:
        if not _is_enough(spoken):
            return Captured()
        shown = await asyncio.to_thread(self._shown, spoken, moment)
        answer = await self._ask(capture_request(spoken, shown, self._categories, self._mark))
        if not is_answer(answer):
            raise ModelError(f"The classifier's answer is not a list of operations: {clean(answer)[:80]!r}")
        limits = OperationLimits(shown, self._categories, self._notes.notebook.scopes, self._root)
        operations, refused = read_operations(answer, limits)
        if own == list(spoken):
            operations = tuple(replace(operation, source="user") for operation in operations)
        excerpt = _Excerpt(spoken, {word for message in own for word in _words(message.text)}, moment, sources)
        done = await self._alone(lambda: self._do_all(operations, excerpt))
        refused = (*refused, *done.refused)
        for operation in refused:
            log.info("capture: refused (%s): %s", operation.reason, operation.said)
        return replace(done, refused=refused)

    def _shown(self, spoken: Sequence[Spoken], moment: CaptureMoment) -> list[Note]:
        found: dict[str, Note] = {}
        for note_id in moment.recalled[:MAX_SHOWN_NOTES]:
            try:
                found[note_id] = self._notes.notebook.find(note_id).note
            except NoteError:
                continue  # deleted meanwhile
        for note in self._notes.nearest(spoken, MAX_SHOWN_NOTES):
            found.setdefault(note.id, note)
        return list(found.values())

    def _do_all(self, operations: Sequence[Operation], excerpt: _Excerpt) -> Captured:
        written: list[Written] = []
        proposed: list[Note] = []
        refused: list[RefusedOperation] = []
        for operation in operations:
            try:
                if operation.verb == "confirm":
                    written += self._confirm(operation, excerpt)
                elif self._captured_before(operation.scope).has(operation.text, excerpt.spoken[0].at):
                    refused.append(RefusedOperation(operation.text, "it was captured before"))
                elif excerpt.sources or self._asks:
                    proposed.append(self._propose(operation, excerpt))
                else:
                    written.append(self._write(operation, excerpt))
            except (LongTermMemoryError, OSError) as error:
                reason = error.message if isinstance(error, OuroError) else str(error)
                log.warning("capture: not written (%s): %s", reason, operation.text or operation.target)
                refused.append(RefusedOperation(operation.text or operation.target, reason))
        return Captured(tuple(written), tuple(proposed), tuple(refused))

    def _confirm(self, operation: Operation, excerpt: _Excerpt) -> list[Written]:
        """If something came from outside, only notes that were recalled can be confirmed."""
        moment = excerpt.moment
        if self._asks or (excerpt.sources and operation.target not in moment.recalled):
            return []
        trailers = {SESSION: moment.session_id, TURN: str(moment.turn), MESSAGE: str(excerpt.spoken[-1].number)}
        return [self._notes.notebook.confirm(operation.target, _ORIGIN, trailers)]

    def _propose(self, operation: Operation, excerpt: _Excerpt) -> Note:
        book = self._notes.notebook
        note, _ = self._note(operation, excerpt)
        note = book.dated(book.linked(note, operation.verb, operation.target, operation.related))
        self._notes.propose(note, excerpt.sources, excerpt.moment.session_id)
        self._captured_before(note.scope).add_for_good(note.text)
        return note

    def _write(self, operation: Operation, excerpt: _Excerpt) -> Written:
        book = self._notes.notebook
        note, message = self._note(operation, excerpt)
        note = book.linked(note, operation.verb, operation.target, operation.related)
        written = book.add(note, _ORIGIN, {MESSAGE: str(message.number)}, operation.verb)
        self._captured_before(note.scope).add(note.text, excerpt.spoken[-1].at)
        return written

    def _note(self, operation: Operation, excerpt: _Excerpt) -> tuple[Note, Spoken]:
        """The note, and the message that shares the most words with it."""
        in_repo, moment, words = operation.scope == "repo", excerpt.moment, _words(operation.text)
        message = max(excerpt.spoken, key=lambda said: (len(words & _words(said.text)), said.role == "user"))
        note = Note(
            id=new_id(),
            text=operation.text,
            scope=operation.scope,
            category=operation.category,
            session_id=moment.session_id,
            turn=message.turn or moment.turn,
            trigger=moment.trigger,
            source=_source(operation, excerpt.user_words),
            confidence=operation.confidence,
            branch=self._branch(message) if in_repo else None,
            entities=operation.entities,
            relations=operation.relations,
            anchors=self._notes.anchors.of(operation.entities) if in_repo else (),
        )
        return note, message

    def _branch(self, message: Spoken) -> str | None:
        main = self._notes.main_branch() if message.branch else ""
        return message.branch if main and message.branch != main else None

    def _captured_before(self, scope: Scope) -> CapturedTexts:
        return CapturedTexts(self._notes.repository(scope))


class CapturedTexts:
    """Fingerprints of what capture wrote or proposed in one scope, so that what the user removed does not come back.

    Stored beside the history of the scope. Every method blocks.
    """

    _NAME = "captured"
    _MAX = 2_000
    _FOREVER = "~"
    """Sorts after every time."""

    def __init__(self, repository: GitRepository) -> None:
        self._repository = repository

    def has(self, text: str, since: str) -> bool:
        """Whether this was written from words of which some were said at `since` or later, or was ever proposed.

        The same words in another order count as the same text. Said again later, it is new.
        """
        wanted = _fingerprint(text)
        return any(found == wanted and at >= since for found, at in self._lines())

    def add(self, text: str, until: str) -> None:
        """Record that it was written, from words of which the last were said at `until`."""
        self._repository.create()
        with self._repository.alone():
            lines = [*self._lines(), (_fingerprint(text), until)][-self._MAX :]
            self._repository.keep(self._NAME, "\n".join(f"{found} {at}" for found, at in lines))

    def add_for_good(self, text: str) -> None:
        """Record that it was proposed: never propose it again."""
        self.add(text, self._FOREVER)

    def _lines(self) -> list[tuple[str, str]]:
        parted = (line.partition(" ") for line in self._repository.own(self._NAME).splitlines())
        return [(found, at) for found, _, at in parted]


def _fingerprint(text: str) -> str:
    words = sorted(_words(text)) or [text.casefold()]
    return hashlib.sha256(" ".join(words).encode(errors="replace")).hexdigest()[:16]


def _is_enough(spoken: Sequence[Spoken]) -> bool:
    return sum(len(message.text) for message in spoken) >= _MIN_CHARACTERS


def _source(operation: Operation, user_words: set[str]) -> Source:
    """What a model attributes to the user counts as the user's only where enough of its words are."""
    words = _words(operation.text)
    own = sum(word in user_words for word in words)
    return "user" if operation.source == "user" and own >= _MIN_OWN_SHARE * len(words) else "assistant"


def _words(text: str) -> set[str]:
    return {word[:5] for word in _WORD.findall(text.casefold())}
