"""Index: sessions and memory in SQLite, for searching. Derived; may be deleted."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ouro.errors import SearchUnavailable, SessionError
from ouro.memory.index.indexers import (
    MemoryFolder,
    changed_files,
    changed_sessions,
    feed_file,
    feed_session,
    remove_file,
    remove_session,
)
from ouro.memory.index.schema import make_tables, open_index, set_aside, writing_alone
from ouro.memory.sessions.session_folders import session_files
from ouro.utils.log import log

if TYPE_CHECKING:
    from ouro.memory.long_term.store import GitMemoryStore

Progress = Callable[[int, int], None]
"""Called with the number of finished files, and the total."""
_Step = Callable[[sqlite3.Connection], bool | None]
"""Returns whether more is left of its file."""


class Sources(msgspec.Struct, frozen=True):
    sessions: Path | None = None
    memories: tuple[MemoryFolder, ...] = ()

    @classmethod
    def of_notes(cls, stores: Iterable[GitMemoryStore]) -> Sources:
        """The memory folders of these stores, without sessions."""
        return cls(memories=tuple(map(MemoryFolder.of, stores)))


class IndexState(msgspec.Struct, frozen=True):
    path: str
    size: int
    """Bytes; 0 for an index in memory."""
    rows: dict[str, int]


class Index:
    """One per process, opened at first use. Every method may block: call it from a thread.

    Reads and writes have separate connections, so that a search does not wait for an update.

    Raises:
        SearchUnavailable: the index cannot be read or written just now; a broken one was set aside, and `follow` makes
            it again. From every method.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        self._reading = threading.RLock()
        self._writing = threading.RLock()
        self._inode = 0

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with self._reading:
            try:
                if self._reader is None:
                    self._reader = open_index(self._path)
                    self._inode = _inode(self._path)
                    if _is_in_memory(self._reader):
                        self._writer, self._writing = self._reader, self._reading
                yield self._reader
            except sqlite3.Error as error:
                self._set_aside_if_broken(error)
                raise SearchUnavailable(f"The index cannot be read just now: {error}.", "Ask again.") from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The tables for writing, in one short transaction."""
        with self.reading(), self._writing:
            if self._writer is None:
                self._writer = open_index(self._path)
        with self._writing:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                yield self._writer
                self._writer.execute("COMMIT")
            except sqlite3.Error as error:
                self._set_aside_if_broken(error)
                raise SearchUnavailable(f"The index cannot be written just now: {error}.", "Try again.") from error
            finally:
                if self._writer is not None and self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")

    def follow(self, sources: Sources, progress: Progress | None = None) -> int:
        """Update the index from the files; returns the number of changed files.

        Waits for another process that indexes sessions; notes alone need no wait.
        """
        self.made()  # opened, so that its folder is there
        if sources.sessions is None:
            return self._follow(sources, progress)
        try:
            with writing_alone(Path(f"{self._path}.feed")) if self._path.parent.is_dir() else nullcontext():
                return self._follow(sources, progress)
        except OSError as error:
            if isinstance(error, BlockingIOError):
                raise SearchUnavailable("Another process is writing the index.", "Try again.") from error
            raise SearchUnavailable(f"The index cannot be written: {error}.") from error

    def made(self) -> str:
        """An id of the index, new after each rebuild. A deleted index is created empty."""
        with self.reading() as database:
            was_deleted = not _is_in_memory(database) and _inode(self._path) != self._inode
            if not was_deleted:
                return str(database.execute("SELECT value FROM facts WHERE name = 'made'").fetchone()[0])
        self.close()
        return self.made()

    def rebuild(self, sources: Sources, progress: Progress | None = None) -> int:
        """Rebuild the index from the files, keeping vectors. Returns the number of files."""
        with self.writing() as database:
            make_tables(database)
        count = self.follow(sources, progress)
        with self.writing() as database:
            used = "SELECT hash FROM messages UNION SELECT hash FROM notes"
            database.execute(f"DELETE FROM vectors WHERE hash NOT IN ({used})")
        return count

    def state(self) -> IndexState:
        counted = ("sessions", "messages", "outputs", "notes", "entities", "edges", "relations", "vectors", "core")
        with self.reading() as database:
            counts = ", ".join(f"(SELECT count(*) FROM {name})" for name in counted)
            rows = dict(zip(counted, database.execute(f"SELECT {counts}").fetchone(), strict=True))
            files = [Path(f"{self._path}{ending}") for ending in ("", "-wal")]
            size = sum(file.stat().st_size for file in files if file.exists())
        rows["notes"] -= rows["core"]
        return IndexState(str(self._path), size, rows)

    def changed_sessions(self, root: Path) -> frozenset[str]:
        """The folders of sessions that changed since they were read."""
        found = _session_files(root)  # before the lock: others can read meanwhile
        with self.reading() as database:
            return frozenset(changed_sessions(database, found)[0])

    def session_projects(self) -> list[str]:
        """The folders in which the sessions of the index were held."""
        with self.reading() as database:
            return [row[0] for row in database.execute("SELECT DISTINCT project FROM sessions WHERE project <> ''")]

    def close(self) -> None:
        with self._reading, self._writing:
            for item in {self._reader, self._writer} - {None}:
                item.close()  # type: ignore[union-attr]
            self._reader = self._writer = None

    def _follow(self, sources: Sources, progress: Progress | None) -> int:
        steps = deque(self._steps(sources))
        count = len(steps)
        while steps:
            if progress:
                progress(count - len(steps), count)
            try:
                with self.writing() as database:
                    is_left = steps[0](database)
                if not is_left:
                    steps.popleft()
            except (ValueError, OverflowError) as error:  # an error in one file does not stop the others
                log.warning("not searched: %s: %s", steps.popleft(), error)
        if progress:
            progress(count, count)
        return count

    def _steps(self, sources: Sources) -> Iterator[_Step]:
        """What to do for each changed file, one transaction each."""
        found = _session_files(sources.sessions)  # before the lock: others can read meanwhile
        with self.reading() as database:
            if root := sources.sessions:
                changed, gone = changed_sessions(database, found)
                yield from (partial(remove_session, folder=folder) for folder in gone)
                yield from (partial(feed_session, root=root, folder=folder) for folder in changed)
            for memory in sources.memories:
                try:
                    changed, gone = changed_files(database, memory)
                except UnicodeEncodeError:  # a folder name that is not UTF-8
                    log.warning("not searched: %r", str(memory.path))
                    continue
                yield from (partial(remove_file, path=path) for path in gone)
                yield from (partial(feed_file, folder=memory, path=path) for path in changed)

    def _set_aside_if_broken(self, error: sqlite3.Error) -> None:
        """Set a broken index aside; a locked index, or an error in a statement, changes nothing."""
        if isinstance(error, sqlite3.OperationalError) and "disk I/O" not in str(error):
            return
        log.warning("the index cannot be used: %s", error)
        self.close()
        try:
            with writing_alone(self._path):
                set_aside(self._path)
        except OSError as trouble:
            log.warning("the index cannot be set aside: %s", trouble)


def _session_files(root: Path | None) -> dict[str, os.stat_result]:
    with suppress(SessionError):  # the list of sessions reports it
        return session_files(root) if root else {}
    return {}


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _is_in_memory(database: sqlite3.Connection) -> bool:
    return not database.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()[0]
