"""BlockList: all blocks of a transcript as one column of lines; only shown blocks are drawn."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

from ouro.frontends.tui.blocks.block import TranscriptBlock
from ouro.frontends.tui.blocks.lines import StyledLine
from ouro.frontends.tui.blocks.palette import Palette

MAX_DRAWN = 500
"""Blocks whose lines are kept; of older blocks only the height is."""


class BlockList:
    """Blocks and their heights, estimated until they are drawn for the current width."""

    def __init__(self, palette: Palette, width: int = 80) -> None:
        self.blocks: list[TranscriptBlock] = []
        self._places: dict[TranscriptBlock, int] = {}
        self._heights = HeightIndex()
        self._measured: list[bool] = []
        self._drawn: OrderedDict[TranscriptBlock, None] = OrderedDict()
        self._palette = palette
        self._width = width

    @property
    def total(self) -> int:
        return self._heights.total

    def restyle(self, width: int, palette: Palette) -> None:
        """Another width or other colours: everything is drawn again when it is shown."""
        self._width, self._palette = max(1, width), palette
        for block in self._drawn:
            block.forget()
        self._drawn.clear()
        self._rebuild(self.blocks)

    def add(self, block: TranscriptBlock) -> None:
        last = self.blocks[-1] if self.blocks else None
        block.gap = last is not None and not (last.is_compact and block.is_compact)
        self._places[block] = len(self.blocks)
        self.blocks.append(block)
        self._heights.append(block.estimate(self._width))
        self._measured.append(False)

    def prepend(self, blocks: Sequence[TranscriptBlock]) -> None:
        """Put blocks before all others."""
        self._rebuild([*blocks, *self.blocks])

    def remove(self, blocks: Iterable[TranscriptBlock]) -> None:
        gone = set(blocks)
        kept = [block for block in self.blocks if block not in gone]
        if kept != self.blocks[: len(kept)]:
            for block in kept:
                block.changed()
        for block in gone:
            self._drawn.pop(block, None)
        self._rebuild(kept)

    def update(self, block: TranscriptBlock) -> int | None:
        """A block changed: draw it if it was drawn before; returns the first changed line."""
        place = self._places.get(block)
        if place is None:
            return None
        if not self._measured[place]:
            # Not shown yet: drawing can wait.
            self._heights.set(place, block.estimate(self._width))
            return self._heights.top(place)
        before = block.last_lines
        lines = self._draw(place)
        same = next((n for n, (old, new) in enumerate(zip(before, lines, strict=False)) if old is not new), None)
        return self._heights.top(place) + (min(len(before), len(lines)) if same is None else same)

    def settle(self, top: int, height: int) -> int:
        """Draw the `height` lines from `top`; returns by how many lines the part above `top` has grown."""
        grown = 0
        place = self._heights.find(top)
        while place < len(self.blocks) and self._heights.top(place) < top + grown + height:
            if not self._measured[place]:
                above = self._heights.top(place) < top + grown
                before = self._heights[place]
                self._draw(place)
                grown += self._heights[place] - before if above else 0
            place += 1
        return grown

    def settle_end(self, height: int) -> None:
        """Draw the last `height` lines."""
        place = len(self.blocks)
        while place and height > 0:
            place -= 1
            if not self._measured[place]:
                self._draw(place)
            height -= self._heights[place]

    def line(self, number: int) -> StyledLine | None:
        """The line `number`; None behind the last one."""
        place = self._heights.find(number)
        if place >= len(self.blocks):
            return None
        lines = self._lines(place)
        within = number - self._heights.top(place)
        return lines[within] if within < len(lines) else None

    def lines(self, start: int, end: int) -> Iterator[tuple[int, StyledLine]]:
        """The lines from `start` to before `end`, numbered; draws them without moving anything."""
        for number in range(max(0, start), min(end, self.total)):
            if (line := self.line(number)) is not None:
                yield number, line

    def block_at(self, number: int) -> tuple[TranscriptBlock, int] | None:
        """The block that has the line `number`, and which of its lines that is."""
        place = self._heights.find(number)
        if place >= len(self.blocks):
            return None
        return self.blocks[place], number - self._heights.top(place)

    def top(self, block: TranscriptBlock) -> int:
        """The first line of a block."""
        return self._heights.top(self._places[block])

    def height(self, block: TranscriptBlock) -> int:
        """The height of a block, as far as known."""
        return self._heights[self._places[block]]

    def remeasure(self, blocks: Sequence[TranscriptBlock]) -> None:
        """Estimate the heights of folded or opened blocks again."""
        for block in blocks:
            place = self._places[block]
            self._measured[place] = False
            self._heights.set(place, block.estimate(self._width))

    def _rebuild(self, blocks: Sequence[TranscriptBlock]) -> None:
        self.blocks = []
        self._places = {}
        self._heights = HeightIndex()
        self._measured = []
        for block in blocks:
            self.add(block)

    def _lines(self, place: int) -> list[StyledLine]:
        """The lines of a block, drawn if needed; the oldest drawn blocks are dropped."""
        block = self.blocks[place]
        self._drawn[block] = None
        self._drawn.move_to_end(block)
        if len(self._drawn) > MAX_DRAWN:
            self._drawn.popitem(last=False)[0].forget()
        return block.lines(self._width, self._palette)

    def _draw(self, place: int) -> list[StyledLine]:
        lines = self._lines(place)
        self._heights.set(place, len(lines))
        self._measured[place] = True
        return lines


class HeightIndex:
    """A Fenwick tree over the blocks' heights."""

    def __init__(self, heights: Iterable[int] = ()) -> None:
        self._heights: list[int] = []
        self._sums: list[int] = [0]
        for height in heights:
            self.append(height)

    def __len__(self) -> int:
        return len(self._heights)

    def __getitem__(self, position: int) -> int:
        return self._heights[position]

    @property
    def total(self) -> int:
        return self.top(len(self._heights))

    def append(self, height: int) -> None:
        """One more block at the end."""
        self._heights.append(height)
        place = len(self._heights)
        start = place - (place & -place)
        self._sums.append(height + self.top(place - 1) - self.top(start))

    def set(self, position: int, height: int) -> None:
        """The block at `position` has another height now."""
        change = height - self._heights[position]
        self._heights[position] = height
        place = position + 1
        while place < len(self._sums):
            self._sums[place] += change
            place += place & -place

    def top(self, position: int) -> int:
        """The first line of the block at `position`."""
        total = 0
        while position:
            total += self._sums[position]
            position -= position & -position
        return total

    def find(self, line: int) -> int:
        """The block that `line` is in; behind the last line: the number of blocks."""
        place = 0
        step = 1 << len(self._heights).bit_length()
        while step := step >> 1:
            if place + step < len(self._sums) and self._sums[place + step] <= line:
                place += step
                line -= self._sums[place]
        return place
