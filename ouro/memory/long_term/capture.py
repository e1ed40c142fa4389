"""Capture: what of these turns is worth keeping. Beside the conversation, by a model that sees words and no tools.

What a model makes of the person's words alone is the person's. What it makes of the assistant's words, when the
assistant had read files, pages or outputs by then, may be theirs: it waits as a proposal (THREATS M1). So where
anything came from outside, the person's words are read on their own first.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from ouro.errors import LongTermMemoryError, OuroError
from ouro.memory.long_term.anchors import Anchors
from ouro.memory.long_term.capture_request import Spoken, capture_request, is_own
from ouro.memory.long_term.note import Note, Source, Trigger, new_id
from ouro.memory.long_term.notebook import Notebook, Written
from ouro.memory.long_term.operations import Ground, Operation, Refused, read_operations
from ouro.memory.long_term.values import Origin, Scope
from ouro.messages import Message
from ouro.utils.log import log

SHOWN = 12
"""Notes that the classifier is shown."""
_LEAST_OWN_SHARE = 0.4
"""Of a note's words, for it to count as what the person said."""
_LEAST_SAID = 12
"""Characters of all words, for a model to be asked at all."""
_WORD = re.compile(r"\w{3,}")


class CaptureParts(msgspec.Struct, frozen=True):
    """What capture is made of."""

    ask: Callable[[Sequence[Message]], Awaitable[Message]]
    """The classifier. Raises ModelError."""
    notebook: Notebook
    nearest: Callable[[str, int], Sequence[Note]]
    """The notes nearest to a text, at most so many; may block."""
    propose: Callable[[Note, Sequence[str]], None]
    """Keep a note that waits for the person, and what had been read by then; may block."""
    categories: Mapping[str, Scope]
    mark: str
    root: str = ""
    """The repository, for the names of files."""
    anchors: Anchors | None = None
    branch: Callable[[], str | None] = lambda: None
    """The branch that a note of the repository is known on only; None where it is known to all. May block."""


class Moment(msgspec.Struct, frozen=True):
    """Where in which session it is captured."""

    session_id: str
    turn: int
    trigger: Trigger


class Captured(msgspec.Struct, frozen=True):
    """What came of a capture."""

    written: tuple[Written, ...] = ()
    proposed: tuple[Note, ...] = ()
    refused: tuple[Refused, ...] = ()


class Capture:
    """Reads what was said, and keeps what is worth it."""

    def __init__(self, parts: CaptureParts) -> None:
        self._parts = parts

    async def run(self, spoken: Sequence[Spoken], moment: Moment, sources: Sequence[str] = ()) -> Captured:
        """Keep what is worth it of `spoken`, which came after the last capture.

        Args:
            sources: what had come into the conversation from outside by then.

        Raises:
            ModelError: the classifier did not answer; nothing was written of what it was asked.
        """
        own = [each for each in spoken if is_own(each)]
        if not sources:
            return await self._read(spoken, own, moment, ())
        first = await self._read(own, own, moment, ())
        rest = [each for each in spoken if each not in own]
        second = await self._read(spoken, [], moment, sources) if _is_enough(rest) else Captured()
        return Captured(first.written, second.proposed, (*first.refused, *second.refused))

    async def _read(
        self, spoken: Sequence[Spoken], own: Sequence[Spoken], moment: Moment, sources: Sequence[str]
    ) -> Captured:
        if not _is_enough(spoken):
            return Captured()
        asked = "\n".join(each.text for each in spoken)
        shown = await asyncio.to_thread(self._parts.nearest, asked, SHOWN)
        reply = await self._parts.ask(capture_request(spoken, shown, self._parts.categories, self._parts.mark))
        ground = Ground(shown, self._parts.categories, self._parts.notebook.scopes, self._parts.root)
        operations, refused = read_operations(reply.text, ground)
        for each in refused:
            log.info("capture: refused (%s): %s", each.reason, each.said)
        keep = self._propose if sources else self._keep
        said = {word for each in own for word in _words(each.text)}
        if own == list(spoken):
            operations = tuple(replace(each, source="user") for each in operations)
        return await asyncio.to_thread(keep, operations, refused, moment, said, sources)

    def _keep(
        self,
        operations: Sequence[Operation],
        refused: Sequence[Refused],
        moment: Moment,
        said: set[str],
        _sources: Sequence[str],
    ) -> Captured:
        written: list[Written] = []
        for each in operations:
            try:
                written.append(self._do(each, moment, said))
            except (LongTermMemoryError, OSError) as error:
                reason = error.message if isinstance(error, OuroError) else str(error)
                log.warning("capture: not kept (%s): %s", reason, each.text or each.target)
                refused = [*refused, Refused(each.text or each.target, reason)]
        return Captured(tuple(written), (), tuple(refused))

    def _propose(
        self,
        operations: Sequence[Operation],
        refused: Sequence[Refused],
        moment: Moment,
        said: set[str],
        sources: Sequence[str],
    ) -> Captured:
        """Nothing is confirmed or replaced by what may be from outside: it can only be put to the person."""
        notes = [self._note(each, moment, said) for each in operations if each.verb != "confirm"]
        for note in notes:
            self._parts.propose(note, sources)
        return Captured((), tuple(notes), tuple(refused))

    def _do(self, operation: Operation, moment: Moment, said: set[str]) -> Written:
        book, origin = self._parts.notebook, _ORIGIN
        match operation.verb:
            case "confirm":
                return book.confirm(operation.target, origin)
            case "add":
                return book.add(self._note(operation, moment, said), origin)
            case "supersede":
                return book.supersede(operation.target, self._note(operation, moment, said), origin)
            case "refine":
                return book.connect(self._note(operation, moment, said), operation.target, "refines", origin)
            case "contradict":
                return book.connect(self._note(operation, moment, said), operation.target, "contradicts", origin)

    def _note(self, operation: Operation, moment: Moment, said: set[str]) -> Note:
        in_repo = operation.scope == "repo"
        anchors = self._parts.anchors.of(operation.entities) if in_repo and self._parts.anchors else ()
        return Note(
            id=new_id(),
            text=operation.text,
            scope=operation.scope,
            category=operation.category,
            session_id=moment.session_id,
            turn=moment.turn,
            trigger=moment.trigger,
            source=_source(operation, said),
            confidence=operation.confidence,
            branch=self._parts.branch() if in_repo else None,
            entities=operation.entities,
            relations=operation.relations,
            anchors=anchors,
        )


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
