"""Overview: the notes and core lines there are, and all there is to tell of one, for whoever looks through them."""

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
    """What matters most first: `unconfirmed` (nobody has vouched for it), `archived`, `replaced`, `contradicted`,
    `contradicts`, `stale` (a file that it speaks of has changed), `on BRANCH`, `changed 3 times`."""


class NoteLink(msgspec.Struct, frozen=True):
    way: str
    """`refines`, `contradicts` or `relates-to`; with `by` behind it where the other note says so of this one."""
    note_id: str
    text: str


class NoteDetails(msgspec.Struct, frozen=True):
    note: Note
    scope: str
    name: str
    chain: tuple[NoteVersion, ...]
    """All versions, oldest first, this one among them."""
    ties: tuple[NoteLink, ...]
    confidence: float
    """As of now."""
    badges: tuple[str, ...]
    problems: tuple[str, ...]


class Overview:
    """Everything blocks: use from a thread. The list comes from the index, details from the file.

    Args:
        index: brought up to date with the folders of `stores` before it is read.
        untrusted: the files, by scope and name, that nobody has vouched for.
        root: of the repository that is worked in.

    Raises:
        SearchUnavailable: the index cannot be read just now.
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
        """Notes and core lines of these scopes, the latest first."""
        self._index.follow(Sources(memories=tuple(self._folders)))
        with self._index.reading() as database:
            known = self._signs(database)
            found: list[ListedEntry] = []
            for folder in self._folders:
                rows = database.execute(
                    f"SELECT {_COLUMNS} FROM notes WHERE scope = ? AND project = ?", (folder.scope, folder.project)
                )
                found += [_listed(row, folder, known) for row in rows]
        return sorted(found, key=lambda item: (item.at, item.name, -item.line), reverse=True)

    def details(self, note_id: str) -> NoteDetails:
        """All there is to tell of a note.

        Raises:
            NoteError: there is none of that id.
        """
        kept = self._notebook.find(note_id)
        note, graph = kept.note, Graph(self._index)
        chain, ties = graph.chain(note.id), self._ties(note.id)
        badges = [
            *(["unconfirmed"] if (kept.scope, kept.name) in self._untrusted() else []),
            *(["archived"] if kept.archived else []),
            *(["replaced"] if chain and chain[-1].note_id != note.id else []),
            *(["contradicted"] if any(tie.way == "contradicts, by" for tie in ties) else []),
            *(["contradicts"] if any(tie.way == "contradicts" for tie in ties) else []),
            *([f"stale: {', '.join(changed)}"] if (changed := self._anchors.changed(note.anchors)) else []),
            *([f"on {note.branch}"] if note.branch else []),
        ]
        confidence = confidence_now(note, datetime.now(UTC), self._half_life)
        return NoteDetails(note, kept.scope, kept.name, chain, ties, confidence, tuple(badges), kept.problems)

    def ties(self) -> list[tuple[str, str, str]]:
        """All edges between notes: from, relationship, to; those to the note before it are `supersedes`."""
        with self._index.reading() as database:
            edges = database.execute("SELECT note, relationship, other FROM edges ORDER BY 1, 3").fetchall()
            chains = database.execute("SELECT note, 'supersedes', supersedes FROM notes WHERE supersedes <> ''")
            return [(str(a), str(way), str(b)) for a, way, b in (*edges, *chains.fetchall())]

    def names(self) -> list[tuple[str, str]]:
        with self._index.reading() as database:
            rows = database.execute(
                "SELECT notes.note, entity FROM entities JOIN notes ON notes.id = entities.note ORDER BY 2, 1"
            )
            return [(str(note), str(entity)) for note, entity in rows]

    def _signs(self, database: sqlite3.Connection) -> _Signs:
        anchors: dict[str, list[Anchor]] = {}
        for note, file, blob in database.execute("SELECT note, file, blob FROM anchors"):
            anchors.setdefault(note, []).append(Anchor(file, blob))
        before = dict(database.execute("SELECT note, supersedes FROM notes WHERE supersedes <> ''"))
        return _Signs(
            contradicted=_ids(database, "SELECT other FROM edges WHERE relationship = 'contradicts'"),
            contradicting=_ids(database, "SELECT note FROM edges WHERE relationship = 'contradicts'"),
            before=before,
            replaced=frozenset(before.values()),
            untrusted=self._untrusted(),
            is_stale=lambda note: bool(self._anchors.changed(anchors.get(note, ()))),
        )

    def _ties(self, note_id: str) -> tuple[NoteLink, ...]:
        with self._index.reading() as database:
            there = database.execute("SELECT relationship, other FROM edges WHERE note = ?", (note_id,)).fetchall()
            back = database.execute("SELECT relationship, note FROM edges WHERE other = ?", (note_id,)).fetchall()
            texts = {other: _text_of(database, other) for _, other in (*there, *back)}
        named = [*there, *((f"{way}, by", other) for way, other in back)]
        return tuple(NoteLink(way, other, texts[other]) for way, other in named)


class _Signs(msgspec.Struct, frozen=True):
    """Of all notes: what one row of them does not tell."""

    contradicted: Collection[str]
    contradicting: Collection[str]
    before: Mapping[str, str]
    """The note that each took the place of."""
    replaced: Collection[str]
    untrusted: Collection[tuple[str, str]]
    is_stale: Callable[[str], bool]

    def changes(self, note: str) -> int:
        seen = {note}
        while (note := self.before.get(note, "")) and note not in seen:
            seen.add(note)
        return len(seen) - 1


def _listed(row: Sequence[Any], folder: MemoryFolder, known: _Signs) -> ListedEntry:
    note_id, kind, scope, category, text, at, path, line, session, turn, branch, archived = row
    name = path.removeprefix(f"{folder.path}/")
    badges = ["unconfirmed"] if (folder.scope, name) in known.untrusted else []
    if kind == "note":
        badges += _badges(note_id, known, branch, is_archived=bool(archived))
    return ListedEntry(note_id, kind, scope, category, text, at, name, line, session, turn, tuple(badges))


def _badges(note_id: str, known: _Signs, branch: str, *, is_archived: bool) -> list[str]:
    changes = known.changes(note_id)
    return [
        *(["archived"] if is_archived else []),
        *(["replaced"] if note_id in known.replaced else []),
        *(["contradicted"] if note_id in known.contradicted else []),
        *(["contradicts"] if note_id in known.contradicting else []),
        *(["stale"] if known.is_stale(note_id) else []),
        *([f"on {branch}"] if branch else []),
        *([f"changed {changes} time{'s' if changes > 1 else ''}"] if changes else []),
    ]


def _ids(database: sqlite3.Connection, question: str) -> frozenset[str]:
    return frozenset(row[0] for row in database.execute(question))


def _text_of(database: sqlite3.Connection, note_id: str) -> str:
    row = database.execute("SELECT text FROM notes WHERE note = ? AND kind = 'note' LIMIT 1", (note_id,)).fetchone()
    return str(row[0]) if row else "it is not there any more"
