"""Index: sessions and memory in SQLite, for searching; its tables and its file. The index is
derived data and may be deleted.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ouro import __version__
from ouro.errors import SearchUnavailable, SessionError
from ouro.memory.index.indexers import (
    MemoryFolder,
    changed_files,
    changed_sessions,
    feed_session,
    index_memory_file,
    is_fully_indexed,
    mark_fully_indexed,
    remove_file,
    remove_session,
)
from ouro.memory.index.query import findable
from ouro.memory.sessions.session_folders import session_files
from ouro.utils.files import lock_file, newer_ouro
from ouro.utils.log import log
from ouro.utils.ouro_paths import ensure_private_dir

if TYPE_CHECKING:
    from ouro.memory.long_term.scope import ScopeMemory
    from ouro.memory.long_term.store import GitMemoryStore

VERSION = 5
"""The version of the tables; an index of an earlier version is rebuilt from the files."""
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
_TOKENIZER = "tokenize = 'porter unicode61 remove_diacritics 2'"
_KEPT_TABLES = (
    (
        "CREATE TABLE IF NOT EXISTS vectors (hash INTEGER NOT NULL, model INTEGER NOT NULL, vector"
        " BLOB NOT NULL, PRIMARY KEY (model, hash)) WITHOUT ROWID"
    ),
    (
        "CREATE TABLE IF NOT EXISTS models (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT"
        " NULL, length INTEGER NOT NULL, used TEXT NOT NULL, UNIQUE (name, length))"
    ),
    "CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
)
"""Tables that stay when the index is rebuilt: vectors may have cost money."""
_REBUILT_TABLES = (
    """CREATE TABLE sessions (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, folder TEXT NOT NULL UNIQUE, project TEXT NOT NULL,
    title TEXT NOT NULL DEFAULT '', summary TEXT NOT NULL DEFAULT '', model TEXT NOT NULL DEFAULT '',
    created_at TEXT NOT NULL DEFAULT '', updated_at TEXT NOT NULL DEFAULT '', messages INTEGER NOT NULL DEFAULT 0,
    passages INTEGER NOT NULL DEFAULT 0, outputs INTEGER NOT NULL DEFAULT 0,
    size INTEGER NOT NULL, mtime INTEGER NOT NULL, read INTEGER NOT NULL, hash BLOB NOT NULL)""",
    "CREATE INDEX sessions_by_id ON sessions (id)",
    """CREATE TABLE messages (
    id INTEGER PRIMARY KEY, session INTEGER NOT NULL, number INTEGER NOT NULL, role TEXT NOT NULL, at TEXT NOT NULL,
    text TEXT NOT NULL, hash INTEGER NOT NULL, stamp INTEGER)""",
    "CREATE INDEX messages_by_stamp ON messages (stamp)",
    """CREATE TABLE outputs (
    id INTEGER PRIMARY KEY, session INTEGER NOT NULL, number INTEGER NOT NULL, role TEXT NOT NULL, at TEXT NOT NULL,
    text TEXT NOT NULL)""",
    """CREATE TABLE files (
    path TEXT PRIMARY KEY, folder TEXT NOT NULL, scope TEXT NOT NULL, project TEXT NOT NULL,
    size INTEGER NOT NULL, mtime INTEGER NOT NULL, hash BLOB NOT NULL)""",
    """CREATE TABLE notes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL, kind TEXT NOT NULL, note TEXT NOT NULL,
    line INTEGER NOT NULL, scope TEXT NOT NULL, project TEXT NOT NULL, category TEXT NOT NULL, text TEXT NOT NULL,
    at TEXT NOT NULL, confidence REAL NOT NULL, source TEXT NOT NULL, branch TEXT NOT NULL, session TEXT NOT NULL,
    turn INTEGER NOT NULL, supersedes TEXT NOT NULL, archived INTEGER NOT NULL, hash INTEGER NOT NULL,
    stamp INTEGER)""",
    "CREATE INDEX notes_by_path ON notes (path)",
    "CREATE INDEX notes_by_note ON notes (note)",
    "CREATE INDEX notes_by_supersedes ON notes (supersedes)",
    "CREATE INDEX notes_by_stamp ON notes (stamp)",
    (
        "CREATE TABLE entities (entity TEXT NOT NULL, note INTEGER NOT NULL, PRIMARY KEY (entity,"
        " note)) WITHOUT ROWID"
    ),
    "CREATE INDEX entities_by_note ON entities (note)",
    (
        "CREATE TABLE edges (note TEXT NOT NULL, relationship TEXT NOT NULL, other TEXT NOT NULL,"
        " path TEXT NOT NULL)"
    ),
    "CREATE INDEX edges_by_note ON edges (note)",
    "CREATE INDEX edges_by_other ON edges (other)",
    "CREATE INDEX edges_by_path ON edges (path)",
    (
        "CREATE TABLE anchors (note TEXT NOT NULL, file TEXT NOT NULL, blob TEXT NOT NULL, path"
        " TEXT NOT NULL)"
    ),
    "CREATE INDEX anchors_by_path ON anchors (path)",
    (
        "CREATE TABLE relations (source TEXT NOT NULL, relation TEXT NOT NULL, target TEXT NOT"
        " NULL, path TEXT NOT NULL)"
    ),
    "CREATE INDEX relations_by_source ON relations (source)",
    "CREATE INDEX relations_by_target ON relations (target)",
    "CREATE INDEX relations_by_path ON relations (path)",
    "CREATE VIEW core AS SELECT * FROM notes WHERE kind = 'core'",
)
"""`notes` holds notes and the lines of core files. `outputs` is a separate table, so that recall
never reads tool outputs. `anchors` are the files that a note names, with the git hash of their
content at that time.

