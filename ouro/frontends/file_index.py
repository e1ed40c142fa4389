"""The project's files, searched by a few typed letters for `@` completion."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from ouro.frontends.saved_file_list import SavedFileList
from ouro.utils.log import log

MAX_CANDIDATES = 400
"""So many names of each kind of match are ranked."""
_CANDIDATES_PER_RESULT = 4
"""If there are so many candidates for each name that is wanted, weaker kinds of matches are not
searched.
"""
MAX_TRIED_MATCHES = 5_000
"""So many matches are tried: a match in the name of a folder does not count for a file."""
MAX_AGE = 20.0
"""Seconds after which the list of files is read again."""
SEGMENT = 1 << 17
"""Characters that are searched at once: Python runs nothing else meanwhile, not even a key."""
MAX_FOREGROUND_SIZE = 1 << 20
"""Up to so many characters are searched while a key is handled, in a few milliseconds."""
FIRST_SHOW_INTERVAL = 0.02
MAX_SHOW_INTERVAL = 0.25
"""Seconds from the first names to the next look at a list that is still being read, and at most from
look to look: the interval doubles.
"""


class FileIndex:
    """Names of files in a few long strings, for a search at each typed key.

    Each key is searched by the string search of C, not by a Python loop, and 500,000 names take
    little memory. rapidfuzz would score every name, which takes too long. Names with a line end are
    left out: a message cannot mention them.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.size = 0
        """The number of characters."""
        self._by_depth: dict[int, list[_Segment]] = {}
        """The names, by the number of folders that they are in."""
        self.add(names)

    def add(self, names: Iterable[str]) -> None:
        """Add names, except those with a line end. A search finds names in outer folders before names
        in inner folders, in whatever order they were added.
        """
        by_depth: dict[int, list[str]] = {}
        for name in names:
            if "\n" not in name:
                by_depth.setdefault(name.rstrip("/").count("/"), []).append(name)
        for depth, names_of_depth in by_depth.items():
            joined = "\n".join(names_of_depth)
            self.size += len(joined)
            segments = self._by_depth.setdefault(depth, [])
            if segments and len(segments[-1].text) + len(joined) < SEGMENT:
                # Few long segments are searched faster. The text of a segment is enclosed in line
                # ends: the first is dropped, the last one separates it from the new names.
                joined = segments.pop().text.removeprefix("\n") + joined
            segments += map(_Segment, _split_into_segments(joined))

    def names(self) -> Iterator[str]:
        """All names, outer ones first."""
        for text in self.texts():
            yield from text.split("\n")

    def texts(self) -> Iterator[str]:
        """All names as lines of a few texts, outer ones first."""
        return (segment.text[1:-1] for segment in self._segments())

    def search(self, text: str, limit: int = 8) -> list[str]:
        """The names that match `text` best, at most `limit`, the best first. They contain all
        letters of the text in this order. Without a text, they are the first names.
        """
        letters = text.lower().replace("\n", "")
        if not letters:
            return list(islice(self.names(), limit))
        candidates: dict[str, None] = {}
        # A part of a name begins after a slash, and the first part after the line end.
        starts = (f"/{letters}", f"\n{letters}")
        begins_last_part = chain(*(self._find(start, in_file=True) for start in starts))
        begins_any_part = chain(*(self._find(start) for start in starts))
        anywhere, scattered = self._find(letters), self._find_scattered(letters)
        # From the best kind of match to the weakest; each is only searched if the others are few.
        for matches in (begins_last_part, begins_any_part, anywhere, scattered):
            candidates |= dict.fromkeys(islice(matches, MAX_CANDIDATES))
            if len(candidates) >= limit * _CANDIDATES_PER_RESULT:
                break
        return sorted(candidates, key=lambda name: _rank(name, letters))[:limit]

    def _segments(self) -> Iterator[_Segment]:
        # A copy: another thread may add names meanwhile.
        for depth in sorted(self._by_depth.copy()):
            yield from self._by_depth[depth].copy()

    def _find(self, text: str, *, in_file: bool = False) -> Iterator[str]:
        """Yield the names that contain a text. With `in_file`, only names that contain it in their
        last part. At most MAX_TRIED_MATCHES places of the text are tried.

        `text` must be in lower case. A line end at its beginning stands for the beginning of a
        name.
        """
        tried = 0
        for segment in self._segments():
            at = segment.lowered.find(text)
            while at >= 0 and tried < MAX_TRIED_MATCHES:
                tried += 1
                end = segment.lowered.index("\n", at + len(text))
                is_in_last_part = segment.lowered.find("/", at + len(text), end) < 0
                if is_in_last_part or not in_file:
                    yield segment.name(at + 1, end)
                at = segment.lowered.find(text, end)

    def _find_scattered(self, letters: str) -> Iterator[str]:
        """Yield the names that contain these letters in this order. Other characters may be between
        them.
        """
        pattern = re.compile(
            re.escape(letters[0])
            + "".join(f"[^{re.escape(letter)}\n]*{re.escape(letter)}" for letter in letters[1:])
            + "[^\n]*"
        )
        for segment in self._segments():
            for match in pattern.finditer(segment.lowered):
                yield segment.name(match.end(), match.end())


