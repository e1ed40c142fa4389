"""Layout: the places and sizes that Textual gives the widgets of a sheet."""

from __future__ import annotations

from textual._compositor import Compositor, CompositorMap, ReflowResult
from textual.geometry import Size
from textual.widget import Widget


class Layout(Compositor):
    """Textual's layout, corrected so that each widget receives its size.

    If a place is requested after a scroll, Textual assumes that widgets mounted meanwhile know
    their size already: one question in 25 was drawn without its choices.
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