`stamp` is a rising number that a row gets with its vector: rows without one still need a vector,
and rows with a higher one than the last seen are new. It is for the model in `facts`; `vectors`
also has vectors of other `models`. If a model returns vectors of another length, it counts as
another model. `used` is the day of its last use.
"""


def _word_index_statements(table: str) -> tuple[str, ...]:
    """The statements that make the word index of a table's `text`; triggers keep it up to date."""
    index_name = f"{table}_words"
    return (
        (
            f"CREATE VIRTUAL TABLE {index_name} USING fts5(text, content = '{table}', content_rowid ="
            f" 'id', {_TOKENIZER})"
        ),
        (
            f"CREATE TRIGGER {table}_added AFTER INSERT ON {table} BEGIN"
            f" INSERT INTO {index_name} (rowid, text) VALUES (new.id, findable(new.text)); END"
        ),
        (
            f"CREATE TRIGGER {table}_removed AFTER DELETE ON {table} BEGIN INSERT INTO {index_name}"
            f" ({index_name}, rowid, text) VALUES ('delete', old.id, findable(old.text)); END"
        ),
    )


_SCHEMA = (
    *_KEPT_TABLES,
    *_REBUILT_TABLES,
    *(line for table in ("messages", "outputs", "notes") for line in _word_index_statements(table)),
)

Progress = Callable[[int, int], None]
"""Called with the number of finished files, and the total."""
_IndexStep = Callable[[sqlite3.Connection], bool | None]
"""Indexes a portion of a file; returns whether more of it is left."""


