"""Index session files, core files and notes: what was appended to a session, and every other file
that has changed.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ouro.errors import SessionError
from ouro.memory.backend import MessageRecord, ModelRecord, SummaryRecord, TitleRecord
from ouro.memory.index.query import POSITION_BITS, content_hash, split_passages
from ouro.memory.long_term.git.files import is_note_name
from ouro.memory.long_term.git.values import CORE, LoadedScope, Scope
from ouro.memory.long_term.notes.entities import entities_in, normalize_entities, normalize_entity
from ouro.memory.long_term.notes.note import Note, is_core_line, parse_note
from ouro.memory.record_fields import BadRecordError
from ouro.memory.serialization import header_from
from ouro.memory.sessions.record_windows import (
    read_records,
)
from ouro.memory.sessions.session_file import (
    FILE_NAME,
    RawRecord,
    kind_of,
    open_private,
    read_range,
)
from ouro.memory.sessions.session_reader import parse_record
from ouro.memory.sessions.yaml_text import BadYamlError, load
from ouro.messages import Message, ToolCall, ToolReply
from ouro.utils.log import log
from ouro.utils.path_escapes import path_text, text_path

if TYPE_CHECKING:
    from ouro.memory.long_term.store import GitMemoryStore

_PORTION_BYTES = 1 << 20
"""Bytes to index in one transaction: about a second. With one transaction for a whole session of
100 MB, the end of a session waited two minutes.
"""
_MAX_REMOVED_ROWS = 2_000
"""Rows to remove in one transaction, for the same reason."""
_MAX_HASHED_WHOLE = 8 << 20
"""Of a file with more bytes only the end is hashed."""
_HASHED_END_BYTES = 64 << 10
_MAX_ROWS_OF_SESSION = (1 << POSITION_BITS) - 2
"""The most passages, or outputs, of one session: their number is a part of the id."""
_OUTPUT_HEAD = 600
"""Characters of a tool's output that can be searched for."""


class IndexedSession(msgspec.Struct):
    """A row of the table of sessions."""

    seq: int
    id: str
    folder: str
    project: str
    title: str = ""
    summary: str = ""
    model: str = ""
    created_at: str = ""
    updated_at: str = ""
    messages: int = 0
    passages: int = 0
    outputs: int = 0
    size: int = 0
    mtime: int = 0
    read: int = 0
    """The file is indexed up to this offset."""
    hash: bytes = b""
    """The hash of the bytes up to there: it shows whether a file was appended to or edited."""


_SESSION_COLUMNS = IndexedSession.__struct_fields__


def changed_sessions(
    database: sqlite3.Connection, files: Mapping[str, os.stat_result]
) -> tuple[list[str], list[str]]:
    """The folders of `session_files` to index, oldest first, and the deleted ones."""
    rows = database.execute("SELECT folder, size, mtime FROM sessions")
    indexed = {folder: (size, mtime) for folder, size, mtime in rows}
    changed = sorted(
        folder
        for folder, file in files.items()
        if indexed.get(folder) != (file.st_size, file.st_mtime_ns)
    )
    return changed, [folder for folder in indexed if folder not in files]


def remove_session(database: sqlite3.Connection, folder: str) -> bool:
    """Remove the next portion of a session; returns whether more is left."""
    row = database.execute("SELECT seq FROM sessions WHERE folder = ?", (folder,)).fetchone()
    if row is None:
        return False
    # A session that returns is read again.
    database.execute("UPDATE sessions SET hash = x'' WHERE seq = ?", row)
    first, last = row[0] << POSITION_BITS, ((row[0] + 1) << POSITION_BITS) - 1
    for table in ("messages", "outputs"):
        within = f"FROM {table} WHERE id BETWEEN ? AND ?"
        rest = database.execute(
            f"SELECT id {within} ORDER BY id LIMIT 1 OFFSET ?", (first, last, _MAX_REMOVED_ROWS)
        ).fetchone()
        database.execute(f"DELETE {within}", (first, rest[0] - 1 if rest else last))
        if rest:
            return True
    database.execute("DELETE FROM sessions WHERE seq = ?", row)
    return False


def feed_session(database: sqlite3.Connection, root: Path, folder: str) -> bool:
    """Index the next portion of a session; returns whether more is left. An unreadable file is
    skipped, and logged.
    """
    try:
        with open_private(root / folder, FILE_NAME, os.O_RDONLY) as descriptor:
            return _index_portion(database, folder, descriptor)
    except (OSError, SessionError, BadYamlError, BadRecordError) as error:
        log.warning("the session in %s is not searched: %s", root / folder, error)
        return False


