"""Index: sessions and memory in SQLite, for searching; its file and its updates. The index is
derived data and may be deleted.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ouro.errors import SearchUnavailable, SessionError
from ouro.memory.index.memory_folder import (
    MemoryFolder,
    is_fully_indexed,
    is_state_indexed,
    mark_fully_indexed,
)
from ouro.memory.index.schema import (
    NOTES_BY_FILTER,
    VERSION,
    VERSION_WITHOUT_SEARCH_WORDS,
    add_search_words,
    make_tables,
)
from ouro.memory.index.words import findable
from ouro.utils.files import describe_newer_ouro, lock_file
from ouro.utils.log import log
from ouro.utils.ouro_paths import ensure_private_dir

if TYPE_CHECKING:
    from ouro.memory.long_term.scope import ScopeMemory
    from ouro.memory.long_term.store import GitMemoryStore

_FIRST_VERSION_WITH_MODELS = 5
"""Earlier versions stored the name of the model with each vector."""
WAIT_SECONDS = 5.0
"""Seconds that a statement waits for another process."""
_ERRORS_WITHOUT_DAMAGE = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
}
"""Errors caused by the disk or another process. They are no reason to set the index aside, which
would lose vectors.
"""
Progress = Callable[[int, int], None]
"""Called with the number of finished files, and the total."""
_IndexStep = Callable[[sqlite3.Connection], bool | None]
"""Indexes a portion of a file; returns whether more of it is left."""


class Sources(msgspec.Struct, frozen=True):
    """The files that the index is made from."""

    sessions: Path | None = None
    """The folder of the sessions; None: no sessions are indexed."""
    memories: tuple[MemoryFolder, ...] = ()

    @classmethod
    def of_notes(cls, stores: Iterable[GitMemoryStore]) -> Sources:
        """Returns the memory folders of these stores as sources, without sessions."""
        return cls(memories=tuple(MemoryFolder.of(store) for store in stores))

    @classmethod
    def of_scopes(cls, scopes: Iterable[ScopeMemory]) -> Sources:
        """Returns the memory folders of these scopes as sources, without sessions. Their files were
        listed just now, so that unchanged folders are not looked at again.
        """
        folders = (MemoryFolder.of(scope.store, scope.loaded) for scope in scopes)
        return cls(memories=tuple(folders))


class IndexState(msgspec.Struct, frozen=True):
    """The size of the index in bytes, and the number of rows by table."""

    path: str
    size: int
    rows: dict[str, int]


class Index:
    """Sessions and memory in one SQLite file: one object per process, opened at first use. Every
    method may block: call it from a thread.

    Reads and writes have separate connections, so that a search does not wait for an update.

    Raises:
        SearchUnavailable: every method raises it if the index cannot be read or written now. A
            broken index was set aside, and `update` builds it again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        self._reader_lock = threading.RLock()
        self._writer_lock = threading.RLock()
        self._inode = 0
        """The inode of the file that is open: another one means that the file was replaced."""

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection for reading, which only this thread uses inside the context. The
        index is opened first if it is not. Raises SearchUnavailable.

        An index in memory has only one connection, which is the writer too, under the same lock.
        """
        with self._reader_lock:
            try:
                if self._reader is None:
                    self._reader = open_index(self._path)
                    self._inode = _inode(self._path)
                    if _is_in_memory(self._reader):
                        self._writer, self._writer_lock = self._reader, self._reader_lock
                yield self._reader
            except sqlite3.Error as error:
                self._set_aside_if_broken(error)
                raise SearchUnavailable(
                    f"The index cannot be read just now: {error}.", "Ask again."
                ) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection for writing, in one transaction: it is committed at the end of the
        context, and rolled back after an exception. Keep it short. Raises SearchUnavailable.
        """
        self._open_writer()
        try:
            # Without the lock of the reader: searches do not wait for this transaction.
            with self._writer_lock:
                writer = self._writer
                if writer is None:  # another thread has closed the index just now
                    raise SearchUnavailable("The index was closed.", "Try again.")
                with _transaction(writer):
                    yield writer
        except sqlite3.Error as error:
            # After the lock is free: to set the index aside takes both locks, the reader's first.
            self._set_aside_if_broken(error)
            raise SearchUnavailable(
                f"The index cannot be written just now: {error}.", "Try again."
            ) from error

    def _open_writer(self) -> None:
        """Open the connection for writing if it is not open. It opens the reader first: that
        decides whether the index is in memory, and which lock protects the writer.
        """
        with self.reading(), self._writer_lock:
            if self._writer is None:
                self._writer = open_index(self._path)

    def update(self, sources: Sources, progress: Progress | None = None) -> int:
        """Index the files of the sources that have changed; returns their number. With sessions it
        waits up to `WAIT_SECONDS` for another process that indexes sessions. Raises
        SearchUnavailable if that takes longer, or if the index cannot be written.
        """
        self.build_id()  # opens the index, so that its folder exists
        if sources.sessions is None:
            return self._update_files(sources, progress)
        # An index in memory, without a folder, has no other process to wait for.
        has_folder = self._path.parent.is_dir()
        feed_lock = lock_index(Path(f"{self._path}.feed")) if has_folder else nullcontext()
        try:
            with feed_lock:
                return self._update_files(sources, progress)
        except OSError as error:
            if isinstance(error, BlockingIOError):
                raise SearchUnavailable(
                    "Another process is writing the index.", "Try again."
                ) from error
            raise SearchUnavailable(f"The index cannot be written: {error}.") from error

    def build_id(self) -> str:
        """Returns an id of the index, which is new after each rebuild. If the file was deleted or
        replaced, the index is opened again, and made if it is missing.
        """
        with self.reading() as database:
            is_same_file = _is_in_memory(database) or _inode(self._path) == self._inode
            if is_same_file:
                (made,) = database.execute("SELECT value FROM facts WHERE name = 'made'").fetchone()
                return str(made)
        self.close()
        return self.build_id()  # opens it again

    def rebuild(self, sources: Sources, progress: Progress | None = None) -> int:
        """Make the index again from the files; returns their number. Vectors of texts that are
        still in it are kept.
        """
        with self.writing() as database:
            make_tables(database)
        count = self.update(sources, progress)
        with self.writing() as database:
            used_hashes = "SELECT hash FROM messages UNION SELECT hash FROM notes"
            database.execute(f"DELETE FROM vectors WHERE hash NOT IN ({used_hashes})")
        return count

    def add_missing_sql_indexes(self) -> None:
        """Make what an index of an earlier version of ouro lacks and a search can do without."""
        with self.writing() as database:
            database.execute(NOTES_BY_FILTER)

    def state(self) -> IndexState:
        """Returns the path, the size and the number of rows of the index. Core lines are counted as
        `core`, and not as `notes`.
        """
        tables = (
            "sessions",
            "messages",
            "outputs",
            "notes",
            "entities",
            "edges",
            "relations",
            "vectors",
            "core",
        )
        with self.reading() as database:
            counts = ", ".join(f"(SELECT count(*) FROM {name})" for name in tables)
            rows = dict(zip(tables, database.execute(f"SELECT {counts}").fetchone(), strict=True))
            files = [Path(f"{self._path}{ending}") for ending in ("", "-wal")]
            size = sum(file.stat().st_size for file in files if file.exists())
        rows["notes"] -= rows["core"]
        return IndexState(str(self._path), size, rows)

    def changed_sessions(self, root: Path) -> frozenset[str]:
        """Returns the names of the session folders in `root` that are not up to date in the
        index.
        """
        from ouro.memory.index.session_indexer import changed_sessions

        files = _status_of_sessions(root)  # before the lock: others can read meanwhile
        with self.reading() as database:
            changed, _deleted = changed_sessions(database, files)
            return frozenset(changed)

    def session_projects(self) -> list[str]:
        """Returns the folders of the projects that have sessions in the index."""
        with self.reading() as database:
            rows = database.execute("SELECT DISTINCT project FROM sessions WHERE project <> ''")
            return [project for (project,) in rows]

    def close(self) -> None:
        """Close both connections. The next use opens them again."""
        with self._reader_lock, self._writer_lock:
            for connection in (self._reader, self._writer):
                if connection is not None:
                    connection.close()
            self._reader = self._writer = None

    def _update_files(self, sources: Sources, progress: Progress | None) -> int:
        """Index the changed files; returns their number. Each portion of a file is a transaction.
        No other process may index sessions meanwhile.
        """
        steps = deque(self._find_steps(sources))
        count = len(steps)
        while steps:
            if progress:
                progress(count - len(steps), count)
            try:
                with self.writing() as database:
                    has_more = steps[0](database)
                if not has_more:
                    steps.popleft()
            except (ValueError, OverflowError) as error:
                # An error in one file does not stop the others.
                log.warning("not searched: %s: %s", steps.popleft(), error)
        self._mark_fully_indexed(sources.memories)
        if progress:
            progress(count, count)
        return count

    def _mark_fully_indexed(self, folders: Iterable[MemoryFolder]) -> None:
        """Record that the index has all files of these folders in their known state.

        First it is read what is recorded already: a transaction that writes nothing would still
        wait for other processes that write.
        """
        with self.reading() as database:
            unmarked = [
                folder
                for folder in folders
                if folder.state and not is_fully_indexed(database, folder)
            ]
        if unmarked:
            with self.writing() as database:
                for folder in unmarked:
                    mark_fully_indexed(database, folder)

    def _find_steps(self, sources: Sources) -> Iterator[_IndexStep]:
        """Yield what is to be done for each changed or deleted file, as functions that are called
        in a transaction of their own.
        """
        files = _status_of_sessions(sources.sessions)  # before the lock: others can read meanwhile
        with self.reading() as database:
            if sources.sessions is not None:
                yield from _session_steps(database, sources.sessions, files)
            for memory in sources.memories:
                if not is_fully_indexed(database, memory):
                    yield from _memory_steps(database, memory)

    def _set_aside_if_broken(self, error: sqlite3.Error) -> None:
        """Set the index aside if an error shows that it is broken. A locked index and an error in a
        statement do not show that; an error of the disk does if the whole file cannot be read after
        it, too.
        """
        is_disk_error = "disk I/O" in str(error)
        if isinstance(error, sqlite3.OperationalError) and not is_disk_error:
            return
        log.warning("the index cannot be used: %s", error)
        self.close()
        try:
            with lock_index(self._path):
                # A disk may be full or away for a moment; to make all vectors again costs money.
                if not (is_disk_error and _is_whole(self._path)):
                    set_aside(self._path)
        except OSError as lock_error:
            log.warning("the index cannot be set aside: %s", lock_error)


