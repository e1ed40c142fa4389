"""Lookup: the index and its search, made at first use, updated in the background."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ouro.errors import ModelError, SearchUnavailable
from ouro.utils.log import log

if TYPE_CHECKING:
    from ouro.memory.index.embeddings import Embedder
    from ouro.memory.index.index import Sources
    from ouro.memory.index.memory_folder import MemoryFolder
    from ouro.memory.index.search import MemoryHit, Search, SearchFilter

PATIENCE_SECONDS = 3.0
"""Seconds that a search waits for an index update; then it searches the index as it is."""
CLOSE_SECONDS = 2.0
"""The most seconds that a remote model makes vectors when a session is closed."""
CLOSE_NOTES = 16
"""The most notes, the newest ones, whose vectors it makes then. An import has 50,000."""
NEWEST_NOTES = 64
"""Notes whose vectors are made where they are needed; the background makes those of the others."""
IDLE_SECONDS = 5.0
"""Seconds after a turn before the local model is loaded: for consecutive turns it is loaded only
once.
"""
_MTIME_MARGIN_SECONDS = 0.1
"""Seconds by which the time of a file may be behind the clock."""
_BATCH_VECTORS = 16
_PAUSE_SECONDS = 0.002
"""Seconds between two files, so that typing stays responsive."""


class _StoppedError(Exception):
    """Stops an update of the index; the next update continues where it stopped."""


def _read_folder_times(folder: MemoryFolder) -> tuple[int, ...]:
    """Returns times of a memory folder that change if a note is added, removed or replaced, or a
    core file changes.
    """
    paths = (folder.path, folder.path / "archive", *(folder.path / name for name in folder.core))
    return tuple(_read_change_time(path) for path in paths)


def _read_change_time(path: Path) -> int:
    """Returns when a file or folder was changed, in nanoseconds; 0 if there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


