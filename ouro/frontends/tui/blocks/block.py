"""TranscriptBlock: one item of the transcript; it draws itself as lines and keeps them until it changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ouro.frontends.tui.blocks.lines import StyledLine
from ouro.frontends.tui.blocks.palette import Palette


class TranscriptBlock(ABC):
    """Draws itself for a width and a palette."""

    foldable = False
    """A click on its first line opens and folds it."""
    is_open = False
    is_moving = False
    """It changes with time (a running clock), also when nothing happens."""
    is_compact = False
    """No blank line stands between it and another such block."""
    gap = False
    """A blank line stands before it; set by the transcript."""

    def __init__(self) -> None:
        self.last_lines: list[StyledLine] = []
        """The lines drawn last; the block may have changed since."""
        self._is_drawn = False
        self._drawn_for: tuple[int, Palette] | None = None

    def lines(self, width: int, palette: Palette) -> list[StyledLine]:
        """The block's lines, drawn again only after a change."""
        if not self._is_drawn or self._drawn_for != (width, palette):
            self.last_lines = [*([StyledLine([])] if self.gap else []), *self._draw(width, palette)]
            self._drawn_for, self._is_drawn = (width, palette), True
        return self.last_lines

    def estimate(self, width: int) -> int:
        """The approximate number of lines, without drawing."""
        return self._estimate(width) + self.gap

    def changed(self) -> None:
        """Draw again when next shown."""
        self._is_drawn = False

    def forget(self) -> None:
        self._is_drawn = False
        self.last_lines = []

    def set_open(self, is_open: bool) -> None:
        if self.foldable and self.is_open != is_open:
            self.is_open = is_open
            self.changed()

    @abstractmethod
    def as_markdown(self) -> str:
        """The block as Markdown, without decoration."""

    @abstractmethod
    def _draw(self, width: int, palette: Palette) -> Sequence[StyledLine]:
        """The lines, at most `width` cells wide."""

    @abstractmethod
    def _estimate(self, width: int) -> int:
        """The approximate number of lines of `_draw`."""


def estimate_text(text: str, width: int) -> int:
    """The approximate number of lines of `text` at `width`."""
    return text.count("\n") + 1 + len(text) // max(1, width)
