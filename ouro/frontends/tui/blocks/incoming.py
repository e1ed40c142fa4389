"""Incoming: text that arrives in pieces, made harmless although a piece may end in the middle of a sequence."""

from __future__ import annotations

import re

from ouro.utils.text import clean

_UNFINISHED = re.compile(
    r"(?:(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])(?:(?!\x07|\x1b\\|\x9c)[\s\S])*|(?:\x1b\[|\x9b)[0-?]*[ -/]*|\x1b[ -/]*"
    r"|[\u2000-\U0010ffff](?:\u200d[\u2000-\U0010ffff])*\u200d?)\Z"
)
_MOST_HELD = 4_096


class Incoming:
    """Cleans a stream: what the end of a piece leaves open is held until the next one shows what it is."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """What may be shown now."""
        if not self._held and text.isascii() and "\x1b" not in text:
            return _clean(text)
        text = self._held + text
        unfinished = _UNFINISHED.search(text)
        cut = unfinished.start() if unfinished and len(text) - unfinished.start() <= _MOST_HELD else len(text)
        self._held = text[cut:]
        return _clean(text[:cut])

    def finish(self) -> str:
        """What was held, now that nothing follows."""
        held, self._held = self._held, ""
        return _clean(held)


def _clean(text: str) -> str:
    # Four spaces wherever the tab stands: what is shown must not depend on how the text was cut into pieces.
    return clean(text).replace("\t", "    ")