class Lookup:
    """The index and the search of one session. Nothing is imported or opened before the first
    search or the end of the first turn.

    `embedder` returns the model for vectors, None for words alone; called once, in a thread.
    `folders` are those of memory, by default those of the sources, which import the index.
    """

    def __init__(
        self,
        path: Path,
        sources: Callable[[], Sources],
        embedder: Callable[[], Embedder | None],
        folders: Sequence[Path] | None = None,
    ) -> None:
        self._path = path
        self._sources = sources
        self._embedder = embedder
        self._folders = folders
        """The folders of memory; None: those of the sources."""
        self._search: Search | None = None
        self._creation_lock = threading.Lock()
        self._stopped = threading.Event()
        self._update_lock = asyncio.Lock()
        self._is_update_requested = False
        self._has_turns = False
        """Whether a turn has ended, so that there may be new notes."""
        self._made_at = time.time()
        """Notes that were written before this time are not new."""
        self._known_times: dict[Path, tuple[int, ...]] = {}
        """The times of the folders of memory, and of their core files, when they were indexed."""

    async def find(
        self, query: str, k: int = 5, wanted: SearchFilter | None = None
    ) -> list[MemoryHit]:
        """Update the index from the files, for at most PATIENCE_SECONDS; returns the `k` best hits,
        as `Search.find` does. Raises SearchUnavailable.
        """
        search = await self.open_updated()
        return await asyncio.to_thread(search.find, query, k, wanted)

    async def open_updated(self) -> Search:
        """Update the index from the files, for at most PATIENCE_SECONDS; returns the search. A filter
        that is made of the index then knows the projects in it.
        """
        await asyncio.to_thread(lambda: self.update(self._sources(), PATIENCE_SECONDS))
        return await asyncio.to_thread(self.search)

    def mark_turn_done(self) -> None:
        """Record that a turn has ended: then `close` makes the vectors of notes that the background
        has not made.
        """
        self._has_turns = True

    async def keep_up(self) -> None:
        """Update the index, and then make missing vectors, for the background. If an update runs
        already, only let that one start again when it is done.
        """
        self._is_update_requested = True
        if self._update_lock.locked():
            return
        async with self._update_lock:
            while self._is_update_requested and not self._stopped.is_set():
                self._is_update_requested = False
                await asyncio.to_thread(self._update_changed_folders)
                await self._make_vectors()

    def search(self) -> Search:
        """Returns the search, which is made at the first call. Blocks: call it from a thread."""
        from ouro.memory.index.index import Index
        from ouro.memory.index.search import Search
        from ouro.memory.index.vectors import Vectors

        with self._creation_lock:
            if self._search is None:
                index, embedder = Index(self._path), self._embedder()
                self._search = Search(index, Vectors(index, embedder) if embedder else None)
        return self._search

    def update(self, sources: Sources, seconds: float = math.inf, pause: float = 0.0) -> bool:
        """Index the changed files of the sources; returns whether all are indexed. Blocks.

        Args:
            seconds: after about this time it ends, even if not all is indexed.
            pause: seconds to wait before each file.
        """
        deadline = time.monotonic() + seconds

        def stop_or_pause(_done: int, _all: int) -> None:
            """Called before each file: raise _StoppedError if the update is to end, otherwise
            wait.
            """
            if self._stopped.is_set() or time.monotonic() > deadline:
                raise _StoppedError
            time.sleep(pause)

        times = {folder.path: _read_folder_times(folder) for folder in sources.memories}
        try:
            self.search().index.update(sources, stop_or_pause)
            self._known_times |= times
        except _StoppedError:
            return False
        except SearchUnavailable as error:
            log.warning("the index is not up to date: %s", error)
            return False
        return True

    def _update_changed_folders(self) -> None:
        """Update the index from the sessions, and from the folders of memory that changed since the
        last update. A note that is written in place does not change its folder: it is found when
        the next turn begins.
        """
        sources = self._sources()
        changed = (
            folder
            for folder in sources.memories
            if self._known_times.get(folder.path) != _read_folder_times(folder)
        )
        self.update(replace(sources, memories=tuple(changed)), pause=_PAUSE_SECONDS)

    def fill_few_notes(self, max_notes: int) -> None:
        """Make the vectors of the notes that have none, if these are at most `max_notes`. If there
        are more, nothing is done: the process for vectors makes them later. Blocks; errors as for
        `Vectors.fill_all`.
        """
        vectors = self.search().vectors
        if vectors is None:
            return
        missing = vectors.count_missing("notes", max_notes + 1)
        if 0 < missing <= max_notes:
            vectors.fill(max_notes, ("notes",))

    def fill_notes(self, seconds: float = math.inf, max_notes: int = NEWEST_NOTES) -> None:
        """Make the vectors of up to `max_notes` notes that have none, the newest first, for about
        `seconds`. Blocks; errors as for `Vectors.fill_all`.
        """
        if vectors := self.search().vectors:
            vectors.fill_all(("notes",), seconds, max_notes)

    async def close(self) -> None:
        """Stop the update after the file that is being read, make the vectors of new notes, and
        close the index.
        """
        self._stopped.set()
        await asyncio.to_thread(self._finish_vectors_of_notes)
        with self._creation_lock:
            search, self._search = self._search, None
        if search and search.vectors:
            await asyncio.to_thread(search.vectors.embedder.close)
        if search:
            await asyncio.to_thread(search.index.close)

    def _finish_vectors_of_notes(self) -> None:
        """Make missing vectors of notes at the end of a session: after only one turn (`ouro -p`)
        the background has not made them.

        Nothing is done if the session had no turn, or had no search and no new notes. The local
        model makes the vectors in a process that is not waited for; a remote one makes at most
        CLOSE_NOTES in CLOSE_SECONDS, without an update of the sessions. A failure is logged.
        """
        if not self._has_turns:
            return
        was_index_used = self._search is not None
        if not was_index_used and not self._has_new_notes():
            return
        from ouro.memory.index.embeddings import LocalEmbedder  # imported late: few answers need it

        try:
            search = self.search()
            if search.vectors is None:
                return
            if isinstance(search.vectors.embedder, LocalEmbedder):
                if self._has_new_notes() or search.vectors.has_work():
                    self._start_process()
                return
            search.index.update(replace(self._sources(), sessions=None))
            self.fill_notes(CLOSE_SECONDS, CLOSE_NOTES)
        except (ModelError, SearchUnavailable) as error:
            log.warning("vectors of notes are made in the next session: %s", error)

    def _has_new_notes(self) -> bool:
        """Whether files of memory were written since this object was made. A file that is written
        is renamed into its folder, which changes the time of the folder.
        """
        folders = self._folders
        if folders is None:
            folders = [memory.path for memory in self._sources().memories]
        for folder in folders:
            for path in (folder, folder / "archive"):
                with suppress(OSError):
                    if path.stat().st_mtime >= self._made_at - _MTIME_MARGIN_SECONDS:
                        return True
        return False

    def _start_process(self) -> None:
        """Start the process that makes the vectors of notes and core lines."""
        from ouro.memory.index.vector_process import start_vector_process

        start_vector_process(self._path, replace(self._sources(), sessions=None))

    async def _make_vectors(self) -> None:
        """Make missing vectors. The local model makes them in a process of its own, which is
        started after some seconds without another turn; a remote model is asked here.
        """
        from ouro.memory.index.embeddings import LocalEmbedder  # imported late: few answers need it

        vectors = self._search.vectors if self._search else None
        if vectors is None or not isinstance(vectors.embedder, LocalEmbedder):
            await self._make_vectors_here()
            return
        await asyncio.sleep(IDLE_SECONDS)
        if not self._is_update_requested and await asyncio.to_thread(vectors.has_work):
            await asyncio.to_thread(self._start_process)

    async def _make_vectors_here(self) -> None:
        """Make all missing vectors in small batches. After each there is a pause as long as it
        took, to leave the CPU to the user. At the end the signs of all vectors are loaded, for the
        first search. A failure ends this: the missing vectors are made another time.
        """
        while self._search and (vectors := self._search.vectors) and not self._stopped.is_set():
            started = time.monotonic()
            try:
                if not await asyncio.to_thread(vectors.fill, _BATCH_VECTORS):
                    await asyncio.to_thread(vectors.store_signs)
                    await asyncio.to_thread(vectors.load_all_signs)
                    return
            except ModelError:
                return  # the embedder has logged it
            except SearchUnavailable as error:
                log.warning("vectors are made later: %s", error)
                return
            await asyncio.sleep(time.monotonic() - started)
