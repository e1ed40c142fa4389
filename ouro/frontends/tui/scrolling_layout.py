"""ScrollingLayout: lets the terminal scroll the rows of a widget, so that only new rows are drawn."""

from __future__ import annotations

from textual.geometry import Region
from textual.widget import Widget

from ouro.frontends.tui.changed_cells import ScrolledRows
from ouro.frontends.tui.screens.sheet_layout import Layout


class ScrollingLayout(Layout):
    """The layout of a screen whose updates are written by a painter."""

    def __init__(self) -> None:
        super().__init__()
        self._shifts: dict[Widget, int] = {}
        """By how many rows the rows of a widget have moved up since they were drawn."""
        self._scrolled: list[ScrolledRows] = []

    def shift_rows(self, widget: Widget, shift: int) -> None:
        """Note that the rows of a widget have moved up. The widget must also refresh its rows that
        came in; this layout refreshes the others with the next update, if the terminal cannot
        scroll them.
        """
        self._shifts[widget] = self._shifts.get(widget, 0) + shift

    def take_scrolled(self) -> list[ScrolledRows]:
        """The rows that the terminal must scroll before it shows the last update; they are forgotten."""
        scrolled, self._scrolled = self._scrolled, []
        return scrolled

    def update_widgets(self, widgets: set[Widget]) -> None:
        """Note what has changed of these widgets."""
        super().update_widgets(widgets)
        for widget in widgets & self._shifts.keys():
            shift = self._shifts.pop(widget)
            place = self.visible_widgets.get(widget)
            if place is not None:
                region, _clip = place
                self._scroll(widget, region.shrink(widget.scrollbar_gutter), shift)

    def _scroll(self, widget: Widget, region: Region, shift: int) -> None:
        """Let the terminal scroll the rows of a widget, which has this region without its scrollbar,
        and draw again what is beside the region. If another widget covers a part of it, draw the
        region instead.
        """
        if not self._is_free(widget, region) or shift >= region.height:
            self._dirty_regions.add(region)
            return
        self._scrolled.append(ScrolledRows(region.y, region.bottom - 1, shift))
        right = Region(region.right, region.y, self.size.width - region.right, region.height)
        left = Region(0, region.y, region.x, region.height)
        self._dirty_regions.update(filter(None, (left, right)))

    def _is_free(self, widget: Widget, region: Region) -> bool:
        """Whether all of this region is on the screen, and no other widget is in front of it."""
        screen = self.root
        if screen is None or screen is not screen.app.screen:
            return False
        for other, (place, clip) in self.visible_widgets.items():  # the front first
            if other is widget:
                return clip.contains_region(region)
            if place.intersection(clip).overlaps(region):
                return False
        return False