class ReadOnlyIndex(Index):
    """The index that other processes keep: here it is neither made, completed, written nor set aside."""

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with self._reader_lock:
            try:
                if self._reader is None:
                    self._reader = _open_to_read(self._path)
                yield self._reader
            except sqlite3.Error as error:
                raise SearchUnavailable(f"The index cannot be read: {error}.") from error

    def _open_writer(self) -> None:
        raise SearchUnavailable("The index is only read here.")

    def has_all(self, states: Mapping[str, str]) -> bool:
        """Whether all files of memory folders are in the index, by the path of each folder and its
        state (`MemoryFolder.state`).
        """
        with self.reading() as database:
            return all(is_state_indexed(database, *folder) for folder in states.items())


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Run the context in a transaction: commit it at the end, roll it back after an exception."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")


def _session_steps(
    database: sqlite3.Connection, root: Path, files: Mapping[str, os.stat_result]
) -> Iterator[_IndexStep]:
    """Yield the steps for the changed and deleted ones of the session files."""
    from ouro.memory.index.session_indexer import changed_sessions, feed_session, remove_session

    changed, deleted = changed_sessions(database, files)
    yield from (partial(remove_session, folder=folder) for folder in deleted)
    yield from (partial(feed_session, root=root, folder=folder) for folder in changed)


