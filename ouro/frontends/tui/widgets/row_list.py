"""LineScroll: a column of lines that scrolls at once, by keys and wheel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from rich.cells import cell_len, set_cell_size
from textual import events
from textual.binding import Binding
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView


class LineScroll(ScrollView):
    """Textual's scrolling without its animation: each step would be drawn many times."""

    DEFAULT_CSS = """
    LineScroll {
        height: 1fr;
        background: $background;
        overflow-x: hidden;
        overflow-y: scroll;
        scrollbar-size-vertical: 1;
        scrollbar-background: $background;
        scrollbar-background-hover: $background;
        scrollbar-background-active: $background;
    }
    """

    def step(self, lines: int) -> None:
        self.scroll_to(y=self.scroll_offset.y + lines, animate=False, force=True)

    def action_page_up(self) -> None:
        self.step(1 - max(2, self.size.height))

    def action_page_down(self) -> None:
        self.step(max(2, self.size.height) - 1)

    def action_scroll_home(self) -> None:
        self.step(-self.virtual_size.height)

    def action_scroll_end(self) -> None:
        self.step(self.virtual_size.height)

    def action_scroll_up(self) -> None:
        self.step(-1)

    def action_scroll_down(self) -> None:
        self.step(1)


T = TypeVar("T")


class RowList(LineScroll, Generic[T], can_focus=True):
    """One line per row. Subclasses draw the lines."""

    BINDINGS = [  # noqa: RUF012 (Textual's own form)
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home,g", "move(-1000000)", show=False),
        Binding("end,G", "move(1000000)", show=False),
    ]
    place: reactive[int] = reactive(0, repaint=False)

    class Picked(Message):
        """The mouse took the marked line."""

    class Marked(Message):
        """Another line is marked, or none."""

    def __init__(self, id: str, fewest: int = 0) -> None:  # noqa: A002 (Textual's own name)
        super().__init__(id=id)
        self._rows: Sequence[T] = ()
        self._fewest = fewest

    @property
    def marked(self) -> T | None:
        """The marked row; None if there is none."""
        return self._rows[self.place] if self._rows else None

    def put(self, rows: Sequence[T], place: int) -> None:
        self._rows = rows
        self._make_room()
        self.place = place
        self._show_place()
        self.refresh()

    def action_move(self, by: int) -> None:
        place = max(0, min(len(self._rows) - 1, self.place + by))
        if place != self.place:
            self.place = place
            self.post_message(self.Marked())

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, self.size.height - 1))

    def watch_place(self, old: int, new: int) -> None:
        self._show_place()
        for place in (old, new):
            self.refresh(Region(0, place - self.scroll_offset.y, self.size.width, 1))

    def on_resize(self) -> None:
        self._make_room()
        self._show_place()

    def on_click(self, event: events.Click) -> None:
        place = event.y + self.scroll_offset.y
        if 0 <= place < len(self._rows):
            self.action_move(place - self.place)
            self.post_message(self.Picked())

    def _make_room(self) -> None:
        self.virtual_size = Size(self.size.width, max(len(self._rows), self._fewest if not self._rows else 0))

    def _show_place(self) -> None:
        top, height = self.scroll_offset.y, max(1, self.size.height)
        wanted = min(max(top, self.place - height + 1), self.place)
        if wanted != top:
            self.scroll_to(y=wanted, animate=False, force=True)


def fitted(text: str, width: int) -> str:
    """`text` cut to `width` cells, with `…` if it was cut."""
    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)).rstrip() + "…"
