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
from ouro.frontends.tui.blocks.styled_lines import show_lines, tidy
from ouro.utils.line_changes import LineChange

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_NO_NEWLINE = "\\"
"""Begins the note that a file ends without a newline."""
_SAME_OR_CHANGED = re.compile(r" +|[-+]+")
"""In a text of the signs of lines: those of lines that are all the same, or all changed."""
_WORDS = re.compile(r"\w+|\s+|.")
MAX_COMPARED_LINE = 500
"""Characters of a line, up to which its changed words are looked for."""
MIN_SIMILARITY = 0.4
"""The share of words that two lines have in common, from which on changed words are marked."""

Span = tuple[int, int]


class Pair(msgspec.Struct, frozen=True):
    """A line before the change, and the line after it beside it. A line that does not exist is None,
    and has the number 0; others count from 1.
    """

    old: str | None
    new: str | None
    old_number: int = 0
    new_number: int = 0

    @property
    def is_same(self) -> bool:
        return self.old == self.new


class LineRun(msgspec.Struct, frozen=True):
    """Lines of a hunk that follow each other: all are the same before and after, or all changed. Its
    length is the number of lines that it takes side by side.
    """

    olds: Sequence[str]
    news: Sequence[str]
    old_number: int
    """The number of the first old line, and of the first new one."""
    new_number: int
    is_same: bool

    def __len__(self) -> int:
        return max(len(self.olds), len(self.news))

    def pair(self, index: int) -> Pair:
        """The old line and the new one at this index, which counts from 0 in this run."""
        old = self.olds[index] if index < len(self.olds) else None
        new = self.news[index] if index < len(self.news) else None
        old_number = 0 if old is None else self.old_number + index
        new_number = 0 if new is None else self.new_number + index
        return Pair(old, new, old_number, new_number)


class HunkLines(Sequence[Pair]):
    """The lines of a hunk side by side. A pair is made only when it is taken, because few pairs of a
    long hunk are.
    """

    def __init__(self, runs: Sequence[LineRun]) -> None:
        self.runs = runs
        self._starts = list(accumulate(map(len, runs), initial=0))

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, index: int) -> Pair: ...

    @overload
    def __getitem__(self, index: slice) -> list[Pair]: ...

    def __getitem__(self, index: int | slice) -> Pair | list[Pair]:
        """The pair at an index, or a list of the pairs of a slice."""
        selected = range(len(self))[index]
        if isinstance(selected, range):
            return [self._pair(number) for number in selected]
        return self._pair(selected)

    def __iter__(self) -> Iterator[Pair]:
        for run in self.runs:
            yield from map(run.pair, range(len(run)))

    def _pair(self, index: int) -> Pair:
        run_number = bisect_right(self._starts, index) - 1
        return self.runs[run_number].pair(index - self._starts[run_number])


class FileDiff(msgspec.Struct, frozen=True):
    """A file before and after a change, with its hunks."""

    before: str
    """The name of the file before the change, and after it: NO_FILE where there is none."""
    after: str
    hunks: list[HunkLines]
    names: list[str]
    """The text after the second `@@` of each hunk: its function or its id."""


def changed_files(body: Diff, show: Callable[[str], str] = tidy) -> list[FileDiff]:
    """The files of a diff that have something to show. `show` makes a line or a name printable."""
    files = (_changed_file(change, show) for change in body.changes)
    return [file for file in files if file is not None]


def _changed_file(change: FileChange, show: Callable[[str], str]) -> FileDiff | None:
    """A changed file, with its lines side by side. None if there is nothing to show: the file
    existed before and after at the same path, and no visible line has changed.
    """
    before = NO_FILE if change.before is None else show(change.path)
    after = NO_FILE if change.after is None else show(change.moved_to or change.path)
    old, new = (_lines_without_ends(lines, show) for lines in change.texts())
    hunks = [
        _lines_of_hunk(window, changes, old, new, change.first_line)
        for window, changes in change.hunks()
    ]
    if not hunks and not change.moved_to and NO_FILE not in (before, after):
        return None
    no_names = [""] * len(hunks)  # only a diff of git names the functions of its hunks
    return FileDiff(before, after, hunks, no_names)