class _Segment:
    """A text of some names, each between two line ends.

    `lowered` is the text in lower case. If lower case would change its length, it is the text
    itself, because offsets must be the same in both.
    """

    __slots__ = ("lowered", "text")

    def __init__(self, joined: str) -> None:
        self.text = f"\n{joined}\n"
        lowered = self.text.lower()
        # With another length the offsets would differ. An equal text is kept only once in memory.
        if lowered == self.text or len(lowered) != len(self.text):
            lowered = self.text
        self.lowered = lowered

    def name(self, start: int, end: int) -> str:
        """The name that ends before the line end at `end`. `start`: an offset in it."""
        return self.text[self.text.rfind("\n", 0, start) + 1 : end]


def _split_into_segments(joined: str) -> Iterator[str]:
    """Split names between line ends into texts of about the size of a segment."""
    start = 0
    while len(joined) - start > SEGMENT:
        end = joined.find("\n", start + SEGMENT)
        if end < 0:
            break
        yield joined[start:end]
        start = end + 1
    yield joined[start:]


def _rank(name: str, letters: str) -> tuple[bool, bool, bool, int, str]:
    """The sort key of a name: the smallest key is the best match.

    The best names have a last part that begins with the letters. Then come names with the letters
    in their last part, then with the letters anywhere, then with the letters scattered. Among
    equally good names, the shortest is first.
    """
    lower_name = name.lower()
    last_part = lower_name.rstrip("/").rpartition("/")[2]
    return (
        not last_part.startswith(letters),
        letters not in last_part,
        letters not in lower_name,
        len(name),
        name,
    )


_TYPED_MENTION = re.compile(r"""(?:^|[\s(\[{<,;:="'`])(?P<mention>@"[^"\n]*|@\S*)$""")


def mention(name: str) -> str:
    """The text with which a message mentions a file: `@api.py`, `@"a b.py"`."""
    return f'@"{name}"' if re.search(r"\s", name) else f"@{name}"


def typed_mention(before: str) -> str:
    """The mention that is being typed at the end of a line, with its `@`, such as `@ap` or `@"a b`.
    Empty if there is none.
    """
    match = _TYPED_MENTION.search(before)
    return match["mention"] if match else ""


def mentioned_name(word: str) -> str:
    """The letters of a name in a typed mention."""
    return word.removeprefix("@").removeprefix('"')


class _Search(NamedTuple):
    """A search, and the names that it found."""

    text: str
    searched: FileIndex | None
    size: int
    """How many characters the index had: it may have more names now."""
    names: list[str]

    def answers(self, text: str, index: FileIndex) -> bool:
        """Whether another search for `text` would find the same."""
        return (self.text, self.searched, self.size) == (text, index, index.size)


