"""Heights: how tall each block is, and which block a line belongs to, in logarithmic time."""

from __future__ import annotations

from collections.abc import Iterable


class Heights:
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
        """All lines."""
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
