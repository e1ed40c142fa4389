"""Halves of characters that some servers send apart, joined; those that stay alone, replaced."""

from __future__ import annotations

import re

_SURROGATE = re.compile("[\ud800-\udfff]")
_HIGH_AT_END = re.compile("[\ud800-\udbff]\\Z")


def healed(text: str) -> str:
    """`text` with the two halves of a character joined, and U+FFFD for each half that is alone."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class SurrogateJoiner:
    """Heals a text that comes in pieces: a first half at the end of a piece waits for the next one."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """What can be shown now."""
        if not self._held and piece.isascii():
            return piece
        text = self._held + piece
        self._held = text[-1] if _HIGH_AT_END.search(text) else ""
        return healed(text.removesuffix(self._held))

    def end(self) -> str:
        """What was still held."""
        rest, self._held = healed(self._held), ""
        return rest
