"""Core files and notes into the index: a file is read again when it is another one than last time."""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from ouro.errors import SessionError
from ouro.memory.passages import content_hash
from ouro.memory.session_file import opened, read_range
from ouro.memory.yaml_text import BadYamlError, load
from ouro.utils.log import log

CORE_FILES = ("decisions.md", "preferences.md", "facts.md")
LONGEST_FILE = 1 << 20
"""Bytes; nobody reads a longer core file or note whole, and a model neither."""
_NOTE_NAME = re.compile(r"mem_[\w-]{1,80}\.md")
_FRONT_MATTER = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)(.*)\Z", re.DOTALL)
_HEADING = re.compile(r"\s{0,3}(#{1,6}\s|-{3,}\s*$|<!--)")


class MemoryFolder(msgspec.Struct, frozen=True):
    """One scope of long-term memory, as a folder of files."""

    scope: str
    project: str
    """The root of the repository it speaks of; empty for the user's own."""
    path: Path


class Note(msgspec.Struct, frozen=True):
    """What the index knows of a note, or of one line of a core file."""

    note: str
    """The note's id; of a core line `facts.md:3`."""
    category: str
    text: str
    kind: str = "note"
    line: int = 0
    at: str = ""
    confidence: float = 1.0
    source: str = "user"
    branch: str = ""
    session: str = ""
    turn: int = 0
    supersedes: str = ""
    related: tuple[tuple[str, str], ...] = ()
    """Pairs of relationship and note id."""
    entities: tuple[str, ...] = ()
    relations: tuple[tuple[str, str, str], ...] = ()
    """From, relation, to."""


def changed_files(database: sqlite3.Connection, folder: MemoryFolder) -> tuple[list[str], list[str]]:
    """The files of a memory folder to be read, and those that are gone, by their whole path."""
    rows = database.execute("SELECT path, size, mtime FROM files WHERE folder = ?", (str(folder.path),))
    known = {path: (size, mtime) for path, size, mtime in rows}
    found = dict(_files(folder.path))
    changed = sorted(path for path, signs in found.items() if known.get(path) != signs)
    return changed, [path for path in known if path not in found]


def _files(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    for place in (folder, folder / "archive"):
        try:
            with os.scandir(place) as entries:
                names = [each.name for each in entries]
        except OSError:
            continue
        for name in names:
            if _NOTE_NAME.fullmatch(name) or (place == folder and name in CORE_FILES):
                try:
                    found = os.stat(f"{place}/{name}", follow_symlinks=False)  # noqa: PTH116 (10,000 of them)
                except OSError:
                    continue
                yield f"{place}/{name}", (found.st_size, found.st_mtime_ns)


def remove_file(database: sqlite3.Connection, path: str) -> None:
    """Take a file, and all that it said, out of the index."""
    database.execute("DELETE FROM entities WHERE note IN (SELECT id FROM notes WHERE path = ?)", (path,))
    for table in ("notes", "edges", "relations", "files"):
        database.execute(f"DELETE FROM {table} WHERE path = ?", (path,))


def feed_file(database: sqlite3.Connection, folder: MemoryFolder, path: str) -> None:
    """Read one core file or note again. What cannot be read is passed over, with a line in the log."""
    place = Path(path)
    try:
        with opened(place.parent, place.name, os.O_RDONLY) as descriptor:
            found = os.fstat(descriptor)
            data = read_range(descriptor, 0, min(found.st_size, LONGEST_FILE + 1))
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
    if len(data) > LONGEST_FILE:
        log.warning("%s is not searched: it has over %d bytes", path, LONGEST_FILE)
        return
    text = data.decode("utf-8", "replace").replace("\x00", "")
    changed_at = datetime.fromtimestamp(found.st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    notes = core_lines(place.name, text, changed_at) if place.name in CORE_FILES else [note_of(place.stem, text)]
    _insert(database, folder, path, notes)


def core_lines(name: str, text: str, at: str) -> list[Note]:
    """The lines of a core file that say something."""
    category = name.removesuffix(".md")
    return [
        Note(f"{name}:{number}", category, line.strip(), "core", number, at)
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not _HEADING.match(line)
    ]


def note_of(name: str, text: str) -> Note:
    """A note as its file tells it; front matter that cannot be read is left out, the words stay."""
    found = _FRONT_MATTER.match(text)
    if not found:
        return Note(name, "", text.strip())
    try:
        data = load(found[1].encode())
    except BadYamlError as error:
        log.warning("the front matter of %s cannot be read: %s", name, error)
        data = {}
    return _note(name, data if isinstance(data, dict) else {}, found[2].strip())


def _note(name: str, data: Mapping[str, Any], text: str) -> Note:
    confidence = data.get("confidence")
    turn = data.get("turn")
    return Note(
        note=name,
        category=_word(data, "category"),
        text=text,
        at=_word(data, "updated_at") or _word(data, "created_at"),
        confidence=float(confidence) if isinstance(confidence, int | float) else 1.0,
        source=_word(data, "source") or "user",
        branch=_word(data, "branch"),
        session=_word(data, "session_id"),
        turn=turn if isinstance(turn, int) else 0,
        supersedes=_word(data, "supersedes"),
        related=tuple(_rows(data.get("related"), ("relationship", "id"))),  # type: ignore[arg-type]
        entities=tuple(each for each in _listed(data.get("entities")) if isinstance(each, str)),
        relations=tuple(_rows(data.get("relations"), ("from", "rel", "to"))),  # type: ignore[arg-type]
    )


def _word(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    return "" if value is None else str(value)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _rows(value: Any, keys: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for each in _listed(value):
        if isinstance(each, dict) and all(isinstance(each.get(key), str) for key in keys):
            yield tuple(each[key] for key in keys)


def _insert(database: sqlite3.Connection, folder: MemoryFolder, path: str, notes: Sequence[Note]) -> None:
    archived = Path(path).parent.name == "archive"
    for note in notes:
        values = (
            path, note.kind, note.note, note.line, folder.scope, folder.project, note.category, note.text, note.at,
            note.confidence, note.source, note.branch, note.session, note.turn, note.supersedes, archived,
            content_hash(note.text),
        )  # fmt: skip
        marks = ", ".join("?" * len(values))
        (key,) = database.execute(f"INSERT INTO notes VALUES (NULL, {marks}) RETURNING id", values).fetchone()
        entities = [(entity, key) for entity in dict.fromkeys(note.entities)]
        database.executemany("INSERT INTO entities VALUES (?, ?)", entities)
        edges = [(note.note, relationship, other, path) for relationship, other in note.related]
        database.executemany("INSERT INTO edges VALUES (?, ?, ?, ?)", edges)
        relations = [(*relation, path) for relation in note.relations]
        database.executemany("INSERT INTO relations VALUES (?, ?, ?, ?)", relations)
