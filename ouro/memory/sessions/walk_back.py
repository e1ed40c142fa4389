"""Find the needed records of a session, reading it from its end. Pure functions, no I/O.

Reading from the end makes a resume cost what is sent and not what the file holds. A rewind names the message that the
transcript continues from; the records in between belong to a branch and are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

import msgspec

from ouro.memory.backend import ChangeRecord, CompactionRecord, RewindRecord

T = TypeVar("T")
MAX_BRANCH_BYTES = 4 << 20
"""Bytes of messages on branches that are loaded too."""
MIN_SHOWN = 40
"""Messages that a screen shows at once, where there are so many."""


class WalkStep(msgspec.Struct, Generic[T], frozen=True):
    place: int
    """Where it begins."""
    size: int
    """In bytes."""
    source: T
    """What the record can be read from."""
    is_message: bool = False
    number: int = 0
    """Of a message or a compaction; 0: it has none."""
    change: ChangeRecord | None = None
    """The parsed record, where it is not a message and could be read."""
    is_marker: bool = False
    """Shown between messages; does not change what is sent."""


class WalkResult(msgspec.Struct, Generic[T]):
    steps: list[WalkStep[T]]
    """In the order of the file."""
    compaction: CompactionRecord | None
    """The compaction in force."""
    place: int
    """Where the steps begin; 0: nothing precedes them."""
    is_complete: bool
    """Everything that is sent is included, except what the compaction keeps."""
    is_lost: bool
    """A rewind names a message that does not exist: the whole file must be read."""
    is_gapped: bool
    """Messages of long branches are missing: rewinding to one of them needs another walk."""


class ContextWalk(Generic[T]):
    """Collects what is needed to send a session to a model and to show its end. Feed it records, last one first.

    Args:
        max_bytes: of messages, after which the walk always ends.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._steps: list[WalkStep[T]] = []
        self._compaction: CompactionRecord | None = None
        self._target: int | None = None
        """The number that a rewind names, until its record comes."""
        self._messages = 0
        self._bytes = 0
        self._branch_bytes = 0
        self._is_gapped = False
        self._reaches_covered = False
        self._place = 0

    def take(self, step: WalkStep[T]) -> bool:
        """Take the next record; returns whether the walk is finished."""
        if self._target is not None and (step.number != self._target or not step.number):
            self._take_from_branch(step)
            return False
        self._target = self._follow(step)
        if step.number and self._is_enough():
            self._place = step.place
            return True
        return False

    def take_all(self, steps: Iterable[WalkStep[T]]) -> WalkResult[T]:
        any(self.take(step) for step in steps)
        return self.result()

    def result(self) -> WalkResult[T]:
        return WalkResult(
            self._steps[::-1],
            self._compaction,
            self._place,
            is_complete=self._place == 0 or self._reaches_covered,
            # No record has the number 0: before a rewind to the start there is nothing but branches.
            is_lost=bool(self._target),
            is_gapped=self._is_gapped,
        )

    def _take_from_branch(self, step: WalkStep[T]) -> None:
        """Load a branch, so that it can be listed and restored, unless that costs more than the transcript itself."""
        if step.is_message:
            self._branch_bytes += step.size
        if step.is_message and self._branch_bytes > MAX_BRANCH_BYTES:
            self._is_gapped = True
        else:
            self._steps.append(step)

    def _follow(self, step: WalkStep[T]) -> int | None:
        """Take a record of the transcript; returns the number before it, where that is not the next record."""
        self._steps.append(step)
        if step.is_message:
            self._messages += 1
            self._bytes += step.size
        if self._compaction is not None and 0 < step.number <= self._compaction.covers[1]:
            self._reaches_covered = True
        match step.change:
            case RewindRecord(to=to):
                return to
            case CompactionRecord(summary=summary) if summary and self._compaction is None:
                self._compaction = step.change
                self._reaches_covered = step.change.covers[1] >= step.number - 1
        return None

    def _is_enough(self) -> bool:
        if self._bytes >= self._max_bytes:
            return True
        return self._reaches_covered and self._messages >= MIN_SHOWN


class PageWalk(Generic[T]):
    """Collects `count` messages of the transcript and the markers between them. Feed it records, last one first."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._steps: list[WalkStep[T]] = []
        self._target: int | None = None
        self._rewind: WalkStep[T] | None = None
        """The last rewind; shown only where it left messages behind."""
        self._markers: list[WalkStep[T]] = []
        """Markers that follow the target, as far as read."""
        self._place = 0

    def take(self, step: WalkStep[T]) -> bool:
        """Take the next record; returns whether the walk is finished."""
        if self._target is not None and (step.number != self._target or not step.number):
            return self._skip(step)
        self._steps += self._markers
        self._target = step.change.to if isinstance(step.change, RewindRecord) else None
        self._rewind, self._markers = (step if self._target is not None else None), []
        if step.is_message or step.number or step.is_marker:
            self._steps.append(step)
            self._count -= step.is_message
            if self._count <= 0:
                self._place = step.place
                return True
        return False

    def take_all(self, steps: Iterable[WalkStep[T]]) -> tuple[list[WalkStep[T]], int]:
        any(self.take(step) for step in steps)
        return self.result()

    def result(self) -> tuple[list[WalkStep[T]], int]:
        """The records in the order of the file, and where they begin (0: nothing precedes them)."""
        return self._steps[::-1], self._place

    def _skip(self, step: WalkStep[T]) -> bool:
        if self._rewind is not None and step.is_message:
            self._steps.append(self._rewind)
            self._rewind = None
        if self._target == 0 and self._rewind is None:
            return True
        self._markers = [] if step.number else [*self._markers, *([step] if step.is_marker else [])]
        return False
