"""Graph: the chains and edges between notes, read from the index."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from ouro.memory.index.index import Index, Sources
from ouro.memory.index.note_indexer import MemoryFolder
from ouro.memory.long_term.store import GitMemoryStore

_MAX_VALUES = 500
"""In one query."""
_MAX_CHAIN = 200
_AFTER = "SELECT note FROM notes WHERE supersedes = ? AND kind = 'note'"
MAX_NAMING = 50
"""Notes read for one entity, newest first: an entity that more notes name does not distinguish them."""


class NoteVersion(msgspec.Struct, frozen=True):
    note_id: str
    text: str
    at: str
    session_id: str
    turn: int
    archived: bool


class Neighbour(msgspec.Struct, frozen=True):
    note_id: str
    hops: int
    way: str
    """The edge of the last hop: `refines`, `contradicts`, `relates-to`, or the relation of two entities."""


_OTHERWISE = """
    SELECT DISTINCT notes.note FROM edges
    JOIN notes ON notes.note = CASE edges.note WHEN :note THEN other ELSE edges.note END
    WHERE relationship = 'contradicts' AND :note IN (edges.note, other) AND archived = 0
    AND notes.note NOT IN (SELECT supersedes FROM notes WHERE supersedes <> '') ORDER BY notes.note"""


class Graph:
    """Every method blocks. Unknown ids are ignored; cycles end.

    Raises:
        SearchUnavailable: the index cannot be read.
    """

    def __init__(self, index: Index) -> None:
        self._index = index

    def chain(self, note_id: str) -> tuple[NoteVersion, ...]:
        """All versions of a note, oldest first; the note alone when it never changed."""
        with self._index.reading() as database:
            before = _walk(database, note_id, "SELECT supersedes FROM notes WHERE note = ? AND kind = 'note'")
            after = _walk(database, note_id, _AFTER)
            ids = [*reversed(before), note_id, *after]
            links = (_link(database, version) for version in dict.fromkeys(ids))
            return tuple(link for link in links if link is not None)

    def latest(self, note_id: str) -> str:
        return self.latest_of([note_id])[note_id]

    def latest_of(self, note_ids: Iterable[str]) -> dict[str, str]:
        with self._index.reading() as database:
            found = {note_id: _walk(database, note_id, _AFTER) for note_id in note_ids}
        return {note_id: after[-1] if after else note_id for note_id, after in found.items()}

    def contradicting(self, note_id: str) -> list[str]:
        """The notes linked by `contradicts`, in either direction, that are not replaced."""
        with self._index.reading() as database:
            rows = database.execute(_OTHERWISE, {"note": note_id}).fetchall()
        return [row[0] for row in rows]

    def naming(self, entities: Collection[str]) -> dict[str, float]:
        """The notes that name any of `entities`, with a weight: an entity that many notes name weighs little."""
        found: dict[str, float] = {}
        with self._index.reading() as database:
            for entity in entities:
                notes = _naming(database, entity)
                for note_id in notes:
                    found[note_id] = found.get(note_id, 0.0) + 1 / len(notes)
        return found

    def neighbours(self, note_ids: Collection[str], hops: int) -> dict[str, Neighbour]:
        """The notes reached from `note_ids` along edges, in either direction, and along relations of their entities."""
        found: dict[str, Neighbour] = {}
        edge = set(note_ids)
        with self._index.reading() as database:
            for hop in range(1, hops + 1):
                reached = [*_along_edges(database, edge), *_along_relations(database, edge)]
                edge = set()
                for note_id, way in reached:
                    if note_id not in found and note_id not in note_ids:
                        found[note_id] = Neighbour(note_id, hop, way)
                        edge.add(note_id)
        return found


def _walk(database: sqlite3.Connection, start: str, question: str) -> list[str]:
    """The ids that follow one another from `start`, without it; of several the first by id."""
    seen, at = [start], start
    while len(seen) <= _MAX_CHAIN:
        row = database.execute(f"{question} ORDER BY 1 LIMIT 1", (at,)).fetchone()
        if row is None or not row[0] or row[0] in seen:
            break
        at = row[0]
        seen.append(at)
    return seen[1:]


def _link(database: sqlite3.Connection, note_id: str) -> NoteVersion | None:
    row = database.execute(
        "SELECT note, text, at, session, turn, archived FROM notes WHERE note = ? AND kind = 'note' LIMIT 1", (note_id,)
    ).fetchone()
    return None if row is None else NoteVersion(row[0], row[1], row[2], row[3], row[4], bool(row[5]))


def _along_edges(database: sqlite3.Connection, note_ids: Collection[str]) -> list[tuple[str, str]]:
    there = _ask(database, "SELECT other, relationship FROM edges WHERE note IN ({}) ORDER BY 1", note_ids)
    back = _ask(database, "SELECT note, relationship FROM edges WHERE other IN ({}) ORDER BY 1", note_ids)
    return [*there, *back]


def _along_relations(database: sqlite3.Connection, note_ids: Collection[str]) -> list[tuple[str, str]]:
    named = _ask(
        database,
        "SELECT DISTINCT entities.entity FROM entities JOIN notes ON notes.id = entities.note"
        " WHERE notes.note IN ({}) AND notes.kind = 'note'",
        note_ids,
    )
    own = [row[0] for row in named]
    related = {
        **dict(_ask(database, "SELECT target, relation FROM relations WHERE source IN ({})", own)),
        **dict(_ask(database, "SELECT source, relation FROM relations WHERE target IN ({})", own)),
    }
    return [(note_id, relation) for entity, relation in related.items() for note_id in _naming(database, entity)]


def _naming(database: sqlite3.Connection, entity: str) -> list[str]:
    rows = database.execute(
        "SELECT notes.note FROM entities JOIN notes ON notes.id = entities.note"
        " WHERE entities.entity = ? AND notes.kind = 'note' ORDER BY entities.note DESC LIMIT ?",
        (entity, MAX_NAMING),
    )
    return [row[0] for row in rows]


def _ask(database: sqlite3.Connection, question: str, values: Collection[str]) -> list[Any]:
    rows: list[Any] = []
    listed: Sequence[str] = list(values)
    for start in range(0, len(listed), _MAX_VALUES):
        part = listed[start : start + _MAX_VALUES]
        rows += database.execute(question.format(", ".join("?" * len(part))), part).fetchall()
    return rows


def sources_of(stores: Iterable[GitMemoryStore]) -> Sources:
    """What the index follows to know the notes of these stores, without sessions."""
    return Sources(memories=tuple(map(MemoryFolder.of, stores)))
