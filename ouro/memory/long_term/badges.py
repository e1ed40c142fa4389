"""Badges: what is to be known of a note before it is believed: changed since, of a branch, out of date, archived."""

from __future__ import annotations

from ouro.errors import NoteError
from ouro.memory.long_term.anchors import Anchors
from ouro.memory.long_term.graph import Graph
from ouro.memory.long_term.notebook import Notebook


class Badges:
    """Blocks on the index, and on the note's file.

    Args:
        graph: how the notes hang together.
        notebook: has the notes whose files are looked at; of others only what the index tells is known.
        anchors: the files of the repository that is worked in.
    """

    def __init__(self, graph: Graph, notebook: Notebook, anchors: Anchors) -> None:
        self._graph = graph
        self._notebook = notebook
        self._anchors = anchors

    def of(self, note_id: str) -> tuple[str, ...]:
        """In words, what matters most first; nothing for a note that holds, everywhere, and never changed.

        Raises:
            SearchUnavailable: the index cannot be read just now.
        """
        chain = self._graph.chain(note_id)
        last, changed = (chain[-1].note_id, len(chain) - 1) if chain else (note_id, 0)
        found = [f"no longer so: {last} took its place"] if last != note_id else []
        if changed and not found:
            found.append(f"changed {changed} time{'s' if changed > 1 else ''}")
        try:
            kept = self._notebook.find(note_id)
        except NoteError:
            return tuple(found)
        if kept.archived:
            found.append("in the archive")
        if kept.note.branch:
            found.append(f"learned on the branch {kept.note.branch}")
        if stale := self._anchors.changed(kept.note.anchors):
            found.append(f"may be out of date: {', '.join(stale)} changed")
        return tuple(found)
