"""Two texts compared by lines: the ranges of lines that differ, and hunks of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_MAX_EQUAL_PAIRS = 200_000
"""Maximum pairs of equal lines for difflib: with 1,900 equal lines in each text it took 55 s."""
_MAX_PAIRS = 4_000_000
"""Maximum pairs of lines for difflib: 20,000 lines with every seventh changed took 12 s."""
_MAX_PAIRS_OF_BITS = 400_000_000
"""Maximum pairs of lines that are compared at all: they take 50 MB and 0.3 s."""


class LineChange(NamedTuple):
    """The lines of the old text that are replaced, and the lines of the new text that replace them:
    from the start to before the end.
    """

    old_start: int
    old_end: int
    new_start: int
    new_end: int


class _EqualBlock(NamedTuple):
    """Lines that are equal in both texts."""

    old_start: int
    new_start: int
    size: int


def line_changes(old: Sequence[str], new: Sequence[str]) -> list[LineChange]:
    """The ranges of lines in which two texts differ.

    Very long texts are one change, from their first difference to their last.
    """
    # Equal lines at the beginning and the end need no comparison.
    head = _count_common_lines(old, new)
    tail = _count_common_lines(old[head:][::-1], new[head:][::-1])
    before, after = old[head : len(old) - tail], new[head : len(new) - tail]
    changes = []
    changed_from_old = changed_from_new = 0  # where the last block of equal lines ended
    at_the_end = _EqualBlock(len(before), len(after), size=0)
    for old_start, new_start, size in [*_equal_lines(before, after), at_the_end]:
        # What is between two equal blocks has changed.
        if (changed_from_old, changed_from_new) != (old_start, new_start):
            changes.append(
                LineChange(
                    old_start=head + changed_from_old,
                    old_end=head + old_start,
                    new_start=head + changed_from_new,
                    new_end=head + new_start,
                )
            )
        changed_from_old, changed_from_new = old_start + size, new_start + size
    return changes


def line_hunks(
    changes: Iterable[LineChange], old_size: int, context: int
) -> Iterator[tuple[LineChange, list[LineChange]]]:
    """Yield each hunk: the range of its lines, with `context` lines around the changes, and its changes.
    Changes are in one hunk if at most twice `context` lines are between them.

    `old_size`: the number of lines of the old text.
    """
    groups: list[list[LineChange]] = []
    for change in changes:
        if groups and change.old_start - groups[-1][-1].old_end <= 2 * context:
            groups[-1].append(change)
        else:
            groups.append([change])
    for group in groups:
        first, last = group[0], group[-1]
        before, after = min(context, first.old_start), min(context, old_size - last.old_end)
        window = LineChange(
            first.old_start - before,
            old_end=last.old_end + after,
            new_start=first.new_start - before,
            new_end=last.new_end + after,
        )
        yield window, group


def _count_common_lines(old: Sequence[str], new: Sequence[str]) -> int:
    """The number of lines before the first difference."""
    for number, (old_line, new_line) in enumerate(zip(old, new, strict=False)):
        if old_line != new_line:
            return number
    return min(len(old), len(new))


def _equal_lines(old: Sequence[str], new: Sequence[str]) -> list[_EqualBlock]:
    """The blocks of equal lines in two texts, in their order. Empty if the texts are too long."""
    pairs = len(old) * len(new)
    if pairs > _MAX_PAIRS_OF_BITS:
        return []
    new_counts = Counter(new)
    if new_counts.keys().isdisjoint(old):
        return []  # all lines are new: nothing to compare
    equal_pairs = sum(new_counts.get(line, 0) for line in old)
    # difflib finds the changes that read best, but its time grows with these pairs.
    if pairs <= _MAX_PAIRS and equal_pairs <= _MAX_EQUAL_PAIRS:
        from difflib import SequenceMatcher  # not imported at start-up

        blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
        return [_EqualBlock(block.a, block.b, block.size) for block in blocks]
    from rapidfuzz.distance import LCSseq  # imported late: 16 ms

    common_blocks = LCSseq.editops(old, new).as_matching_blocks()
    return [_EqualBlock(block.a, block.b, block.size) for block in common_blocks]
