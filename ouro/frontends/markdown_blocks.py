"""Streaming Markdown, cut into finished blocks."""

from __future__ import annotations

import re

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


class MarkdownBlocks:
    """Takes Markdown in pieces, and returns each block when it is complete.

    A block ends at a blank line before a line that is not indented, and outside a code fence.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._rest = ""
        self._fence = ""

    def add(self, piece: str) -> list[str]:
        """Add a piece; returns the blocks that are complete now."""
        *lines, self._rest = (self._rest + piece).split("\n")
        return [block for line in lines for block in self._take(line)]

    def finish(self) -> list[str]:
        last = [*self._take(self._rest), *self._cut()]
        self._rest = self._fence = ""
        return last

    def discard(self) -> None:
        """Drop the incomplete block: a retry repeats it."""
        self._lines, self._rest, self._fence = [], "", ""

    def _take(self, line: str) -> list[str]:
        begins = bool(line.strip()) and not line[:1].isspace()
        done = self._cut() if begins and not self._fence and self._lines and not self._lines[-1].strip() else []
        self._lines.append(line)
        if match := _FENCE.match(line):
            self._turn_fence(match[1], match[2])
        return done

    def _turn_fence(self, run: str, after: str) -> None:
        if not self._fence:
            self._fence = run
        elif run.startswith(self._fence) and not after.strip():
            self._fence = ""

    def _cut(self) -> list[str]:
        block, self._lines = "\n".join(self._lines).strip("\n"), []
        return [block] if block.strip() else []
