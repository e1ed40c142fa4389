"""Changes: what differs between two texts, as hunks of paired lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

CONTEXT = 3
_WORDS = re.compile(r"\w+|\s+|.")
_LONGEST_COMPARED = 500
_ALIKE = 0.4
_MOST_LINES_COMPARED = 4_000

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Pair:
    """A line before beside the line after; None where there is none. Numbers count from 1."""

    old: str | None
    new: str | None
    old_number: int = 0
    new_number: int = 0

    @property
    def is_same(self) -> bool:
        """Nothing changed here."""
        return self.old == self.new


def hunks(before: str, after: str) -> list[list[Pair]]:
    """What changed, with three lines around it."""
    old, new = before.splitlines(), after.splitlines()
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    start = max(0, head - CONTEXT)
    old_end, new_end = len(old) - max(0, tail - CONTEXT), len(new) - max(0, tail - CONTEXT)
    if head == len(old) == len(new):
        return []
    return [
        list(_pairs(group, old[start:old_end], new[start:new_end], start))
        for group in _groups(old[start:old_end], new[start:new_end])
    ]


def changed_words(old: str, new: str) -> tuple[list[Span], list[Span]]:
    """Which characters of each line changed; nothing where the lines have little in common."""
    if max(len(old), len(new)) > _LONGEST_COMPARED:
        return [], []
    old_words, new_words = _WORDS.findall(old), _WORDS.findall(new)
    matcher = SequenceMatcher(None, old_words, new_words, autojunk=False)
    if matcher.ratio() < _ALIKE:
        return [], []
    codes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    return _spans(old_words, [(code[1], code[2]) for code in codes]), _spans(
        new_words, [(code[3], code[4]) for code in codes]
    )


def count(parts: Sequence[Sequence[Pair]]) -> tuple[int, int]:
    """How many lines were added and removed."""
    pairs = [pair for part in parts for pair in part if not pair.is_same]
    return sum(pair.new is not None for pair in pairs), sum(pair.old is not None for pair in pairs)


def _common(old: Sequence[str], new: Sequence[str]) -> int:
    length = 0
    for one, other in zip(old, new, strict=False):
        if one != other:
            break
        length += 1
    return length


_Codes = list[tuple[str, int, int, int, int]]


def _groups(old: list[str], new: list[str]) -> list[_Codes]:
    if max(len(old), len(new)) > _MOST_LINES_COMPARED:
        # Comparing takes the square of the length: such a change is shown as the whole of it.
        return [[("replace", 0, len(old), 0, len(new))]]
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    return [list(group) for group in matcher.get_grouped_opcodes(CONTEXT)]


def _pairs(group: _Codes, old: Sequence[str], new: Sequence[str], start: int) -> Iterator[Pair]:
    for _, old_start, old_end, new_start, new_end in group:
        for step in range(max(old_end - old_start, new_end - new_start)):
            left, right = old_start + step, new_start + step
            has_old, has_new = left < old_end, right < new_end
            yield Pair(
                old[left] if has_old else None,
                new[right] if has_new else None,
                left + start + 1 if has_old else 0,
                right + start + 1 if has_new else 0,
            )


def _spans(words: Sequence[str], ranges: Sequence[Span]) -> list[Span]:
    offsets = [0]
    for word in words:
        offsets.append(offsets[-1] + len(word))
    return [(offsets[first], offsets[last]) for first, last in ranges if first < last]
