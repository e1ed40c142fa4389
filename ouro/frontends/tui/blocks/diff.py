"""Diffs as lines, in one column or two, with changed words marked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate, groupby, zip_longest

from rich.segment import Segment
from rich.style import Style

from ouro.display import NO_FILE
from ouro.frontends.tui.blocks.code import Code, highlight, language_of
from ouro.frontends.tui.blocks.lines import (
    Run,
    StyledLine,
    crop,
    fold,
    indent,
    pad,
    restyle_spans,
    tidy,
)
from ouro.frontends.tui.blocks.palette import Palette

TWO_COLUMNS = 160
"""The minimum width to show before and after side by side."""
_Side = dict[int, list[Run]]


def diff_lines(rows: Iterable[str], width: int, palette: Palette) -> Iterator[StyledLine]:
    """Draw a unified diff, lazily. Raises ValueError if it is not one."""
    return (line for file in file_diffs(rows) for line in _file_lines(file, width, palette))


def git_diff_lines(text: str, width: int, palette: Palette) -> list[StyledLine]:
    """Draw a diff of git; files with more than hunks (binary, renamed, cut) stay as git wrote them."""
    lines: list[StyledLine] = []
    for file in re.split(rf"^(?={GIT_FILE})", text.rstrip("\n"), flags=re.MULTILINE)[1:]:
        rows = file.rstrip("\n").split("\n")
        if lines:
            lines.append(StyledLine([]))
        start = next((number for number, row in enumerate(rows) if row.startswith("--- ")), 0)
        try:
            if not start or not all(row.startswith(_GIT_HEAD) for row in rows[:start]):
                raise ValueError("not the hunks of one file")
            names = (
                re.sub(r"^(--- |\+\+\+ )[ab]/", r"\1", row).rstrip("\t")
                for row in rows[start : start + 2]
            )
            lines += diff_lines([*names, *rows[start + 2 :]], width, palette)
        except ValueError:
            lines += Code("diff", width, palette).lines("\n".join(rows))
    return lines


def _file_lines(file: FileDiff, width: int, palette: Palette) -> Iterator[StyledLine]:
    yield _head(file, width, palette)
    two_columns = width >= TWO_COLUMNS and NO_FILE not in (file.before, file.after)
    language = language_of(file.before if file.after == NO_FILE else file.after)
    for number, (part, name) in enumerate(zip(file.hunks, file.names, strict=True)):
        if number or name:
            yield StyledLine([Segment(crop(f"⋮ {name}".rstrip(), width), palette.muted)])
        sides = _color_sides(part, language, palette)
        digits = len(str(max(max(pair.old_number, pair.new_number) for pair in part)))
        yield from (_two_columns if two_columns else _one_column)(
            part, *sides, digits, width, palette
        )


def _head(file: FileDiff, width: int, palette: Palette) -> StyledLine:
    names = [tidy(name) for name in dict.fromkeys((file.before, file.after)) if name != NO_FILE]
    what = " (new)" if file.before == NO_FILE else " (deleted)" if file.after == NO_FILE else ""
    changed = [pair for part in file.hunks for pair in part if not pair.is_same]
    added, removed = (
        sum(pair.new is not None for pair in changed),
        sum(pair.old is not None for pair in changed),
    )
    room = max(1, width - len(f"{what}  +{added} −{removed}"))
    return StyledLine(
        [
            Segment(crop(" → ".join(names), room), palette.strong),
            Segment(f"{what}  ", palette.muted),
            Segment(f"+{added}", palette.success),
            Segment(f" −{removed}", palette.error),
        ]
    )


def _one_column(
    part: Sequence[Pair], olds: _Side, news: _Side, digits: int, width: int, palette: Palette
) -> Iterator[StyledLine]:
    for is_same, run in groupby(part, key=lambda pair: pair.is_same):
        pairs = list(run)
        rows = [(" ", pair.new_number, news) for pair in pairs if is_same]
        rows += [
            ("-", pair.old_number, olds) for pair in pairs if not is_same and pair.old is not None
        ]
        rows += [
            ("+", pair.new_number, news) for pair in pairs if not is_same and pair.new is not None
        ]
        for sign, number, side in rows:
            yield from _row(sign, number, side, digits, width, palette)


def _two_columns(
    part: Sequence[Pair], olds: _Side, news: _Side, digits: int, width: int, palette: Palette
) -> Iterator[StyledLine]:
    half = (width - 1) // 2
    for pair in part:
        left, right = (
            (
                _row(" " if pair.is_same else sign, number, side, digits, half, palette)
                if number
                else []
            )
            for sign, number, side in (("-", pair.old_number, olds), ("+", pair.new_number, news))
        )
        blank = StyledLine([Segment(" " * half, palette.text)])
        for one, other in zip_longest(left, right, fillvalue=blank):
            segments = [*one.segments, Segment("│", palette.muted), *other.segments]
            # The right column is copied: the file as it is now.
            yield StyledLine(segments, len(one.text) + 1 + other.gutter, other.joint, other.filling)


def _row(
    sign: str, number: int, side: _Side, digits: int, width: int, palette: Palette
) -> list[StyledLine]:
    style, tone = {
        "+": (palette.added, palette.success),
        "-": (palette.removed, palette.error),
        " ": (palette.text, palette.muted),
    }[sign]
    dim = Style(color=palette.muted.color, bgcolor=style.bgcolor)
    code = fold(side[number], width - digits - 3)
    signed = indent(code, (f"{sign} ", dim + Style(color=tone.color, bold=True)), ("  ", dim))
    return pad(
        indent(signed, (f"{number:>{digits}} ", dim), (" " * (digits + 1), dim)), width, style
    )


def _color_sides(part: Sequence[Pair], language: str, palette: Palette) -> tuple[_Side, _Side]:
    """Both sides by line number, in syntax colours and with changed words marked."""
    olds = _side([(pair.old_number, pair.old) for pair in part], language, palette)
    news = _side([(pair.new_number, pair.new) for pair in part], language, palette)
    for pair in part:
        if pair.is_same:
            continue
        old_spans, new_spans = (
            find_changed_words(pair.old, pair.new) if pair.old and pair.new else ([], [])
        )
        for side, number, spans, back, word in (
            (olds, pair.old_number, old_spans, palette.removed, palette.removed_word),
            (news, pair.new_number, new_spans, palette.added, palette.added_word),
        ):
            if number:
                strong = Style(color=word.color, bgcolor=word.bgcolor, bold=True)
                side[number] = list(
                    restyle_spans(side[number], spans, strong, Style(bgcolor=back.bgcolor))
                )
    return olds, news


def _side(rows: Sequence[tuple[int, str | None]], language: str, palette: Palette) -> _Side:
    texts = {number: text for number, text in rows if text is not None}
    colored = highlight("\n".join(texts.values()), language, palette, palette.text) if texts else []
    return dict(zip(texts, colored, strict=True))


_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
GIT_FILE = "diff --git "
"""Begins a file in a diff of git."""
_GIT_HEAD = (GIT_FILE, "index ", "new file mode ", "deleted file mode ")
_NO_NEWLINE = "\\"
"""Begins the note that a file ends without a newline."""
_WORDS = re.compile(r"\w+|\s+|.")
MAX_COMPARED_LINE = 500
MIN_SIMILARITY = 0.4

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Pair:
    """A line before the change and its line after it; None if missing. Numbers count from 1."""

    old: str | None
    new: str | None
    old_number: int = 0
    new_number: int = 0

    @property
    def is_same(self) -> bool:
        return self.old == self.new


@dataclass(frozen=True, slots=True)
class FileDiff:
    before: str
    """The name of the file before the change, and after it: NO_FILE where there is none."""
    after: str
    hunks: list[list[Pair]]
    names: list[str]
    """The text after the second `@@` of each hunk: its function or its id."""


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


def _hunk(reader: Iterator[str], at: int, olds: int, new_at: int, news: int) -> list[Pair]:
    # An empty range has the number of the line before it.
    at, new_at = (
        at + (not olds),
        new_at + (not news),
    )
    signed: list[tuple[str, str]] = []
    while olds > 0 or news > 0:
        row = next(reader, "")
        sign = row[:1]
        if sign not in (" ", "-", "+", _NO_NEWLINE):
            raise ValueError(f"not part of a hunk: {row}")
        if sign != _NO_NEWLINE:
            signed.append((sign, tidy(row[1:])))
        olds, news = olds - (sign in (" ", "-")), news - (sign in (" ", "+"))
    pairs: list[Pair] = []
    for is_same, run in groupby(signed, key=lambda line: line[0] == " "):
        lines = list(run)
        old_lines, new_lines = (
            [text for sign, text in lines if is_same or sign == side] for side in "-+"
        )
        for old, new in zip_longest(old_lines, new_lines):
            pairs.append(Pair(old, new, 0 if old is None else at, 0 if new is None else new_at))
            at, new_at = at + (old is not None), new_at + (new is not None)
    return pairs


def find_changed_words(old: str, new: str) -> tuple[list[Span], list[Span]]:
    """The spans of changed characters in each line; empty if the lines have little in common."""
    if max(len(old), len(new)) > MAX_COMPARED_LINE:
        return [], []
    old_words, new_words = _WORDS.findall(old), _WORDS.findall(new)
    matcher = SequenceMatcher(None, old_words, new_words, autojunk=False)
    same = [
        word
        for start, _, size in matcher.get_matching_blocks()
        for word in old_words[start : start + size]
    ]
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
