"""Layout: the places and sizes that Textual gives the widgets of a sheet; StyledOnce: a screen whose
styles are made once when it opens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from textual import events
from textual._compositor import Compositor, CompositorMap, ReflowResult
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

    def reflow(self, parent: Widget, size: Size) -> ReflowResult:
        """Place all widgets. The result names what has changed since the last call of this method.
        Textual compares with its last map of the places, which it may have made after that call.
        """
        self._full_map = self._last_map
        result = super().reflow(parent, size)
        self._last_map = self._full_map
        return result

    def _get_renders(
        self, crop: Region | None = None
    ) -> Iterable[tuple[Region, Region, list[Strip]]]:
        """Yield the visible widgets, each with its region, what is drawn of it, and the rows of that.
        With `crop` only the rows of this region are drawn. A widget in front that fills it is the
        last one: behind it is at least the screen, whose blank rows took as long as the transcript.
        """
        if crop is None:
            crop = self.size.region
        for widget, (region, clip) in self.visible_widgets.items():
            visible = region.intersection(clip)
            if not visible.overlaps(crop):
                continue
            drawn = visible.intersection(Region(visible.x, crop.y, visible.width, crop.height))
            yield region, drawn, widget.render_lines(drawn.translate(-region.offset))
            if drawn.contains_region(crop):
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
