"""Search in notes and core lines."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

from msgspec.structs import replace

from ouro.memory.index.scoring import PassageRange, best_of, days_fit, rows_of, word_scores
from ouro.memory.index.search import MemoryHit, PassageFilter, SearchRequest, Weigh

MAX_CANDIDATES = 150
MAX_NEAREST = 300
"""Candidates by the signs of their vectors."""
_COLUMNS = (
    "id, kind, note, line, scope, project, category, text, at, confidence, source, branch, session, turn, supersedes,"
    " path, archived"
)


def find_notes(looking: SearchRequest, weigh: Weigh | None = None) -> list[MemoryHit]:
    """Notes and core lines relevant to the query, unordered; `weigh` returns a factor for each."""
    fitting = _fitting(looking)
    shares = word_scores(looking.database, "notes", looking.question.words, fitting, has_neighbours=False)
    nearest = looking.nearest("notes", MAX_CANDIDATES, lambda: _only(looking.database, fitting))
    chosen = {*best_of(shares, MAX_CANDIDATES), *nearest}
    cosines = looking.cosines("notes", sorted(chosen))
    usual = sum(cosines.values()) / len(cosines) if cosines else 0.0
    hits = []
    for hit in note_hits(looking, chosen):
        parts = {"words": shares.get(hit.place, 0.0)}
        if cosines:
            parts["vectors"] = looking.weights.vectors * max(0.0, cosines.get(hit.place, usual))
        if fit := days_fit(hit.at, looking.question):
            parts["days"] = looking.weights.days * fit
        scored = replace(hit, parts=parts, score=sum(parts.values()))
        factor = weigh(scored) if weigh else 1.0
        if scored.score * factor > 0:
            hits.append(replace(scored, score=scored.score * factor))
    return hits


def nearest_notes(looking: SearchRequest, k: int) -> list[MemoryHit]:
    """The `k` notes that are nearest in meaning, best first; their score is the cosine."""
    fitting = _fitting(looking)
    nearest = looking.nearest("notes", MAX_NEAREST, lambda: _only(looking.database, fitting))
    cosines = looking.cosines("notes", nearest)
    hits = [replace(hit, score=cosines[hit.place]) for hit in note_hits(looking, cosines)]
    return sorted(hits, key=lambda hit: -hit.score)[:k]


def note_hits(looking: SearchRequest, places: Iterable[int]) -> list[MemoryHit]:
    """These notes and core lines as hits without a score."""
    found = []
    for row in rows_of(looking.database, "notes", _COLUMNS, sorted(places)):
        (place, kind, note, line, scope, project, category, text, at, confidence, source, branch, session, turn,
         supersedes, path, archived) = row  # fmt: skip
        hit = MemoryHit(
            note, kind, text, 0.0, {}, place, at=at, session=session, project=project, number=line or turn, path=path,
            scope=scope, category=category, confidence=confidence, source=source, branch=branch, supersedes=supersedes,
            archived=bool(archived),
        )  # fmt: skip
        found.append(hit)
    return found


def _fitting(looking: SearchRequest) -> PassageRange:
    """The notes and core lines that pass the filter."""
    wanted = looking.wanted
    kinds = ", ".join(f"'{kind}'" for kind in wanted.kinds)
    parts = [f"notes.kind IN ({kinds})", *([] if wanted.archived else ["notes.archived = 0"])]
    values: list[str] = []
    for name in ("scope", "category", "session"):
        if value := getattr(wanted, name):
            parts.append(f"notes.{name} = ?")
            values.append(value)
    if wanted.project:
        parts.append("notes.project IN ('', ?)")
        values.append(wanted.project)
    if wanted.notes_of is not None:
        parts.append("(notes.project = '' OR notes.project IN (SELECT value FROM json_each(?)))")
        values.append(json.dumps(wanted.notes_of))
    if wanted.since:
        parts.append("notes.at >= ?")
        values.append(wanted.since)
    fits = " AND ".join(parts)
    whole, count = looking.database.execute(
        f"SELECT (SELECT count(*) FROM notes), (SELECT count(*) FROM notes WHERE {fits})", values
    ).fetchone()
    if count == whole:
        return PassageRange(count)
    return PassageRange(count, f"EXISTS (SELECT 1 FROM notes WHERE notes.id = passage AND {fits})", tuple(values))


def _only(database: sqlite3.Connection, fitting: PassageRange) -> PassageFilter | None:
    if fitting.is_all:
        return None
    found = database.execute(f"SELECT id AS passage FROM notes AS those WHERE {fitting.condition}", fitting.values)
    return PassageFilter([place for (place,) in found])
