"""Diffs as pages of lines, in one column or two, with changed words marked."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice, zip_longest
from typing import Any, NamedTuple

from rich.segment import Segment
from rich.style import Style

from ouro.display import NO_FILE
from ouro.frontends.tui.blocks.code import MAX_LINE, Code, highlight, language_of
from ouro.frontends.tui.blocks.file_diff import (
    FileDiff,
    HunkLines,
    LineRun,
    Pair,
    file_diffs,
    find_changed_words,
)
from ouro.frontends.tui.blocks.lines import (
    Run,
    StyledLine,
    count_fold_lines,
    crop,
    fold,
    fold_places,
    indent,
    pad,
    restyle_spans,
    tidy,
)
from ouro.frontends.tui.blocks.paged_lines import DrawnPage, LinePage, PagedLines
from ouro.frontends.tui.blocks.palette import Palette

TWO_COLUMNS = 160
"""The minimum width to show before and after side by side."""
PAGE_ROWS = 32
"""Rows that are drawn together, when the first of them is seen."""
LEAD = 32
"""Lines before a page where the search for the beginning of a statement starts."""
MAX_LEAD = 80
"""Maximum lines before a page that are lexed for its colours: a text or comment may begin there."""
GIT_FILE = "diff --git "
"""Begins a file in a diff of git."""
_GIT_HEAD = (GIT_FILE, "index ", "new file mode ", "deleted file mode ")
_Side = dict[int, list[Run]]
"""The runs of lines by their numbers."""


def draw_diff(
    files: Iterable[FileDiff], width: int, palette: Palette, *, has_names: bool = True
) -> PagedLines:
    """Lay out a diff; its lines are drawn when they are taken."""
    first = 0 if has_names else 1
    return PagedLines(
        [
            page
            for file in files
            for _, page in islice(_file_pages(file, width, palette), first, None)
        ]
    )


def draw_git_diff(text: str, width: int, palette: Palette) -> PagedLines:
    """Lay out a diff of git; files with more than hunks (binary, renamed, cut) stay as git wrote
    them.
    """
    pages: list[LinePage] = []
    for file in re.split(rf"^(?={GIT_FILE})", text.rstrip("\n"), flags=re.MULTILINE)[1:]:
        rows = file.rstrip("\n").split("\n")
        if pages:
            pages.append(DrawnPage([StyledLine([])]))
        try:
            for found in _files_of_git(rows):
                pages += [page for _, page in _file_pages(found, width, palette)]
        except ValueError:
            pages.append(DrawnPage(Code("diff", width, palette).lines("\n".join(rows))))
    return PagedLines(pages)


def _files_of_git(rows: Sequence[str]) -> list[FileDiff]:
    """The file of these rows of a git diff, as a list of one. Raises ValueError if there is more
    than the hunks of one file.
    """
    start = next((number for number, row in enumerate(rows) if row.startswith("--- ")), 0)
    if not start or not all(row.startswith(_GIT_HEAD) for row in rows[:start]):
        raise ValueError("not the hunks of one file")
    names = (
        re.sub(r"^(--- |\+\+\+ )[ab]/", r"\1", row).rstrip("\t") for row in rows[start : start + 2]
    )
    return file_diffs([*names, *rows[start + 2 :]])


class DiffPlace(NamedTuple):
    """What is drawn on a line of a DiffLayout."""

    file: int
    hunk: int = -1
    """-1: the name of the file, or what is below it."""
    sign: str = ""
    """`+`, `-` or a space; empty for a line that is of no file."""
    number: int = 0
    """The number of the line in the file as it is now; for `-` as it was."""


class DiffLayout:
    """The files of a diff, and what each line shows; `notes` are shown below the names."""

    def __init__(
        self,
        files: Sequence[FileDiff],
        notes: Sequence[Sequence[str]],
        width: int,
        palette: Palette,
        *,
        has_two_columns: bool,
    ) -> None:
        pages: list[LinePage] = []
        self._places: list[DiffPlace] = []
        for number, (file, below) in enumerate(zip(files, notes, strict=True)):
            found = list(_file_pages(file, width, palette, has_two_columns))
            extra = [StyledLine([Segment(crop(note, width), palette.muted)]) for note in below]
            found.insert(1, (-1, DrawnPage(extra)))
            if number < len(files) - 1:
                found.append((len(file.hunks) - 1, DrawnPage([StyledLine([])])))
            pages += [page for _, page in found]
            self._places += [DiffPlace(number, hunk) for hunk, _ in found]
        self._pages = pages
        self._first_pages: dict[DiffPlace, int] = {}
        for number, place in enumerate(self._places):
            self._first_pages.setdefault(place, number)
        self.lines = PagedLines(pages)

    def place(self, line: int) -> DiffPlace:
        """What is drawn on a line."""
        page_number, inside = self.lines.page_at(line)
        place, page = self._places[page_number], self._pages[page_number]
        return place._replace(**page.place_of(inside)) if isinstance(page, _HunkPage) else place

    def line_of(self, file: int, hunk: int = -1) -> int:
        """The first line of a file or of a hunk."""
        return self.lines.top_of(self._first_pages[DiffPlace(file, hunk)])


def _file_pages(
    file: FileDiff, width: int, palette: Palette, has_two_columns: bool | None = None
) -> Iterator[tuple[int, LinePage]]:
    """The pages of a file, each with the number of its hunk; -1: above the first."""
    yield -1, DrawnPage([_head(file, width, palette)])
    is_both = NO_FILE not in (file.before, file.after)
    two_columns = is_both and (width >= TWO_COLUMNS if has_two_columns is None else has_two_columns)
    name = file.before if file.after == NO_FILE else file.after
    kind = _TwoColumns if two_columns else _OneColumn
    for number, (lines, title) in enumerate(zip(file.hunks, file.names, strict=True)):
        if number or title:
            shown = crop(f"⋮ {title}".rstrip(), width)
            yield number, DrawnPage([StyledLine([Segment(shown, palette.muted)])])
        hunk = kind(lines, name, width, palette)
        for page in _hunk_pages(hunk):
            yield number, page


def _head(file: FileDiff, width: int, palette: Palette) -> StyledLine:
    """The line above a file: its names, and how many lines changed."""
    names = [tidy(name) for name in dict.fromkeys((file.before, file.after)) if name != NO_FILE]
    figures = diff_figures(file, palette)
    room = max(1, width - sum(len(figure.text) for figure in figures))
    return StyledLine([Segment(crop(" → ".join(names), room), palette.strong), *figures])


def diff_figures(file: FileDiff, palette: Palette) -> list[Segment]:
    """The numbers of added and removed lines, behind a name; none if no line changed."""
    what = " (new)" if file.before == NO_FILE else " (deleted)" if file.after == NO_FILE else ""
    runs = chain.from_iterable(lines.runs for lines in file.hunks)
    changed = [run for run in runs if not run.is_same]
    added = sum(len(run.news) for run in changed)
    removed = sum(len(run.olds) for run in changed)
    if not changed:
        return [Segment(what, palette.muted)]
    return [
        Segment(f"{what}  ", palette.muted),
        Segment(f"+{added}", palette.success),
        Segment(f" −{removed}", palette.error),
    ]


def _hunk_pages(hunk: _Hunk) -> Iterator[_HunkPage]:
    """Yield a hunk as pages of PAGE_ROWS rows. A row that is very long has pages of its own, so
    that it is drawn in parts.
    """
    start = 0
    while start < hunk.row_count:
        end = min(start + PAGE_ROWS, hunk.row_count)
        long_row = hunk.find_long_row(start, end)
        if long_row == start:
            height = hunk.height(start, start + 1)
            for line in range(0, height, PAGE_ROWS):
                yield _LongRowPage(hunk, start, line, min(line + PAGE_ROWS, height))
            end = start + 1
        else:
            end = min(end, long_row)
            yield _HunkPage(hunk, start, end)
        start = end


class _HunkPage:
    """Some rows of a hunk."""

    def __init__(self, hunk: _Hunk, start: int, end: int) -> None:
        self._hunk, self._start, self._end = hunk, start, end
        self.height = hunk.height(start, end)

    def draw(self, *, is_colored: bool = True) -> list[StyledLine]:
        return self._hunk.draw(self._start, self._end, is_colored)

    def place_of(self, line: int) -> dict[str, Any]:
        """The sign and the number of what a line shows."""
        for row in range(self._start, self._end):
            if line < (height := self._hunk.height(row, row + 1)):
                sign, number = self._hunk.source(row)
                return {"sign": sign, "number": number}
            line -= height
        return {}


class _LongRowPage(_HunkPage):
    """Some lines of one row, whose text may have a million characters."""

    def __init__(self, hunk: _Hunk, row: int, first: int, last: int) -> None:
        super().__init__(hunk, row, row + 1)
        self._first, self._last = first, last
        self.height = last - first

    def draw(self, *, is_colored: bool = True) -> list[StyledLine]:  # noqa: ARG002 (it has no colours of syntax)
        return self._hunk.draw_part(self._start, self._first, self._last)

    def place_of(self, line: int) -> dict[str, Any]:  # noqa: ARG002 (all are of one row)
        sign, number = self._hunk.source(self._start)
        return {"sign": sign, "number": number}


class _Hunk(ABC):
    """The rows of a hunk: lines of the screen before they are wrapped. What is seen of them is made
    when it is drawn.
    """

    def __init__(self, lines: HunkLines, path: str, width: int, palette: Palette) -> None:
        """`path`: the name of the file, for its colours."""
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
        """The lines that a row takes beside its first; most rows have none."""
        for run in lines.runs:
            self._extra.update(self._extra_lines(run))
            self.row_count += self._count_rows(run)
        self._tall_rows = list(self._extra)
        self._places_of_lines: dict[str, list[tuple[int, int, str]]] = {}
        """Where the lines of a long text start and end."""

    def height(self, start: int, end: int) -> int:
        """The number of lines of the rows from `start` to before `end`."""
        first = bisect_left(self._tall_rows, start)
        last = bisect_left(self._tall_rows, end)
        return end - start + sum(self._extra[row] for row in self._tall_rows[first:last])

    def find_long_row(self, start: int, end: int) -> int:
        """The first row from `start` on with a text longer than MAX_LINE; else `end`."""
        first, last = bisect_left(self._tall_rows, start), bisect_left(self._tall_rows, end)
        return next((row for row in self._tall_rows[first:last] if self._is_long(row)), end)

    @abstractmethod
    def _is_long(self, row: int) -> bool:
        """Whether a text of the row is longer than MAX_LINE; such a text has no colours."""

    @abstractmethod
    def draw_part(self, row: int, first: int, last: int) -> list[StyledLine]:
        """The lines of a row from `first` to before `last`."""

    def _part(
        self, sign: str, number: int, text: str, width: int, lines: tuple[int, int]
    ) -> list[StyledLine]:
        """What `_row` returns for a text without colours, from the first of `lines` to before the
        second.
        """
        first, last = lines
        if text not in self._places_of_lines:
            self._places_of_lines[text] = list(fold_places(text, self._room(width)))
        style = self._line_style(sign)
        shown = [
            StyledLine([Segment(text[start:end], style)], joint=joint)
            for start, end, joint in self._places_of_lines[text][first:last]
        ]
        return self._numbered(shown, sign, number, width, has_start=first == 0)

    def _line_style(self, sign: str) -> Style:
        """The style of a text without colours of its syntax."""
        back = {"+": self._palette.added, "-": self._palette.removed}.get(sign)
        text = self._palette.text
        return text if back is None else text + Style(bgcolor=back.bgcolor)

    @abstractmethod
    def _count_rows(self, run: LineRun) -> int:
        """The number of rows of these lines."""

    @abstractmethod
    def _extra_lines(self, run: LineRun) -> dict[int, int]:
        """What `_extra` has of the rows of `run`, which are the next ones, in their order."""

    @abstractmethod
    def source(self, row: int) -> tuple[str, int]:
        """The sign of a row, and the number of its line in the file."""

    @abstractmethod
    def draw(self, start: int, end: int, is_colored: bool) -> list[StyledLine]:
        """The lines of these rows."""

    def _room(self, width: int) -> int:
        return width - self._digits - 3

    def _sides(
        self, olds: Iterable[Pair], news: Iterable[Pair], is_colored: bool
    ) -> tuple[_Side, _Side]:
        """The lines before of `olds`, and those after of `news`, which follow each other."""
        old_numbers = [pair.old_number for pair in olds if pair.old_number]
        new_numbers = [pair.new_number for pair in news if pair.new_number]
        color = self._color if is_colored else self._plain
        return (
            color(self._olds, self._old_start, old_numbers),
            color(self._news, self._new_start, new_numbers),
        )

    def _plain(self, texts: Sequence[str], start: int, numbers: Sequence[int]) -> _Side:
        return {number: [(texts[number - start], self._palette.text)] for number in numbers}

    def _color(self, texts: Sequence[str], start: int, numbers: Sequence[int]) -> _Side:
        """The lines with these numbers in the colours of their syntax. Lexing begins before the
        first of them, where a statement begins.
        """
        if not numbers:
            return {}
        first, last = numbers[0] - start, numbers[-1] - start
        lead = _lead_start(texts, first)
        code = "\n".join(texts[lead : last + 1])
        language = language_of(self._path)  # not needed before: it takes long for a new name
        runs = highlight(code, language, self._palette, self._palette.text)
        return dict(enumerate(runs[first - lead :], numbers[0]))

    def _mark_words(self, pairs: Sequence[Pair], olds: _Side, news: _Side) -> None:
        """Put the colours of removed and added words into the lines of both sides."""
        palette = self._palette
        removed = _marking(palette.removed, palette.removed_word)
        added = _marking(palette.added, palette.added_word)
        for pair in pairs:
            if pair.is_same:
                continue
            is_both = pair.old and pair.new
            old_spans, new_spans = (
                find_changed_words(pair.old or "", pair.new or "") if is_both else ([], [])
            )
            _mark(olds, pair.old_number, old_spans, removed)
            _mark(news, pair.new_number, new_spans, added)

    def _row(self, sign: str, number: int, side: _Side, width: int) -> list[StyledLine]:
        """A line with its sign and number, wrapped to `width`."""
        code = fold(side[number], self._room(width))
        return self._numbered(code, sign, number, width, has_start=True)

    def _numbered(
        self, code: list[StyledLine], sign: str, number: int, width: int, *, has_start: bool
    ) -> list[StyledLine]:
        """Lines of one text; the first has its sign and number, if it `has_start` of the text."""
        palette, digits = self._palette, self._digits
        style, tone = {
            "+": (palette.added, palette.success),
            "-": (palette.removed, palette.error),
            " ": (palette.text, palette.muted),
        }[sign]
        dim = Style(color=palette.muted.color, bgcolor=style.bgcolor)
        blank, no_number = ("  ", dim), (" " * (digits + 1), dim)
        marked = (f"{sign} ", dim + Style(color=tone.color, bold=True)) if has_start else blank
        signed = indent(code, marked, blank)
        numbered = indent(
            signed, (f"{number:>{digits}} ", dim) if has_start else no_number, no_number
        )
        return pad(numbered, width, style)


def _lead_start(texts: Sequence[str], first: int) -> int:
    """Where to begin lexing for the line `first`: far enough before it, where a statement begins."""
    for least in (first - LEAD, first - MAX_LEAD):
        lead = max(0, least)
        while 0 < lead < first and not texts[lead][:1].isalpha():
            lead += 1
        if lead < first:
            break
    return lead


def _marking(back: Style, word: Style) -> tuple[Style, Style]:
    """The styles of a changed word, and of the rest of its line, which keep the syntax colours."""
    strong = Style(color=word.color, bgcolor=word.bgcolor, bold=True)
    return strong, Style(bgcolor=back.bgcolor)


def _mark(
    side: _Side, number: int, spans: Sequence[tuple[int, int]], marking: tuple[Style, Style]
) -> None:
    """Put the colours of a changed line under its syntax colours, those of its words too."""
    if number in side:
        side[number] = list(restyle_spans(side[number], spans, *marking))


class _OneColumn(_Hunk):
    """Of changed lines first the old ones, then the new ones."""

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
        sign, pair = self._row_at(row)
        number = pair.old_number if sign == "-" else pair.new_number
        return self._part(sign, number, _text_of(sign, pair), self._width, (first, last))

    def _rows(self, start: int, end: int) -> list[tuple[str, Pair]]:
        """The sign and the lines of the rows from `start` to before `end`."""
        return [self._row_at(row) for row in range(start, end)]

    def _row_at(self, row: int) -> tuple[str, Pair]:
        """The sign of a row (`-`, `+` or a space), and its pair: of a changed run the old lines
        come first.
        """
        number = bisect_right(self._run_starts, row) - 1
        run, place = self._lines.runs[number], row - self._run_starts[number]
        sign = " "
        if not run.is_same:
            sign = "-" if place < len(run.olds) else "+"
        if sign == "+":
            place -= len(run.olds)
        return sign, run.pair(place)

    def source(self, row: int) -> tuple[str, int]:
        sign, pair = self._row_at(row)
        return sign, pair.old_number if sign == "-" else pair.new_number

    def draw(self, start: int, end: int, is_colored: bool) -> list[StyledLine]:
        rows = self._rows(start, end)
        olds, news = self._sides(
            (pair for sign, pair in rows if sign == "-"),
            (pair for sign, pair in rows if sign != "-"),
            is_colored,
        )
        if is_colored:
            self._mark_words([pair for _, pair in rows], olds, news)
        lines: list[StyledLine] = []
        for sign, pair in rows:
            is_old = sign == "-"
            number = pair.old_number if is_old else pair.new_number
            lines += self._row(sign, number, olds if is_old else news, self._width)
        return lines


def _text_of(sign: str, pair: Pair) -> str:
    return (pair.old if sign == "-" else pair.new) or ""


def _count_extra_lines(texts: Sequence[str], width: int, row: int) -> dict[int, int]:
    """The lines that each text takes in `width` cells beside its first, if any; the first text is
    in `row`.
    """
    # A character takes at most two cells, so that shorter texts need no look at their characters.
    short = width // 2
    if not texts or max(map(len, texts)) <= short:
        return {}
    extra = {}
    for number, text in enumerate(texts, row):
        if len(text) > short and (lines := count_fold_lines(text, width)) > 1:
            extra[number] = lines - 1
    return extra


class _TwoColumns(_Hunk):
    def __init__(self, lines: HunkLines, path: str, width: int, palette: Palette) -> None:
        self._half = (width - 1) // 2
        super().__init__(lines, path, width, palette)

    def _count_rows(self, run: LineRun) -> int:
        return len(run)

    def _extra_lines(self, run: LineRun) -> dict[int, int]:
        room = self._room(self._half)
        extra = _count_extra_lines(run.olds, room, self.row_count)
        for row, lines in _count_extra_lines(run.news, room, self.row_count).items():
            extra[row] = max(lines, extra.get(row, 0))
        return dict(sorted(extra.items()))

    def source(self, row: int) -> tuple[str, int]:
        pair = self._lines[row]
        if pair.is_same:
            return " ", pair.new_number
        return ("+", pair.new_number) if pair.new_number else ("-", pair.old_number)

    def draw(self, start: int, end: int, is_colored: bool) -> list[StyledLine]:
        pairs = self._lines[start:end]
        olds, news = self._sides(pairs, pairs, is_colored)
        if is_colored:
            self._mark_words(pairs, olds, news)
        return [line for pair in pairs for line in self._pair_lines(pair, olds, news)]

    def _pair_lines(self, pair: Pair, olds: _Side, news: _Side) -> Iterator[StyledLine]:
        """The old and the new line side by side; the shorter one is filled with blank lines."""
        left = self._column(" " if pair.is_same else "-", pair.old_number, olds)
        right = self._column(" " if pair.is_same else "+", pair.new_number, news)
        return self._side_by_side(left, right)

    def _side_by_side(
        self, left: Sequence[StyledLine], right: Sequence[StyledLine]
    ) -> Iterator[StyledLine]:
        """Yield the lines of a row with a rule between them; the side with fewer lines is filled with
        blank ones.
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
        pair, lines = self._lines[row], (first, last)
        before, after = (" ", " ") if pair.is_same else ("-", "+")
        left = right = list[StyledLine]()
        if pair.old is not None:
            left = self._part(before, pair.old_number, pair.old, self._half, lines)
        if pair.new is not None:
            right = self._part(after, pair.new_number, pair.new, self._half, lines)
        return list(self._side_by_side(left, right))

    def _column(self, sign: str, number: int, side: _Side) -> list[StyledLine]:
        return self._row(sign, number, side, self._half) if number else []
