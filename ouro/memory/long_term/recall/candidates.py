"""The notes that may be sent with a message, by the index alone: the same in this process and in the
one for the first message. `selection` decides which of them are sent.

A note is relevant by its words and its vector together; a note without a vector by its words,
weighted by rarity. Ranks are merged by reciprocal rank fusion with k = 60 (Cormack, Clarke and
Büttcher 2009).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ouro.memory.index import Search, SearchFilter
from ouro.memory.long_term.notes.entities import entities_in
from ouro.memory.long_term.recall.note_question import Candidate, NoteQuestion
from ouro.memory.long_term.recall.relevance import (
    MAX_STANDING,
    NEAR_BEST,
    STANDING_CATEGORIES,
    STANDING_RULE,
    find_relevant,
    is_request,
    is_rule_for,
    nearness,
    questions_in,
)
from ouro.utils.text import one_line

if TYPE_CHECKING:
    from ouro.memory.index import Graph, MemoryHit

RANK_CONSTANT = 60
"""k of reciprocal rank fusion."""
_HOP_WEIGHT = 0.6
"""The weight of a note for each link between it and a relevant note."""
# How many notes are looked at for each that is sent:
_FOUND_FACTOR = 3
"""Found by a sentence, or by the names in the message: they are combined with others."""
_VERSIONS_FACTOR = 4
"""Whose versions are looked up: several may be versions of one note."""
_SELECTION_FACTOR = 2
"""Given to the selection, which skips some."""
_MAX_RULES_LOOKED_AT = 10
"""Rules of a category: the nearest ones may have only words in common that name no kind of task."""
_LINKED_SCORE = _HOP_WEIGHT / (RANK_CONSTANT + 1)
"""The score of a note that is one link away from the best one."""


class CandidateFinder(msgspec.Struct, frozen=True):
    """Finds candidates in one index. Every method blocks, and raises SearchUnavailable."""

    search: Search
    graph: Graph

    def find(self, question: NoteQuestion, *, by_words: bool = False) -> list[Candidate]:
        """Find the notes that are relevant to a message: by words and vectors (only by words if
        `by_words`), by the entities that it names, and the rules and preferences for the kind of
        task that it asks for. Then add notes that are linked to these, or to core lines on the
        subject of the message. Returns the best, best first, with their versions.

        Each sentence of the message is searched for separately. The score of a note is that of its
        best rank among the relevant notes, plus that of its rank among those that name an entity.
        """
        limit = _FOUND_FACTOR * question.top_k
        filter_ = SearchFilter(kinds=("note",), project=question.project)
        weights = self.graph.find_naming(entities_in(question.text))
        named_ids = sorted(weights, key=lambda note_id: -weights[note_id])[:limit]
        search = Search(self.search.index) if by_words else self.search

        # Note id -> its score, and why it was found: notes that say something similar, notes that
        # name an entity of the message, then rules.
        scores: dict[str, float] = {}
        reasons: dict[str, str] = {}
        for text in questions_in(question.text):
            relevant = find_relevant(text, search.find(text, limit, filter_))
            for rank, (note_id, reason) in enumerate(relevant.items(), 1):
                scores[note_id] = max(scores.get(note_id, 0.0), 1 / (RANK_CONSTANT + rank))
                reasons.setdefault(note_id, reason)
        for rank, note_id in enumerate(named_ids, 1):
            scores[note_id] = scores.get(note_id, 0.0) + 1 / (RANK_CONSTANT + rank)
        for note_id in find_standing(question.text, search, question.project):
            scores.setdefault(note_id, _LINKED_SCORE)
            reasons.setdefault(note_id, STANDING_RULE)

        candidates = [
            Candidate(note_id, score, reasons.get(note_id) or "names the same entity")
            for note_id, score in scores.items()
        ]
        for note_id, core_line in question.linked.items():
            if note_id not in scores:
                reason = f"linked to “{one_line(core_line, 60)}”"
                candidates.append(Candidate(note_id, _LINKED_SCORE, reason))
        extended = self.add_neighbours(candidates, question.top_k, question.hop_depth)
        return self.add_versions(extended, question.top_k)

    def add_neighbours(
        self, candidates: Sequence[Candidate], top_k: int, hop_depth: int
    ) -> list[Candidate]:
        """The candidates, followed by the notes that are at most `hop_depth` links away from the
        `top_k` best of them. A linked note scores less than each of the best, the less the more
        links are between.
        """
        best = _select_best(candidates, top_k)
        if not best:
            return []
        neighbours = self.graph.neighbours([candidate.note_id for candidate in best], hop_depth)
        for candidate in candidates:
            neighbours.pop(candidate.note_id, None)
        extended = [*candidates]
        for note_id, (hops, link) in neighbours.items():
            score = best[-1].score * _HOP_WEIGHT**hops
            reason = f"{link.replace('_', ' ')}, {hops} away"
            extended.append(Candidate(note_id, score, reason))
        return extended

    def add_versions(self, candidates: Iterable[Candidate], top_k: int) -> list[Candidate]:
        """The best candidates, best first, each with its versions: twice as many as are sent,
        because some are skipped. Several versions of a note are one candidate, the best of them.
        """
        chosen = _select_best(candidates, _VERSIONS_FACTOR * top_k)
        latest = self.graph.find_latest(candidate.note_id for candidate in chosen)
        best_by_latest: dict[str, Candidate] = {}
        for candidate in chosen:  # best first: the best of several versions is set
            best_by_latest.setdefault(latest[candidate.note_id], candidate)
        return [
            replace(candidate, latest=note_id, versions=tuple(self.graph.find_versions(note_id)))
            for note_id, candidate in list(best_by_latest.items())[: _SELECTION_FACTOR * top_k]
        ]


def find_standing(text: str, search: Search, project: str) -> list[str]:
    """The ids of at most `MAX_STANDING` rules and preferences for the kind of task that the message
    asks for, nearest first. Empty if the message is a question.

    They are searched for apart from other notes: a word of any task (`test`) is no subject among
    all notes, but names the kind of task among rules.
    """
    if not is_request(text):
        return []
    hits: list[MemoryHit] = []
    for category in STANDING_CATEGORIES:
        filter_ = SearchFilter(kinds=("note",), project=project, category=category)
        hits += search.find(text, _MAX_RULES_LOOKED_AT, filter_)
    rules = [hit for hit in hits if is_rule_for(text, hit)]
    best_rules = sorted(rules, key=nearness, reverse=True)[:MAX_STANDING]
    return [hit.id for hit in best_rules if nearness(hit) >= NEAR_BEST * nearness(best_rules[0])]


def rank_by_order(note_ids: Sequence[str], reason: str) -> list[Candidate]:
    """Candidates for these notes with the same reason; the first have the best scores."""
    return [
        Candidate(note_id, 1 / (RANK_CONSTANT + rank), reason)
        for rank, note_id in enumerate(note_ids)
    ]


def _select_best(candidates: Iterable[Candidate], count: int) -> list[Candidate]:
    """The `count` candidates with the highest scores, best first."""
    return sorted(candidates, key=lambda candidate: -candidate.score)[:count]
