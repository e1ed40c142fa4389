"""Badges: what is to be known of a note that was found before it is believed. All of it is in the index."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from pathlib import Path

from ouro.memory.index.index import Index
from ouro.memory.index.search import MemoryHit
from ouro.memory.long_term.notes.anchors import Anchors
from ouro.memory.long_term.notes.graph import Graph
from ouro.memory.long_term.notes.note import Anchor
from ouro.utils.text import plural


class Badges:
    """Blocks on the index, and on the files that notes speak of.

    Args:
        index: has the notes.
        root: of the repository that is worked in, whose files the notes of no repository speak of.
        doubted: the files that nobody has vouched for, by their whole paths.
    """

    def __init__(self, index: Index, root: Path, doubted: Collection[str] = ()) -> None:
        self._index = index
        self._doubted = doubted
        self._graph = Graph(index)
        self._anchors = cache(lambda project: Anchors(Path(project) if project else root))

    def of(self, hit: MemoryHit) -> tuple[str, ...]:
        """In words, what matters most first; nothing for what holds, everywhere, and never changed.

        Raises:
            SearchUnavailable: the index cannot be read just now.
        """
        found = ["nobody has vouched for it"] if hit.path in self._doubted else []
        return (*found, *(self._of_note(hit) if hit.kind == "note" else ()))

    def _of_note(self, hit: MemoryHit) -> list[str]:
        chain = self._graph.chain(hit.id)
        last, changed = (chain[-1].note_id, len(chain) - 1) if chain else (hit.id, 0)
        found = [f"no longer so: {last} took its place"] if last != hit.id else []
        if changed and not found:
            found.append(f"changed {plural(changed, 'time')}")
        if others := self._graph.contradicting(hit.id):
            found.append(f"contradicted by {', '.join(others)}")
        if hit.archived:
            found.append("in the archive")
        if hit.branch:
            found.append(f"learned on the branch {hit.branch}")
        if stale := self._anchors(hit.project).changed(self._anchors_of(hit)):
            found.append(f"may be out of date: {', '.join(stale)} changed")
        return found

    def _anchors_of(self, hit: MemoryHit) -> list[Anchor]:
        with self._index.reading() as database:
            rows = database.execute("SELECT file, blob FROM anchors WHERE note = ? AND path = ?", (hit.id, hit.path))
            return [Anchor(file, blob) for file, blob in rows]
