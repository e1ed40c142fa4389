"""The way back along a session's line, from its end: which of its records are needed, and where to stop. Pure.

A session is read from behind, so that taking it up costs what is sent of it and not what it holds. A rewind says where
the line goes on before it: what stands in between belongs to a branch, and is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

import msgspec

from ouro.memory.sessions.records import ChangeRecord, CompactionRecord, RewindRecord

T = TypeVar("T")
MOST_PASSED = 4 << 20
"""Bytes of messages on branches that are taken along."""
FEWEST_SHOWN = 40
"""Messages that a screen shows at once, where there are so many."""


class WalkStep(msgspec.Struct, Generic[T], frozen=True):
    """A record that is met on the way."""

    place: int
    """Where it begins."""
    size: int
    """In bytes."""
    source: T
    """What it is read from, once it is known to be needed."""
    is_message: bool = False
    number: int = 0
    """Of a message or a compaction; 0: it has none."""
    change: ChangeRecord | None = None
    """What it is, where it is no message and can be read."""
    is_told: bool = False
    """It is shown between the messages, and leads nowhere else."""


class WalkResult(msgspec.Struct, Generic[T]):
    """What is needed of a session."""

    steps: list[WalkStep[T]]
    """In the order of the file."""
    compaction: CompactionRecord | None
    """The one in force."""
    place: int
    """Where the steps begin; 0: nothing stands before them on the line."""
    is_complete: bool
    """All that is sent is among them, but for what the compaction keeps."""
    is_lost: bool
    """A rewind leads to what there is not: only the whole file can tell what is on the line."""
    is_gapped: bool
    """Messages of long branches are not among them: who goes back to one has to come this way again."""


class _Walk(Generic[T]):
    def __init__(self, most: int) -> None:
        self._most = most
        self._steps: list[WalkStep[T]] = []
        self._compaction: CompactionRecord | None = None
        self._sought: int | None = None
        self._messages = 0
        self._bytes = 0
        self._passed = 0
        self._is_gapped = False
        self._reaches_covered = False

    def walk(self, steps: Iterable[WalkStep[T]]) -> WalkResult[T]:
        for step in steps:
            if self._sought is not None and (step.number != self._sought or not step.number):
                self._pass(step)
                continue
            self._sought = self._follow(step)
            if step.number and self._is_enough():
                return self._way(step.place)
        return self._way(0)

    def _pass(self, step: WalkStep[T]) -> None:
        """It is on a branch: to be listed, and gone back to, where that does not cost more than the line itself."""
        if step.is_message:
            self._passed += step.size
        if step.is_message and self._passed > MOST_PASSED:
            self._is_gapped = True
        else:
            self._steps.append(step)

    def _follow(self, step: WalkStep[T]) -> int | None:
        """It is on the line; gives the number before it, where that is not simply what comes next."""
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
        if self._bytes >= self._most:
            return True
        return self._reaches_covered and self._messages >= FEWEST_SHOWN

    def _way(self, place: int) -> WalkResult[T]:
        is_whole = place == 0
        return WalkResult(
            self._steps[::-1],
            self._compaction,
            place,
            is_complete=is_whole or self._reaches_covered,
            # The start is what nothing bears the number of: all that stands before a way back to it is a branch.
            is_lost=bool(self._sought),
            is_gapped=self._is_gapped,
        )


def walk_back(steps: Iterable[WalkStep[T]], most: int) -> WalkResult[T]:
    """What is needed to send a session on, and to show its end.

    Args:
        steps: its records, the last one first.
        most: bytes of messages after which the way ends, wherever it is.
    """
    return _Walk[T](most).walk(steps)


def walk_page(steps: Iterable[WalkStep[T]], count: int) -> tuple[list[WalkStep[T]], int]:
    """The `count` messages of the line before a place, with what is told between them; and where they begin.

    Args:
        steps: the records before that place, the last one first.
        count: of messages.
    """
    found: list[WalkStep[T]] = []
    sought: int | None = None
    way_back: WalkStep[T] | None = None
    behind: list[WalkStep[T]] = []
    """What is told right behind the message that is sought, as far as one can tell yet."""
    for step in steps:
        if sought is not None and (step.number != sought or not step.number):
            if way_back is not None and step.is_message:
                found.append(way_back)  # something was left there: that is worth a word
                way_back = None
            if sought == 0 and way_back is None:
                break
            behind = [] if step.number else [*behind, *([step] if step.is_told else [])]
            continue
        found += behind
        sought = step.change.to if isinstance(step.change, RewindRecord) else None
        way_back, behind = (step if sought is not None else None), []
        if step.is_message or step.number or step.is_told:
            found.append(step)
            count -= step.is_message
            if count <= 0:
                return found[::-1], step.place
    return found[::-1], 0
