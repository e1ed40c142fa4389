"""Writes session files, core files and notes into the index: of a session what was appended since,
of other files those that have changed.
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
from ouro.memory.safe_yaml import BadYamlError, load
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
    """Returns two lists of session folders: those in `files` (as `session_files` returns them) that
    are to be indexed, oldest first; and those in the index that were deleted.
    """
    rows = database.execute("SELECT folder, size, mtime FROM sessions")
    indexed = {folder: (size, mtime) for folder, size, mtime in rows}
    changed = sorted(
        folder
        for folder, file in files.items()
        if indexed.get(folder) != (file.st_size, file.st_mtime_ns)
    )
    return changed, [folder for folder in indexed if folder not in files]


def remove_session(database: sqlite3.Connection, folder: str) -> bool:
    """Remove a session from the index, at most `_MAX_REMOVED_ROWS` rows. Returns True if rows are
    left: then the next call continues. False if all is removed, or the session is not in the index.
    """
    row = database.execute("SELECT seq FROM sessions WHERE folder = ?", (folder,)).fetchone()
    if row is None:
        return False
    # An empty hash fits no file. If the folder comes back before all its rows are removed, the
    # session counts as edited, and is read from its start.
    database.execute("UPDATE sessions SET hash = x'' WHERE seq = ?", row)
    (seq,) = row
    first, last = seq << POSITION_BITS, ((seq + 1) << POSITION_BITS) - 1
    for table in ("messages", "outputs"):
        within = f"FROM {table} WHERE id BETWEEN ? AND ?"
        # The first row after those that this call may remove; None if there are not so many.
        rest = database.execute(
            f"SELECT id {within} ORDER BY id LIMIT 1 OFFSET ?", (first, last, _MAX_REMOVED_ROWS)
        ).fetchone()
        database.execute(f"DELETE {within}", (first, rest[0] - 1 if rest else last))
        if rest:
            return True
    database.execute("DELETE FROM sessions WHERE seq = ?", row)
    return False


def feed_session(database: sqlite3.Connection, root: Path, folder: str) -> bool:
    """Index the next portion of the session in `folder` below `root`; returns whether more is left.
    A file that cannot be read is skipped, and logged.
    """
    try:
        with open_private(root / folder, FILE_NAME, os.O_RDONLY) as descriptor:
            return _index_portion(database, folder, descriptor)
    except (OSError, SessionError, BadYamlError, BadRecordError) as error:
        log.warning("the session in %s is not searched: %s", root / folder, error)
        return False


def _index_portion(database: sqlite3.Connection, folder: str, descriptor: int) -> bool:
    """Index the records of an open session file after those that were read before, about
    `_PORTION_BYTES`; returns whether more is left. A session whose file was edited is removed
    first.
    """
    status = os.fstat(descriptor)
    row = database.execute(
        f"SELECT {', '.join(_SESSION_COLUMNS)} FROM sessions WHERE folder = ?", (folder,)
    ).fetchone()
    session = IndexedSession(*row) if row else None
    if session is not None and not _was_only_appended_to(descriptor, status.st_size, session):
        is_more_to_remove = remove_session(database, folder)
        if is_more_to_remove:  # the next call continues
            return True
        session = None
    begin = session.read if session else 0
    has_more = False
    for raw_record in read_records(descriptor, begin, status.st_size, window=_PORTION_BYTES):
        if raw_record.offset >= begin + _PORTION_BYTES:
            has_more = True
            break
        if session is None:
            session = _save_new_session(database, folder, raw_record)
        else:
            _add_record(database, session, raw_record)
        session.read = raw_record.offset + raw_record.size
    if session is not None:
        session.size = status.st_size
        session.mtime = 0 if has_more else status.st_mtime_ns  # 0: it still counts as changed
        session.hash = _hash_start(descriptor, session.read)
        save_session(database, session)
    return has_more


def _was_only_appended_to(descriptor: int, size: int, session: IndexedSession) -> bool:
    """Whether a session file, of this size now, still begins with what was read of it."""
    return size >= session.read and _hash_start(descriptor, session.read) == session.hash


def _save_new_session(
    database: sqlite3.Connection, folder: str, raw_record: RawRecord
) -> IndexedSession:
    """Write a new session with what its header, the first record, says; returns it. Raises
    BadRecordError if that is not a header.
    """
    header = header_from(load(raw_record.data) if raw_record.is_whole else None)
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
    """Write the row of a session. A new one, whose `seq` is 0, gets its number."""
    values = (session.seq or None, *msgspec.structs.astuple(session)[1:])
    question = (
        f"INSERT OR REPLACE INTO sessions ({', '.join(_SESSION_COLUMNS)}) VALUES"
        f" ({', '.join('?' * len(values))})"
    )
    (session.seq,) = database.execute(f"{question} RETURNING seq", values).fetchone()


def _hash_start(descriptor: int, end: int) -> bytes:
    """Returns a hash of the bytes of a file up to the offset `end`; of a long file only of the last
    of them.
    """
    start = 0 if end <= _MAX_HASHED_WHOLE else end - _HASHED_END_BYTES
    return hashlib.blake2b(read_range(descriptor, start, end), digest_size=16).digest()


_INDEXED_KINDS = ("message", "title", "summary", "model")
"""The kinds of records that are indexed."""


def _add_record(
    database: sqlite3.Connection, session: IndexedSession, raw_record: RawRecord
) -> None:
    """Index one record, and change `session` by what it says. One that cannot be read is left out:
    it is reported when the session is opened.
    """
    if kind_of(raw_record) not in _INDEXED_KINDS:
        return
    match parse_record(raw_record):
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
    """Add the passages of a message to the table `messages`, and so to its word index. They have no
    stamp, because they have no vector yet. A session gets at most `_MAX_ROWS_OF_SESSION` of them.
    """
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
    """Returns the text by which a tool call is found: its short arguments, such as paths, commands
    and patterns. Longer ones are usually contents of files.
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
        """Returns the folder of a store.

        Args:
            loaded: the files of the store, if they were listed just now. The state is then a digest
                of the fingerprints of the core files and the notes. Without them it is empty,
                which means that it is not known.
        """
        core_files = tuple(f"{name}.md" for name in store.core)
        state = ""
        if loaded is not None:
            core_prints = {name: loaded.files.get(name, "") for name in core_files}
            state = _digest((core_prints, loaded.fingerprint))
        return cls(
            scope=store.scope,
            project=project_of(store.folder) if store.scope == "repo" else "",
            path=store.folder,
            core=core_files,
            state=state,
        )


