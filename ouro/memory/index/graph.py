"""Graph: the notes of the index, with their chains, edges, entities and anchors."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable
from typing import Any

from ouro.memory.index.index import Index
from ouro.memory.index.indexers import MemoryFolder
from ouro.memory.long_term.notes.note import Anchor, Note
from ouro.utils.decoding import decode_json

_MAX_CHAIN = 200
MAX_NAMING = 50
_MAX_MENTIONING = 500
"""Notes read for one entity, newest first: an entity that more notes name does not distinguish
them.
"""
_AFTER = "SELECT note FROM notes WHERE supersedes = ? AND kind = 'note'"
_BEFORE = "SELECT supersedes FROM notes WHERE note = ? AND kind = 'note'"
_CONTRADICTING = """
    SELECT DISTINCT notes.note FROM edges
    JOIN notes ON notes.note = CASE edges.note WHEN :note THEN other ELSE edges.note END
    WHERE relationship = 'contradicts' AND :note IN (edges.note, other) AND archived = 0
    AND notes.note NOT IN (SELECT supersedes FROM notes WHERE supersedes <> '') ORDER BY notes.note"""
_NOTES = """
    SELECT path, json_object('id', note, 'updated_at', at, 'scope', scope, 'category', category, 'text', text,
        'supersedes', nullif(supersedes, ''), 'session_id', session, 'turn', turn, 'source', source,
        'confidence', confidence, 'branch', nullif(branch, ''),
        'related', json((SELECT json_group_array(json_object('id', other, 'relationship', relationship))
            FROM edges WHERE edges.path = notes.path)),
        'anchors', json((SELECT json_group_array(json_object('path', file, 'blob', blob))
            FROM anchors WHERE anchors.path = notes.path)),
        'entities', json((SELECT json_group_array(entity) FROM entities WHERE entities.note = notes.id)))
    FROM notes WHERE kind = 'note' AND scope = ? AND project = ?"""
_IN = "IN (SELECT value FROM json_each(?))"
_ALONG_EDGES = f"""
    SELECT id, way FROM (SELECT other AS id, relationship AS way, 0 AS back FROM edges WHERE note {_IN}
        UNION ALL SELECT note, relationship, 1 FROM edges WHERE other {_IN}) ORDER BY back, id"""
_RELATED = f"""
    WITH named AS (SELECT DISTINCT entity FROM entities JOIN notes ON notes.id = entities.note
        WHERE notes.note {_IN} AND notes.kind = 'note')
    SELECT target, relation FROM relations WHERE source IN named
    UNION ALL SELECT source, relation FROM relations WHERE target IN named"""


class Graph:
    """Every method blocks, and raises SearchUnavailable. Unknown ids are ignored; cycles end."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def notes(self, folder: MemoryFolder) -> list[tuple[str, Note]]:
        """All notes of a memory folder, also archived ones, each with its path.

        They have the fields of the index: `updated_at` is the only time; `entities` includes those
        from the text.
        """
        rows = self._ask(_NOTES, (folder.scope, folder.project))
        return [(path, decode_json(note, Note)) for path, note in rows]

    def projects(self) -> list[str]:
        """The repositories that have notes in the index."""
        return [
            project
            for (project,) in self._ask("SELECT DISTINCT project FROM files WHERE project <> ''")
        ]

    def chain(self, note_id: str) -> list[str]:
        """The ids of all versions of a note, oldest first; the note alone when it never changed."""
        with self._index.reading() as database:
            ids = [
                *reversed(_walk(database, note_id, _BEFORE)),
                note_id,
                *_walk(database, note_id, _AFTER),
            ]
            known = database.execute(
                f"SELECT note FROM notes WHERE note {_IN} AND kind = 'note'", (json.dumps(ids),)
            )
            present = {note for (note,) in known}
        return [version for version in dict.fromkeys(ids) if version in present]

    def latest_of(self, note_ids: Iterable[str]) -> dict[str, str]:
        """Id -> id of the newest version of that note."""
        with self._index.reading() as database:
            return {
                note_id: [note_id, *_walk(database, note_id, _AFTER)][-1] for note_id in note_ids
            }

    def contradicting(self, note_id: str) -> list[str]:
        """The notes linked by `contradicts`, in either direction, that are not replaced."""
        return [other for (other,) in self._ask(_CONTRADICTING, {"note": note_id})]

    def anchors_of(self, path: str) -> list[Anchor]:
        """The files that the note at this path names, with the hash of their content then."""
        return [
            Anchor(*row)
            for row in self._ask("SELECT file, blob FROM anchors WHERE path = ?", (path,))
        ]

    def anchored_to(self, files: Collection[str], project: str) -> list[str]:
        """The notes that any of these files anchors, newest first."""
        question = (
            f"SELECT DISTINCT notes.note FROM anchors JOIN notes USING (path) WHERE file {_IN} AND"
            " project IN ('', ?) AND archived = 0 ORDER BY notes.id DESC LIMIT ?"
        )
        return [
            note for (note,) in self._ask(question, (json.dumps(list(files)), project, MAX_NAMING))
        ]

    def mentioning(self, words: Collection[str], project: str) -> list[tuple[str, str]]:
        """The notes whose texts hold any of these words, newest first, with their texts."""
        question = (
            "SELECT DISTINCT note, text FROM notes JOIN json_each(?) AS word ON instr(text, word.value)"
            " WHERE kind = 'note' AND project IN ('', ?) AND archived = 0 ORDER BY notes.id DESC LIMIT ?"
        )
        return self._ask(question, (json.dumps(sorted(words)), project, _MAX_MENTIONING))

    def in_category(self, category: str, project: str) -> list[str]:
        """The notes of a category in a repository that are not archived, newest first."""
        question = (
            "SELECT note FROM notes WHERE kind = 'note' AND category = ? AND project = ?"
            " AND archived = 0 ORDER BY id DESC"
        )
        return [note for (note,) in self._ask(question, (category, project))]

    def naming(self, entities: Collection[str]) -> dict[str, float]:
        """The notes that name any of `entities`, with a weight: an entity that many notes name
        weighs little.
        """
        found: dict[str, float] = {}
        with self._index.reading() as database:
            for entity in entities:
                notes = _notes_with_entity(database, entity)
                for note_id in notes:
                    found[note_id] = found.get(note_id, 0.0) + 1 / len(notes)
        return found

    def neighbours(self, note_ids: Collection[str], hops: int) -> dict[str, tuple[int, str]]:
        """The notes reached from `note_ids` along edges, in either direction, and along relations
        of their entities.

        Each with the hops, and the edge (`refines`, `contradicts`, `relates-to`) or relation of the
        last one.
        """
        found: dict[str, tuple[int, str]] = {}
        edge = set(note_ids)
        with self._index.reading() as database:
            for hop in range(1, hops + 1):
                ids = (json.dumps(list(edge)),)
                reached = database.execute(_ALONG_EDGES, ids * 2).fetchall()
                related = dict(database.execute(_RELATED, ids).fetchall())
                for entity, relation in related.items():
                    reached += [
                        (note_id, relation) for note_id in _notes_with_entity(database, entity)
                    ]
                edge = set()
                for note_id, way in reached:
                    if note_id not in found and note_id not in note_ids:
                        found[note_id] = hop, way
                        edge.add(note_id)
        return found

    def _ask(self, question: str, values: Any = ()) -> list[Any]:
        with self._index.reading() as database:
            return database.execute(question, values).fetchall()


def _walk(database: sqlite3.Connection, start: str, question: str) -> list[str]:
    """The chain of ids after `start`; if several follow an id, the first one by id."""
    seen, at = [start], start
    while len(seen) <= _MAX_CHAIN:
        row = database.execute(f"{question} ORDER BY 1 LIMIT 1", (at,)).fetchone()
        if row is None or not row[0] or row[0] in seen:
            break
        at = row[0]
        seen.append(at)
    return seen[1:]


def _notes_with_entity(database: sqlite3.Connection, entity: str) -> list[str]:
    """The ids of the notes that name an entity, newest first; at most `MAX_NAMING`."""
    rows = database.execute(
        "SELECT notes.note FROM entities JOIN notes ON notes.id = entities.note"
        " WHERE entities.entity = ? AND notes.kind = 'note' ORDER BY entities.note DESC LIMIT ?",
        (entity, MAX_NAMING),
    )
    return [row[0] for row in rows]
