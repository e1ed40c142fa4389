"""Diff: changes of files as lines, one column or two, the words that changed marked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby, zip_longest

from rich.segment import Segment
from rich.style import Style

from ouro.display import FileChange
from ouro.frontends.tui.blocks.code import highlight, language_of
from ouro.frontends.tui.blocks.lines import Run, StyledLine, crop, fold, indent, pad, restyled, tidy
from ouro.frontends.tui.blocks.palette import Palette
from ouro.utils.text import LineChange, line_hunks

TWO_COLUMNS = 160
"""Cells from which on before and after stand side by side."""
_Side = dict[int, list[Run]]


def diff_lines(change: FileChange, width: int, palette: Palette) -> Iterator[StyledLine]:
    """The change of one file, line by line: only what is taken is drawn."""
    parts = hunks(tidy(change.before or ""), tidy(change.after or ""))
    yield _head(change, count(parts), width, palette)
    two_columns = width >= TWO_COLUMNS and change.before is not None and change.after is not None
    for number, part in enumerate(parts):
        if number:
            yield StyledLine([Segment("⋮", palette.muted)])
        yield from (_two_columns if two_columns else _one_column)(part, language_of(change.path), width, palette)


def _head(change: FileChange, counted: tuple[int, int], width: int, palette: Palette) -> StyledLine:
    name = tidy(change.path) + (f" → {tidy(change.moved_to)}" if change.moved_to else "")
    what = " (new)" if change.before is None else " (deleted)" if change.after is None else ""
    added, removed = counted
    room = max(1, width - len(f"{what}  +{added} −{removed}"))
    return StyledLine(
        [
            Segment(crop(name, room), palette.strong),
            Segment(f"{what}  ", palette.muted),
            Segment(f"+{added}", palette.success),
            Segment(f" −{removed}", palette.error),
        ]
    )


def _one_column(part: Sequence[Pair], language: str, width: int, palette: Palette) -> Iterator[StyledLine]:
    olds, news = _colored(part, language, palette)
    digits = _digits(part)
    for is_same, run in groupby(part, key=lambda pair: pair.is_same):
        pairs = list(run)
        if is_same:
            for pair in pairs:
                yield from _row(" ", pair.new_number, news[pair.new_number], digits, width, palette.text, palette)
            continue
        for pair in pairs:
            if pair.old is not None:
                yield from _row("-", pair.old_number, olds[pair.old_number], digits, width, palette.removed, palette)
        for pair in pairs:
            if pair.new is not None:
                yield from _row("+", pair.new_number, news[pair.new_number], digits, width, palette.added, palette)


def _two_columns(part: Sequence[Pair], language: str, width: int, palette: Palette) -> Iterator[StyledLine]:
    olds, news = _colored(part, language, palette)
    digits = _digits(part)
    half = (width - 1) // 2
    for pair in part:
        left = _half("-", pair.old_number, olds, digits, half, pair.is_same, palette.removed, palette)
        right = _half("+", pair.new_number, news, digits, half, pair.is_same, palette.added, palette)
        for number in range(max(len(left), len(right))):
            one = left[number] if number < len(left) else StyledLine([Segment(" " * half, palette.text)])
            other = right[number] if number < len(right) else StyledLine([Segment(" " * half, palette.text)])
            segments = [*one.segments, Segment("│", palette.muted), *other.segments]
            # Copying takes the right column, the file as it is now.
            yield StyledLine(segments, len(one.text) + 1 + other.gutter, other.joint, other.filling)


def _half(
    sign: str, number: int, side: _Side, digits: int, width: int, is_same: bool, changed: Style, palette: Palette
) -> list[StyledLine]:
    if not number:
        return []
    style = palette.text if is_same else changed
    return list(_row(" " if is_same else sign, number, side[number], digits, width, style, palette))


def _row(
    sign: str, number: int, runs: list[Run], digits: int, width: int, style: Style, palette: Palette
) -> Iterator[StyledLine]:
    dim = Style(color=palette.muted.color, bgcolor=style.bgcolor)
    tone = {"+": palette.success, "-": palette.error}.get(sign, palette.muted)
    signed = indent(fold(runs, width - digits - 3), (f"{sign} ", dim + Style(color=tone.color, bold=True)), ("  ", dim))
    numbered = indent(signed, (f"{number:>{digits}} ", dim), (" " * (digits + 1), dim))
    return iter(pad(numbered, width, style))


def _colored(part: Sequence[Pair], language: str, palette: Palette) -> tuple[_Side, _Side]:
    """Both sides in syntax colours, by line number, changed words marked."""
    olds = _side([(pair.old_number, pair.old) for pair in part], language, palette)
    news = _side([(pair.new_number, pair.new) for pair in part], language, palette)
    for pair in part:
        if pair.is_same:
            continue
        old_spans, new_spans = changed_words(pair.old, pair.new) if pair.old and pair.new else ([], [])
        for side, number, spans, back, word in (
            (olds, pair.old_number, old_spans, palette.removed, palette.removed_word),
            (news, pair.new_number, new_spans, palette.added, palette.added_word),
        ):
            if number:
                strong = Style(color=word.color, bgcolor=word.bgcolor, bold=True)
                side[number] = list(restyled(side[number], spans, strong, Style(bgcolor=back.bgcolor)))
    return olds, news


def _side(rows: Sequence[tuple[int, str | None]], language: str, palette: Palette) -> _Side:
    numbered = [(number, text) for number, text in rows if text is not None]
    if not numbered:
        return {}
    colored = highlight("\n".join(text for _, text in numbered), language, palette, palette.text)
    return {number: runs for (number, _), runs in zip(numbered, colored, strict=True)}


def _digits(part: Sequence[Pair]) -> int:
    return len(str(max(max(pair.old_number, pair.new_number) for pair in part)))


CONTEXT = 3
_WORDS = re.compile(r"\w+|\s+|.")
MAX_COMPARED_LINE = 500
MIN_SIMILARITY = 0.4

Span = tuple[int, int]
_Change = tuple[int, int, int, int]
"""(start, end) in the old lines and (start, end) in the new ones."""


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


def hunks(before: str, after: str) -> list[list[Pair]]:
    """The changes with the lines around them; those that are near each other are one."""
    old, new = before.splitlines(), after.splitlines()
    return [list(_pairs(window, group, old, new)) for window, group in line_hunks(old, new, CONTEXT)]


def changed_words(old: str, new: str) -> tuple[list[Span], list[Span]]:
    """The changed characters of each line; empty if the lines have little in common."""
    if max(len(old), len(new)) > MAX_COMPARED_LINE:
        return [], []
    old_words, new_words = _WORDS.findall(old), _WORDS.findall(new)
    matcher = SequenceMatcher(None, old_words, new_words, autojunk=False)
    same = [word for start, _, size in matcher.get_matching_blocks() for word in old_words[start : start + size]]
    if 2 * _count_words(same) < MIN_SIMILARITY * _count_words([*old_words, *new_words]):
        return [], []
    codes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    return _spans(old_words, [(code[1], code[2]) for code in codes]), _spans(
        new_words, [(code[3], code[4]) for code in codes]
    )


def _count_words(words: Iterable[str]) -> int:
    """Without spaces: each line has some."""
    return sum(not word.isspace() for word in words)


def count(parts: Sequence[Sequence[Pair]]) -> tuple[int, int]:
    pairs = [pair for part in parts for pair in part if not pair.is_same]
    return sum(pair.new is not None for pair in pairs), sum(pair.old is not None for pair in pairs)


def _pairs(window: LineChange, group: Sequence[LineChange], old: Sequence[str], new: Sequence[str]) -> Iterator[Pair]:
    at, end, new_at, new_end = window
    for first, last, new_first, new_last in [*group, (end, end, new_end, new_end)]:
        same = zip(range(at, first), range(new_at, new_first), strict=True)
        for left, right in [*same, *zip_longest(range(first, last), range(new_first, new_last))]:
            yield Pair(
                None if left is None else old[left],
                None if right is None else new[right],
                0 if left is None else left + 1,
                0 if right is None else right + 1,
            )
        at, new_at = last, new_last


def _spans(words: Sequence[str], ranges: Sequence[Span]) -> list[Span]:
    offsets = [0]
    for word in words:
        offsets.append(offsets[-1] + len(word))
    return [(offsets[first], offsets[last]) for first, last in ranges if first < last]