def _digest(value: object) -> str:
    return hashlib.blake2b(msgspec.json.encode(value), digest_size=16).hexdigest()


def is_fully_indexed(database: sqlite3.Connection, folder: MemoryFolder) -> bool:
    """Whether the index has all files of this folder in their known state. False if the state is
    not known.
    """
    if not folder.state:
        return False
    fact = database.execute("SELECT value FROM facts WHERE name = ?", (_fact_name(folder),))
    return bool(fact.fetchone() == (_state_in_index(database, folder),))


def mark_fully_indexed(database: sqlite3.Connection, folder: MemoryFolder) -> None:
    """Record that the index has all files of this folder in their known state."""
    values = (_fact_name(folder), _state_in_index(database, folder))
    database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", values)


def _fact_name(folder: MemoryFolder) -> str:
    """Returns the name of a folder's fact in the table `facts`. The fact is the state that the
    folder had when it was indexed.
    """
    return f"followed {path_text(folder.path)}"


def _state_in_index(database: sqlite3.Connection, folder: MemoryFolder) -> str:
    """Returns the known state of a folder with the id of the index, because an index that was made
    again has nothing of the folder yet.
    """
    (made,) = database.execute("SELECT value FROM facts WHERE name = 'made'").fetchone()
    return f"{made} {folder.state}"


def project_of(folder: Path) -> str:
    """Returns the root of the repository that has this memory folder, `.ouro/memory`; it is the
    same for all worktrees.
    """
    return path_text(folder.parent.parent)


def changed_files(
    database: sqlite3.Connection, folder: MemoryFolder
) -> tuple[list[str], list[str]]:
    """Returns two sorted lists of full paths: the files of a memory folder that are to be indexed,
    and those in the index that were deleted.
    """
    indexed = set(
        database.execute(
            "SELECT path, size, mtime FROM files WHERE folder = ?", (path_text(folder.path),)
        )
    )
    present = set(_files_with_times(folder))
    changed = {path for path, _size, _mtime in present - indexed}
    changed_or_deleted = {path for path, _size, _mtime in indexed - present}
    return sorted(changed), sorted(changed_or_deleted - changed)


def _files_with_times(folder: MemoryFolder) -> Iterator[tuple[str, int, int]]:
    """Yield the path, the size and the time of change (ns) of each note and core file. The archive
    has only notes.
    """
    for path in (folder.path, folder.path / "archive"):
        core_files = folder.core if path == folder.path else ()
        with suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                if is_note_name(entry.name) or entry.name in core_files:
                    with suppress(OSError):  # another process has just removed it
                        status = entry.stat(follow_symlinks=False)
                        yield path_text(entry.path), status.st_size, status.st_mtime_ns


def remove_file(database: sqlite3.Connection, path: str) -> None:
    """Remove all that was indexed of the core file or note at a path."""
    database.execute(
        "DELETE FROM entities WHERE note IN (SELECT id FROM notes WHERE path = ?)", (path,)
    )
    for table in ("notes", "edges", "anchors", "relations", "files"):
        database.execute(f"DELETE FROM {table} WHERE path = ?", (path,))


def index_memory_file(database: sqlite3.Connection, folder: MemoryFolder, path: str) -> None:
    """Index the core file or note at a path, if its content has changed.

    One that cannot be read is skipped and logged. So is one with over MAX_FILE bytes, of which what
    was indexed before is removed.
    """
    file = text_path(path)
    try:
        with open_private(file.parent, file.name, os.O_RDONLY) as descriptor:
            status = os.fstat(descriptor)
            data = read_range(descriptor, start=0, end=min(status.st_size, MAX_FILE + 1))
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
            _insert_note(database, folder, path, note, line=number)


def _record_file(
    database: sqlite3.Connection,
    folder: MemoryFolder,
    path: str,
    status: os.stat_result,
    data: bytes,
) -> bool:
    """Record the state of a file with the content `data`; returns whether this is new. Then what
    was indexed of the file before is removed.
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
    """Index a note of the file at `path`, or the core line with the number `line` (0: a note), with
    its entities and links.
    """
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
    """Index what a note points to: other notes, files, and relations of entities. A relation of
    which an end cannot be normalized is left out. `root` is the root of the repository of the note.
    """
    edges = [(note.id, edge.relationship, edge.id, path) for edge in note.related]
    database.executemany("INSERT INTO edges VALUES (?, ?, ?, ?)", edges)
    anchors = [(note.id, anchor.path, anchor.blob, path) for anchor in note.anchors]
    database.executemany("INSERT INTO anchors VALUES (?, ?, ?, ?)", anchors)
    relations: list[tuple[str, str, str, str]] = []
    for relation in note.relations:
        source = normalize_entity(relation.source, root)
        target = normalize_entity(relation.target, root)
        if source and target:
            relations.append((source, relation.rel, target, path))
    database.executemany("INSERT INTO relations VALUES (?, ?, ?, ?)", relations)
