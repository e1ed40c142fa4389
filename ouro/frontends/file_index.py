"""The project's files, searched by a few typed letters for `@` completion."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice

from ouro.frontends.kept_files import KeptFiles
from ouro.utils.log import log

MAX_CANDIDATES = 400
MAX_LOOKED_AT = 5_000
"""Matches in names of folders that are passed over to find one in the name of a file."""
MAX_AGE = 20.0
"""Seconds after which the list of files is read again."""
SEGMENT = 1 << 17
"""Characters that are searched at once: Python runs nothing else meanwhile, not even a key."""
SEARCHED_AT_ONCE = 1 << 20
"""Up to so many characters are searched while a key is handled, in a few milliseconds."""
FIRST_SHOWN_AFTER = 0.02
SHOWN_EVERY = 0.25
"""Seconds until the first and until each later look at a list that is still being read."""


class FileIndex:
    """File names in a few long strings, so that each typed key is searched by the C string search,
    not by a Python loop; and 500,000 names take little memory.

    rapidfuzz scores every name, which takes too long for a typed key. Names with a line end are
    left out: a message cannot mention them.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.size = 0
        """The number of characters."""
        self._by_depth: dict[int, list[_Segment]] = {}
        self.add(names)

    def add(self, names: Iterable[str]) -> None:
        """Add names; those of outer folders are found first."""
        by_depth: dict[int, list[str]] = {}
        for name in names:
            if "\n" not in name:
                by_depth.setdefault(name.rstrip("/").count("/"), []).append(name)
        for depth, found in by_depth.items():
            joined = "\n".join(found)
            self.size += len(joined)
            segments = self._by_depth.setdefault(depth, [])
            if segments and len(segments[-1].text) + len(joined) < SEGMENT:
                joined = segments.pop().text[1:] + joined
            segments += map(_Segment, _split_into_segments(joined))

    def names(self) -> Iterator[str]:
        """All names, outer ones first."""
        for text in self.texts():
            yield from text.split("\n")

    def texts(self) -> Iterator[str]:
        """All names as lines of a few texts, outer ones first."""
        return (segment.text[1:-1] for segment in self._segments())

    def search(self, text: str, limit: int = 8) -> list[str]:
        """The best names that contain the letters of `text` in their order, best first."""
        letters = text.lower().replace("\n", "")
        if not letters:
            return list(islice(self.names(), limit))
        found: dict[str, None] = {}
        for matches in (
            chain(
                self._find(f"/{letters}", in_file=True), self._find(f"\n{letters}", in_file=True)
            ),
            chain(self._find(f"/{letters}"), self._find(f"\n{letters}")),
            self._find(letters),
            self._find_scattered(letters),
        ):
            found |= dict.fromkeys(islice(matches, MAX_CANDIDATES))
            if len(found) >= limit * 4:
                break
        return sorted(found, key=lambda name: _rank(name, letters))[:limit]

    def _segments(self) -> Iterator[_Segment]:
        # A copy: another thread may add names meanwhile.
        for depth in sorted(self._by_depth.copy()):
            yield from self._by_depth[depth].copy()

    def _find(self, text: str, *, in_file: bool = False) -> Iterator[str]:
        """The names with this text; with `in_file`, in their last part."""
        looked_at = 0
        for segment in self._segments():
            at = segment.lowered.find(text)
            while at >= 0 and looked_at < MAX_LOOKED_AT:
                looked_at += 1
                end = segment.lowered.index("\n", at + len(text))
                if not in_file or segment.lowered.find("/", at + len(text), end) < 0:
                    yield segment.name(at + 1, end)
                at = segment.lowered.find(text, end)

    def _find_scattered(self, letters: str) -> Iterator[str]:
        """The names with these letters, with others in between."""
        pattern = re.compile(
            re.escape(letters[0])
            + "".join(f"[^{re.escape(letter)}\n]*{re.escape(letter)}" for letter in letters[1:])
            + "[^\n]*"
        )
        for segment in self._segments():
            for match in pattern.finditer(segment.lowered):
                yield segment.name(match.end(), match.end())


