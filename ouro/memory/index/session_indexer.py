"""Index session files: appended records, or the whole file if it was replaced."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ouro.errors import SessionError
from ouro.memory.backend import MessageRecord, ModelRecord, SummaryRecord, TitleRecord
from ouro.memory.index.query import content_hash, split_passages
from ouro.memory.index.schema import SHIFT
from ouro.memory.record_fields import BadRecordError
from ouro.memory.serialization import header_from
from ouro.memory.sessions.session_file import FILE_NAME, RawRecord, kind_of, open_private, read_range, read_records
from ouro.memory.sessions.session_reader import parse_record
from ouro.memory.sessions.yaml_text import BadYamlError, load
from ouro.messages import Message, ToolCall, ToolReply
from ouro.utils.log import log

_PORTION, _REMOVED = 1 << 20, 2_000
"""Bytes that are indexed, and rows that are removed, in one transaction: about a second. In one transaction for all of
a session of 100 MB, the end of a session waited two minutes."""
_HASHED_WHOLE = 8 << 20
_HASHED_END = 64 << 10
_MAX_PLACES = (1 << SHIFT) - 2
_OUTPUT_HEAD = 600
"""Characters of a tool's output that can be searched for."""


class IndexedSession(msgspec.Struct):
    """A row of `sessions`."""

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
    """Up to here the file is in the index."""
    hash: bytes = b""
    """Of the bytes up to there: tells an appended file from one that was edited."""


_COLUMNS = IndexedSession.__struct_fields__


def changed_sessions(database: sqlite3.Connection, found: Mapping[str, os.stat_result]) -> tuple[list[str], list[str]]:
    """The folders of `session_files` to index, oldest first, and the deleted ones."""
    rows = database.execute("SELECT folder, size, mtime FROM sessions")
    known = {folder: (size, mtime) for folder, size, mtime in rows}
    changed = sorted(folder for folder, file in found.items() if known.get(folder) != (file.st_size, file.st_mtime_ns))
    return changed, [folder for folder in known if folder not in found]


def remove_session(database: sqlite3.Connection, folder: str) -> bool:
    """Remove the next portion of a session; returns whether more is left."""
    row = database.execute("SELECT seq FROM sessions WHERE folder = ?", (folder,)).fetchone()
    if row is None:
        return False
    database.execute("UPDATE sessions SET hash = x'' WHERE seq = ?", row)  # if it comes back, it is read anew
    first, last = row[0] << SHIFT, ((row[0] + 1) << SHIFT) - 1
    for table in ("messages", "outputs"):
        within = f"FROM {table} WHERE id BETWEEN ? AND ?"
        rest = database.execute(f"SELECT id {within} ORDER BY id LIMIT 1 OFFSET ?", (first, last, _REMOVED)).fetchone()
        database.execute(f"DELETE {within}", (first, rest[0] - 1 if rest else last))
        if rest:
            return True
    database.execute("DELETE FROM sessions WHERE seq = ?", row)
    return False


def feed_session(database: sqlite3.Connection, root: Path, folder: str) -> bool:
    """Index the next portion of a session; returns whether more is left. An unreadable file is skipped, and logged."""
    try:
        with open_private(root / folder, FILE_NAME, os.O_RDONLY) as descriptor:
            return _feed(database, folder, descriptor)
    except (OSError, SessionError, BadYamlError, BadRecordError) as error:
        log.warning("the session in %s is not searched: %s", root / folder, error)
        return False


def _feed(database: sqlite3.Connection, folder: str, descriptor: int) -> bool:
    found = os.fstat(descriptor)
    session = _row(database, folder)
    if session is not None and not (found.st_size >= session.read and _hash(descriptor, session.read) == session.hash):
        if remove_session(database, folder):
            return True
        session = None
    begin, is_left = session.read if session else 0, False
    for block in read_records(descriptor, begin, found.st_size, window=_PORTION):
        if is_left := block.offset >= begin + _PORTION:
            break
        if session is None:
            session = _begin(database, folder, block)
        else:
            _add_record(database, session, block)
        session.read = block.offset + block.size
    if session is not None:
        session.size, session.mtime = found.st_size, 0 if is_left else found.st_mtime_ns  # 0: it counts as changed
        session.hash = _hash(descriptor, session.read)
        save_session(database, session)
    return is_left


def _row(database: sqlite3.Connection, folder: str) -> IndexedSession | None:
    row = database.execute(f"SELECT {', '.join(_COLUMNS)} FROM sessions WHERE folder = ?", (folder,)).fetchone()
    return IndexedSession(*row) if row else None


def save_session(database: sqlite3.Connection, session: IndexedSession) -> None:
    """Write the row of a session; a new one gets its `seq`."""
    values = (session.seq or None, *msgspec.structs.astuple(session)[1:])
    question = f"INSERT OR REPLACE INTO sessions ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(values))})"
    (session.seq,) = database.execute(f"{question} RETURNING seq", values).fetchone()


def _begin(database: sqlite3.Connection, folder: str, block: RawRecord) -> IndexedSession:
    header = header_from(load(block.data) if block.is_whole else None)
    at = header.created_at
    session = IndexedSession(0, header.id, folder, header.project, "", "", header.model, at, at)
    save_session(database, session)
    return session


def _hash(descriptor: int, end: int) -> bytes:
    """A hash of the bytes before `end`; of a long file only the last part."""
    start = 0 if end <= _HASHED_WHOLE else end - _HASHED_END
    return hashlib.blake2b(read_range(descriptor, start, end), digest_size=16).digest()


_INDEXED = ("message", "title", "summary", "model")


def _add_record(database: sqlite3.Connection, session: IndexedSession, block: RawRecord) -> None:
    record = parse_record(block) if kind_of(block) in _INDEXED else None  # opening the session reports a damaged one
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
    database: sqlite3.Connection, session: IndexedSession, number: int, role: str, at: str, text: str
) -> None:
    start = (session.seq << SHIFT) + session.passages + 1
    found = split_passages(text)[: _MAX_PLACES - session.passages]
    session.passages += len(found)
    rows = [(place, session.seq, number, role, at, part, content_hash(part)) for place, part in enumerate(found, start)]
    database.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, NULL)", rows)


def _add_outputs(database: sqlite3.Connection, session: IndexedSession, number: int, at: str, message: Message) -> None:
    texts = [(call.name, _call_text(call)) for call in message.parts_of(ToolCall)]
    texts += [(reply.name, reply.text[:_OUTPUT_HEAD]) for reply in message.parts_of(ToolReply)]
    for name, text in texts:
        if text.strip() and session.outputs < _MAX_PLACES:
            session.outputs += 1
            place = session.seq << SHIFT | session.outputs
            row = (place, session.seq, number, name, at, text)
            database.execute("INSERT INTO outputs VALUES (?, ?, ?, ?, ?, ?)", row)


def _call_text(call: ToolCall) -> str:
    """The searchable text of a call: its short arguments (paths, commands, patterns), not file contents."""
    words = [value for value in call.arguments.values() if isinstance(value, str) and len(value) <= _OUTPUT_HEAD]
    return " ".join(words)[:_OUTPUT_HEAD]
