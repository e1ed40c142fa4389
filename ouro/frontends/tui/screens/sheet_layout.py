"""Layout: the places and sizes that Textual gives the widgets of a sheet; StyledOnce: a screen whose
styles are made once when it opens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from textual import events
from textual._compositor import ChopsUpdate, Compositor, CompositorMap, ReflowResult
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

R = TypeVar("R")


class Layout(Compositor):
    """Textual's layout, corrected so that each widget receives its size, and only what has changed
    is drawn.

    If a place is requested after a scroll, Textual assumes that widgets mounted meanwhile know
    their size already: one question in 25 was drawn without its choices. For each update Textual
    draws all widgets that are in the same container, whole: for a key in the prompt also each row
    of the transcript.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last_map: CompositorMap = {}
        self._regions_to_draw: list[Region] = []
        """The changed regions, while an update of them is made."""

    def reflow(self, parent: Widget, size: Size) -> ReflowResult:
        """Place all widgets. The result names what has changed since the last call of this method.
        Textual compares with its last map of the places, which it may have made after that call.
        """
        self._full_map = self._last_map
        result = super().reflow(parent, size)
        self._last_map = self._full_map
        return result

    def render_partial_update(self) -> ChopsUpdate | None:
        """The update of the changed regions; None if nothing has changed."""
        self._regions_to_draw = list(self._dirty_regions)  # Textual clears these before it draws
        update = super().render_partial_update()
        self._regions_to_draw = []
        return update

    def _get_renders(
        self, crop: Region | None = None
    ) -> Iterable[tuple[Region, Region, list[Strip]]]:
        """Yield the visible widgets, each with its region, what is drawn of it, and the rows of that.
        Of each widget only the rows between its first and its last change are drawn, or without
        changes those of `crop`. What is behind a widget that covers the last change is left out:
        behind the transcript is at least the screen, whose blank rows took as long.
        """
        regions = self._regions_to_draw or [crop or self.size.region]
        for widget, (region, clip) in self.visible_widgets.items():
            visible = region.intersection(clip)
            changes = [
                visible.intersection(change) for change in regions if visible.overlaps(change)
            ]
            if not changes:
                continue
            changed = Region.from_union(changes)
            drawn = Region(visible.x, changed.y, visible.width, changed.height)
            yield region, drawn, widget.render_lines(drawn.translate(-region.offset))
            regions = [change for change in regions if not visible.contains_region(change)]
            if not regions:
                return


class StyledOnce(Screen[R]):
    """A screen that makes the styles of its widgets once when it opens.

    Textual makes them three times: when the widgets are mounted, when the screen is shown, and when
    the first layout sets the classes for its size. Each time costs 5 to 8 ms.
    """

    _mounted_theme = ""

    def on_compose(self) -> None:
        """Set the classes for the size of the screen before its widgets are made."""
        width, height = self.app.size
        for size, breakpoints in (
            (width, self.HORIZONTAL_BREAKPOINTS),
            (height, self.VERTICAL_BREAKPOINTS),
        ):
            fitting_classes = [name for min_size, name in breakpoints or () if min_size <= size]
            self.add_class(*fitting_classes[-1:])

    def on_mount(self) -> None:
        self._mounted_theme = self.app.theme

    def _on_screen_resume(self, event: events.ScreenResume) -> None:
        """Make the styles again unless they were just made: the screen is shown for the first time,
        and the theme is the same as when it was mounted.
        """
        is_first = self.stack_updates == 0
        event.refresh_styles = not is_first or self.app.theme != self._mounted_theme
