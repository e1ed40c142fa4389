"""Overview: lists notes and core lines with badges, and the details of one note, for browsing memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ouro.memory.index import Graph, Index, MemoryFolder, MemoryHit, NoteVersion, Sources
from ouro.memory.long_term.notes.note import Note
from ouro.memory.long_term.notes.notebook import Notebook
from ouro.memory.long_term.notes.validity import Anchors, confidence_now
from ouro.memory.long_term.store import GitMemoryStore


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
        self._graph = Graph(index)
        self._folders = [MemoryFolder.of(store) for store in stores]
        self._notebook = Notebook({store.scope: store for store in stores})
        self._anchors = Anchors(root)
        self._untrusted = untrusted
        self._half_life = half_life_days

    def all(self) -> list[ListedEntry]:
        """Notes and core lines of these scopes, newest first."""
        self._index.follow(Sources(memories=tuple(self._folders)))
        facts = self._note_facts()
        found: list[ListedEntry] = []
        for folder in self._folders:
            found += [_listed(hit, folder, facts) for hit in self._graph.notes(folder.scope, folder.project)]
        return sorted(found, key=lambda item: (item.at, item.name, -item.line), reverse=True)

    def details(self, note_id: str) -> NoteDetails:
        """The details of a note.

        Raises:
            NoteError: there is no note with that id.
        """
        file = self._notebook.find(note_id)
        note = file.note
        chain, links = self._graph.chain(note.id), tuple(NoteLink(*edge) for edge in self._graph.edges_of(note.id))
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
        return self._graph.edges()

    def names(self) -> list[tuple[str, str]]:
        return self._graph.entities()

    def _note_facts(self) -> _NoteFacts:
        anchors, edges = self._graph.anchors(), self._graph.edges()
        before = {note: other for note, relationship, other in edges if relationship == "supersedes"}
        return _NoteFacts(
            contradicted={other for _, relationship, other in edges if relationship == "contradicts"},
            contradicting={note for note, relationship, _ in edges if relationship == "contradicts"},
            before=before,
            replaced=frozenset(before.values()),
            untrusted=self._untrusted(),
            is_stale=lambda path: bool(self._anchors.changed(anchors.get(path, ()))),
        )


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


def _listed(hit: MemoryHit, folder: MemoryFolder, facts: _NoteFacts) -> ListedEntry:
    name = hit.path.removeprefix(f"{folder.path}/")
    badges = ["unconfirmed"] if (folder.scope, name) in facts.untrusted else []
    line, turn = (0, hit.number) if hit.kind == "note" else (hit.number, 0)
    if hit.kind == "note":
        badges += _badges(hit, facts)
    return ListedEntry(
        hit.id, hit.kind, hit.scope, hit.category, hit.text, hit.at, name, line, hit.session, turn, tuple(badges)
    )


def _badges(hit: MemoryHit, facts: _NoteFacts) -> list[str]:
    changes = facts.changes(hit.id)
    return [
        *(["archived"] if hit.archived else []),
        *(["replaced"] if hit.id in facts.replaced else []),
        *(["contradicted"] if hit.id in facts.contradicted else []),
        *(["contradicts"] if hit.id in facts.contradicting else []),
        *(["stale"] if facts.is_stale(hit.path) else []),
        *([f"on {hit.branch}"] if hit.branch else []),
        *([f"changed {changes} time{'s' if changes > 1 else ''}"] if changes else []),
    ]
