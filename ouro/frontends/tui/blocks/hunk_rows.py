"""HunkRows: the lines of one hunk with their signs, numbers and colours, in one column or two."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, zip_longest

from rich.segment import Segment
from rich.style import Style

from ouro.frontends.tui.blocks.code import MAX_LINE, highlight, language_of
from ouro.frontends.tui.blocks.diff_data import HunkLines, LineRun, Pair, Span, find_changed_words
from ouro.frontends.tui.blocks.palette import Palette
from ouro.frontends.tui.blocks.styled_lines import (
    LineSpan,
    Run,
    StyledLine,
    count_fold_lines,
    fold,
    fold_spans,
    indent,
    pad,
    restyle_spans,
)

LEAD = 32
"""Lines before a page where the search for the beginning of a statement starts."""
MAX_LEAD = 80
"""Maximum lines before a page that are lexed for its colours: a text or comment may begin there."""
_Side = dict[int, list[Run]]
"""The lines of a file before a change, or those after it: their runs by their numbers."""


class HunkRows(ABC):
    """The rows of a hunk: lines of the screen before they are wrapped. They are drawn only when they
    are seen; before, their number and heights are known.
    """

    def __init__(self, lines: HunkLines, path: str, width: int, palette: Palette) -> None:
        """`path` is the name of the file: the language of the file decides about the colours."""
        self._path, self._width, self._palette = path, width, palette
        self._olds = list(chain.from_iterable(run.olds for run in lines.runs))
        self._news = list(chain.from_iterable(run.news for run in lines.runs))
        self._old_start = next((run.old_number for run in lines.runs if run.olds), 0)
        self._new_start = next((run.new_number for run in lines.runs if run.news), 0)
        last = max(self._old_start + len(self._olds), self._new_start + len(self._news)) - 1
        self._digits = len(str(last))
        self._lines = lines
        self.row_count = 0
        self._extra: dict[int, int] = {}
        """Row number -> how many lines the row takes after its first one. Most rows take no further
        line, and are not in here.
        """
        for run in lines.runs:
            self._extra.update(self._extra_lines(run))
            self.row_count += self._count_rows(run)
        self._tall_rows = list(self._extra)
        self._spans_of_lines: dict[str, list[LineSpan]] = {}
        """By a long text: the spans of its wrapped lines."""

    def height(self, start: int, end: int) -> int:
        """The number of lines of the rows from `start` to before `end`."""
        first = bisect_left(self._tall_rows, start)
        last = bisect_left(self._tall_rows, end)
        return end - start + sum(self._extra[row] for row in self._tall_rows[first:last])

    def find_long_row(self, start: int, end: int) -> int:
        """The first row from `start` to before `end` with a text longer than MAX_LINE; `end` if there
        is none. Such a text takes several lines, so only the tall rows are looked at.
        """
        first, last = bisect_left(self._tall_rows, start), bisect_left(self._tall_rows, end)
        return next((row for row in self._tall_rows[first:last] if self._is_long(row)), end)

    @abstractmethod
    def _is_long(self, row: int) -> bool:
        """Whether a text of the row is longer than MAX_LINE; such a text has no colours."""

    @abstractmethod
    def draw_part(self, row: int, first: int, last: int) -> list[StyledLine]:
        """The lines of a row from `first` to before `last`."""

    def _wrapped_part(
        self, sign: str, number: int, text: str, width: int, lines: tuple[int, int]
    ) -> list[StyledLine]:
        """Wrap a text with its sign and number to `width`, and return a range of its lines, without the
        colours of syntax. `lines` is the range: the first line, and the line behind the last one.
        """
        first, last = lines
        if text not in self._spans_of_lines:
            self._spans_of_lines[text] = list(fold_spans(text, self._room(width)))
        style = self._line_style(sign)
        part = [
            StyledLine([Segment(text[start:end], style)], joint=joint)
            for start, end, joint in self._spans_of_lines[text][first:last]
        ]
        return self._add_number(part, sign, number, width, has_start=first == 0)

    def _line_style(self, sign: str) -> Style:
        """The style of a line that has no colours of syntax: the usual style of text, and for an
        added or removed line with the background for that.
        """
        changed = {"+": self._palette.added, "-": self._palette.removed}.get(sign)
        text = self._palette.text
        return text if changed is None else text + Style(bgcolor=changed.bgcolor)

    @abstractmethod
    def _count_rows(self, run: LineRun) -> int:
        """The number of rows of these lines."""

    @abstractmethod
    def _extra_lines(self, run: LineRun) -> dict[int, int]:
        """The entries of `_extra` for the rows of `run`, in their order. The first of these rows has
        the number `row_count`.
        """

    @abstractmethod
    def source(self, row: int) -> tuple[str, int]:
        """The sign of a row (`+`, `-` or a space), and the number of its line in the file."""

    @abstractmethod
    def draw(self, start: int, end: int, is_colored: bool) -> list[StyledLine]:
        """The lines of the rows from `start` to before `end`. Without `is_colored` they have neither
        the colours of syntax nor marked words.
        """

    def _room(self, width: int) -> int:
        """The cells of a column of this width that are left for text: beside number and sign."""
        return width - self._digits - 3

    def _sides(
        self, olds: Iterable[Pair], news: Iterable[Pair], is_colored: bool
    ) -> tuple[_Side, _Side]:
        """The old lines of the pairs `olds`, and the new lines of the pairs `news`. The lines of each
        side must follow one another in the file.
        """
        old_numbers = [pair.old_number for pair in olds if pair.old_number]
        new_numbers = [pair.new_number for pair in news if pair.new_number]
        lines_of = self._colored_lines if is_colored else self._plain_lines
        return (
            lines_of(self._olds, self._old_start, old_numbers),
            lines_of(self._news, self._new_start, new_numbers),
        )

    def _plain_lines(self, texts: Sequence[str], start: int, numbers: Sequence[int]) -> _Side:
        """The lines with these numbers, without colours; see `_colored_lines`."""
        return {number: [(texts[number - start], self._palette.text)] for number in numbers}

    def _colored_lines(self, texts: Sequence[str], start: int, numbers: Sequence[int]) -> _Side:
        """The lines with these numbers, in the colours of their syntax. `texts` are all lines of
        the side, and `start` is the number of the first of them. Lexing begins before the lines,
        where a statement begins.
        """
        if not numbers:
            return {}
        first, last = numbers[0] - start, numbers[-1] - start
        lexed_from = _find_lead(texts, first)
        code = "\n".join(texts[lexed_from : last + 1])
        language = language_of(self._path)  # slow for a new name
        runs = highlight(code, language, self._palette, base=self._palette.text)
        return dict(enumerate(runs[first - lexed_from :], numbers[0]))

    def _mark_words(self, pairs: Sequence[Pair], olds: _Side, news: _Side) -> None:
        """Mark what has changed, in `olds` and `news` themselves: changed lines get the background
        of removed and added lines, and changed words stand out in them.
        """
        palette = self._palette
        removed = _marking_styles(palette.removed, palette.removed_word)
        added = _marking_styles(palette.added, palette.added_word)
        for pair in pairs:
            if pair.is_same:
                continue
            old_spans: list[Span] = []
            new_spans: list[Span] = []
            if pair.old and pair.new:
                old_spans, new_spans = find_changed_words(pair.old, pair.new)
            _mark_line(olds, pair.old_number, old_spans, marking=removed)
            _mark_line(news, pair.new_number, new_spans, marking=added)

    def _row_lines(self, sign: str, number: int, side: _Side, width: int) -> list[StyledLine]:
        """The line `number` of a side with its sign and number, wrapped to `width`."""
        code = fold(side[number], self._room(width))
        return self._add_number(code, sign, number, width, has_start=True)

    def _add_number(
        self, code: list[StyledLine], sign: str, number: int, width: int, *, has_start: bool
    ) -> list[StyledLine]:
        """Put the number and the sign before the wrapped lines of one text, and fill the lines to
        `width`. Only the first line of the text gets the number and the sign; `has_start` says
        whether it is the first of these lines. All other lines get blanks.
        """
        palette, digits = self._palette, self._digits
        style, tone = {
            "+": (palette.added, palette.success),
            "-": (palette.removed, palette.error),
            " ": (palette.text, palette.muted),
        }[sign]
        dim = Style(color=palette.muted.color, bgcolor=style.bgcolor)
        no_sign, no_number = ("  ", dim), (" " * (digits + 1), dim)
        first_sign, first_number = no_sign, no_number
        if has_start:
            first_sign = (f"{sign} ", dim + Style(color=tone.color, bold=True))
            first_number = (f"{number:>{digits}} ", dim)
        signed = indent(code, first_sign, no_sign)
        numbered = indent(signed, first_number, no_number)
        return pad(numbered, width, style)


def _find_lead(texts: Sequence[str], first: int) -> int:
    """The number of the line at which lexing begins, so that the line `first` gets its right colours.

    It is a line that begins with a letter, as a statement does: the first such line of the LEAD lines
    before `first`, else of the MAX_LEAD lines before it. If there is none, it is `first` itself. If
    the lines before `first` are so few that they include the first line of all, it is that line.
    """
    for lines_before in (LEAD, MAX_LEAD):
        lead = max(0, first - lines_before)
        while 0 < lead < first and not texts[lead][:1].isalpha():
            lead += 1
        if lead < first:
            break
    return lead


def _marking_styles(line: Style, word: Style) -> tuple[Style, Style]:
    """Two styles for a changed line: for its changed words, and for the rest of the line. Both are
    put over the colours of syntax. The rest of the line keeps these colours.
    """
    strong = Style(color=word.color, bgcolor=word.bgcolor, bold=True)
    return strong, Style(bgcolor=line.bgcolor)


def _mark_line(
    side: _Side, number: int, spans: Sequence[tuple[int, int]], marking: tuple[Style, Style]
) -> None:
    """Change the line `number` of a side, if the side has it: the words in `spans` get the first style
    of `marking`, the rest of the line the second one.
    """
    if number in side:
        side[number] = list(restyle_spans(side[number], spans, *marking))


class OneColumnRows(HunkRows):
    """A hunk in one column: of changed lines first the old ones, then the new ones."""

    def __init__(self, lines: HunkLines, path: str, width: int, palette: Palette) -> None:
        super().__init__(lines, path, width, palette)
        counts = map(self._count_rows, lines.runs)
        self._run_starts = list(accumulate(counts, initial=0))

    def _count_rows(self, run: LineRun) -> int:
        return len(run.news) if run.is_same else len(run.olds) + len(run.news)

    def _extra_lines(self, run: LineRun) -> dict[int, int]:
        texts = run.news if run.is_same else [*run.olds, *run.news]
        return _count_extra_lines(texts, self._room(self._width), self.row_count)

    def _is_long(self, row: int) -> bool:
        sign, pair = self._row_at(row)
        return len(_text_of(sign, pair)) > MAX_LINE

    def draw_part(self, row: int, first: int, last: int) -> list[StyledLine]:
        """The lines of a row from `first` to before `last`."""
        sign, pair = self._row_at(row)
        number = pair.old_number if sign == "-" else pair.new_number
        return self._wrapped_part(sign, number, _text_of(sign, pair), self._width, (first, last))

    def _rows(self, start: int, end: int) -> list[tuple[str, Pair]]:
        """What `_row_at` returns, for the rows from `start` to before `end`."""
        return [self._row_at(row) for row in range(start, end)]

    def _row_at(self, row: int) -> tuple[str, Pair]:
        """What a row shows: the sign of the line (`-`, `+` or a space), and the pair that the line
        is from.
        """
        run_number = bisect_right(self._run_starts, row) - 1
        run = self._lines.runs[run_number]
        row_in_run = row - self._run_starts[run_number]
        if run.is_same:
            return " ", run.pair(row_in_run)
        if row_in_run < len(run.olds):
            return "-", run.pair(row_in_run)
        return "+", run.pair(row_in_run - len(run.olds))

    def source(self, row: int) -> tuple[str, int]:
        sign, pair = self._row_at(row)
        return sign, pair.old_number if sign == "-" else pair.new_number

    def draw(self, start: int, end: int, is_colored: bool) -> list[StyledLine]:
        """The lines of the rows from `start` to before `end`, one row below the other."""
        rows = self._rows(start, end)
        removed = [pair for sign, pair in rows if sign == "-"]
        added_or_same = [pair for sign, pair in rows if sign != "-"]
        olds, news = self._sides(removed, added_or_same, is_colored)
        if is_colored:
            self._mark_words([pair for _, pair in rows], olds, news)
        lines: list[StyledLine] = []
        for sign, pair in rows:
            if sign == "-":
                lines += self._row_lines(sign, pair.old_number, olds, self._width)
            else:
                lines += self._row_lines(sign, pair.new_number, news, self._width)
        return lines


def _text_of(sign: str, pair: Pair) -> str:
    return (pair.old if sign == "-" else pair.new) or ""


def _count_extra_lines(texts: Sequence[str], width: int, row: int) -> dict[int, int]:
    """How many lines each text takes after its first one, if it is wrapped to `width` cells. The
    result has the counts by the number of the row; a text of one line is left out. The first text
    has the number `row`, and the next texts follow.
    """
    # A character takes at most two cells, so that shorter texts need no look at their characters.
    always_fits = width // 2
    if not texts or max(map(len, texts)) <= always_fits:
        return {}
    extra = {}
    for number, text in enumerate(texts, row):
        if len(text) <= always_fits:
            continue
        line_count = count_fold_lines(text, width)
        if line_count > 1:
            extra[number] = line_count - 1
    return extra


class TwoColumnRows(HunkRows):
    """A hunk in two columns: the old lines on the left, the new ones on the right."""

    def __init__(self, lines: HunkLines, path: str, width: int, palette: Palette) -> None:
        self._half = (width - 1) // 2
        super().__init__(lines, path, width, palette)

    def _count_rows(self, run: LineRun) -> int:
        return len(run)

    def _extra_lines(self, run: LineRun) -> dict[int, int]:
        """How many extra lines each row has: as many as the longer of its two sides."""
        room = self._room(self._half)
        extra = _count_extra_lines(run.olds, room, self.row_count)
        for row, lines in _count_extra_lines(run.news, room, self.row_count).items():
            extra[row] = max(lines, extra.get(row, 0))
        return dict(sorted(extra.items()))

    def source(self, row: int) -> tuple[str, int]:
        """The sign and the number of the line that a row shows on its right side. If the right side
        is empty, of the line on its left side.
        """
        pair = self._lines[row]
        if pair.is_same:
            return " ", pair.new_number
        return ("+", pair.new_number) if pair.new_number else ("-", pair.old_number)

    def draw(self, start: int, end: int, is_colored: bool) -> list[StyledLine]:
        """The lines of the rows from `start` to before `end`. Each row is a pair: its old line is
        on the left, its new line on the right.
        """
        pairs = self._lines[start:end]
        olds, news = self._sides(pairs, pairs, is_colored)
        if is_colored:
            self._mark_words(pairs, olds, news)
        lines: list[StyledLine] = []
        for pair in pairs:
            lines += self._pair_lines(pair, olds, news)
        return lines

    def _pair_lines(self, pair: Pair, olds: _Side, news: _Side) -> Iterator[StyledLine]:
        """The lines of a pair, with the old line on the left and the new one on the right."""
        left = self._column_lines(" " if pair.is_same else "-", pair.old_number, olds)
        right = self._column_lines(" " if pair.is_same else "+", pair.new_number, news)
        return self._join_columns(left, right)

    def _join_columns(
        self, left: Sequence[StyledLine], right: Sequence[StyledLine]
    ) -> Iterator[StyledLine]:
        """Yield the lines of a row, with a vertical line between both sides. The side with fewer lines
        is filled with blank ones.
        """
        palette = self._palette
        blank = StyledLine([Segment(" " * self._half, palette.text)])
        for left_line, right_line in zip_longest(left, right, fillvalue=blank):
            segments = [*left_line.segments, Segment("│", palette.muted), *right_line.segments]
            # Only the right column is copied, the file as it is now: all before it is decoration.
            yield StyledLine(
                segments,
                gutter=len(left_line.text) + 1 + right_line.gutter,
                joint=right_line.joint,
                filling=right_line.filling,
            )

    def _is_long(self, row: int) -> bool:
        pair = self._lines[row]
        return max(len(pair.old or ""), len(pair.new or "")) > MAX_LINE

    def draw_part(self, row: int, first: int, last: int) -> list[StyledLine]:
        """The lines of a row from `first` to before `last`, with both sides in each line."""
        pair, lines = self._lines[row], (first, last)
        old_sign, new_sign = (" ", " ") if pair.is_same else ("-", "+")
        left: list[StyledLine] = []
        right: list[StyledLine] = []
        if pair.old is not None:
            left = self._wrapped_part(old_sign, pair.old_number, pair.old, self._half, lines)
        if pair.new is not None:
            right = self._wrapped_part(new_sign, pair.new_number, pair.new, self._half, lines)
        return list(self._join_columns(left, right))

    def _column_lines(self, sign: str, number: int, side: _Side) -> list[StyledLine]:
        """The lines of one side of a pair; none if the pair has no line there (the number is 0)."""
        return self._row_lines(sign, number, side, self._half) if number else []
