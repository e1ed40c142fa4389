"""Where two texts differ, line by line; in a time that nobody who wrote one of them can stretch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

_MOST_PAIRS = 1_000_000
"""Of equal lines, which are looked at for each step; a file of one line ten thousand times has a hundred times that."""
Span = tuple[int, int, int, int]


def line_changes(old: Sequence[str], new: Sequence[str]) -> Iterator[Span]:
    """What gave way to what, in order, as (start, end) in `old` and (start, end) in `new`.

    Texts whose lines repeat too often to be compared are one change from their first difference to their last.
    """
    head = _common(old, new)
    tail = min(_common(old[::-1], new[::-1]), len(old) - head, len(new) - head)
    before, after = old[head : len(old) - tail], new[head : len(new) - tail]
    if _pairs(before, after) > _MOST_PAIRS:
        yield head, len(old) - tail, head, len(new) - tail
        return
    for tag, start, end, new_start, new_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            yield head + start, head + end, head + new_start, head + new_end


def _common(old: Sequence[str], new: Sequence[str]) -> int:
    """How many lines both begin with."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((count for count, (one, other) in pairs if one != other), min(len(old), len(new)))


def _pairs(old: Sequence[str], new: Sequence[str]) -> int:
    counts, others = Counter(old), Counter(new)
    return sum(count * others[line] for line, count in counts.items())