def _index_portion(database: sqlite3.Connection, folder: str, descriptor: int) -> bool:
    """Index the records after those that were read, about `_PORTION_BYTES` bytes; returns whether more is
    left. A session whose file was edited is removed first.
    """
    status = os.fstat(descriptor)
    row = database.execute(
        f"SELECT {', '.join(_SESSION_COLUMNS)} FROM sessions WHERE folder = ?", (folder,)
    ).fetchone()
    session = IndexedSession(*row) if row else None
    if session is not None and not _was_only_appended_to(descriptor, status.st_size, session):
        if remove_session(database, folder):
            return True
        session = None
    begin, has_more = session.read if session else 0, False
    for block in read_records(descriptor, begin, status.st_size, window=_PORTION_BYTES):
        if has_more := block.offset >= begin + _PORTION_BYTES:
            break
        if session is None:
            session = _save_new_session(database, folder, block)
        else:
            _add_record(database, session, block)
        session.read = block.offset + block.size
    if session is not None:
        session.size = status.st_size
        session.mtime = 0 if has_more else status.st_mtime_ns  # 0: it counts as changed
        session.hash = _hash_start(descriptor, session.read)
        save_session(database, session)
    return has_more


def _was_only_appended_to(descriptor: int, size: int, session: IndexedSession) -> bool:
    """Whether a file begins with what was read of the session."""
    return size >= session.read and _hash_start(descriptor, session.read) == session.hash


def _save_new_session(
    database: sqlite3.Connection, folder: str, block: RawRecord
) -> IndexedSession:
    """Save a session with what its header says."""
    header = header_from(load(block.data) if block.is_whole else None)
    created_at = header.created_at
    session = IndexedSession(
        seq=0,
        id=header.id,
        folder=folder,
        project=header.project,
        model=header.model,
        created_at=created_at,
        updated_at=created_at,
    )
    save_session(database, session)
    return session


def save_session(database: sqlite3.Connection, session: IndexedSession) -> None:
    """Write the row of a session; a new one gets its `seq`."""
    values = (session.seq or None, *msgspec.structs.astuple(session)[1:])
    question = (
        f"INSERT OR REPLACE INTO sessions ({', '.join(_SESSION_COLUMNS)}) VALUES"
        f" ({', '.join('?' * len(values))})"
    )
    (session.seq,) = database.execute(f"{question} RETURNING seq", values).fetchone()


def _hash_start(descriptor: int, end: int) -> bytes:
    """A hash of the bytes up to `end`; of a long file only of the last ones."""
    start = 0 if end <= _MAX_HASHED_WHOLE else end - _HASHED_END_BYTES
    return hashlib.blake2b(read_range(descriptor, start, end), digest_size=16).digest()


_INDEXED_KINDS = ("message", "title", "summary", "model")
"""The kinds of records that are indexed."""


def _add_record(database: sqlite3.Connection, session: IndexedSession, block: RawRecord) -> None:
    """Index one record. An unreadable one is left out: it is reported when the session is opened."""
    record = parse_record(block) if kind_of(block) in _INDEXED_KINDS else None
    match record:
        case MessageRecord(number, at, message):
            session.messages += 1
            session.updated_at = max(session.updated_at, at)
            if message.role in ("user", "assistant"):
                add_words(database, session, number, message.role, at, message.text)
            _add_outputs(database, session, number, at, message)
        case TitleRecord(title):
            session.title = title
        case ModelRecord(model):
            session.model = model
        case SummaryRecord(summary):
            session.summary = summary


def add_words(
    database: sqlite3.Connection,
    session: IndexedSession,
    number: int,
    role: str,
    at: str,
    text: str,
) -> None:
    """Add the passages of a message to the word index."""
    start = (session.seq << POSITION_BITS) + session.passages + 1
    passages = split_passages(text)[: _MAX_ROWS_OF_SESSION - session.passages]
    session.passages += len(passages)
    rows = [
        (passage_id, session.seq, number, role, at, passage, content_hash(passage))
        for passage_id, passage in enumerate(passages, start)
    ]
    database.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, NULL)", rows)


