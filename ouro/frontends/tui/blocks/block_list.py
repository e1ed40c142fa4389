"""TranscriptBlock: one item of the transcript; BlockList: all of them as one column of lines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from ouro.frontends.tui.blocks.paged_lines import put_below
from ouro.frontends.tui.blocks.palette import Palette
from ouro.frontends.tui.blocks.styled_lines import StyledLine

MAX_DRAWN = 500
"""The number of blocks whose lines are kept; for other blocks only the height is kept."""
_GAP_LINE = StyledLine([])
"""The blank line above a block. It is one object, because lines are compared by identity: a new one would
draw the whole block again.
"""


class TranscriptBlock(ABC):
    """One item of the transcript. It draws itself as lines for a width and a palette, and keeps
    them until it changes.
    """

    foldable = False
    """Whether a click opens and folds it."""
    is_open = False
    is_moving = False
    """Whether its lines change with time, because they show a clock."""
    is_compact = False
    """Whether there is no blank line between it and another such block."""
    gap = False
    """Whether a blank line precedes it, which counts as its first line; set by the transcript."""
    has_changed = True
    """Whether it has changed since the last frame."""
    changed_blocks: list[TranscriptBlock] | None = None
    """The list of changed blocks that it adds itself to; set by the transcript, like the next
    three.
    """
    index = 0
    """Its position among all blocks."""
    height = 0
    is_measured = False
    """Whether the height is known, not estimated."""

    def __init__(self) -> None:
        self.last_lines: Sequence[StyledLine] = []
        """The lines that were drawn last; the block may have changed since."""
        self.frame_lines: Sequence[StyledLine] = []
        """The lines of the last frame. Newer lines may have been drawn since without being shown,
        for example for the pointer.
        """
        self._is_drawn = False
        """Whether `last_lines` show the block as it is now."""
        self._drawn_for: tuple[int, Palette] | None = None
        """The width and the palette of `last_lines`."""

    def lines(self, width: int, palette: Palette) -> Sequence[StyledLine]:
        """The lines of the block, and before them a blank line if the block has a gap. They are
        drawn again only if the block, the width or the palette has changed.
        """
        if self._drawn_for != (width, palette):
            self.forget()
            self._drawn_for = (width, palette)
        if not self._is_drawn:
            above = [_GAP_LINE] if self.gap else []
            self.last_lines = put_below(above, self._draw(width, palette))
            self._is_drawn = True
        return self.last_lines

    def invalidate(self) -> None:
        """Note that the block has changed, so that it is drawn again when it is next shown."""
        self._is_drawn = False
        if not self.has_changed and self.changed_blocks is not None:
            self.changed_blocks.append(self)
        self.has_changed = True

    def forget(self) -> None:
        """Drop the drawn lines, because the width changes, or the block is far from what is shown."""
        self._is_drawn = False
        self.last_lines = self.frame_lines = []

    def set_open(self, is_open: bool) -> None:
        if self.foldable and self.is_open != is_open:
            self.is_open = is_open
            self.invalidate()

    @abstractmethod
    def as_markdown(self) -> str:
        """The block as Markdown, without decoration."""

    @abstractmethod
    def _draw(self, width: int, palette: Palette) -> Sequence[StyledLine]:
        """The lines, at most `width` cells wide."""

    def estimate(self, width: int) -> int:
        """The approximate number of lines of `_draw`, without drawing."""
        return estimate_text(self.as_markdown(), width - 4)


def estimate_text(text: str, width: int) -> int:
    """About how many lines a text takes in this width."""
    return text.count("\n") + 1 + len(text) // max(1, width)


class BlockLine(NamedTuple):
    """One line of a block, by its number in the block, counted from 0."""

    block: TranscriptBlock
    number: int


class BlockList:
    """The blocks of a transcript with their heights. Only blocks that are shown are drawn; the
    height of any other is estimated.
    """

    def __init__(self, palette: Palette) -> None:
        self.blocks: list[TranscriptBlock] = []
        self._changed: list[TranscriptBlock] = []
        """The blocks that have changed since the last frame: to look for them would cost more with
        each block.
        """
        self.moving: set[TranscriptBlock] = set()
        """The drawn blocks that change with time."""
        self.total = 0
        """The number of all lines."""
        self._tops = [0]
        """The number of the first line of each block, as far as it was needed since the last change
        of a height; then that of the line behind them.
        """
        self._drawn: OrderedDict[TranscriptBlock, None] = OrderedDict()
        """The blocks whose lines are kept, the one that was used last at the end."""
        self._palette = palette
        self._width = 80  # the real width comes when it is drawn

    def restyle(self, width: int, palette: Palette) -> None:
        """Use another width or other colours. All drawn lines are dropped; each block is drawn
        again when it is next shown.
        """
        if (self._width, self._palette) == (width, palette):
            return
        self._width, self._palette = max(1, width), palette
        for block in self._drawn:
            block.forget()
        self._drawn.clear()
        self._rebuild(self.blocks)

    def add(self, block: TranscriptBlock) -> None:
        """Add a block at the end. A blank line is above the block, unless it is the first block, or
        this block and the one before it are both compact. The height of the block is estimated
        until it is drawn. From now on the block adds itself to the changed blocks when it changes.
        """
        last = self.blocks[-1] if self.blocks else None
        block.gap = last is not None and not (last.is_compact and block.is_compact)
        block.index = len(self.blocks)
        block.changed_blocks = self._changed
        self.blocks.append(block)
        self.total += block.height  # may be an old height; `_estimate` corrects it
        if block.has_changed:
            self._changed.append(block)
        self._estimate(block)

    def prepend(self, blocks: Sequence[TranscriptBlock]) -> None:
        self._rebuild([*blocks, *self.blocks])

    def remove(self, blocks: Iterable[TranscriptBlock]) -> None:
        """Remove these blocks from the list; blocks that are not in it are ignored. All blocks
        after the first removed one are added again, because they get new places.
        """
        removed = set(filter(self._has, blocks))
        if not removed:
            return
        blocks_from_there = self._cut_off_from(min(block.index for block in removed))
        for block in removed:
            self._drawn.pop(block, None)
        self.moving -= removed
        for block in blocks_from_there:
            block.changed_blocks = None  # in no list now; `add` notes its changes
            if block not in removed:
                block.invalidate()  # its place and the blank line above it may change
                self.add(block)

    def _cut_off_from(self, index: int) -> list[TranscriptBlock]:
        """Take the blocks from this index on out of the list; returns them."""
        cut_off = self.blocks[index:]
        self.total = self.top(cut_off[0])
        del self.blocks[index:], self._tops[index + 1 :]
        self._changed[:] = [block for block in self._changed if block.index < index]
        return cut_off

    def _has(self, block: TranscriptBlock) -> bool:
        return block.index < len(self.blocks) and self.blocks[block.index] is block

    def draw_changes(self) -> int | None:
        """Draw the changed blocks that were shown before, and estimate the heights of changed
        blocks that were not. Returns the number of the first changed line; None if no block has
        changed.
        """
        first_changed_lines = [self._redraw(block) for block in self._changed]
        self._changed.clear()
        return min(first_changed_lines, default=None)

    def _redraw(self, block: TranscriptBlock) -> int:
        """Draw a changed block, or estimate its height if it was never shown. Returns the number of the
        first line that differs from the last frame.
        """
        block.has_changed = False
        if block.is_moving:
            self.moving.add(block)
        else:
            self.moving.discard(block)
        top = self.top(block)
        if not block.is_measured:  # not shown yet: drawing can wait
            self._estimate(block)
            return top
        old_lines = block.frame_lines
        lines = block.frame_lines = self._draw(block)
        for number, (old_line, line) in enumerate(zip(old_lines, lines, strict=False)):
            if old_line is not line:
                return top + number
        # All lines that both have are the same: lines were only added or removed at the end.
        return top + min(len(old_lines), len(lines))

    def measure(self, top: int, height: int) -> int:
        """Draw the blocks in the `height` lines from the line `top` on, so that their heights are
        known.

        Returns by how many lines the part above `top` has grown. It can grow, because a block that
        begins above `top` may be higher than it was estimated. The result is negative if the part
        has become shorter.
        """
        grown = 0
        for block in islice(self.blocks, self._index_of(top), None):
            if self.top(block) >= top + grown + height:
                break
            if block.is_measured:
                continue
            begins_above = self.top(block) < top + grown
            old_height = block.height
            self._draw(block)
            if begins_above:
                grown += block.height - old_height
        return grown

    def draw_ahead(self, top: int, height: int) -> None:
        """Draw the blocks of the page above the line `top`, which is likely to be shown next. Their
        heights stay as they are, so that nothing moves.
        """
        first = self._index_of(max(0, top - height))
        last = self._index_of(top - 1)
        for block in self.blocks[first : last + 1]:
            self._lines(block)

    def measure_end(self, height: int) -> None:
        """Draw the blocks of the last `height` lines, so that their heights are known."""
        for block in reversed(self.blocks):
            if height <= 0:
                break
            if not block.is_measured:
                self._draw(block)
            height -= block.height

    def line(self, number: int) -> StyledLine | None:
        """The line with this number. None if there are fewer lines. Also None at the end of a block
        that is shorter than it was estimated.
        """
        block_line = self.block_at(number)
        if block_line is None:
            return None
        lines = self._lines(block_line.block)
        return lines[block_line.number] if block_line.number < len(lines) else None

    def lines(self, start: int, end: int) -> Iterator[tuple[int, StyledLine]]:
        """Yield the lines from `start` to before `end`, each with its number. Their blocks are drawn for
        this, but keep the heights that they had, so that no line gets another number.
        """
        for number in range(max(0, start), min(end, self.total)):
            if (line := self.line(number)) is not None:
                yield number, line

    def block_at(self, number: int) -> BlockLine | None:
        """The block that has the line `number` of the transcript, and which of its lines that is. None
        below the last line.
        """
        index = self._index_of(number)
        if index >= len(self.blocks):
            return None
        return BlockLine(self.blocks[index], number - self._tops[index])

    def top(self, block: TranscriptBlock) -> int:
        """The number of the first line of a block, its blank line included."""
        while len(self._tops) <= block.index:
            self._add_top()
        return self._tops[block.index]

    def _index_of(self, line: int) -> int:
        """The index of the block that has this line; the number of blocks if there are fewer lines."""
        while self._tops[-1] <= line and len(self._tops) <= len(self.blocks):
            self._add_top()
        return bisect_right(self._tops, line) - 1

    def _add_top(self) -> None:
        """Add the next number to `_tops`: where the block behind the last known one begins."""
        self._tops.append(self._tops[-1] + self.blocks[len(self._tops) - 1].height)

    def fold(self, blocks: Iterable[TranscriptBlock], is_open: bool) -> None:
        """Fold or open blocks. Their new heights are estimated until they are drawn."""
        for block in blocks:
            block.set_open(is_open)
            self._estimate(block)

    def _rebuild(self, blocks: Sequence[TranscriptBlock]) -> None:
        """Empty the list and add these blocks, which get new places and estimated heights."""
        self.blocks, self._tops, self.total = [], [0], 0
        self._changed.clear()
        for block in blocks:
            self.add(block)

    def _lines(self, block: TranscriptBlock) -> Sequence[StyledLine]:
        """The lines of a block, drawn if needed. At most MAX_DRAWN blocks keep their lines: if
        there are more now, the block that was used least recently loses its lines.
        """
        self._drawn[block] = None
        self._drawn.move_to_end(block)
        if len(self._drawn) > MAX_DRAWN:
            least_recent, _ = self._drawn.popitem(last=False)
            least_recent.forget()
        return block.lines(self._width, self._palette)

    def _draw(self, block: TranscriptBlock) -> Sequence[StyledLine]:
        lines = self._lines(block)
        self._set_height(block, len(lines), is_measured=True)
        return lines

    def _estimate(self, block: TranscriptBlock) -> None:
        self._set_height(block, block.estimate(self._width) + block.gap, is_measured=False)

    def _set_height(self, block: TranscriptBlock, height: int, *, is_measured: bool) -> None:
        """Set the height of a block. If it differs from before, the tops of all blocks below it are
        forgotten, and found again when they are needed.
        """
        if height != block.height:
            del self._tops[block.index + 1 :]
            self.total += height - block.height
        block.height, block.is_measured = height, is_measured
