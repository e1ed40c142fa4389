"""FileDiff: one file before and after, as pairs of lines, read from values or a unified diff."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import accumulate, groupby
from operator import eq
from typing import overload

import msgspec

from ouro.display import NO_FILE, Diff, FileChange
from ouro.frontends.tui.blocks.lines import show_lines, tidy
from ouro.utils.text import LineChange

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NO_NEWLINE = "\\"
"""Begins the note that a file ends without a newline."""
_SAME_OR_CHANGED = re.compile(r" +|[-+]+")
"""Signs of lines that follow each other."""
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


class LineRun(msgspec.Struct, frozen=True):
    """Lines of a hunk that follow each other: all are the same before and after, or all changed."""

    olds: Sequence[str]
    news: Sequence[str]
    old_number: int
    """The number of the first old line, and of the first new one."""
    new_number: int
    is_same: bool

    def __len__(self) -> int:
        return max(len(self.olds), len(self.news))

    def pair(self, place: int) -> Pair:
        """A line before and after; `place` counts from 0."""
        old = self.olds[place] if place < len(self.olds) else None
        new = self.news[place] if place < len(self.news) else None
        old_number = 0 if old is None else self.old_number + place
        new_number = 0 if new is None else self.new_number + place
        return Pair(old, new, old_number, new_number)


class HunkLines(Sequence[Pair]):
    """The lines of a hunk side by side. A pair is made when it is taken: of a long hunk few are."""

    def __init__(self, runs: Sequence[LineRun]) -> None:
        self.runs = runs
        self._starts = list(accumulate(map(len, runs), initial=0))

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, place: int) -> Pair: ...

    @overload
    def __getitem__(self, place: slice) -> list[Pair]: ...

    def __getitem__(self, place: int | slice) -> Pair | list[Pair]:
        places = range(len(self))[place]
        if isinstance(places, range):
            return [self._pair(number) for number in places]
        return self._pair(places)

    def __iter__(self) -> Iterator[Pair]:
        for run in self.runs:
            yield from map(run.pair, range(len(run)))

    def _pair(self, place: int) -> Pair:
        number = bisect_right(self._starts, place) - 1
        return self.runs[number].pair(place - self._starts[number])


class FileDiff(msgspec.Struct, frozen=True):
    before: str
    """The name of the file before the change, and after it: NO_FILE where there is none."""
    after: str
    hunks: list[HunkLines]
    names: list[str]
    """The text after the second `@@` of each hunk: its function or its id."""


def changed_files(body: Diff, show: Callable[[str], str] = tidy) -> list[FileDiff]:
    """The files of a diff; `show` makes text that can be printed of a text or a name."""
    files = (_changed_file(change, show) for change in body.changes)
    return [file for file in files if file is not None]


def _changed_file(change: FileChange, show: Callable[[str], str]) -> FileDiff | None:
    """A changed file as lines side by side; None if nothing changed that is shown."""
    before = NO_FILE if change.before is None else show(change.path)
    after = NO_FILE if change.after is None else show(change.moved_to or change.path)
    old, new = (_lines_without_ends(lines, show) for lines in change.texts())
    hunks = [
        _lines_of_hunk(window, changes, old, new, change.first_line)
        for window, changes in change.hunks()
    ]
    if not hunks and not change.moved_to and NO_FILE not in (before, after):
        return None
    return FileDiff(before, after, hunks, [""] * len(hunks))


def _lines_without_ends(lines: Sequence[str], show: Callable[[str], str]) -> list[str]:
    return show_lines([line.removesuffix("\n") for line in lines], show)


def _lines_of_hunk(
    window: LineChange,
    changes: Sequence[LineChange],
    old: Sequence[str],
    new: Sequence[str],
    first_line: int,
) -> HunkLines:
    """The lines of a hunk side by side: those of `window`, of which `changes` differ."""
    at, end, new_at, new_end = window
    runs: list[LineRun] = []
    for first, last, new_first, new_last in [*changes, (end, end, new_end, new_end)]:
        same, same_new = old[at:first], new[new_at:new_first]
        runs += _runs(same, same_new, at + first_line, new_at + first_line)
        changed, changed_new = old[first:last], new[new_first:new_last]
        runs += _runs(changed, changed_new, first + first_line, new_first + first_line)
        at, new_at = last, new_last
    return HunkLines(runs)


def _runs(olds: Sequence[str], news: Sequence[str], at: int, new_at: int) -> Iterator[LineRun]:
    """The lines as runs, numbered from `at` and `new_at`. Lines that differ only in what is not
    shown are the same.
    """
    if not olds and not news:
        return
    same = list(map(eq, olds, news))
    if not any(same) or (len(olds) == len(news) and all(same)):
        yield LineRun(olds, news, at, new_at, any(same))
        return
    # Lines that only the longer side has are changed.
    same += [False] * abs(len(olds) - len(news))
    start = 0
    for is_same, group in groupby(same):
        end = start + len(list(group))
        yield LineRun(olds[start:end], news[start:end], at + start, new_at + start, is_same)
        start = end


def file_diffs(rows: Iterable[str]) -> list[FileDiff]:
    """The files of a unified diff. Raises ValueError if a row is not part of one."""
    files: list[FileDiff] = []
    reader = iter(rows)
    for row in reader:
        if row.startswith("--- ") and (target := next(reader, "")).startswith("+++ "):
            files.append(FileDiff(row[4:], target[4:], [], []))
        elif files and (found := _HUNK.match(row)):
            files[-1].names.append(_words_behind(found))
            _, old_count, _, new_count = _numbers(found)
            rows_of_hunk = list(_read_hunk_lines(reader, old_count, new_count))
            files[-1].hunks.append(_hunk_lines(found, rows_of_hunk))
        elif not row.startswith(_NO_NEWLINE):
            raise ValueError(f"not part of a unified diff: {row}")
    return files


def read_hunk(text: str) -> tuple[str, HunkLines]:
    """The words behind the head of a hunk of git, and its lines. Raises ValueError if it is none."""
    head, *rows = text.removesuffix("\n").split("\n")
    found = _HUNK.match(head)
    if found is None:
        raise ValueError(f"not a hunk: {head}")
    # Git may write an empty line without its sign.
    signed = [row or " " for row in rows if not row.startswith(_NO_NEWLINE)]
    return _words_behind(found), _hunk_lines(found, signed)


def _words_behind(head: re.Match[str]) -> str:
    return tidy(head.string[head.end() :].strip())


def _hunk_lines(head: re.Match[str], rows: Sequence[str]) -> HunkLines:
    """The lines of a hunk, each with its sign; its head has their numbers."""
    old_start, old_count, new_start, new_count = _numbers(head)
    # An empty range has the number of the line before it.
    old_number = old_start if old_count else old_start + 1
    new_number = new_start if new_count else new_start + 1
    signs = "".join([row[0] for row in rows])
    texts = show_lines([row[1:] for row in rows], tidy)
    runs: list[LineRun] = []
    for found in _SAME_OR_CHANGED.finditer(signs):
        lines = texts[found.start() : found.end()]
        old_lines = _lines_with(lines, found[0], "-")
        new_lines = _lines_with(lines, found[0], "+")
        runs += _runs(old_lines, new_lines, old_number, new_number)
        old_number += len(old_lines)
        new_number += len(new_lines)
    return HunkLines(runs)


def _numbers(head: re.Match[str]) -> list[int]:
    """The first old line and the number of old lines, and those of the new ones."""
    return [int(number or 1) for number in head.groups()]


def _lines_with(lines: Sequence[str], signs: str, wanted: str) -> Sequence[str]:
    """The lines with the sign `wanted`; unchanged lines are on both sides."""
    if signs[0] == " ":
        return lines
    return [line for line, sign in zip(lines, signs, strict=True) if sign == wanted]


def _read_hunk_lines(reader: Iterator[str], old_count: int, new_count: int) -> Iterator[str]:
    """Yield the lines of a hunk that has so many old and new ones, each with its sign. Raises
    ValueError if a row is no line of a hunk.
    """
    while old_count > 0 or new_count > 0:
        row = next(reader, "")
        sign = row[:1]
        if sign not in (" ", "-", "+", _NO_NEWLINE):
            raise ValueError(f"not part of a hunk: {row}")
        if sign != _NO_NEWLINE:
            yield row
        old_count -= sign in (" ", "-")
        new_count -= sign in (" ", "+")


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
    """The columns of ranges of words; empty ranges are left out."""
    offsets = list(accumulate(map(len, words), initial=0))
    return [(offsets[first], offsets[last]) for first, last in ranges if first < last]
