"""Overview: lists notes and core lines with badges, and the details of one note, for browsing memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from ouro.memory.index.index import Index, Sources
from ouro.memory.index.note_indexer import MemoryFolder
from ouro.memory.long_term.notes.graph import Graph, NoteVersion
from ouro.memory.long_term.notes.note import Anchor, Note
from ouro.memory.long_term.notes.notebook import Notebook
from ouro.memory.long_term.notes.validity import Anchors, confidence_now
from ouro.memory.long_term.store import GitMemoryStore

_COLUMNS = "note, kind, scope, category, text, at, path, line, session, turn, branch, archived"


class ListedEntry(msgspec.Struct, frozen=True):
    id: str
    kind: str
    """`note` or `core`."""
    scope: str
    category: str
    text: str
    at: str
    name: str
    """The file, below the scope's folder."""
    line: int = 0
    session: str = ""
    turn: int = 0
    badges: tuple[str, ...] = ()
    """The most important first: `unconfirmed` (not approved), `archived`, `replaced`, `contradicted`, `contradicts`,
    `stale` (a file that it names has changed), `on BRANCH`, `changed 3 times`."""


class NoteLink(msgspec.Struct, frozen=True):
    relationship: str
    """`refines`, `contradicts` or `relates-to`; followed by `, by` if the link is from the other note to this one."""
    note_id: str
    text: str


class NoteDetails(msgspec.Struct, frozen=True):
    note: Note
    scope: str
    name: str
    chain: tuple[NoteVersion, ...]
    """All versions, oldest first, including this one."""
    links: tuple[NoteLink, ...]
    confidence: float
    """The confidence now, after decay."""
    badges: tuple[str, ...]
    problems: tuple[str, ...]


class Overview:
    """Lists memory from the index, and reads details from the files. Everything blocks: use from a thread.

    Args:
        index: updated from the folders of `stores` before it is read.
        untrusted: returns scope and name of the files with unapproved changes.
        root: the root of the current repository.

    Raises:
        SearchUnavailable: the index cannot be read.
    """

    def __init__(
        self,
        index: Index,
        stores: Sequence[GitMemoryStore],
        root: Path,
        untrusted: Callable[[], Collection[tuple[str, str]]] = frozenset,
        half_life_days: float = 30,
    ) -> None:
        self._index = index
        self._folders = [MemoryFolder.of(store) for store in stores]
        self._notebook = Notebook({store.scope: store for store in stores})
        self._anchors = Anchors(root)
        self._untrusted = untrusted
        self._half_life = half_life_days

    def all(self) -> list[ListedEntry]:
        """Notes and core lines of these scopes, newest first."""
        self._index.follow(Sources(memories=tuple(self._folders)))
        with self._index.reading() as database:
            facts = self._note_facts(database)
            found: list[ListedEntry] = []
            for folder in self._folders:
                rows = database.execute(
                    f"SELECT {_COLUMNS} FROM notes WHERE scope = ? AND project = ?", (folder.scope, folder.project)
                )
                found += [_listed(row, folder, facts) for row in rows]
        return sorted(found, key=lambda item: (item.at, item.name, -item.line), reverse=True)

    def details(self, note_id: str) -> NoteDetails:
        """The details of a note.

        Raises:
            NoteError: there is no note with that id.
        """
        file = self._notebook.find(note_id)
        note, graph = file.note, Graph(self._index)
        chain, links = graph.chain(note.id), self._links_of(note.id)
        badges = [
            *(["unconfirmed"] if (file.scope, file.name) in self._untrusted() else []),
            *(["archived"] if file.archived else []),
            *(["replaced"] if chain and chain[-1].note_id != note.id else []),
            *(["contradicted"] if any(link.relationship == "contradicts, by" for link in links) else []),
            *(["contradicts"] if any(link.relationship == "contradicts" for link in links) else []),
            *([f"stale: {', '.join(changed)}"] if (changed := self._anchors.changed(note.anchors)) else []),
            *([f"on {note.branch}"] if note.branch else []),
        ]
        confidence = confidence_now(note, datetime.now(UTC), self._half_life)
        return NoteDetails(note, file.scope, file.name, chain, links, confidence, tuple(badges), file.problems)

    def links(self) -> list[tuple[str, str, str]]:
        """All edges between notes: from, relationship, to. `supersedes` leads to the previous version."""
        with self._index.reading() as database:
            edges = database.execute("SELECT note, relationship, other FROM edges ORDER BY 1, 3").fetchall()
            chains = database.execute("SELECT note, 'supersedes', supersedes FROM notes WHERE supersedes <> ''")
            return [(str(a), str(relationship), str(b)) for a, relationship, b in (*edges, *chains.fetchall())]

    def names(self) -> list[tuple[str, str]]:
        with self._index.reading() as database:
            rows = database.execute(
                "SELECT notes.note, entity FROM entities JOIN notes ON notes.id = entities.note ORDER BY 2, 1"
            )
            return [(str(note), str(entity)) for note, entity in rows]

    def _note_facts(self, database: sqlite3.Connection) -> _NoteFacts:
        anchors: dict[str, list[Anchor]] = {}
        for note, file, blob in database.execute("SELECT note, file, blob FROM anchors"):
            anchors.setdefault(note, []).append(Anchor(file, blob))
        before = dict(database.execute("SELECT note, supersedes FROM notes WHERE supersedes <> ''"))
        return _NoteFacts(
            contradicted=_ids(database, "SELECT other FROM edges WHERE relationship = 'contradicts'"),
            contradicting=_ids(database, "SELECT note FROM edges WHERE relationship = 'contradicts'"),
            before=before,
            replaced=frozenset(before.values()),
            untrusted=self._untrusted(),
            is_stale=lambda note: bool(self._anchors.changed(anchors.get(note, ()))),
        )

    def _links_of(self, note_id: str) -> tuple[NoteLink, ...]:
        with self._index.reading() as database:
            there = database.execute("SELECT relationship, other FROM edges WHERE note = ?", (note_id,)).fetchall()
            back = database.execute("SELECT relationship, note FROM edges WHERE other = ?", (note_id,)).fetchall()
            texts = {other: _text_of(database, other) for _, other in (*there, *back)}
        named = [*there, *((f"{relationship}, by", other) for relationship, other in back)]
        return tuple(NoteLink(relationship, other, texts[other]) for relationship, other in named)