def _add_outputs(
    database: sqlite3.Connection, session: IndexedSession, number: int, at: str, message: Message
) -> None:
    """Add the tool calls and results of a message to the table `outputs`."""
    texts = [(call.name, _searchable_text(call)) for call in message.parts_of(ToolCall)]
    texts += [(reply.name, reply.text[:_OUTPUT_HEAD]) for reply in message.parts_of(ToolReply)]
    for name, text in texts:
        if text.strip() and session.outputs < _MAX_ROWS_OF_SESSION:
            session.outputs += 1
            output_id = session.seq << POSITION_BITS | session.outputs
            row = (output_id, session.seq, number, name, at, text)
            database.execute("INSERT INTO outputs VALUES (?, ?, ?, ?, ?, ?)", row)


def _searchable_text(call: ToolCall) -> str:
    """The searchable text of a call: its short arguments (paths, commands, patterns), not file
    contents.
    """
    words = [
        value
        for value in call.arguments.values()
        if isinstance(value, str) and len(value) <= _OUTPUT_HEAD
    ]
    return " ".join(words)[:_OUTPUT_HEAD]


CORE_FILES = tuple(f"{category}.md" for category in CORE)
MAX_FILE = 1 << 20
"""Core files and notes with more bytes are not indexed."""


class MemoryFolder(msgspec.Struct, frozen=True):
    """One scope of long-term memory, as a folder of files."""

    scope: Scope
    project: str
    """The root of its repository; empty for the user's memory."""
    path: Path
    core: tuple[str, ...] = CORE_FILES
    state: str = ""
    """A text that changes whenever a file changes, if it is known: with the same one no file is
    looked at.
    """

    @classmethod
    def of(cls, store: GitMemoryStore, loaded: LoadedScope | None = None) -> MemoryFolder:
        """The folder of a store; `loaded`: its files, which were listed just now."""
        core_files = tuple(f"{name}.md" for name in store.core)
        return cls(
            scope=store.scope,
            project=project_of(store.folder) if store.scope == "repo" else "",
            path=store.folder,
            core=core_files,
            state="" if loaded is None else _digest((core_files, loaded.files)),
        )


def _digest(value: object) -> str:
    return hashlib.blake2b(msgspec.json.encode(value), digest_size=16).hexdigest()


def is_fully_indexed(database: sqlite3.Connection, folder: MemoryFolder) -> bool:
    """Whether the index has all files of this folder in their known state; False if the state is
    not known.
    """
    fact = database.execute("SELECT value FROM facts WHERE name = ?", (_fact_name(folder),))
    return bool(folder.state) and fact.fetchone() == (_state_in_index(database, folder),)


def mark_fully_indexed(database: sqlite3.Connection, folder: MemoryFolder) -> None:
    """Record that the index has all files of this folder in their present state."""
    values = (_fact_name(folder), _state_in_index(database, folder))
    database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", values)


def _fact_name(folder: MemoryFolder) -> str:
    """The name of the fact that says up to which state a folder is indexed."""
    return f"followed {path_text(folder.path)}"


def _state_in_index(database: sqlite3.Connection, folder: MemoryFolder) -> str:
    """The known state of a folder, with the id of the index: a rebuilt index has nothing of it yet."""
    (made,) = database.execute("SELECT value FROM facts WHERE name = 'made'").fetchone()
    return f"{made} {folder.state}"


def project_of(folder: Path) -> str:
    """The root of the repository that has this memory folder, one for all its worktrees."""
    return path_text(folder.parent.parent)


def changed_files(
    database: sqlite3.Connection, folder: MemoryFolder
) -> tuple[list[str], list[str]]:
    """The files of a memory folder to index, and the deleted ones, by full path."""
    indexed = set(
        database.execute(
            "SELECT path, size, mtime FROM files WHERE folder = ?", (path_text(folder.path),)
        )
    )
    present = set(_files_with_times(folder))
    changed = {path for path, _size, _mtime in present - indexed}
    return sorted(changed), sorted({path for path, _size, _mtime in indexed - present} - changed)


def _files_with_times(folder: MemoryFolder) -> Iterator[tuple[str, int, int]]:
    """The path, the size and the time of change of each note and core file."""
    for path in (folder.path, folder.path / "archive"):
        with suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                if is_note_name(entry.name) or (path == folder.path and entry.name in folder.core):
                    with suppress(OSError):  # another process has just removed it
                        status = entry.stat(follow_symlinks=False)
                        yield path_text(entry.path), status.st_size, status.st_mtime_ns


def remove_file(database: sqlite3.Connection, path: str) -> None:
    """Remove what was indexed of a core file or note."""
    database.execute(
        "DELETE FROM entities WHERE note IN (SELECT id FROM notes WHERE path = ?)", (path,)
    )
    for table in ("notes", "edges", "anchors", "relations", "files"):
        database.execute(f"DELETE FROM {table} WHERE path = ?", (path,))