class Sources(msgspec.Struct, frozen=True):
    """The files that the index is made from."""

    sessions: Path | None = None
    memories: tuple[MemoryFolder, ...] = ()

    @classmethod
    def of_notes(cls, stores: Iterable[GitMemoryStore]) -> Sources:
        """The memory folders of these stores, without sessions."""
        return cls(memories=tuple(MemoryFolder.of(store) for store in stores))

    @classmethod
    def of_scopes(cls, scopes: Iterable[ScopeMemory]) -> Sources:
        """The memory folders of these scopes, whose files were listed just now."""
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
        SearchUnavailable: every method raises it if the index cannot be read or written now. A broken index was set
        aside, and `update` builds it again.
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
        """The connection for reading, which this thread has alone inside. Raises SearchUnavailable.

        An index in memory has only one connection: it then is the writer too, under the same lock.
        """
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
                raise SearchUnavailable(
                    f"The index cannot be read just now: {error}.", "Ask again."
                ) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The connection for writing, in one transaction: committed at the end, rolled back after
        an exception. Keep it short. Raises SearchUnavailable.
        """
        self._open_writer()
        try:
            # The lock of the reader is free again: searches do not wait for this transaction.
            with self._writing:
                writer = self._writer
                if writer is None:  # another thread has closed the index just now
                    raise SearchUnavailable("The index was closed.", "Try again.")
                with _transaction(writer):
                    yield writer
        except sqlite3.Error as error:
            # After the lock: setting the index aside takes both locks, the reader's first.
            self._set_aside_if_broken(error)
            raise SearchUnavailable(
                f"The index cannot be written just now: {error}.", "Try again."
            ) from error

    def _open_writer(self) -> None:
        """Open the connection for writing if it is not open. It opens the reader first: that
        decides whether the index is in memory, and which lock protects the writer.
        """
        with self.reading(), self._writing:
            if self._writer is None:
                self._writer = open_index(self._path)

    def update(self, sources: Sources, progress: Progress | None = None) -> int:
        """Index the changed files; returns their number. If these are sessions, it waits until no
        other process indexes sessions.
        """
        self.build_id()  # opens the index, so that its folder exists
        if sources.sessions is None:
            return self._update_alone(sources, progress)
        # An index in memory, without a folder, has no other process to wait for.
        has_folder = self._path.parent.is_dir()
        feed_lock = lock_index(Path(f"{self._path}.feed")) if has_folder else nullcontext()
        try:
            with feed_lock:
                return self._update_alone(sources, progress)
        except OSError as error:
            if isinstance(error, BlockingIOError):
                raise SearchUnavailable(
                    "Another process is writing the index.", "Try again."
                ) from error
            raise SearchUnavailable(f"The index cannot be written: {error}.") from error

    def build_id(self) -> str:
        """An id of the index, new after each rebuild. A deleted index is created empty."""
        with self.reading() as database:
            was_deleted = not _is_in_memory(database) and _inode(self._path) != self._inode
            if not was_deleted:
                return str(
                    database.execute("SELECT value FROM facts WHERE name = 'made'").fetchone()[0]
                )
        self.close()
        return self.build_id()

    def rebuild(self, sources: Sources, progress: Progress | None = None) -> int:
        """Rebuild the index from the files, keeping vectors. Returns the number of files."""
        with self.writing() as database:
            make_tables(database)
        count = self.update(sources, progress)
        with self.writing() as database:
            used_hashes = "SELECT hash FROM messages UNION SELECT hash FROM notes"
            database.execute(f"DELETE FROM vectors WHERE hash NOT IN ({used_hashes})")
        return count

    def state(self) -> IndexState:
        """The path, size and number of rows of the index. Notes are counted without core lines."""
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
        """The folders of sessions in `root` that are not up to date in the index."""
        files = _status_of_sessions(root)  # before the lock: others can read meanwhile
        with self.reading() as database:
            changed, _deleted = changed_sessions(database, files)
            return frozenset(changed)

    def session_projects(self) -> list[str]:
        """The projects that have indexed sessions."""
        with self.reading() as database:
            return [
                row[0]
                for row in database.execute(
                    "SELECT DISTINCT project FROM sessions WHERE project <> ''"
                )
            ]

    def close(self) -> None:
        """Close both connections. The next use opens them again."""
        with self._reading, self._writing:
            for connection in {self._reader, self._writer} - {None}:
                connection.close()  # type: ignore[union-attr]
            self._reader = self._writer = None

    def _update_alone(self, sources: Sources, progress: Progress | None) -> int:
        """Index the changed files, one transaction for each portion; returns their number. No other
        process updates the index from sessions meanwhile.
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
            except (
                ValueError,
                OverflowError,
            ) as error:  # an error in one file does not stop the others
                log.warning("not searched: %s: %s", steps.popleft(), error)
        self._mark_fully_indexed(sources.memories)
        if progress:
            progress(count, count)
        return count

    def _mark_fully_indexed(self, folders: Iterable[MemoryFolder]) -> None:
        """Record that the index has all files of these folders in their known state.

        What is recorded already is read first: a transaction that writes nothing would still wait
        for other processes that write.
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
        """Yield what to do for each changed file, one transaction each."""
        files = _status_of_sessions(sources.sessions)  # before the lock: others can read meanwhile
        with self.reading() as database:
            if root := sources.sessions:
                changed, deleted = changed_sessions(database, files)
                yield from (partial(remove_session, folder=folder) for folder in deleted)
                yield from (partial(feed_session, root=root, folder=folder) for folder in changed)
            for memory in sources.memories:
                if is_fully_indexed(database, memory):
                    continue
                changed, deleted = changed_files(database, memory)
                yield from (partial(remove_file, path=path) for path in deleted)
                yield from (
                    partial(index_memory_file, folder=memory, path=path) for path in changed
                )

    def _set_aside_if_broken(self, error: sqlite3.Error) -> None:
        """Set a broken index aside; a locked index, or an error in a statement, changes nothing."""
        if isinstance(error, sqlite3.OperationalError) and "disk I/O" not in str(error):
            return
        log.warning("the index cannot be used: %s", error)
        self.close()
        try:
            with lock_index(self._path):
                set_aside(self._path)
        except OSError as lock_error:
            log.warning("the index cannot be set aside: %s", lock_error)


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Commit what is written inside; roll it back after an exception."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")


def _status_of_sessions(root: Path | None) -> dict[str, os.stat_result]:
    """The status of each session file by folder; none without `root`, or if it cannot be read."""
    with suppress(SessionError):  # the list of sessions reports it
        return session_files(root) if root else {}
    return {}


def _inode(path: Path) -> int:
    """The inode of a file; 0 if there is none."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _is_in_memory(database: sqlite3.Connection) -> bool:
    """Whether the database has no file, because the file could not be used."""
    return not database.execute(
        "SELECT file FROM pragma_database_list WHERE name = 'main'"
    ).fetchone()[0]


