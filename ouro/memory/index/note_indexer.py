"""Index core files and notes: a file is read again if it has changed."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ouro.errors import SessionError
from ouro.memory.index.query import content_hash
from ouro.memory.long_term.git.values import CORE, Scope
from ouro.memory.long_term.notes.entities import entities_in, normalize_entities, normalize_entity
from ouro.memory.long_term.notes.note import Note, is_core_line, is_note_name, parse_note
from ouro.memory.sessions.session_file import open_private, read_range
from ouro.utils.log import log

if TYPE_CHECKING:
    from ouro.memory.long_term.store import GitMemoryStore

CORE_FILES = tuple(f"{category}.md" for category in CORE)
MAX_FILE = 1 << 20
"""Bytes. Longer core files and notes are not indexed."""


class MemoryFolder(msgspec.Struct, frozen=True):
    """One scope of long-term memory, as a folder of files."""

    scope: Scope
    project: str
    """The root of its repository; empty for the user's memory."""
    path: Path
    core: tuple[str, ...] = CORE_FILES
    """The names of its core files."""

    @classmethod
    def of(cls, store: GitMemoryStore) -> MemoryFolder:
        core = tuple(f"{name}.md" for name in store.core)
        return cls(store.scope, project_of(store.folder) if store.scope == "repo" else "", store.folder, core)


def project_of(folder: Path) -> str:
    """The root of the repository that has this memory folder, one for all its worktrees."""
    return str(folder.parent.parent)


def changed_files(database: sqlite3.Connection, folder: MemoryFolder) -> tuple[list[str], list[str]]:
    """The files of a memory folder to index, and the deleted ones, by full path."""
    known = set(database.execute("SELECT path, size, mtime FROM files WHERE folder = ?", (str(folder.path),)))
    found = set(_files(folder))
    changed = {path for path, _size, _mtime in found - known}
    return sorted(changed), sorted({path for path, _size, _mtime in known - found} - changed)


def _files(folder: MemoryFolder) -> Iterator[tuple[str, int, int]]:
    """Path, size and time of each core file and note."""
    for place in (folder.path, folder.path / "archive"):
        with suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                if is_note_name(entry.name) or (place == folder.path and entry.name in folder.core):
                    with suppress(OSError):  # another process has just removed it
                        status = entry.stat(follow_symlinks=False)
                        yield entry.path, status.st_size, status.st_mtime_ns


def remove_file(database: sqlite3.Connection, path: str) -> None:
    database.execute("DELETE FROM entities WHERE note IN (SELECT id FROM notes WHERE path = ?)", (path,))
    for table in ("notes", "edges", "anchors", "relations", "files"):
        database.execute(f"DELETE FROM {table} WHERE path = ?", (path,))


def feed_file(database: sqlite3.Connection, folder: MemoryFolder, path: str) -> None:
    """Index one core file or note again. An unreadable file is skipped with a line in the log."""
    place = Path(path)
    try:
        with open_private(place.parent, place.name, os.O_RDONLY) as descriptor:
            found = os.fstat(descriptor)
            data = read_range(descriptor, 0, min(found.st_size, MAX_FILE + 1))
    except (OSError, SessionError) as error:
        log.warning("%s is not searched: %s", path, error)
        return
    seen = hashlib.blake2b(data, digest_size=16).digest()
    row = database.execute("SELECT hash FROM files WHERE path = ?", (path,)).fetchone()
    if row == (seen,):
        signs = (found.st_size, found.st_mtime_ns, path)
        database.execute("UPDATE files SET size = ?, mtime = ? WHERE path = ?", signs)
        return
    remove_file(database, path)
    values = (path, str(folder.path), folder.scope, folder.project, found.st_size, found.st_mtime_ns, seen)
    database.execute("INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?)", values)
    if len(data) > MAX_FILE:
        log.warning("%s is not searched: it has over %d bytes", path, MAX_FILE)
        return
    text = data.decode("utf-8", "replace").replace("\x00", "")
    changed_at = datetime.fromtimestamp(found.st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if place.name not in folder.core:
        _insert(database, folder, path, parse_note(place.name, text).note)
        return
    category = place.name.removesuffix(".md")
    for number, line in enumerate(text.splitlines(), 1):
        if is_core_line(line):
            note = Note(id=f"{place.name}:{number}", category=category, text=line.strip(), updated_at=changed_at)
            _insert(database, folder, path, note, number)


def _insert(database: sqlite3.Connection, folder: MemoryFolder, path: str, note: Note, line: int = 0) -> None:
    """Add a note, or a line of a core file."""
    root = folder.project
    values = (
        path, "core" if line else "note", note.id, line, folder.scope, folder.project, note.category, note.text,
        note.updated_at or note.created_at, note.confidence, note.source, note.branch or "", note.session_id,
        note.turn, note.supersedes or "", Path(path).parent.name == "archive", content_hash(note.text),
    )  # fmt: skip
    marks = ", ".join("?" * len(values))
    (key,) = database.execute(f"INSERT INTO notes VALUES (NULL, {marks}, NULL) RETURNING id", values).fetchone()
    entities = [(entity, key) for entity in _entities(note, root)] if not line else []
    database.executemany("INSERT INTO entities VALUES (?, ?)", entities)
    edges = [(note.id, edge.relationship, edge.id, path) for edge in note.related]
    database.executemany("INSERT INTO edges VALUES (?, ?, ?, ?)", edges)
    anchors = [(note.id, anchor.path, anchor.blob, path) for anchor in note.anchors]
    database.executemany("INSERT INTO anchors VALUES (?, ?, ?, ?)", anchors)
    relations = [
        (source, relation.rel, target, path)
        for relation in note.relations
        if (source := normalize_entity(relation.source, root)) and (target := normalize_entity(relation.target, root))
    ]
    database.executemany("INSERT INTO relations VALUES (?, ?, ?, ?)", relations)


def _entities(note: Note, root: str) -> tuple[str, ...]:
    """The entities listed in a note, and those in its text: notes written by hand list none.

    Tools mentioned in the text are left out: every second note mentions one.
    """
    spoken_of = (item for item in entities_in(note.text) if not item.startswith("tool:"))
    return tuple(dict.fromkeys((*normalize_entities(note.entities, root), *spoken_of)))