def _lines_without_ends(lines: Sequence[str], show: Callable[[str], str]) -> list[str]:
    return show_lines([line.removesuffix("\n") for line in lines], show)


def _lines_of_hunk(
    window: LineChange,
    changes: Sequence[LineChange],
    old: Sequence[str],
    new: Sequence[str],
    first_line: int,
) -> HunkLines:
    """The lines of a hunk side by side.

    Args:
        window: the range of the lines of the hunk, in `old` and in `new`.
        changes: the ranges that differ; the lines between two of them are the same.
        first_line: the number of the first line of `old` and `new`.
    """
    start, end, new_start, new_end = window
    behind_last_change = (end, end, new_end, new_end)
    runs: list[LineRun] = []
    for first, last, new_first, new_last in [*changes, behind_last_change]:
        # The lines before the change, which are the same.
        runs += _runs(
            old[start:first],
            new[new_start:new_first],
            old_number=start + first_line,
            new_number=new_start + first_line,
        )
        # The changed lines.
        runs += _runs(
            old[first:last],
            new[new_first:new_last],
            old_number=first + first_line,
            new_number=new_first + first_line,
        )
        start, new_start = last, new_last
    return HunkLines(runs)


def _runs(
    olds: Sequence[str], news: Sequence[str], old_number: int, new_number: int
) -> Iterator[LineRun]:
    """Yield the lines as runs: each has either only unchanged or only changed lines. The numbers are
    those of the first lines. Old and new lines are compared as they are shown, so lines that differ
    only in what is not shown are unchanged.
    """
    if not olds and not news:
        return
    are_same = list(map(eq, olds, news))
    # Lines that only the longer side has are changed.
    are_same += [False] * abs(len(olds) - len(news))
    if all(are_same) or not any(are_same):  # one run, without copies of the lines
        yield LineRun(olds, news, old_number, new_number, is_same=are_same[0])
        return
    start = 0
    for is_same, group in groupby(are_same):
        end = start + len(list(group))
        yield LineRun(
            olds[start:end],
            news[start:end],
            old_number=old_number + start,
            new_number=new_number + start,
            is_same=is_same,
        )
        start = end


def file_diffs(rows: Iterable[str]) -> list[FileDiff]:
    """The files of a unified diff. Raises ValueError if a row is not part of one."""
    files: list[FileDiff] = []
    reader = iter(rows)
    for row in reader:
        # `--- ` reads the next row, too. If that is not `+++ `, the row `--- ` is refused below.
        if row.startswith("--- ") and (next_row := next(reader, "")).startswith("+++ "):
            files.append(FileDiff(row[4:], next_row[4:], hunks=[], names=[]))
        elif files and (head := _HUNK.match(row)):
            files[-1].names.append(_words_behind(head))
            _, old_count, _, new_count = _numbers(head)
            rows_of_hunk = list(_read_hunk_lines(reader, old_count, new_count))
            files[-1].hunks.append(_hunk_lines(head, rows_of_hunk))
        elif not row.startswith(_NO_NEWLINE):
            raise ValueError(f"not part of a unified diff: {row}")
    return files


def read_hunk(text: str) -> tuple[str, HunkLines]:
    """Read the text of one hunk as git writes it. Returns the words behind the second `@@` of its
    head, and its lines. Raises ValueError if the text is not a hunk.
    """
    first_row, *rows = text.removesuffix("\n").split("\n")
    head = _HUNK.match(first_row)
    if head is None:
        raise ValueError(f"not a hunk: {first_row}")
    # Git may write an empty line without its sign.
    signed_rows = [row or " " for row in rows if not row.startswith(_NO_NEWLINE)]
    return _words_behind(head), _hunk_lines(head, signed_rows)


def _words_behind(head: re.Match[str]) -> str:
    return tidy(head.string[head.end() :].strip())


