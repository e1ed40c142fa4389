"""The project's files, searched by a few typed letters for `@` completion."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from ouro.utils.log import log

MAX_CANDIDATES = 400
MAX_AGE = 20.0
"""Seconds after which the list of files is read again."""


class FileIndex:
    """File names in one string, so that each typed key is searched by the C string search, not by a
    Python loop.

    rapidfuzz scores every name, which takes too long for a typed key.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self._joined = "\n" + "\n".join(names) + "\n"
        lowered = self._joined.lower()
        self._lowered = lowered if len(lowered) == len(self._joined) else self._joined

    def search(self, text: str, limit: int = 8) -> list[str]:
        """The best names that contain the letters of `text` in their order, best first."""
        letters = text.lower().replace("\n", "")
        if not letters:
            return list(self.names[:limit])
        literal = re.escape(letters)
        scattered = "".join(
            f"[^{re.escape(letter)}\n]*{re.escape(letter)}" for letter in letters[1:]
        )
        found: dict[str, None] = {}
        for pattern in (
            f"[/\n]{literal}[^/\n]*(?=\n)",
            f"[/\n]{literal}",
            literal,
            re.escape(letters[0]) + scattered,
        ):
            found |= dict.fromkeys(self._find(pattern))
            if len(found) >= limit * 4:
                break
        return sorted(found, key=lambda name: _rank(name, letters))[:limit]

    def _find(self, pattern: str) -> Iterator[str]:
        """The first MAX_CANDIDATES names with a match."""
        for match in islice(re.finditer(f"{pattern}[^\n]*", self._lowered), MAX_CANDIDATES):
            yield self._joined[self._lowered.rfind("\n", 0, match.end()) + 1 : match.end()]


def _rank(name: str, letters: str) -> tuple[bool, bool, bool, int, str]:
    lowered = name.lower()
    last = lowered.rstrip("/").rpartition("/")[2]
    return (
        not last.startswith(letters),
        letters not in last,
        letters not in lowered,
        len(name),
        name,
    )


def mention(name: str) -> str:
    """How a message names a file: `@api.py`, `@"a b.py"`."""
    return f'@"{name}"' if re.search(r"\s", name) else f"@{name}"


class ProjectFiles:
    """The list of files, read in the background, and again when it is old."""

    def __init__(self, read: Callable[[], list[str]], changed: Callable[[], None]) -> None:
        self._read = read
        self._changed = changed
        self._index: FileIndex | None = None
        self._read_at = float("-inf")
        self._task: asyncio.Task[None] | None = None

    def index(self) -> FileIndex | None:
        """The newest list; None until the first one was read."""
        is_old = time.monotonic() - self._read_at > MAX_AGE
        if is_old and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._refresh())
        return self._index

    async def _refresh(self) -> None:
        try:
            self._index = await asyncio.to_thread(lambda: FileIndex(self._read()))
        except OSError as error:
            log.warning("the project's files could not be listed: %s", error)
            self._index = FileIndex([])
        self._read_at = time.monotonic()
        self._changed()
