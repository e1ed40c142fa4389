"""MemoryList: ten thousand notes, or commits, as lines; only those in sight are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from ouro.frontends.memory_rows import Row
from ouro.frontends.tui.widgets.row_list import RowList, fitted
from ouro.utils.text import clean

_FLAG_FROM = 30
"""Width from which there is room for the scope, and for what is to be seen at once."""
_ABOUT_FROM = 48
"""Width from which there is room for what else is said beside the text."""
_LEAST_ABOUT = 9
_SCOPE = 5
_EMPTY = 6
"""Lines for what is said where there is no row."""


class MemoryList(RowList[Row]):
    """The rows that fit, one of them marked. It does not know what is done with them."""

    COMPONENT_CLASSES = {"sessions--marked", "sessions--detail", "memory--flag"}  # noqa: RUF012 (Textual's own form)

    def __init__(self) -> None:
        super().__init__("memory-list", _EMPTY)
        self._nothing = ""

    def show(self, rows: Sequence[Row], nothing: str = "", *, keep: bool = True) -> None:
        """Have these rows, or say `nothing`; with `keep` the same one stays marked where it is there still."""
        before, self._nothing = self.marked, nothing
        places = (place for place, each in enumerate(rows) if before and each.key == before.key)
        self.put(rows, next(places, min(self.place, max(0, len(rows) - 1))) if keep else 0)
        if before != self.marked:
            self.post_message(self.Marked())

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
        flag = fitted(clean(row.flag), width * 2 // 5) if width >= _FLAG_FROM else ""
        left = width * 2 // 5 - cell_len(flag)
        about = clean(row.about) if width >= _ABOUT_FROM and left >= _LEAST_ABOUT else ""
        about = fitted(f" · {about}" if flag and about else about, left)
        scope, beside = (_SCOPE if width >= _FLAG_FROM else 0), cell_len(flag) + cell_len(about)
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