def _hunk_lines(head: re.Match[str], rows: Sequence[str]) -> HunkLines:
    """The lines of a hunk side by side. `head` is the matched head of the hunk, which has the
    numbers of its lines. Each row begins with its sign: `-`, `+`, or a space for an unchanged line.
    """
    old_start, old_count, new_start, new_count = _numbers(head)
    # An empty range has the number of the line before it.
    old_number = old_start if old_count else old_start + 1
    new_number = new_start if new_count else new_start + 1
    signs = "".join([row[0] for row in rows])
    texts = show_lines([row[1:] for row in rows], tidy)
    runs: list[LineRun] = []
    for match in _SAME_OR_CHANGED.finditer(signs):
        lines, signs_of_lines = texts[match.start() : match.end()], match[0]
        old_lines = _lines_with_sign("-", lines, signs_of_lines)
        new_lines = _lines_with_sign("+", lines, signs_of_lines)
        runs += _runs(old_lines, new_lines, old_number, new_number)
        old_number += len(old_lines)
        new_number += len(new_lines)
    return HunkLines(runs)


def _numbers(head: re.Match[str]) -> list[int]:
    """The numbers in the head of a hunk: the first old line, the count of old lines, the first new
    line, and the count of new lines. A count that is left out is 1.
    """
    return [int(number or 1) for number in head.groups()]


def _lines_with_sign(wanted_sign: str, lines: Sequence[str], signs: str) -> Sequence[str]:
    """Those of the lines that have this sign, `-` or `+`. `signs` has one sign for each line.
    Unchanged lines are in both files, so all of them are returned.
    """
    if signs[0] == " ":  # then all signs are spaces
        return lines
    return [line for line, sign in zip(lines, signs, strict=True) if sign == wanted_sign]


def _read_hunk_lines(reader: Iterator[str], old_count: int, new_count: int) -> Iterator[str]:
    """Yield the rows of a hunk, each with its sign, until `old_count` old lines and `new_count` new
    lines were read. A row with a space is both an old and a new line. Raises ValueError if a row is
    no line of a hunk.
    """
    while old_count > 0 or new_count > 0:
        row = next(reader, "")
        sign = row[:1]
        if sign not in (" ", "-", "+", _NO_NEWLINE):
            raise ValueError(f"not part of a hunk: {row}")
        if sign != _NO_NEWLINE:
            yield row
        if sign in (" ", "-"):
            old_count -= 1
        if sign in (" ", "+"):
            new_count -= 1


@lru_cache(maxsize=512)
def find_changed_words(old: str, new: str) -> tuple[list[Span], list[Span]]:
    """Compare two lines word by word. Returns the spans of changed characters in the old line, and
    the spans in the new line. Both are empty if the lines have little in common, or one is longer
    than MAX_COMPARED_LINE.
    """
    if max(len(old), len(new)) > MAX_COMPARED_LINE:
        return [], []
    old_words, new_words = _WORDS.findall(old), _WORDS.findall(new)
    matcher = SequenceMatcher(None, old_words, new_words, autojunk=False)
    same_words: list[str] = []
    for start, _, size in matcher.get_matching_blocks():
        same_words += old_words[start : start + size]
    words_in_both = 2 * _count_words(same_words)  # each word is in both lines
    if words_in_both < MIN_SIMILARITY * _count_words([*old_words, *new_words]):
        return [], []
    old_ranges: list[Span] = []
    new_ranges: list[Span] = []
    for kind, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        if kind != "equal":
            old_ranges.append((old_start, old_end))
            new_ranges.append((new_start, new_end))
    return _spans(old_words, old_ranges), _spans(new_words, new_ranges)


def _count_words(words: Iterable[str]) -> int:
    """The number of words, without spaces: every line has spaces."""
    return sum(not word.isspace() for word in words)


def _spans(words: Sequence[str], ranges: Sequence[Span]) -> list[Span]:
    """The spans of characters that belong to ranges of words. A range without words is left out."""
    offsets = list(accumulate(map(len, words), initial=0))
    return [(offsets[first], offsets[last]) for first, last in ranges if first < last]
