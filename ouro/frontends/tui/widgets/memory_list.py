"""MemoryList: ten thousand notes, or commits, as lines; only those in sight are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from ouro.frontends.memory_rows import Row
from ouro.frontends.tui.widgets.line_scroll import LineScroll
from ouro.utils.terminal_text import clean

_FLAG_FROM = 30
"""Width from which there is room for the scope, and for what is to be seen at once."""
_ABOUT_FROM = 48
"""Width from which there is room for what else is said beside the text."""
_LEAST_ABOUT = 9
_SCOPE = 5
_EMPTY = 6
"""Lines for what is said where there is no row."""


class MemoryList(LineScroll, can_focus=True):
    """The rows that fit, one of them marked. It does not know what is done with them."""

    COMPONENT_CLASSES = {"sessions--marked", "sessions--detail", "memory--flag"}  # noqa: RUF012 (Textual's own form)
    BINDINGS = [  # noqa: RUF012 (as above)
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home,g", "move(-1000000)", show=False),
        Binding("end,G", "move(1000000)", show=False),
    ]
    place: reactive[int] = reactive(0, repaint=False)

    class Picked(Message):
        """The mouse took the marked row."""

    class Marked(Message):
        """Another row is marked, or none."""

    def __init__(self) -> None:
        super().__init__(id="memory-list")
        self._rows: Sequence[Row] = ()
        self._nothing = ""

    @property
    def marked(self) -> Row | None:
        """The marked one; None where nothing fits."""
        return self._rows[self.place] if self._rows else None

    def show(self, rows: Sequence[Row], nothing: str = "", *, keep: bool = True) -> None:
        """Have these rows, or say `nothing`; with `keep` the same one stays marked where it is there still."""
        before = self.marked
        self._rows, self._nothing = rows, nothing
        self._make_room()
        places = (place for place, each in enumerate(rows) if before and each.key == before.key)
        self.place = next(places, min(self.place, max(0, len(rows) - 1))) if keep else 0
        self._show_place()
        if before != self.marked:
            self.post_message(self.Marked())
        self.refresh()

    def action_move(self, by: int) -> None:
        """Mark another one."""
        place = max(0, min(len(self._rows) - 1, self.place + by))
        if place != self.place:
            self.place = place
            self.post_message(self.Marked())

    def action_page(self, by: int) -> None:
        """Mark the one a page away."""
        self.action_move(by * max(1, self.size.height - 1))

    def watch_place(self, old: int, new: int) -> None:
        """Keep the marked line in sight."""
        self._show_place()
        for place in (old, new):
            self.refresh(Region(0, place - self.scroll_offset.y, self.size.width, 1))

    def on_resize(self) -> None:
        """The marked line stays in sight."""
        self._make_room()
        self._show_place()

    def on_click(self, event: events.Click) -> None:
        """Take the line that was clicked."""
        place = event.y + self.scroll_offset.y
        if 0 <= place < len(self._rows):
            self.action_move(place - self.place)
            self.post_message(self.Picked())

    def render_line(self, y: int) -> Strip:
        """Line `y` of what is in sight."""
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

    def _segments(self, row: Row, is_marked: bool, width: int) -> list[Segment]:
        shown = self._style("sessions--marked") if is_marked else self.rich_style
        flag = _cut(clean(row.flag), width * 2 // 5) if width >= _FLAG_FROM else ""
        left = width * 2 // 5 - cell_len(flag)
        about = clean(row.about) if width >= _ABOUT_FROM and left >= _LEAST_ABOUT else ""
        about = _cut(f" · {about}" if flag and about else about, left)
        scope, beside = (_SCOPE if width >= _FLAG_FROM else 0), cell_len(flag) + cell_len(about)
        room = max(1, width - 2 - scope - (beside + 2 if beside else 0))
        return [
            Segment("❯ " if is_marked else "  ", shown),
            Segment(set_cell_size(row.scope, scope), self._style("sessions--detail")),
            Segment(set_cell_size(_cut(row.text, room), room), shown),
            Segment(f"  {flag}" if beside else "", self._style("memory--flag" if row.warns else "sessions--detail")),
            Segment(about, self._style("sessions--detail")),
        ]

    def _style(self, name: str) -> Style:
        return self.rich_style + self.get_component_rich_style(name, partial=True)

    def _make_room(self) -> None:
        self.virtual_size = Size(self.size.width, len(self._rows) or _EMPTY)

    def _show_place(self) -> None:
        top, height = self.scroll_offset.y, max(1, self.size.height)
        wanted = min(max(top, self.place - height + 1), self.place)
        if wanted != top:
            self.scroll_to(y=wanted, animate=False, force=True)


def _cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)).rstrip() + "…"