class _NoteFacts(msgspec.Struct, frozen=True):
    """Facts about all notes that a single row of the index does not have."""

    contradicted: Collection[str]
    contradicting: Collection[str]
    before: Mapping[str, str]
    """Note -> the note that it replaces."""
    replaced: Collection[str]
    untrusted: Collection[tuple[str, str]]
    is_stale: Callable[[str], bool]

    def changes(self, note: str) -> int:
        seen = {note}
        while (note := self.before.get(note, "")) and note not in seen:
            seen.add(note)
        return len(seen) - 1


def _listed(row: Sequence[Any], folder: MemoryFolder, facts: _NoteFacts) -> ListedEntry:
    note_id, kind, scope, category, text, at, path, line, session, turn, branch, archived = row
    name = path.removeprefix(f"{folder.path}/")
    badges = ["unconfirmed"] if (folder.scope, name) in facts.untrusted else []
    if kind == "note":
        badges += _badges(note_id, facts, branch, is_archived=bool(archived))
    return ListedEntry(note_id, kind, scope, category, text, at, name, line, session, turn, tuple(badges))


def _badges(note_id: str, facts: _NoteFacts, branch: str, *, is_archived: bool) -> list[str]:
    changes = facts.changes(note_id)
    return [
        *(["archived"] if is_archived else []),
        *(["replaced"] if note_id in facts.replaced else []),
        *(["contradicted"] if note_id in facts.contradicted else []),
        *(["contradicts"] if note_id in facts.contradicting else []),
        *(["stale"] if facts.is_stale(note_id) else []),
        *([f"on {branch}"] if branch else []),
        *([f"changed {changes} time{'s' if changes > 1 else ''}"] if changes else []),
    ]


def _ids(database: sqlite3.Connection, question: str) -> frozenset[str]:
    return frozenset(row[0] for row in database.execute(question))


def _text_of(database: sqlite3.Connection, note_id: str) -> str:
    row = database.execute("SELECT text FROM notes WHERE note = ? AND kind = 'note' LIMIT 1", (note_id,)).fetchone()
    return str(row[0]) if row else "deleted"
