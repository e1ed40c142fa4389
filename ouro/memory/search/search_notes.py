"""The part of Search that knows notes and core lines."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ouro.memory.search.scoring import days_fit
from ouro.memory.search.search import Filter, Hit, Looking, Weigh
from ouro.memory.search.word_scores import best_of, rows_of, word_scores

MOST_CANDIDATES = 150
MOST_NEAREST = 600
"""By the signs of their vectors, before the filter: notes of other repositories are among them."""
_COLUMNS = (
    "id, kind, note, line, scope, project, category, text, at, confidence, source, branch, session, turn, supersedes,"
    " path, archived"
)


def find_notes(looking: Looking, weigh: Weigh | None = None) -> list[Hit]:
    """Notes and core lines that bear on the question, in no order; `weigh` gives a factor for each."""
    (count,) = looking.database.execute("SELECT count(*) FROM notes").fetchone()
    shares = word_scores(looking.database, "notes", looking.question.words, count, has_neighbours=False)
    chosen = set(best_of(shares, MOST_CANDIDATES))
    chosen |= set(looking.nearest("notes", MOST_CANDIDATES))
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


def nearest_notes(looking: Looking, k: int) -> list[Hit]:
    """The `k` notes that are nearest in meaning, best first; their score is the cosine."""
    cosines = looking.cosines("notes", looking.nearest("notes", MOST_NEAREST))
    hits = [replace(hit, score=cosines[hit.place]) for hit in note_hits(looking, cosines)]
    return sorted(hits, key=lambda hit: -hit.score)[:k]


def note_hits(looking: Looking, places: Iterable[int]) -> list[Hit]:
    """These notes and core lines as hits without a score, those that the filter leaves out apart."""
    found = []
    for row in rows_of(looking.database, "notes", _COLUMNS, sorted(places)):
        (place, kind, note, line, scope, project, category, text, at, confidence, source, branch, session, turn,
         supersedes, path, archived) = row  # fmt: skip
        hit = Hit(
            note, kind, text, 0.0, {}, place, at=at, session=session, project=project, number=line or turn, path=path,
            scope=scope, category=category, confidence=confidence, source=source, branch=branch, supersedes=supersedes,
        )  # fmt: skip
        if _fits(hit, looking.wanted) and (looking.wanted.archived or not archived):
            found.append(hit)
    return found


def _fits(hit: Hit, wanted: Filter) -> bool:
    return (
        hit.kind in wanted.kinds
        and wanted.scope in ("", hit.scope)
        and wanted.category in ("", hit.category)
        and wanted.session in ("", hit.session)
        and (not wanted.project or hit.project in ("", wanted.project))
        and hit.at >= wanted.since
    )