class ProjectFiles:
    """The searchable list of the project's files. It is read in the background, and again when it
    is old.

    Args:
        read: returns the names as they are found, some at a time.
        changed: called when another search may find more.
        get_saved_list: returns the list of an earlier session, which is used until the new
            one is read.
    """

    def __init__(
        self,
        read: Callable[[], Iterable[Sequence[str]]],
        changed: Callable[[], None],
        get_saved_list: Callable[[], SavedFileList | None] = lambda: None,
    ) -> None:
        self._read = read
        self._changed = changed
        self._get_saved_list = get_saved_list
        self._index: FileIndex | None = None
        """The names; None before the first ones are read."""
        self._read_at = float("-inf")
        """When the list was last read to its end."""
        self._reading: asyncio.Task[None] | None = None
        self._searching: asyncio.Task[None] | None = None
        self._next_text = ""
        """The text that was asked for last."""
        self._last_search = _Search(text="", searched=None, size=0, names=[])
        """The last search. The same text is asked for several times, at each event of its keys."""

    def search(self, text: str, limit: int) -> list[str] | None:
        """The best names for a text; None until there is a list.

        A short list is searched at once. A long one is searched in the background: until that has
        ended, the result is the names of the last search that still contain the text, and then
        `changed` is called.
        """
        self._refresh_if_old()
        index = self._index
        if index is None:
            return None
        last_search = self._last_search
        if last_search.answers(text, index):
            return last_search.names
        size = index.size  # names may be added during the search
        if size <= MAX_FOREGROUND_SIZE:
            names = index.search(text, limit)
            self._last_search = _Search(text, searched=index, size=size, names=names)
            return names
        self._next_text = text  # if a search runs, it looks for this text next
        if self._searching is None or self._searching.done():
            self._searching = asyncio.create_task(self._search(limit))
        return [name for name in last_search.names if text.lower() in name.lower()]

    async def _search(self, limit: int) -> None:
        """Search for the text that was asked for last. If another text was asked for during the
        search, search for that text, too. Then call `changed`.
        """
        while True:
            text, index = self._next_text, self._index
            if index is None or self._last_search.answers(text, index):
                break
            size = index.size  # names may be added during the search
            names = await asyncio.to_thread(index.search, text, limit)
            self._last_search = _Search(text, searched=index, size=size, names=names)
        self._changed()

    def _refresh_if_old(self) -> None:
        is_old = time.monotonic() - self._read_at > MAX_AGE
        if is_old and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._refresh())

    async def _refresh(self) -> None:
        """Read the list of files, use it from then on, and save it for the next session. If no list
        is in use yet, the saved list is used until then, or the names that are read so far if no
        list is saved.
        """
        saved_list = self._get_saved_list()
        # Without a saved list no thread is started for it: git waits for that thread.
        if self._index is None and saved_list is not None and saved_list.is_saved:
            await self._fill(FileIndex(), saved_list.load(), can_search=True)
        index = FileIndex()
        try:
            await self._fill(index, self._read(), can_search=self._index is None)
        except OSError as error:
            log.warning("the project's files could not be listed: %s", error)
        self._use_index(index)
        self._read_at = time.monotonic()
        if saved_list is not None:
            await asyncio.to_thread(saved_list.save, index.texts(), index.size)

    async def _fill(
        self, index: FileIndex, name_lists: Iterable[Sequence[str]], *, can_search: bool
    ) -> None:
        """Read names into an index, in a thread. With `can_search` the index is in use as soon as
        it has a name, and `changed` is called from time to time while names are read. The rest is
        added when the first names are shown: both need the interpreter lock.
        """
        has_names, is_first_shown = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def add_all() -> None:
            for names in name_lists:
                if can_search and index.size:
                    is_first_shown.wait()
                index.add(names)
                loop.call_soon_threadsafe(has_names.set)

        reader = asyncio.create_task(asyncio.to_thread(add_all))
        first_names = asyncio.create_task(has_names.wait())
        try:
            await asyncio.wait([reader, first_names], return_when=asyncio.FIRST_COMPLETED)
            first_names.cancel()
            interval = FIRST_SHOW_INTERVAL
            while not reader.done():
                if can_search and index.size:
                    self._use_index(index)
                await asyncio.wait([reader], timeout=interval)
                is_first_shown.set()
                interval = min(2 * interval, MAX_SHOW_INTERVAL)
        finally:
            is_first_shown.set()  # an interrupt leaves no thread that waits
        if can_search and index.size:
            self._use_index(index)
        await reader

    def _use_index(self, index: FileIndex) -> None:
        """Search in this index from now on, and call `changed`: another search may find more."""
        self._index = index
        self._changed()
