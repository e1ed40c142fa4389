"""MemoryList: ten thousand notes, or commits, as lines; only those in sight are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Literal

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.message import Message
from textual.strip import Strip
from textual.widgets import Static

from ouro.frontends.tui.widgets.row_list import RowList, fitted
from ouro.utils.text import clean

FLAG_FROM_WIDTH = 30
"""Width from which scope and flag are shown."""
ABOUT_FROM_WIDTH = 48
"""Width from which the details are shown."""
MIN_ABOUT = 9
_SCOPE = 5
_EMPTY = 6
"""Lines of the text of an empty list."""


@dataclass(frozen=True, slots=True)
class MemoryRow:
    key: str
    """The id of the note, core line, commit or proposal."""
    scope: str
    text: str
    flag: str
    """A short remark."""
    about: str
    """Details, shown if there is room."""
    searched: str
    """The lower-case text that a search matches."""
    category: str = ""
    """For the category filter; of a commit, its author."""
    warns: bool = True
    """The flag is a warning."""


class MemoryList(RowList[MemoryRow]):
    """The rows in sight, one of them marked."""

    COMPONENT_CLASSES = {"sessions--marked", "sessions--detail", "memory--flag"}  # noqa: RUF012 (Textual's own form)

    def __init__(self) -> None:
        super().__init__("memory-list", _EMPTY)
        self._nothing = ""

    def show(self, rows: Sequence[MemoryRow], nothing: str = "", *, keep: bool = True) -> None:
        """Show these rows, or the text `nothing`; with `keep` the same row stays marked."""
        before, self._nothing = self.marked, nothing
        places = (place for place, row in enumerate(rows) if before and row.key == before.key)
        self.put(rows, next(places, min(self.place, max(0, len(rows) - 1))) if keep else 0)
        if before != self.marked:
            self.post_message(self.Marked())

    def render_line(self, y: int) -> Strip:
        """StyledLine `y` of what is in sight."""
        place, width = y + self.scroll_offset.y, self.scrollable_content_region.width
        if not self._rows:
            return self._empty(y, width)
        if not 0 <= place < len(self._rows):
            return Strip.blank(width, self.rich_style)
        return Strip(self._segments(self._rows[place], place == self.place, width)).crop_extend(
            0, width, self.rich_style
        )

    def _empty(self, y: int, width: int) -> Strip:
        lines = wrap(self._nothing, max(1, width - 4))
        return Strip([Segment(f"  {lines[y]}" if y < len(lines) else "", self._style("sessions--detail"))]).crop_extend(
            0, width, self.rich_style
        )

    def _segments(self, row: MemoryRow, is_marked: bool, width: int) -> list[Segment]:
        shown = self._style("sessions--marked") if is_marked else self.rich_style
        flag = fitted(clean(row.flag), width * 2 // 5) if width >= FLAG_FROM_WIDTH else ""
        left = width * 2 // 5 - cell_len(flag)
        about = clean(row.about) if width >= ABOUT_FROM_WIDTH and left >= MIN_ABOUT else ""
        about = fitted(f" · {about}" if flag and about else about, left)
        scope, beside = (_SCOPE if width >= FLAG_FROM_WIDTH else 0), cell_len(flag) + cell_len(about)
        room = max(1, width - 2 - scope - (beside + 2 if beside else 0))
        return [
            Segment("❯ " if is_marked else "  ", shown),
            Segment(set_cell_size(row.scope, scope), self._style("sessions--detail")),
            Segment(set_cell_size(fitted(row.text, room), room), shown),
            Segment(f"  {flag}" if beside else "", self._style("memory--flag" if row.warns else "sessions--detail")),
            Segment(about, self._style("sessions--detail")),
        ]

    def _style(self, name: str) -> Style:
        return self.rich_style + self.get_component_rich_style(name, partial=True)


PageStyle = Literal["", "title", "detail", "who", "flag", "added", "removed"]


@dataclass(frozen=True, slots=True)
class PageLink:
    """A target that Enter follows or a key works on."""

    kind: Literal["note", "turn", "commit", "hunk"]
    target: str
    turn: int = 0
    hunk: int = 0
    message: int = 0


@dataclass(slots=True)
class MemoryPage:
    """Lines of text; some are links."""

    lines: list[tuple[str, PageStyle, PageLink | None]] = field(default_factory=list)

    def add(self, text: str, style: PageStyle = "", link: PageLink | None = None) -> None:
        for line in clean(text).splitlines() or [""]:
            self.lines.append((line, style, link))


class MemoryDetail(VerticalScroll, can_focus=True):
    """Shows a page. ↑↓ move between links; without links they scroll."""

    COMPONENT_CLASSES = {  # noqa: RUF012 (Textual's own form)
        "preview--title", "preview--detail", "preview--who", "preview--flag", "preview--marked", "preview--added",
        "preview--removed",
    }  # fmt: skip
    BINDINGS = [  # noqa: RUF012 (as above)
        Binding("up,k", "step(-1)", show=False),
        Binding("down,j", "step(1)", show=False),
        Binding("pageup", "page_up", show=False),
        Binding("pagedown", "page_down", show=False),
    ]

    class Followed(Message):
        """A link was clicked."""

    def __init__(self) -> None:
        super().__init__(id="memory-detail")
        self._text = Static(markup=False)
        self._page = MemoryPage()
        self._links: list[int] = []
        self._place = 0

    def compose(self) -> ComposeResult:
        yield self._text

    @property
    def link(self) -> PageLink | None:
        return self._page.lines[self._links[self._place]][2] if self._links else None

    def show(self, page: MemoryPage) -> None:
        self._page, self._place = page, 0
        seen: list[PageLink] = []
        self._links = []
        for number, (_line, _style, link) in enumerate(page.lines):
            if link is not None and link not in seen:
                seen.append(link)
                self._links.append(number)
        self._draw()
        self.scroll_home(animate=False)

    def action_step(self, by: int) -> None:
        place = self._place + by
        if not self._links or not 0 <= place < len(self._links):
            self.scroll_relative(y=by, animate=False, force=True)
            return
        self._place = place
        self._draw()
        line = self._drawn_line(self._links[place])
        if not self.scroll_offset.y <= line < self.scroll_offset.y + self.size.height - 1:
            self.scroll_to(y=max(0, line - self.size.height // 2), animate=False, force=True)

    def on_focus(self) -> None:
        self.call_later(self._draw)

    def on_blur(self) -> None:
        self.call_later(self._draw)

    def _draw(self) -> None:
        text = Text(overflow="fold")
        marked = self._links[self._place] if self._links and self.has_focus else -1
        for number, (line, style, link) in enumerate(self._page.lines):
            sign = ("❯ " if number == marked else "› ") if number in self._links else ("  " if link else "")
            name = "marked" if number == marked else style
            rich = self.get_component_rich_style(f"preview--{name}", partial=True) if name else ""
            text.append(f"{sign}{line}\n", rich)
        self._text.update(text)

    def _drawn_line(self, number: int) -> int:
        width = max(1, self._text.size.width)
        lines: Sequence[tuple[str, PageStyle, PageLink | None]] = self._page.lines[:number]
        return sum(max(1, -(-(Text(line).cell_len + 2 * (link is not None)) // width)) for line, _style, link in lines)
