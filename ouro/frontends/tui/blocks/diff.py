"""Diffs as pages of styled lines: those of a diff viewer, of a tool card, and of git."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from rich.segment import Segment

from ouro.display import NO_FILE
from ouro.frontends.tui.blocks.code import Code
from ouro.frontends.tui.blocks.diff_data import FileDiff, file_diffs
from ouro.frontends.tui.blocks.hunk_rows import HunkRows, OneColumnRows, TwoColumnRows
from ouro.frontends.tui.blocks.paged_lines import DrawnPage, LinePage, PagedLines
from ouro.frontends.tui.blocks.palette import Palette
from ouro.frontends.tui.blocks.styled_lines import StyledLine, crop, tidy

TWO_COLUMNS = 160
"""The minimum width to show before and after side by side."""
PAGE_ROWS = 32
"""Rows that are drawn together, when the first of them is seen."""
GIT_FILE = "diff --git "
"""Begins a file in a diff of git."""
_GIT_HEAD = (GIT_FILE, "index ", "new file mode ", "deleted file mode ")


def draw_diff(
    files: Iterable[FileDiff], width: int, palette: Palette, *, has_names: bool = True
) -> PagedLines:
    """Lay out a diff; its lines are drawn when they are taken. Without `has_names` the first page of
    each file, which is the line with its name, is left out.
    """
    first_page = 0 if has_names else 1
    pages: list[LinePage] = []
    for file in files:
        pages += [page for _, page in islice(_file_pages(file, width, palette), first_page, None)]
    return PagedLines(pages)


def draw_git_diff(text: str, width: int, palette: Palette) -> PagedLines:
    """Lay out a diff of git, with a blank line between two files. If the diff of a file has
    anything but hunks (it is binary, renamed or cut), that file is shown as git wrote it.
    """
    pages: list[LinePage] = []
    for file_text in re.split(rf"^(?={GIT_FILE})", text.rstrip("\n"), flags=re.MULTILINE)[1:]:
        rows = file_text.rstrip("\n").split("\n")
        if pages:
            pages.append(DrawnPage([StyledLine([])]))
        try:
            for file in _files_of_git(rows):
                pages += [page for _, page in _file_pages(file, width, palette)]
        except ValueError:
            pages.append(DrawnPage(Code("diff", width, palette).lines("\n".join(rows))))
    return PagedLines(pages)


def _files_of_git(rows: Sequence[str]) -> list[FileDiff]:
    """Read the rows of one file of a git diff. Returns a list with this file. Raises ValueError if
    the rows have anything but a head and hunks.
    """
    start = next((number for number, row in enumerate(rows) if row.startswith("--- ")), 0)
    has_only_head_before = all(row.startswith(_GIT_HEAD) for row in rows[:start])
    if start == 0 or not has_only_head_before:
        raise ValueError("not the hunks of one file")
    # Git writes `a/` and `b/` before the names, and a tab after a name with a space.
    name_rows = [
        re.sub(r"^(--- |\+\+\+ )[ab]/", r"\1", row).rstrip("\t") for row in rows[start : start + 2]
    ]
    return file_diffs([*name_rows, *rows[start + 2 :]])


NO_HUNK = -1
"""The hunk of a line with the name of a file, or with a note below it."""


class DiffPlace(NamedTuple):
    """What is drawn on a line of a DiffLayout. Files and hunks count from 0."""

    file: int
    hunk: int = NO_HUNK
    sign: str = ""
    """`+`, `-` or a space; empty if the line shows no line of the file."""
    number: int = 0
    """The number of the line in the file as it is now; for `-` as it was."""


class DiffLayout:
    """The lines of a diff, and what each of them shows. `notes` has for each file the lines that are
    shown below its name.
    """

    def __init__(
        self,
        files: Sequence[FileDiff],
        notes: Sequence[Sequence[str]],
        width: int,
        palette: Palette,
        *,
        has_two_columns: bool,
    ) -> None:
        self._pages: list[LinePage] = []
        self._places: list[DiffPlace] = []
        """What each page shows: the file and the hunk, without the line."""
        for number, (file, notes_of_file) in enumerate(zip(files, notes, strict=True)):
            pages = list(_file_pages(file, width, palette, has_two_columns))
            note_lines = [
                StyledLine([Segment(crop(note, width), palette.muted)]) for note in notes_of_file
            ]
            # The first page is the name of the file. The notes below it belong to no hunk, either.
            pages.insert(1, (NO_HUNK, DrawnPage(note_lines)))
            if number < len(files) - 1:  # a blank line before the next file
                pages.append((len(file.hunks) - 1, DrawnPage([StyledLine([])])))
            self._pages += [page for _, page in pages]
            self._places += [DiffPlace(number, hunk) for hunk, _ in pages]
        self._first_pages: dict[DiffPlace, int] = {}
        """The number of the first page of each file and hunk."""
        for page_number, place in enumerate(self._places):
            self._first_pages.setdefault(place, page_number)
        self.lines = PagedLines(self._pages)

    def place(self, line: int) -> DiffPlace:
        """What is drawn on the line of this number."""
        page_number, line_in_page = self.lines.page_at(line)
        place, page = self._places[page_number], self._pages[page_number]
        if isinstance(page, _HunkPage):
            sign, number = page.source_line(line_in_page)
            return place._replace(sign=sign, number=number)
        return place

    def line_of(self, file: int, hunk: int = NO_HUNK) -> int:
        """The number of the first line of a hunk, or with NO_HUNK of a file."""
        return self.lines.top_of(self._first_pages[DiffPlace(file, hunk)])


def _file_pages(
    file: FileDiff, width: int, palette: Palette, has_two_columns: bool | None = None
) -> Iterator[tuple[int, LinePage]]:
    """Yield the pages of a file, each with the number of its hunk. The first page is the line with the
    name of the file, with NO_HUNK. Above the pages of a hunk is a line that names its function. The
    first hunk has no such line if its function is not known.

    `has_two_columns` None: if the width is enough. A new or deleted file always has one column.
    """
    yield NO_HUNK, DrawnPage([_head_line(file, width, palette)])
    if has_two_columns is None:
        has_two_columns = width >= TWO_COLUMNS
    exists_before_and_after = NO_FILE not in (file.before, file.after)
    hunk_class = TwoColumnRows if has_two_columns and exists_before_and_after else OneColumnRows
    name = file.before if file.after == NO_FILE else file.after
    for number, (lines, title) in enumerate(zip(file.hunks, file.names, strict=True)):
        if number > 0 or title:
            title_line = crop(f"⋮ {title}".rstrip(), width)
            yield number, DrawnPage([StyledLine([Segment(title_line, palette.muted)])])
        hunk = hunk_class(lines, name, width, palette)
        for page in _hunk_pages(hunk):
            yield number, page


def _head_line(file: FileDiff, width: int, palette: Palette) -> StyledLine:
    """The line above the hunks of a file: its name, or the old and the new name if it was moved,
    and how many lines have changed.
    """
    names = [tidy(name) for name in dict.fromkeys((file.before, file.after)) if name != NO_FILE]
    figures = diff_figures(file, palette)
    room = max(1, width - sum(len(figure.text) for figure in figures))
    return StyledLine([Segment(crop(" → ".join(names), room), palette.strong), *figures])


def diff_figures(file: FileDiff, palette: Palette) -> list[Segment]:
    """What is shown behind the name of a file: ` (new)` or ` (deleted)`, and the numbers of added
    and removed lines. There are no numbers if no line has changed.
    """
    state = ""
    if file.before == NO_FILE:
        state = " (new)"
    elif file.after == NO_FILE:
        state = " (deleted)"
    runs = chain.from_iterable(lines.runs for lines in file.hunks)
    changed = [run for run in runs if not run.is_same]
    added = sum(len(run.news) for run in changed)
    removed = sum(len(run.olds) for run in changed)
    if not changed:
        return [Segment(state, palette.muted)]
    return [
        Segment(f"{state}  ", palette.muted),
        Segment(f"+{added}", palette.success),
        Segment(f" −{removed}", palette.error),
    ]


def _hunk_pages(hunk: HunkRows) -> Iterator[_HunkPage]:
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
                yield _LongRowPage(hunk, row=start, first=line, last=min(line + PAGE_ROWS, height))
            end = start + 1
        else:
            end = min(end, long_row)  # a long row begins a page of its own
            yield _HunkPage(hunk, start, end)
        start = end


class _HunkPage:
    """The rows of a hunk from `start` to before `end`."""

    def __init__(self, hunk: HunkRows, start: int, end: int) -> None:
        self._hunk, self._start, self._end = hunk, start, end
        self.height = hunk.height(start, end)

    def draw(self, *, is_colored: bool = True) -> list[StyledLine]:
        return self._hunk.draw(self._start, self._end, is_colored)

    def source_line(self, line: int) -> tuple[str, int]:
        """The sign and the number of the source that is drawn on a line of this page, as DiffPlace has
        them. The sign is empty if the page has no such line.
        """
        end = 0
        for row in range(self._start, self._end):
            end += self._hunk.height(row, row + 1)
            if line < end:
                return self._hunk.source(row)
        return "", 0


class _LongRowPage(_HunkPage):
    """Some lines of one row, whose text may have a million characters."""

    def __init__(self, hunk: HunkRows, row: int, first: int, last: int) -> None:
        super().__init__(hunk, row, row + 1)
        self._first, self._last = first, last
        self.height = last - first

    def draw(self, *, is_colored: bool = True) -> list[StyledLine]:  # noqa: ARG002 (it has no colours of syntax)
        return self._hunk.draw_part(self._start, self._first, self._last)

    def source_line(self, line: int) -> tuple[str, int]:  # noqa: ARG002 (all are of one row)
        return self._hunk.source(self._start)
