"""Which notes mean about the same, by their vectors."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from ouro.errors import ModelError, SearchUnavailable
from ouro.memory.index.lookup import Lookup
from ouro.memory.long_term.scope import ScopeMemory
from ouro.utils.log import log

if TYPE_CHECKING:
    from ouro.memory.long_term.notes.note import Note

_LIKE = 0.85
"""From this cosine on two notes mean about the same."""
_NEIGHBOURS = 12


class SimilarNotes:
    """Finds what is close in meaning, where there are vectors; the index is brought up to date first. Blocks."""

    def __init__(self, lookup: Lookup, scopes: Sequence[ScopeMemory]) -> None:
        self._lookup = lookup
        self._scopes = scopes
        self._is_ready = False

    def __call__(self, note: Note) -> Collection[str]:
        from ouro.memory.index.search import SearchFilter

        try:
            search = self._lookup.search()
            if search.vectors is None:
                return ()
            self._prepare()
            hits = search.find(note.text, _NEIGHBOURS, SearchFilter(kinds=("note",), scope=note.scope))
            vector = search.vectors.question(note.text)
            with search.index.reading() as database:
                close = search.vectors.cosines(database, "notes", vector, [hit.place for hit in hits])
        except (ModelError, SearchUnavailable) as error:
            log.warning("notes are compared by words alone: %s", error)
            return ()
        return [hit.id for hit in hits if close.get(hit.place, 0.0) >= _LIKE]

    def _prepare(self) -> None:
        if self._is_ready:
            return
        from ouro.memory.index.index import Sources
        from ouro.memory.index.note_indexer import MemoryFolder, project_of

        stores = [scope.store for scope in self._scopes]
        folders = (MemoryFolder(each.scope, project_of(each.scope, each.folder), each.folder) for each in stores)
        self._lookup.search().index.follow(Sources(memories=tuple(folders)))
        self._lookup.fill_notes()
        self._is_ready = True
