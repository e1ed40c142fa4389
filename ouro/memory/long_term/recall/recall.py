"""Recall: the notes that are relevant to a message, without a model, or by a model's hypotheses
(HyDE).

HyDE: Gao et al. 2022, "Precise Zero-Shot Dense Retrieval without Relevance Labels".
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property

import msgspec

from ouro.memory.index import Graph, Search, SearchFilter
from ouro.memory.long_term.recall.candidates import CandidateFinder, rank_by_order
from ouro.memory.long_term.recall.note_question import Candidate, NoteQuestion
from ouro.memory.long_term.recall.selection import (
    ABOUT_COMMANDS,
    ABOUT_FILES,
    ABOUT_REPEATED,
    REPEATED,
    NoteSelection,
    Recalled,
    Situation,
)

MIN_HYPOTHESIS_COSINE = 0.3
ABOUT_FILE = "about this file"
ABOUT_COMMAND = "about this command"


class Recall(msgspec.Struct, eq=False, dict=True):
    """Finds notes for a message. Every method blocks on index and files, and raises
    SearchUnavailable.
    """

    search: Search
    selection: NoteSelection

    @cached_property
    def graph(self) -> Graph:
        return Graph(self.search.index)

    @cached_property
    def candidates(self) -> CandidateFinder:
        return CandidateFinder(self.search, self.graph)

    def find(self, text: str, situation: Situation, *, by_words: bool = False) -> Recalled:
        """Find the notes that are relevant to a message, as `CandidateFinder.find` does, and select
        which are sent.
        """
        start = time.perf_counter()
        question = NoteQuestion.about(
            text, situation.project, situation.linked, self.selection.settings
        )
        candidates = self.candidates.find(question, by_words=by_words)
        return self.selection.select(candidates, situation, "local", start)

    def find_by_hypotheses(self, hypotheses: Sequence[str], situation: Situation) -> Recalled:
        """Find the notes nearest in meaning to each hypothesis: `retrieval_top_k` of each scope,
        and those linked to the best of them. Raises ModelError.
        """
        start = time.perf_counter()
        top_k = self.selection.settings.retrieval_top_k
        filters = [
            SearchFilter(kinds=("note",), scope=scope, project=situation.project)
            for scope in self.selection.notebook.scopes
        ]
        nearest = [
            Candidate(hit.id, hit.score, f"{hit.score:.2f} close to a hypothesis")
            for hit in self.search.nearest_notes(hypotheses, top_k, filters)
            if hit.score >= MIN_HYPOTHESIS_COSINE
        ]
        extended = self.candidates.add_neighbours(
            nearest, top_k, self.selection.settings.retrieval_hop_depth
        )
        candidates = self.candidates.add_versions(extended, top_k)
        return self.selection.select(candidates, situation, "hyde", start)

    def select_about_files(
        self, note_ids: Sequence[str], situation: Situation, room: int
    ) -> Recalled:
        """Select which of these notes about files that were just used are sent: at most `room`
        tokens. The first ids have the best scores.
        """
        return self._select_in_order(note_ids, ABOUT_FILE, situation, room, ABOUT_FILES)

    def select_about_commands(
        self, note_ids: Sequence[str], situation: Situation, room: int
    ) -> Recalled:
        """Select which of these notes about commands that were just run are sent: at most `room`
        tokens. The first ids have the best scores.
        """
        return self._select_in_order(note_ids, ABOUT_COMMAND, situation, room, ABOUT_COMMANDS)

    def select_repeated(self, note_ids: Sequence[str], situation: Situation, room: int) -> Recalled:
        """Select which notes of these dead ends are sent, for at most `room` tokens, after the
        agent has repeated what they describe. The first of `note_ids` get the best scores.
        """
        return self._select_in_order(note_ids, REPEATED, situation, room, ABOUT_REPEATED)

    def _select_in_order(
        self, note_ids: Sequence[str], reason: str, situation: Situation, room: int, about: str
    ) -> Recalled:
        """Select which of these notes are sent, the first ids first; `about` as in the text for the
        model.
        """
        start = time.perf_counter()
        ranked = rank_by_order(note_ids, reason)
        candidates = self.candidates.add_versions(ranked, self.selection.settings.retrieval_top_k)
        return self.selection.select(candidates, situation, "touch", start, room=room, about=about)