def index_memory_file(database: sqlite3.Connection, folder: MemoryFolder, path: str) -> None:
    """Index one core file or note, if its content has changed. One that cannot be read or has over
    MAX_FILE bytes is skipped with a line in the log; of the latter the old rows are removed.
    """
    file = text_path(path)
    try:
        with open_private(file.parent, file.name, os.O_RDONLY) as descriptor:
            status = os.fstat(descriptor)
            data = read_range(descriptor, 0, min(status.st_size, MAX_FILE + 1))
    except (OSError, SessionError) as error:
        log.warning("%s is not searched: %s", path, error)
        return
    has_new_content = _record_file(database, folder, path, status, data)
    if not has_new_content:
        return
    if len(data) > MAX_FILE:
        log.warning("%s is not searched: it has over %d bytes", path, MAX_FILE)
        return
    text = data.decode("utf-8", "replace").replace("\x00", "")
    if file.name not in folder.core:
        _insert_note(database, folder, path, parse_note(file.name, text).note)
        return
    changed_at = datetime.fromtimestamp(status.st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    category = file.name.removesuffix(".md")
    for number, line in enumerate(text.splitlines(), 1):
        if is_core_line(line):
            note = Note(
                id=f"{file.name}:{number}",
                category=category,
                text=line.strip(),
                updated_at=changed_at,
            )
            _insert_note(database, folder, path, note, number)


def _record_file(
    database: sqlite3.Connection,
    folder: MemoryFolder,
    path: str,
    status: os.stat_result,
    data: bytes,
) -> bool:
    """Record the state of a file; returns whether its content is new, and what was indexed of it is
    removed.
    """
    digest = hashlib.blake2b(data, digest_size=16).digest()
    row = database.execute("SELECT hash FROM files WHERE path = ?", (path,)).fetchone()
    if row == (digest,):
        times = (status.st_size, status.st_mtime_ns, path)
        database.execute("UPDATE files SET size = ?, mtime = ? WHERE path = ?", times)
        return False
    remove_file(database, path)
    values = (
        path,
        path_text(folder.path),
        folder.scope,
        folder.project,
        status.st_size,
        status.st_mtime_ns,
        digest,
    )
    database.execute("INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?)", values)
    return True


def _insert_note(
    database: sqlite3.Connection, folder: MemoryFolder, path: str, note: Note, line: int = 0
) -> None:
    """Index a note, or the core line of this number, with its entities and links."""
    root = folder.project
    values = (
        path,
        "core" if line else "note",
        note.id,
        line,
        folder.scope,
        folder.project,
        note.category,
        note.text,
        note.updated_at or note.created_at,
        note.confidence,
        note.source,
        note.branch or "",
        note.session_id,
        note.turn,
        note.supersedes or "",
        Path(path).parent.name == "archive",
        content_hash(note.text),
    )
    placeholders = ", ".join("?" * len(values))
    (row_id,) = database.execute(
        f"INSERT INTO notes VALUES (NULL, {placeholders}, NULL) RETURNING id", values
    ).fetchone()
    if not line:
        # Notes written by hand list no entities. Tools in the text are left out: every second note
        # mentions one.
        named_in_text = (
            entity for entity in entities_in(note.text) if not entity.startswith("tool:")
        )
        entities = dict.fromkeys((*normalize_entities(note.entities, root), *named_in_text))
        database.executemany(
            "INSERT INTO entities VALUES (?, ?)", [(entity, row_id) for entity in entities]
        )
    _insert_links(database, path, note, root)


def _insert_links(database: sqlite3.Connection, path: str, note: Note, root: str) -> None:
    """Insert what a note points to: other notes, files, and relations of entities."""
    edges = [(note.id, edge.relationship, edge.id, path) for edge in note.related]
    database.executemany("INSERT INTO edges VALUES (?, ?, ?, ?)", edges)
    anchors = [(note.id, anchor.path, anchor.blob, path) for anchor in note.anchors]
    database.executemany("INSERT INTO anchors VALUES (?, ?, ?, ?)", anchors)
    relations = [
        (source, relation.rel, target, path)
        for relation in note.relations
        if (source := normalize_entity(relation.source, root))
        and (target := normalize_entity(relation.target, root))
    ]
    database.executemany("INSERT INTO relations VALUES (?, ?, ?, ?)", relations)