def make_tables(database: sqlite3.Connection) -> None:
    """Replace all tables with empty ones; vectors stay, because they took long to compute."""
    # The word indexes first: this also removes their inner tables.
    for pattern in (
        "%!_words",
        "%",
    ):
        old_tables = database.execute(
            "SELECT type, name FROM sqlite_schema WHERE type IN ('table', 'view') AND name LIKE ?"
            " ESCAPE '!' AND name NOT LIKE 'sqlite!_%' ESCAPE '!' AND name NOT IN ('vectors',"
            " 'models', 'facts')",
            (pattern,),
        ).fetchall()
        for kind, name in old_tables:
            database.execute(f"DROP {kind} {name}")
    for statement in _SCHEMA:
        database.execute(statement)
    database.execute("INSERT OR REPLACE INTO facts VALUES ('made', hex(randomblob(8)))")
    database.execute("INSERT OR REPLACE INTO facts VALUES ('ouro', ?)", (__version__,))
    database.execute(f"PRAGMA user_version = {VERSION}")


def open_index(path: Path) -> sqlite3.Connection:
    """Open the index at `path`. A broken one, or one of an earlier version, is set aside first.

    If it cannot be written, the index is in memory, for this process only. Raises
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
            os.close(
                os.open(
                    path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
                )
            )
            database = _create_index(str(path))
            _copy_vectors(database, Path(f"{path}.aside"))
            return database
    except (OSError, sqlite3.Error) as error:
        log.warning("the index %s cannot be used (%s): one in memory is used", path, error)
        return _create_index(":memory:")


def lock_index(path: Path) -> AbstractContextManager[object]:
    """Lock out other processes that make or set aside the index. Raises OSError if the lock is not
    free in time.
    """
    return lock_file(Path(f"{path}.lock"), timeout=WAIT_SECONDS)


def _copy_vectors(database: sqlite3.Connection, aside: Path) -> None:
    """Copy the vectors from the index that was set aside: they may have cost money."""
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
    """Whether the index can be read and has the tables of this version. Raises SearchUnavailable if
    a newer ouro made it, and OperationalError if the disk or another process is the reason.
    """
    try:
        with closing(_connect(str(path))) as database:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version > VERSION:
                raise SearchUnavailable(*newer_ouro(str(path), _read_ouro_version(database)))
            database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in _ERRORS_WITHOUT_DAMAGE:
            raise
        return False
    except sqlite3.DatabaseError:
        return False
    return bool(version == VERSION)


def _read_ouro_version(database: sqlite3.Connection) -> str:
    """The version of ouro that made the tables; empty if it is not recorded."""
    with suppress(sqlite3.Error):
        row = database.execute("SELECT value FROM facts WHERE name = 'ouro'").fetchone()
        return str(row[0]) if row else ""
    return ""


def set_aside(path: Path) -> None:
    """Rename an unusable index; only the last one is kept."""
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
        # After a power loss it is rebuilt from the files.
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("PRAGMA secure_delete = ON")
        database.execute("PRAGMA cache_size = -16000")
        database.execute("PRAGMA trusted_schema = ON")  # so that the triggers may call this:
        database.create_function("findable", 1, findable, deterministic=True)
    except sqlite3.Error:
        database.close()
        raise
    return database
