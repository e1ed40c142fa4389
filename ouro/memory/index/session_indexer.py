"""Writes session files into the index: of each one what was appended since it was last read."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ouro.errors import SessionError
from ouro.memory.backend import MessageRecord, ModelRecord, SummaryRecord, TitleRecord
from ouro.memory.index.passages import POSITION_BITS, content_hash, split_passages
from ouro.memory.record_fields import BadRecordError
from ouro.memory.safe_yaml import BadYamlError, load
from ouro.memory.serialization import header_from
from ouro.memory.sessions.record_windows import read_records
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
"""The most passages, or outputs, of one session: their number is a part of the id. Its first and
last value stay unused, so that the neighbours of a passage are of the same session.
"""
_INDEXED_KINDS = ("message", "title", "summary", "model")
"""The kinds of records that are indexed."""
_SEARCH_TOOL = "memory_search"
"""What this tool returns is found already where it was said: its copies filled the results."""
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
    """Remove a session from the index, at most `_MAX_REMOVED_ROWS` rows of each table. Returns True
    if rows are left: then the next call continues. False if all is removed, or the session is not
    in the index.
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
        first_left_row = database.execute(
            f"SELECT id {within} ORDER BY id LIMIT 1 OFFSET ?", (first, last, _MAX_REMOVED_ROWS)
        ).fetchone()
        if first_left_row is None:
            database.execute(f"DELETE {within}", (first, last))
            continue
        (first_left,) = first_left_row
        database.execute(f"DELETE {within}", (first, first_left - 1))
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

    # Read and index one portion. The first record of a new session is its header.
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

    # Save how far the file was read.
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
    statement = (
        f"INSERT OR REPLACE INTO sessions ({', '.join(_SESSION_COLUMNS)}) VALUES"
        f" ({', '.join('?' * len(values))})"
    )
    (session.seq,) = database.execute(f"{statement} RETURNING seq", values).fetchone()


def _hash_start(descriptor: int, end: int) -> bytes:
    """Returns a hash of the bytes of a file up to the offset `end`; of a long file only of the last
    of them.
    """
    start = 0 if end <= _MAX_HASHED_WHOLE else end - _HASHED_END_BYTES
    return hashlib.blake2b(read_range(descriptor, start, end), digest_size=16).digest()


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
    """Add the tool calls and results of a message to the table `outputs`, without searches of memory."""
    texts = [(call.name, _searchable_text(call)) for call in message.parts_of(ToolCall)]
    texts += [(reply.name, reply.text[:_OUTPUT_HEAD]) for reply in message.parts_of(ToolReply)]
    for name, text in texts:
        if name == _SEARCH_TOOL:
            continue
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
