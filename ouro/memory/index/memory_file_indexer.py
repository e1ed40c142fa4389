"""Writes core files and notes into the index: those that have changed."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from ouro.errors import SessionError
from ouro.memory.index.memory_folder import MemoryFolder
from ouro.memory.index.passages import content_hash, searched_text
from ouro.memory.long_term.git.files import is_note_name
from ouro.memory.long_term.notes.entities import entities_in, normalize_entities, normalize_entity
from ouro.memory.long_term.notes.note import Note, is_core_line, parse_note
from ouro.memory.sessions.session_file import open_private, read_range
from ouro.utils.log import log
from ouro.utils.path_encoding import path_text, text_path

MAX_FILE = 1 << 20
"""Core files and notes with more bytes are not indexed."""


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
        content_hash(searched_text(note.text, note.search_words)),
    )
    placeholders = ", ".join("?" * len(values))
    (row_id,) = database.execute(
        f"INSERT INTO notes VALUES (NULL, {placeholders}, NULL, ?) RETURNING id",
        (*values, ", ".join(note.search_words)),
    ).fetchone()
    if not line:
        entities = _entities_of(note, folder.project)
        database.executemany(
            "INSERT INTO entities VALUES (?, ?)", [(entity, row_id) for entity in entities]
        )
    _insert_links(database, path, note, folder.project)


def _entities_of(note: Note, root: str) -> list[str]:
    """Returns the entities that a note lists, and those that its text names: a note written by hand
    lists none. Tools in the text are left out, because every second note mentions one. `root` is
    the root of the repository of the note.
    """
    listed = normalize_entities(note.entities, root)
    named_in_text = [entity for entity in entities_in(note.text) if not entity.startswith("tool:")]
    return list(dict.fromkeys((*listed, *named_in_text)))


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