def _memory_steps(database: sqlite3.Connection, memory: MemoryFolder) -> Iterator[_IndexStep]:
    """Yield the steps for the changed and deleted files of a memory folder."""
    from ouro.memory.index.memory_file_indexer import changed_files, index_memory_file, remove_file

    changed, deleted = changed_files(database, memory)
    yield from (partial(remove_file, path=path) for path in deleted)
    yield from (partial(index_memory_file, folder=memory, path=path) for path in changed)


def _status_of_sessions(root: Path | None) -> dict[str, os.stat_result]:
    """Returns the status of each session file by the name of its folder; empty without `root`, or
    if it cannot be read.
    """
    if root is None:
        return {}
    from ouro.memory.sessions.session_folders import session_files

    with suppress(SessionError):  # the list of sessions reports it
        return session_files(root)
    return {}


def _inode(path: Path) -> int:
    """Returns the inode of a file; 0 if there is none."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _is_in_memory(database: sqlite3.Connection) -> bool:
    """Whether the database has no file, because the file could not be used."""
    (file,) = database.execute(
        "SELECT file FROM pragma_database_list WHERE name = 'main'"
    ).fetchone()
    return not file


def open_index(path: Path) -> sqlite3.Connection:
    """Open the index at `path`, and make it if it is missing. A broken one, or one of an earlier
    version, is set aside first; its vectors are copied.

    If the file cannot be used, the index is in memory, for this process only. Raises
    SearchUnavailable if a newer ouro has made it.
    """
    try:
        ensure_private_dir(path.parent)
        with lock_index(path):
            if path.is_symlink() or (path.exists() and not path.is_file()):
                raise OSError(f"{path} is not a file that ouro made")
            if path.exists() and not _is_usable(path):
                set_aside(path)
            if path.exists():
                return _connect(str(path))
            _create_private_file(path)
            database = _create_index(str(path))
            _copy_vectors(database, Path(f"{path}.aside"))
            return database
    except (OSError, sqlite3.Error) as error:
        log.warning("the index %s cannot be used (%s): one in memory is used", path, error)
        return _create_index(":memory:")


def _open_to_read(path: Path) -> sqlite3.Connection:
    """Open the index only to read it. Raises SearchUnavailable if it is of another version, and
    sqlite3.Error if it is missing or broken.
    """
    name = f"{path.as_uri()}?mode=ro"
    database = sqlite3.connect(name, uri=True, isolation_level=None, check_same_thread=False)
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version != VERSION:
        database.close()
        raise SearchUnavailable(f"The index is of version {version}.")
    database.execute("PRAGMA cache_size = -16000")
    return database


def _create_private_file(path: Path) -> None:
    """Create an empty file that only the user can read. SQLite would make one that others can read.
    Raises OSError if it exists.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(path, flags, 0o600))


