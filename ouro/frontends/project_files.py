"""Fuzzy: the names that a few typed letters mean, fast enough for 100,000 files."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Sequence

from ouro.utils.log import log

_CONSIDERED = 400


class Haystack:
    """Names to be searched; joined once, so that a key costs passes of the C string search, not a loop."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self._joined = "\n" + "\n".join(names) + "\n"
        lowered = self._joined.lower()
        self._lowered = lowered if len(lowered) == len(self._joined) else self._joined

    def search(self, needle: str, limit: int = 8) -> list[str]:
        """The best names that have the letters of `needle` in their order, best first."""
        wanted = needle.lower().replace("\n", "")
        if not wanted:
            return list(self.names[:limit])
        literal = re.escape(wanted)
        scattered = "".join(f"[^{re.escape(letter)}\n]*{re.escape(letter)}" for letter in wanted[1:])
        found: dict[str, None] = {}
        for pattern in (f"[/\n]{literal}[^/\n]*\n", f"[/\n]{literal}", literal, re.escape(wanted[0]) + scattered):
            found |= dict.fromkeys(self._matching(pattern))
            if len(found) >= limit * 4:
                break
        return sorted(found, key=lambda name: _rank(name, wanted))[:limit]

    def _matching(self, pattern: str) -> Iterator[str]:
        """Up to so many names with a match, from the first on."""
        search, position = re.compile(pattern).search, 0
        for _ in range(_CONSIDERED):
            match = search(self._lowered, position)
            if match is None:
                return
            inside = match.end() - 1 if self._lowered[match.end() - 1] == "\n" else match.end()
            start = self._lowered.rfind("\n", 0, inside) + 1
            end = self._lowered.find("\n", inside)
            yield self._joined[start:end]
            position = end


def _rank(name: str, wanted: str) -> tuple[bool, bool, bool, int, str]:
    lowered = name.lower()
    last = lowered.rstrip("/").rpartition("/")[2]
    return (not last.startswith(wanted), wanted not in last, wanted not in lowered, len(name), name)


_FRESH = 20.0
"""Seconds that a list is taken as it is."""


class ProjectFiles:
    """The files of the project, for completion."""

    def __init__(self, read: Callable[[], list[str]], changed: Callable[[], None]) -> None:
        self._read = read
        self._changed = changed
        self._haystack: Haystack | None = None
        self._read_at = float("-inf")
        self._task: asyncio.Task[None] | None = None

    def haystack(self) -> Haystack | None:
        """The list as far as it is known; None until it was read for the first time."""
        is_old = time.monotonic() - self._read_at > _FRESH
        if is_old and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._refresh())
        return self._haystack

    async def _refresh(self) -> None:
        try:
            self._haystack = await asyncio.to_thread(lambda: Haystack(self._read()))
        except OSError as error:
            log.warning("the project's files could not be listed: %s", error)
            self._haystack = Haystack([])
        self._read_at = time.monotonic()
        self._changed()
