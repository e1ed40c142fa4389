"""Graph: how the notes of the index are linked, by versions, edges, entities and files."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ouro.memory.index.index import Index
    from ouro.memory.index.memory_folder import MemoryFolder
    from ouro.memory.long_term.notes.note import Anchor, Note

_MAX_CHAIN = 200
"""The most versions of one note that are followed."""
MAX_NAMING = 50
"""The most notes that are read for one entity or file."""
_MAX_MENTIONING = 500
"""The most notes that are read for the words of one search, newest first: words that more notes
contain do not distinguish them.
"""
_NEXT_VERSION = "SELECT note FROM notes WHERE supersedes = ? AND kind = 'note'"
_PREVIOUS_VERSION = "SELECT supersedes FROM notes WHERE note = ? AND kind = 'note'"
_CONTRADICTING_NOTES = """
    SELECT DISTINCT notes.note FROM edges
    JOIN notes ON notes.note = CASE edges.note WHEN :note THEN other ELSE edges.note END
    WHERE relationship = 'contradicts' AND :note IN (edges.note, other) AND archived = 0
    AND notes.note NOT IN (SELECT supersedes FROM notes WHERE supersedes <> '') ORDER BY notes.note"""
_NOTES_OF_FOLDER = """
    SELECT path, json_object('id', note, 'updated_at', at, 'scope', scope, 'category', category, 'text', text,
        'supersedes', nullif(supersedes, ''), 'session_id', session, 'turn', turn, 'source', source,
        'confidence', confidence, 'branch', nullif(branch, ''),
        'related', json((SELECT json_group_array(json_object('id', other, 'relationship', relationship))
            FROM edges WHERE edges.path = notes.path)),
        'anchors', json((SELECT json_group_array(json_object('path', file, 'blob', blob))
            FROM anchors WHERE anchors.path = notes.path)),
        'entities', json((SELECT json_group_array(entity) FROM entities WHERE entities.note = notes.id)))
    FROM notes WHERE kind = 'note' AND scope = ? AND project = ?"""
_IN_LIST = "IN (SELECT value FROM json_each(?))"
_LINKED_NOTES = f"""
    SELECT id, way FROM (SELECT other AS id, relationship AS way, 0 AS back FROM edges WHERE note {_IN_LIST}
        UNION ALL SELECT note, relationship, 1 FROM edges WHERE other {_IN_LIST}) ORDER BY back, id"""
"""The notes at the other ends of edges: first those that a note links to, then those that link to
it.
"""
_RELATED_ENTITIES = f"""
    WITH named AS (SELECT DISTINCT entity FROM entities JOIN notes ON notes.id = entities.note
        WHERE notes.note {_IN_LIST} AND notes.kind = 'note')
    SELECT target, relation FROM relations WHERE source IN named
    UNION ALL SELECT source, relation FROM relations WHERE target IN named"""
"""The entities that have a relation to an entity of the notes."""


class Graph:
    """The notes of one index, and how they are linked. Every method blocks, and raises
    SearchUnavailable. Unknown ids are ignored; cycles end.
    """

    def __init__(self, index: Index) -> None:
        self._index = index

    def notes(self, folder: MemoryFolder) -> list[tuple[str, Note]]:
        """Returns all notes of a memory folder, archived ones too, each with its path before it.

        They have only the fields of the index: `updated_at` is the only time, and `entities`
        includes those that were found in the text.
        """
        from ouro.memory.long_term.notes.note import Note
        from ouro.utils.decoding import decode_json

        rows = self._query(_NOTES_OF_FOLDER, (folder.scope, folder.project))
        return [(path, decode_json(note, Note)) for path, note in rows]

    def projects(self) -> list[str]:
        """Returns the roots of the repositories that have files of memory in the index."""
        return [
            project
            for (project,) in self._query("SELECT DISTINCT project FROM files WHERE project <> ''")
        ]

    def find_versions(self, note_id: str) -> list[str]:
        """Returns the ids of all versions of a note that are in the index, oldest first: the note
        alone if it never changed, none if it is not known.
        """
        with self._index.reading() as database:
            ids = [
                *reversed(_follow_chain(database, note_id, _PREVIOUS_VERSION)),
                note_id,
                *_follow_chain(database, note_id, _NEXT_VERSION),
            ]
            rows = database.execute(
                f"SELECT note FROM notes WHERE note {_IN_LIST} AND kind = 'note'",
                (json.dumps(ids),),
            )
            existing = {note for (note,) in rows}
        return [version for version in dict.fromkeys(ids) if version in existing]

    def find_latest(self, note_ids: Iterable[str]) -> dict[str, str]:
        """Returns the id of the newest version of each of the notes, by the id that was given,
        which may be that of any version.
        """
        latest: dict[str, str] = {}
        with self._index.reading() as database:
            for note_id in note_ids:
                later_versions = _follow_chain(database, note_id, _NEXT_VERSION)
                latest[note_id] = later_versions[-1] if later_versions else note_id
        return latest

    def find_contradicting(self, note_id: str) -> list[str]:
        """Returns the ids of the notes that an edge `contradicts` links to a note, in either
        direction. Archived notes, and those with a newer version, are left out.
        """
        return [other for (other,) in self._query(_CONTRADICTING_NOTES, {"note": note_id})]

    def anchors_of(self, path: str) -> list[Anchor]:
        """Returns the files that the note at this path names, each with the git hash of its content
        at that time.
        """
        from ouro.memory.long_term.notes.note import Anchor

        return [
            Anchor(*row)
            for row in self._query("SELECT file, blob FROM anchors WHERE path = ?", (path,))
        ]

    def find_anchored_to(self, files: Collection[str], project: str) -> list[str]:
        """Returns the ids of the notes that name one of these files as an anchor, newest first; at
        most MAX_NAMING. They are of this repository or the user's own, and not archived.
        """
        statement = (
            f"SELECT DISTINCT notes.note FROM anchors JOIN notes USING (path) WHERE file {_IN_LIST} AND"
            " project IN ('', ?) AND archived = 0 ORDER BY notes.id DESC LIMIT ?"
        )
        return [
            note
            for (note,) in self._query(statement, (json.dumps(list(files)), project, MAX_NAMING))
        ]

    def find_mentioning(self, words: Collection[str], project: str) -> list[tuple[str, str]]:
        """Returns the ids and the texts of the notes whose text contains one of these words, newest
        first; at most `_MAX_MENTIONING`. They are of this repository or the user's own, and not
        archived.
        """
        statement = (
            "SELECT DISTINCT note, text FROM notes JOIN json_each(?) AS word ON instr(text, word.value)"
            " WHERE kind = 'note' AND project IN ('', ?) AND archived = 0 ORDER BY notes.id DESC LIMIT ?"
        )
        return self._query(statement, (json.dumps(sorted(words)), project, _MAX_MENTIONING))

    def find_in_category(self, category: str, project: str) -> list[str]:
        """Returns the ids of the notes of a category in a repository that are not archived,
        newest first.
        """
        statement = (
            "SELECT note FROM notes WHERE kind = 'note' AND category = ? AND project = ?"
            " AND archived = 0 ORDER BY id DESC"
        )
        return [note for (note,) in self._query(statement, (category, project))]

    def find_naming(self, entities: Collection[str]) -> dict[str, float]:
        """Returns the notes that name any of the entities, by id, each with a weight. An entity
        gives each of the N notes that name it the weight 1/N; the weights of a note are summed.
        """
        weights: dict[str, float] = {}
        with self._index.reading() as database:
            for entity in entities:
                notes = _notes_with_entity(database, entity)
                for note_id in notes:
                    weights[note_id] = weights.get(note_id, 0.0) + 1 / len(notes)
        return weights

    def neighbours(self, note_ids: Collection[str], hops: int) -> dict[str, tuple[int, str]]:
        """Returns the notes that are reached from `note_ids` in at most so many hops, by id. A hop
        follows an edge, in either direction, or a relation between entities of two notes.

        Each note has the number of hops, and the name of the last edge (`refines`, `contradicts`,
        `relates-to`) or relation. The given notes are not among them.
        """
        neighbours: dict[str, tuple[int, str]] = {}
        last_reached = set(note_ids)
        with self._index.reading() as database:
            for hop in range(1, hops + 1):
                ids = (json.dumps(list(last_reached)),)
                reached = database.execute(_LINKED_NOTES, ids * 2).fetchall()
                # An entity with several relations is looked up once, with the last of them.
                related = dict(database.execute(_RELATED_ENTITIES, ids).fetchall())
                for entity, relation in related.items():
                    reached += [
                        (note_id, relation) for note_id in _notes_with_entity(database, entity)
                    ]
                last_reached = set()
                for note_id, link in reached:
                    if note_id not in neighbours and note_id not in note_ids:
                        neighbours[note_id] = hop, link
                        last_reached.add(note_id)
        return neighbours

    def _query(self, statement: str, parameters: Any = ()) -> list[Any]:
        with self._index.reading() as database:
            return database.execute(statement, parameters).fetchall()


def _follow_chain(database: sqlite3.Connection, start: str, query: str) -> list[str]:
    """Returns the ids that follow `start` in a chain of versions, nearest first; `query` finds the
    next one. If several follow an id, the first one by id counts. Cycles end.
    """
    chain, current_id = [start], start
    while len(chain) <= _MAX_CHAIN:
        row = database.execute(f"{query} ORDER BY 1 LIMIT 1", (current_id,)).fetchone()
        if row is None or not row[0] or row[0] in chain:
            break
        current_id = row[0]
        chain.append(current_id)
    return chain[1:]


def _notes_with_entity(database: sqlite3.Connection, entity: str) -> list[str]:
    """Returns the ids of the notes that name an entity, newest first; at most `MAX_NAMING`."""
    rows = database.execute(
        "SELECT notes.note FROM entities JOIN notes ON notes.id = entities.note"
        " WHERE entities.entity = ? AND notes.kind = 'note' ORDER BY entities.note DESC LIMIT ?",
        (entity, MAX_NAMING),
    )
    return [row[0] for row in rows]