def lock_index(path: Path) -> AbstractContextManager[object]:
    """Returns the lock of the file `path`, with which only one process makes an index or sets it
    aside. It raises OSError if it is not free within WAIT_SECONDS.
    """
    return lock_file(Path(f"{path}.lock"), timeout=WAIT_SECONDS)


def _copy_vectors(database: sqlite3.Connection, aside: Path) -> None:
    """Copy the vectors from the index that was set aside (`aside`), if there is one: they may have
    cost money. A failure is logged.
    """
    if not aside.is_file():
        return
    try:
        database.execute("ATTACH ? AS aside", (str(aside),))
        (version,) = database.execute("PRAGMA aside.user_version").fetchone()
        if version < _FIRST_VERSION_WITH_MODELS:
            database.execute(
                "INSERT INTO main.models (name, length, used) SELECT DISTINCT model, length(vector)"
                " / 2, date('now') FROM aside.vectors"
            )
            database.execute(
                "INSERT INTO main.vectors SELECT hash, models.id, vector FROM aside.vectors AS old"
                " JOIN main.models ON models.name = old.model AND models.length ="
                " length(old.vector) / 2"
            )
            return
        database.execute("INSERT INTO main.models SELECT id, name, length, used FROM aside.models")
        database.execute("INSERT INTO main.vectors SELECT hash, model, vector FROM aside.vectors")
    except sqlite3.Error as error:
        log.warning("the vectors in %s are made again: %s", aside, error)
    finally:
        with suppress(sqlite3.Error):  # it was not attached
            database.execute("DETACH aside")


def _is_usable(path: Path) -> bool:
    """Whether the index can be read and has the tables of this version. Tables of the version
    before are completed.

    Raises:
        SearchUnavailable: a newer ouro made it.
        OperationalError: it cannot be read because of the disk or another process, and may be
            usable.
    """
    try:
        with closing(_connect(str(path))) as database:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version > VERSION:
                raise SearchUnavailable(
                    *describe_newer_ouro(str(path), _read_ouro_version(database))
                )
            database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            if version == VERSION_WITHOUT_SEARCH_WORDS:
                database.execute("BEGIN IMMEDIATE")
                add_search_words(database)
                database.execute("COMMIT")
                version = VERSION
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in _ERRORS_WITHOUT_DAMAGE:
            raise
        return False
    except sqlite3.DatabaseError:
        return False
    return bool(version == VERSION)


def _is_whole(path: Path) -> bool:
    """Whether every page of the index can be read, and is as SQLite expects it."""
    try:
        name = f"{path.as_uri()}?mode=rw"  # without it a missing file would be made
        with closing(sqlite3.connect(name, uri=True, timeout=WAIT_SECONDS)) as database:
            return bool(database.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
    except sqlite3.Error:
        return False


def _read_ouro_version(database: sqlite3.Connection) -> str:
    """Returns the version of ouro that made the tables; empty if it is not recorded."""
    with suppress(sqlite3.Error):
        row = database.execute("SELECT value FROM facts WHERE name = 'ouro'").fetchone()
        return str(row[0]) if row else ""
    return ""


def set_aside(path: Path) -> None:
    """Rename an unusable index to `PATH.aside`. One that was set aside before is replaced."""
    log.warning("the index %s is set aside and made again", path)
    for ending in ("-wal", "-shm"):
        Path(f"{path}{ending}").unlink(missing_ok=True)
    if path.exists():
        path.replace(f"{path}.aside")


def _create_index(path: str) -> sqlite3.Connection:
    """Create an index with empty tables, and open it; `path` may be `:memory:`."""
    database = _connect(path)
    database.execute("BEGIN IMMEDIATE")
    make_tables(database)
    database.execute("COMMIT")
    return database


def _connect(path: str) -> sqlite3.Connection:
    """Open a connection with ouro's settings, which any thread may use."""
    database = sqlite3.connect(
        path, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        database.execute("PRAGMA journal_mode = WAL")
        # What a power loss destroys is made again from the files.
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("PRAGMA secure_delete = ON")
        database.execute("PRAGMA cache_size = -16000")
        database.execute("PRAGMA trusted_schema = ON")  # so that the triggers may call this:
        database.create_function("findable", 1, findable, deterministic=True)
    except sqlite3.Error:
        database.close()
        raise
    return database
