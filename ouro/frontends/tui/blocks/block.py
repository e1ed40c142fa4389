"""TranscriptBlock: one part of the transcript, that draws itself as lines and keeps them until it changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ouro.frontends.tui.blocks.lines import StyledLine
from ouro.frontends.tui.blocks.palette import Palette


class TranscriptBlock(ABC):
    """Draws itself for a width and a palette; tells the transcript what may be done with it."""

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
        """What was drawn last, though it may have changed since."""
        self._is_drawn = False
        self._drawn_for: tuple[int, Palette] | None = None

    def lines(self, width: int, palette: Palette) -> list[StyledLine]:
        """The block's lines; drawn again only when something changed."""
        if not self._is_drawn or self._drawn_for != (width, palette):
            self.last_lines = [*([StyledLine([])] if self.gap else []), *self._draw(width, palette)]
            self._drawn_for, self._is_drawn = (width, palette), True
        return self.last_lines

    def estimate(self, width: int) -> int:
        """About how many lines it has, without drawing it."""
        return self._estimate(width) + self.gap

    def changed(self) -> None:
        """Draw again when next looked at."""
        self._is_drawn = False

    def forget(self) -> None:
        """Let go of everything that was drawn."""
        self._is_drawn = False
        self.last_lines = []

    def set_open(self, is_open: bool) -> None:
        """Unfold or fold."""
        if self.foldable and self.is_open != is_open:
            self.is_open = is_open
            self.changed()

    @abstractmethod
    def as_markdown(self) -> str:
        """What copying the block gives, without decoration."""

    @abstractmethod
    def _draw(self, width: int, palette: Palette) -> Sequence[StyledLine]:
        """The lines, at most `width` cells wide."""

    @abstractmethod
    def _estimate(self, width: int) -> int:
        """About how many lines `_draw` gives."""


def estimate_text(text: str, width: int) -> int:
    """About how many lines `text` takes up at `width`."""
    return text.count("\n") + 1 + len(text) // max(1, width)
