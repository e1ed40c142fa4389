"""PagedLines: a long column of lines whose pages are drawn when they are seen."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from threading import Lock
from typing import Protocol, overload

from ouro.frontends.tui.blocks.styled_lines import Run, StyledLine, indent

MAX_PAGES = 40
"""The number of pages whose lines are kept."""


class LinePage(Protocol):
    """Some lines whose number is known before they are drawn."""

    @property
    def height(self) -> int: ...

    def draw(self, *, is_colored: bool = True) -> Sequence[StyledLine]:
        """Exactly `height` lines; without colours for a search, which is faster."""
        ...


class DrawnPage:
    """Lines that are drawn already."""

    def __init__(self, lines: Sequence[StyledLine]) -> None:
        self.height = len(lines)
        self._lines = lines

    def draw(self, *, is_colored: bool = True) -> Sequence[StyledLine]:  # noqa: ARG002 (of LinePage)
        return self._lines


class PagedLines(Sequence[StyledLine]):
    """The lines of pages, one page below the other. A page is drawn when one of its lines is read.
    `margin` is put before each line.
    """

    def __init__(self, pages: Sequence[LinePage], margin: Run | None = None) -> None:
        self._pages = pages
        self._margin = margin
        self._tops = list(accumulate((page.height for page in pages), initial=0))
        """The number of the first line of each page; at the end that of all lines."""
        self._drawn: OrderedDict[int, Sequence[StyledLine]] = OrderedDict()
        """The lines of the pages that were drawn last, by the indexes of the pages."""
        self._lock = Lock()
        """A thread may draw pages before they are seen."""

    def __len__(self) -> int:
        return self._tops[-1]

    @overload
    def __getitem__(self, index: int) -> StyledLine: ...

    @overload
    def __getitem__(self, index: slice) -> list[StyledLine]: ...

    def __getitem__(self, index: int | slice) -> StyledLine | list[StyledLine]:
        """The line at an index, or a list of the lines of a slice. Pages are drawn if needed."""
        selected = range(len(self))[index]
        if isinstance(selected, range):
            return [self._line(number) for number in selected]
        return self._line(selected)

    def __iter__(self) -> Iterator[StyledLine]:
        for page in range(len(self._pages)):
            yield from self._page_lines(page)

    def is_drawn(self, start: int, end: int) -> bool:
        """Whether the lines from `start` to before `end` can be shown without drawing a page."""
        return all(page in self._drawn for page in self._pages_with(start, end))

    def draw(self, start: int, end: int) -> None:
        """Draw the lines from `start` to before `end`. A thread may do it."""
        for page in self._pages_with(start, end):
            self._page_lines(page)

    def _pages_with(self, start: int, end: int) -> range:
        """The numbers of the pages that have the lines from `start` to before `end`. Lines that do
        not exist are ignored, so there may be no page.
        """
        start, end = max(0, start), min(end, len(self))
        if start >= end:
            return range(0)
        first_page, _ = self.page_at(start)
        last_page, _ = self.page_at(end - 1)
        return range(first_page, last_page + 1)

    def page_at(self, number: int) -> tuple[int, int]:
        """The index of the page with the line `number`, and the index of the line in that page."""
        page = bisect_right(self._tops, number) - 1
        return page, number - self._tops[page]

    def top_of(self, page: int) -> int:
        """The first line of a page."""
        return self._tops[page]

    def plain(self) -> Iterator[StyledLine]:
        """All lines without colours."""
        for page in self._pages:
            yield from _draw_page(page, self._margin, is_colored=False)

    def with_margin(self, margin: Run) -> PagedLines:
        return PagedLines(self._pages, margin)

    def below(self, lines: Sequence[StyledLine]) -> PagedLines:
        """A new sequence: first `lines`, without the margin, and then the pages with their margin."""
        first, margin = DrawnPage(lines), self._margin
        if margin is None:
            return PagedLines([first, *self._pages])
        return PagedLines([first, *(_IndentedPage(page, margin) for page in self._pages)])

    def _line(self, number: int) -> StyledLine:
        page, line_in_page = self.page_at(number)
        return self._page_lines(page)[line_in_page]

    def _page_lines(self, page: int) -> Sequence[StyledLine]:
        """The lines of the page with this index. They are drawn if they are not kept. The lines of the
        MAX_PAGES pages that were read last are kept.
        """
        with self._lock:
            lines = self._drawn.get(page)
            if lines is not None:
                self._drawn.move_to_end(page)
                return lines
            lines = _draw_page(self._pages[page], self._margin)
            self._drawn[page] = lines
            if len(self._drawn) > MAX_PAGES:
                self._drawn.popitem(last=False)
            return lines


class _IndentedPage:
    """A page behind a margin."""

    def __init__(self, page: LinePage, margin: Run) -> None:
        self.height = page.height
        self._page, self._margin = page, margin

    def draw(self, *, is_colored: bool = True) -> Sequence[StyledLine]:
        return _draw_page(self._page, self._margin, is_colored)


def _draw_page(page: LinePage, margin: Run | None, is_colored: bool = True) -> Sequence[StyledLine]:
    """The lines of a page, each behind the margin if there is one."""
    lines = page.draw(is_colored=is_colored)
    return lines if margin is None else indent(lines, margin, margin)


def put_below(above: Sequence[StyledLine], lines: Sequence[StyledLine]) -> Sequence[StyledLine]:
    """Put the lines `lines` below the lines `above`. If `lines` have pages, no page is drawn for
    this.
    """
    return lines.below(above) if isinstance(lines, PagedLines) else [*above, *lines]


def put_right_of(margin: Run, lines: Sequence[StyledLine]) -> Sequence[StyledLine]:
    """Put each line behind a margin. If the lines have pages, no page is drawn for this."""
    if isinstance(lines, PagedLines):
        return lines.with_margin(margin)
    return indent(lines, margin, margin)


def plain_lines(lines: Sequence[StyledLine]) -> Sequence[StyledLine]:
    """The lines for a search. Lines that have pages are drawn without colours."""
    return list(lines.plain()) if isinstance(lines, PagedLines) else lines
