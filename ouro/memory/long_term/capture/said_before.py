"""SaidBefore: what capture has written or proposed, so that what the person took out does not come back by itself."""

from __future__ import annotations

import hashlib
import re

from ouro.memory.long_term.git.repository import GitRepository

_NAME = "captured"
_MOST = 2_000
_FOR_GOOD = "~"
"""Sorts behind every time."""
_WORD = re.compile(r"\w{3,}")


class SaidBefore:
    """Of one scope; kept beside its history, as prints that cannot be read back. Blocks: use from a thread."""

    def __init__(self, history: GitRepository) -> None:
        self._history = history

    def knows(self, text: str, since: str) -> bool:
        """Whether this was written already from words of which some were said at `since` or later, or proposed ever.

        Words of the same meaning in another order count as the same; said again later, it is new.
        """
        found = _print(text)
        return any(each == found and at >= since for each, at in self._lines())

    def add(self, text: str, until: str) -> None:
        """It was written, from words of which the last were said at `until`."""
        self._history.create()
        with self._history.alone():
            lines = [*self._lines(), (_print(text), until)][-_MOST:]
            self._history.keep(_NAME, "\n".join(f"{found} {at}" for found, at in lines))

    def add_for_good(self, text: str) -> None:
        """It was proposed: once is enough."""
        self.add(text, _FOR_GOOD)

    def _lines(self) -> list[tuple[str, str]]:
        parted = (line.partition(" ") for line in self._history.own(_NAME).splitlines())
        return [(found, at) for found, _, at in parted]


def _print(text: str) -> str:
    words = sorted({word[:5] for word in _WORD.findall(text.casefold())}) or [text.casefold()]
    return hashlib.sha256(" ".join(words).encode(errors="replace")).hexdigest()[:16]