class _Segment:
    """Some names, each between two line ends."""

    __slots__ = ("lowered", "text")

    def __init__(self, joined: str) -> None:
        self.text = f"\n{joined}\n"
        lowered = self.text.lower()
        is_same = lowered == self.text or len(lowered) != len(self.text)
        self.lowered = self.text if is_same else lowered

    def name(self, place: int, end: int) -> str:
        """The name that ends before `end` and has the character before `place`."""
        return self.text[self.text.rfind("\n", 0, place) + 1 : end]


def _split_into_segments(joined: str) -> Iterator[str]:
    """Names between line ends, in pieces of about the size of a segment."""
    start = 0
    while len(joined) - start > SEGMENT:
        end = joined.find("\n", start + SEGMENT)
        if end < 0:
            break
        yield joined[start:end]
        start = end + 1
    yield joined[start:]


def _rank(name: str, letters: str) -> tuple[bool, bool, bool, int, str]:
    """The sort key of a name: first the letters begin the last part, then are in it, then in the
    name.
    """
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


def _read_into(index: FileIndex, found: Iterable[Sequence[str]]) -> None:
    for names in found:
        index.add(names)


class ProjectFiles:
    """The list of files, read in the background, and again when it is old; and searches of it.

    Args:
        read: returns the names as they are found, some at a time.
        changed: called when another search may find more.
        kept: the lists of earlier sessions; the one of this folder is used until a new one is read.
    """

    def __init__(
        self,
        read: Callable[[], Iterable[Sequence[str]]],
        changed: Callable[[], None],
        kept: Callable[[], KeptFiles | None] = lambda: None,
    ) -> None:
        self._read = read
        self._changed = changed
        self._kept = kept
        self._index: FileIndex | None = None
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._searching: asyncio.Task[None] | None = None
        self._wanted = ""
        self._found: tuple[str, FileIndex | None, list[str]] = ("", None, [])
        """The last search in the background: its text, where it searched, and what it found."""

    def search(self, text: str, limit: int) -> list[str] | None:
        """The best names for a text; None until there is a list.

        A long list is searched in the background: until then, this is what is left of the last
        search, and `changed` is called when there is more.
        """
        self._refresh_if_old()
        index = self._index
        if index is None:
            return None
        if index.size <= SEARCHED_AT_ONCE:
            return index.search(text, limit)
        last, searched, found = self._found
        if (last, searched) == (text, index):
            return found
        self._wanted = text
        if self._searching is None or self._searching.done():
            self._searching = asyncio.create_task(self._search(limit))
        return [name for name in found if text.lower() in name.lower()]

    async def _search(self, limit: int) -> None:
        """Search for what was typed last, until that is found."""
        while (self._wanted, self._index) != self._found[:2] and self._index is not None:
            text, index = self._wanted, self._index
            self._found = (text, index, await asyncio.to_thread(index.search, text, limit))
        self._changed()

    def _refresh_if_old(self) -> None:
        is_old = time.monotonic() - self._read_at > MAX_AGE
        if is_old and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._refresh())

    async def _refresh(self) -> None:
        """Read the list of files, and save it for the next session. Without a list, the saved one
        is used meanwhile.
        """
        kept = self._kept()
        if self._index is None and kept is not None:
            await self._fill(FileIndex(), kept.load(), shows=True)
        index = FileIndex()
        try:
            await self._fill(index, self._read(), shows=self._index is None)
        except OSError as error:
            log.warning("the project's files could not be listed: %s", error)
        self._show(index)
        self._read_at = time.monotonic()
        if kept is not None:
            await asyncio.to_thread(kept.save, index.texts(), index.size)

    async def _fill(self, index: FileIndex, found: Iterable[Sequence[str]], *, shows: bool) -> None:
        """Read names into an index; with `shows` it can be searched before the end."""
        reading = asyncio.create_task(asyncio.to_thread(_read_into, index, found))
        wait = FIRST_SHOWN_AFTER
        while not reading.done():
            await asyncio.wait([reading], timeout=wait)
            wait = min(2 * wait, SHOWN_EVERY)
            if shows and index.size:
                self._show(index)
        await reading

    def _show(self, index: FileIndex) -> None:
        self._index = index
        self._found = (self._found[0], None, self._found[2])
        self._changed()
