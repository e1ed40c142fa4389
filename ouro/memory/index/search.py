"""Search: messages and notes relevant to a query, by words and, if there are any, by vectors.

No model is called. The score of a passage is the share of the query's words in it and its neighbours, plus the
similarity of its vector, plus a little for the speaker and the days that the query names.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, Literal, Protocol

import msgspec

from ouro.errors import ModelError
from ouro.memory.index.index import Index
from ouro.memory.index.query import SPEAKERS, ParsedQuery, question_of
from ouro.memory.index.scoring import Weights

HitKind = Literal["note", "core", "message", "output"]
KINDS: tuple[HitKind, ...] = ("note", "core", "message", "output")


class MemoryHit(msgspec.Struct, frozen=True):
    id: str
    """Of a note its id, of a core line `facts.md:3`, of what was said `<session id>:<message number>`."""
    kind: HitKind
    text: str
    score: float
    parts: Mapping[str, float]
    """What the score is the sum of: `words`, `vectors`, `speaker`, `days`, `asks`, `session`."""
    place: int
    """Its row in the index."""
    at: str = ""
    session: str = ""
    title: str = ""
    """Of the session."""
    project: str = ""
    number: int = 0
    """Of the message; of a core line its line; of a note the turn that taught it."""
    role: str = ""
    """Who said it; of an output the tool."""
    path: str = ""
    """The file of a note or core line."""
    scope: str = ""
    category: str = ""
    confidence: float = 1.0
    source: str = ""
    branch: str = ""
    supersedes: str = ""
    archived: bool = False


class SearchFilter(msgspec.Struct, frozen=True):
    """Limits of a search; empty fields do not limit."""

    kinds: tuple[HitKind, ...] = KINDS
    since: str = ""
    """`2026-11-21`, or with a time, in UTC."""
    scope: str = ""
    category: str = ""
    """Where scope or category is said, only notes and core lines are meant."""
    project: str = ""
    """The folder of the sessions, the root of the repository of notes. What is the user's own is found in each."""
    session: str = ""
    """Its whole id."""
    archived: bool = False
    """Faded notes, too."""
    notes_of: tuple[str, ...] | None = None
    """The roots of the repositories whose notes and core lines may be told beside the user's own; None: of each."""


Weigh = Callable[[MemoryHit], float]
"""A factor for a note's score: what confidence, age and branch make of it."""


class PassageFilter(msgspec.Struct, frozen=True):
    ids: Sequence[int] = ()
    sessions: Sequence[int] = ()
    """And all those of these sessions, by `seq`."""


class VectorIndex(Protocol):
    """The protocol of vectors (`memory/index/vectors.py`), so that Search needs no numpy without them."""

    def question(self, text: str) -> Any: ...

    def questions(self, texts: Sequence[str]) -> list[Any]: ...

    def nearest(
        self, database: sqlite3.Connection, table: str, question: Any, count: int, only: PassageFilter | None = None
    ) -> list[int]:
        """The ids of the passages (within `only`, if given) with approximately the nearest vectors."""
        ...

    def cosines(self, database: sqlite3.Connection, table: str, question: Any, ids: Sequence[int]) -> dict[int, float]:
        """The cosine of each; passages without a vector are left out."""
        ...


class SearchRequest(msgspec.Struct, frozen=True):
    database: sqlite3.Connection
    question: ParsedQuery
    vector: Any
    """Of the question; None where there are no vectors."""
    vectors: VectorIndex | None
    wanted: SearchFilter
    weights: Weights

    def nearest(self, table: str, count: int, only: Callable[[], PassageFilter | None]) -> list[int]:
        """The ids of the nearest vectors; empty without vectors."""
        if self.vectors is None:
            return []
        return self.vectors.nearest(self.database, table, self.vector, count, only())

    def cosines(self, table: str, ids: Sequence[int]) -> dict[int, float]:
        """The cosine of each; empty without vectors."""
        return {} if self.vectors is None else self.vectors.cosines(self.database, table, self.vector, ids)


class Search:
    """Searches one index. Every method may block for some milliseconds: call it from a thread."""

    def __init__(
        self,
        index: Index,
        vectors: VectorIndex | None = None,
        weights: Weights | None = None,
        speakers: Sequence[str] = SPEAKERS,
    ) -> None:
        self.index = index
        self.vectors = vectors
        self._weights = weights or Weights()
        self._speakers = speakers

    def find(
        self,
        query: str,
        k: int = 5,
        wanted: SearchFilter | None = None,
        weigh: Weigh | None = None,
        today: date | None = None,
    ) -> list[MemoryHit]:
        """The `k` best hits of the given kinds, best first, without duplicates.

        If the embedding model does not answer, words alone decide.

        Raises:
            SearchUnavailable: the index cannot be read just now.
        """
        from ouro.memory.index.message_search import find_messages, find_outputs, prepare
        from ouro.memory.index.note_search import find_notes

        wanted = wanted or SearchFilter()
        question = question_of(query, self._speakers, today or datetime.now(UTC).date())
        vectors, vector = self._vector(question.spoken)
        kinds = set(wanted.kinds) - ({"message", "output"} if wanted.scope or wanted.category else set())
        hits: list[MemoryHit] = []
        with self.index.reading() as database:
            looking = SearchRequest(database, question, vector, vectors, wanted, self._weights)
            if {"note", "core"} & kinds:
                hits += find_notes(looking, weigh)
            if {"message", "output"} & kinds:
                prepare(database, wanted)
            if "message" in kinds:
                hits += find_messages(looking, k)
            if "output" in kinds:
                hits += find_outputs(looking, k)
        return _best(hits, k)

    def nearest_notes(self, texts: Sequence[str], k: int, wanted: Sequence[SearchFilter]) -> list[MemoryHit]:
        """The notes nearest in meaning to any of `texts`: `k` for each text and filter, each note with its best cosine.

        By vectors alone, best first; empty without vectors.

        Raises:
            SearchUnavailable: the index cannot be read just now.
            ModelError: the embedding model did not answer.
        """
        from ouro.memory.index.note_search import nearest_notes

        if self.vectors is None:
            return []
        best: dict[str, MemoryHit] = {}
        asked = self.vectors.questions(texts)
        with self.index.reading() as database:
            for text, vector in zip(texts, asked, strict=True):
                for item in wanted:
                    looking = SearchRequest(database, ParsedQuery(text, ()), vector, self.vectors, item, self._weights)
                    for hit in nearest_notes(looking, k):
                        if hit.id not in best or hit.score > best[hit.id].score:
                            best[hit.id] = hit
        return sorted(best.values(), key=lambda hit: -hit.score)

    def _vector(self, text: str) -> tuple[VectorIndex | None, Any]:
        """The vectors and the query's vector; None for both without vectors."""
        if self.vectors is None:
            return None, None
        try:
            return self.vectors, self.vectors.question(text)
        except ModelError:
            return None, None  # the embedder has logged it


def _best(hits: Sequence[MemoryHit], k: int) -> list[MemoryHit]:
    """The best hits, each text once: copies of a session have the same messages."""
    chosen: dict[str, MemoryHit] = {}
    for hit in sorted(hits, key=lambda item: -item.score):
        chosen.setdefault(hit.text, hit)
        if len(chosen) == k:
            break
    return list(chosen.values())
