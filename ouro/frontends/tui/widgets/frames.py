"""Frames: when to draw what has changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from textual.timer import Timer
from textual.widget import Widget

from ouro.frontends.tui.blocks.block import Block

_SHORTEST = 1 / 25
"""Seconds between two frames while text streams in."""
_REST = 6
"""A frame that took long is followed by a rest of so many times its length."""
_TICK = 0.25
"""Seconds between two moves of the clocks that blocks show."""


class Frames:
    """Collects the blocks that changed, and has them drawn together."""

    def __init__(self, owner: Widget, draw: Callable[[Sequence[Block]], None]) -> None:
        self._owner = owner
        self._draw = draw
        self._changed: dict[Block, None] = {}
        self._moving: dict[Block, None] = {}
        self._timer: Timer | None = None
        self._cost = 0.0

    def start(self) -> None:
        """The owner is on the screen: draw from now on."""
        self._owner.set_interval(_TICK, self._tick)
        self.ask()

    def add(self, block: Block) -> None:
        """A block changed."""
        self._changed[block] = None
        if block.is_moving:
            self._moving[block] = None
        self.ask()

    def drop(self, blocks: Sequence[Block]) -> None:
        """These are no longer shown."""
        for block in blocks:
            self._changed.pop(block, None)
            self._moving.pop(block, None)

    def ask(self) -> None:
        """Draw soon, also where no block changed."""
        if self._timer is None and self._owner.is_mounted:
            self._timer = self._owner.set_timer(max(_SHORTEST, self._cost * _REST), self.draw)

    def draw(self) -> None:
        """Draw now what has changed."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        started = perf_counter()
        changed, self._changed = list(self._changed), {}
        self._draw(changed)
        self._cost = perf_counter() - started

    def _tick(self) -> None:
        for block in list(self._moving):
            if not block.is_moving:
                del self._moving[block]
            block.changed()
            self.add(block)
