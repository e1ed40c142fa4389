"""Strips: lines as Textual draws them, kept while they are in sight."""

from __future__ import annotations

from collections import OrderedDict

from rich.style import Style
from textual.strip import Strip

from ouro.frontends.tui.blocks.lines import Line

_MOST = 300
"""Strips that are kept. Each is some fifty objects, and collecting garbage looks at every one."""


class Strips:
    """Strips of lines, by line."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Line, tuple[int, int, Strip]] = OrderedDict()

    def get(self, line: Line, width: int, y: int, base: Style) -> Strip:
        """`line`, `width` cells wide, as line `y` of the content."""
        kept = self._kept.get(line)
        if kept is not None and kept[:2] == (width, y):
            return kept[2]
        strip = Strip(line.segments).crop_extend(0, width, base).apply_offsets(0, y)
        self._kept[line] = (width, y, strip)
        if len(self._kept) > _MOST:
            self._kept.popitem(last=False)
        return strip
