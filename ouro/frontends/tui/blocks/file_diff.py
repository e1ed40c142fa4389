"""FileDiff: one file before and after, as pairs of lines, read from values or a unified diff."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import accumulate, groupby, zip_longest

import msgspec

from ouro.display import NO_FILE, Diff, FileChange
from ouro.frontends.tui.blocks.lines import tidy
from ouro.utils.text import LineChange

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NO_NEWLINE = "\\"
"""Begins the note that a file ends without a newline."""
_WORDS = re.compile(r"\w+|\s+|.")
MAX_COMPARED_LINE = 500
MIN_SIMILARITY = 0.4

Span = tuple[int, int]


class Pair(msgspec.Struct, frozen=True):
    """A line before the change and its line after it; None if missing. Numbers count from 1."""

    old: str | None
    new: str | None
    old_number: int = 0
    new_number: int = 0

    @property
    def is_same(self) -> bool:
        return self.old == self.new


class FileDiff(msgspec.Struct, frozen=True):
    before: str
    """The name of the file before the change, and after it: NO_FILE where there is none."""
    after: str
    hunks: list[list[Pair]]
    names: list[str]
    """The text after the second `@@` of each hunk: its function or its id."""


def changed_files(body: Diff, show: Callable[[str], str] = tidy) -> list[FileDiff]:
    """The files of a diff; `show` makes text that can be printed of a line or a name."""
    files = (_changed_file(change, show) for change in body.changes)
    return [file for file in files if file is not None]


def _changed_file(change: FileChange, show: Callable[[str], str]) -> FileDiff | None:
    """None if nothing changed."""
    before = NO_FILE if change.before is None else show(change.path)
    after = NO_FILE if change.after is None else show(change.moved_to or change.path)
    old_lines, new_lines = change.texts()
    old = [show(line.removesuffix("\n")) for line in old_lines]
    new = [show(line.removesuffix("\n")) for line in new_lines]
    hunks = [
        _pairs_of_hunk(window, changes, old, new, change.first_line)
        for window, changes in change.hunks()
    ]
    if not hunks and not change.moved_to and NO_FILE not in (before, after):
        return None
    return FileDiff(before, after, hunks, [""] * len(hunks))


def _pairs_of_hunk(
    window: LineChange,
    changes: Sequence[LineChange],
    old: Sequence[str],
    new: Sequence[str],
    first_line: int,
) -> list[Pair]:
    """The lines of a hunk side by side: those of `window`, of which `changes` differ."""
    at, end, new_at, new_end = window
    pairs: list[Pair] = []
    for first, last, new_first, new_last in [*changes, (end, end, new_end, new_end)]:
        pairs += _pairs(old[at:first], new[new_at:new_first], at + first_line, new_at + first_line)
        pairs += _pairs(
            old[first:last], new[new_first:new_last], first + first_line, new_first + first_line
        )
        at, new_at = last, new_last
    return pairs


def _pairs(olds: Sequence[str], news: Sequence[str], at: int, new_at: int) -> Iterator[Pair]:
    """The lines side by side, numbered from `at` and `new_at`."""
    for place, (old, new) in enumerate(zip_longest(olds, news)):
        number = 0 if old is None else at + place
        new_number = 0 if new is None else new_at + place
        yield Pair(old, new, number, new_number)


def file_diffs(rows: Iterable[str]) -> list[FileDiff]:
    """Parse a unified diff. Raises ValueError if it is not one."""
    files: list[FileDiff] = []
    reader = iter(rows)
    for row in reader:
        if row.startswith("--- ") and (target := next(reader, "")).startswith("+++ "):
            files.append(FileDiff(row[4:], target[4:], [], []))
        elif files and (found := _HUNK.match(row)):
            files[-1].names.append(tidy(row[found.end() :].strip()))
            files[-1].hunks.append(_hunk(reader, *(int(number or 1) for number in found.groups())))
        elif not row.startswith(_NO_NEWLINE):
            raise ValueError(f"not part of a unified diff: {row}")
    return files


def _hunk(
    reader: Iterator[str], old_start: int, old_count: int, new_start: int, new_count: int
) -> list[Pair]:
    """Read the lines of a hunk side by side. Its head says where it begins and how many old and new
    lines it has.
    """
    # An empty range has the number of the line before it.
    old_number = old_start if old_count else old_start + 1
    new_number = new_start if new_count else new_start + 1
    signed = list(_read_hunk_lines(reader, old_count, new_count))
    pairs: list[Pair] = []
    for is_same, run in groupby(signed, key=lambda line: line[0] == " "):
        lines = list(run)
        old_lines = [text for sign, text in lines if is_same or sign == "-"]
        new_lines = [text for sign, text in lines if is_same or sign == "+"]
        pairs += _pairs(old_lines, new_lines, old_number, new_number)
        old_number += len(old_lines)
        new_number += len(new_lines)
    return pairs


def _read_hunk_lines(reader: Iterator[str], olds: int, news: int) -> Iterator[tuple[str, str]]:
    """The sign and the text of each line of a hunk that has so many old and new lines."""
    while olds > 0 or news > 0:
        row = next(reader, "")
        sign = row[:1]
        if sign not in (" ", "-", "+", _NO_NEWLINE):
            raise ValueError(f"not part of a hunk: {row}")
        if sign != _NO_NEWLINE:
            yield sign, tidy(row[1:])
        olds -= sign in (" ", "-")
        news -= sign in (" ", "+")


@lru_cache(maxsize=512)
def find_changed_words(old: str, new: str) -> tuple[list[Span], list[Span]]:
    """The spans of changed characters in each line; empty if the lines have little in common."""
    if max(len(old), len(new)) > MAX_COMPARED_LINE:
        return [], []
    old_words, new_words = _WORDS.findall(old), _WORDS.findall(new)
    matcher = SequenceMatcher(None, old_words, new_words, autojunk=False)
    same: list[str] = []
    for start, _, size in matcher.get_matching_blocks():
        same += old_words[start : start + size]
    if 2 * _count_words(same) < MIN_SIMILARITY * _count_words([*old_words, *new_words]):
        return [], []
    codes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    old_ranges, new_ranges = [code[1:3] for code in codes], [code[3:5] for code in codes]
    return _spans(old_words, old_ranges), _spans(new_words, new_ranges)


def _count_words(words: Iterable[str]) -> int:
    """The number of words, without spaces: every line has spaces."""
    return sum(not word.isspace() for word in words)


def _spans(words: Sequence[str], ranges: Sequence[Span]) -> list[Span]:
    offsets = list(accumulate(map(len, words), initial=0))
    return [(offsets[first], offsets[last]) for first, last in ranges if first < last]
