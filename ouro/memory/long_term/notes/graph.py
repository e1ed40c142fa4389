"""Chains, edges, entities and their neighbours: how notes hang together, asked of the index."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from ouro.memory.index.index import Index

_AT_ONCE = 500
"""Values in one question to the index."""
_LONGEST_CHAIN = 200
_AFTER = "SELECT note FROM notes WHERE supersedes = ? AND kind = 'note'"
MOST_NAMING = 50
"""Notes that are looked at for one entity, the newest first: what more of them name tells nothing apart."""


class Link(msgspec.Struct, frozen=True):
    """One version in the chain of a note."""

    note_id: str
    text: str
    at: str
    session_id: str
    turn: int
    archived: bool


class Neighbour(msgspec.Struct, frozen=True):
    """A note that was reached from another one."""

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
    """Every method blocks on the index: ask from a thread. Unknown ids are passed over; cycles end by themselves.

    Raises:
        SearchUnavailable: the index cannot be read just now.
    """

    def __init__(self, index: Index) -> None:
        self._index = index

    def chain(self, note_id: str) -> tuple[Link, ...]:
        """All versions of what the note says, oldest first; the note alone where it never changed."""
        with self._index.reading() as database:
            before = _walk(database, note_id, "SELECT supersedes FROM notes WHERE note = ? AND kind = 'note'")
            after = _walk(database, note_id, _AFTER)
            ids = [*reversed(before), note_id, *after]
            links = (_link(database, each) for each in dict.fromkeys(ids))
            return tuple(each for each in links if each is not None)

    def latest(self, note_id: str) -> str:
        """The last version of a note; itself where none came after it."""
        return self.latest_of([note_id])[note_id]

    def latest_of(self, note_ids: Iterable[str]) -> dict[str, str]:
        """The last version of each of these notes."""
        with self._index.reading() as database:
            found = {each: _walk(database, each, _AFTER) for each in note_ids}
        return {each: after[-1] if after else each for each, after in found.items()}

    def superseded(self, note_ids: Collection[str]) -> set[str]:
        """Those of `note_ids` that another note has taken the place of."""
        with self._index.reading() as database:
            rows = _ask(database, "SELECT DISTINCT supersedes FROM notes WHERE supersedes IN ({})", note_ids)
        return {row[0] for row in rows}

    def versions(self, note_ids: Iterable[str]) -> dict[str, int]:
        """How many versions of each note there have been, itself among them."""
        return {each: len(self.chain(each)) for each in note_ids}

    def contradicting(self, note_id: str) -> list[str]:
        """The notes that say otherwise, whichever of the two says so, and have not been replaced."""
        with self._index.reading() as database:
            rows = database.execute(_OTHERWISE, {"note": note_id}).fetchall()
        return [row[0] for row in rows]

    def naming(self, entities: Collection[str]) -> dict[str, float]:
        """The notes that name any of `entities`, with how much that tells: an entity that many name tells little."""
        found: dict[str, float] = {}
        with self._index.reading() as database:
            for entity in entities:
                notes = _naming(database, entity)
                for note_id in notes:
                    found[note_id] = found.get(note_id, 0.0) + 1 / len(notes)
        return found

    def neighbours(self, note_ids: Collection[str], hops: int) -> dict[str, Neighbour]:
        """What is reached from `note_ids` along edges, in either direction, and along relations of their entities."""
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
    """The ids that come one after another from `start`, without it; of several branches the first by name."""
    seen, at = [start], start
    while len(seen) <= _LONGEST_CHAIN:
        row = database.execute(f"{question} ORDER BY 1 LIMIT 1", (at,)).fetchone()
        if row is None or not row[0] or row[0] in seen:
            break
        at = row[0]
        seen.append(at)
    return seen[1:]


def _link(database: sqlite3.Connection, note_id: str) -> Link | None:
    row = database.execute(
        "SELECT note, text, at, session, turn, archived FROM notes WHERE note = ? AND kind = 'note' LIMIT 1", (note_id,)
    ).fetchone()
    return None if row is None else Link(row[0], row[1], row[2], row[3], row[4], bool(row[5]))


def _along_edges(database: sqlite3.Connection, note_ids: Collection[str]) -> list[tuple[str, str]]:
    there = _ask(database, "SELECT other, relationship FROM edges WHERE note IN ({}) ORDER BY 1", note_ids)
    back = _ask(database, "SELECT note, relationship FROM edges WHERE other IN ({}) ORDER BY 1", note_ids)
    return [*there, *back]


def _along_relations(database: sqlite3.Connection, note_ids: Collection[str]) -> list[tuple[str, str]]:
    """Notes of an entity that an entity of these notes is said to have to do with."""
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
        (entity, MOST_NAMING),
    )
    return [row[0] for row in rows]


def _ask(database: sqlite3.Connection, question: str, values: Collection[str]) -> list[Any]:
    rows: list[Any] = []
    listed: Sequence[str] = list(values)
    for start in range(0, len(listed), _AT_ONCE):
        part = listed[start : start + _AT_ONCE]
        rows += database.execute(question.format(", ".join("?" * len(part))), part).fetchall()
    return rows
