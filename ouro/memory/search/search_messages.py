"""The part of Search that knows what was said, and what tools answered."""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from datetime import date, timedelta

from msgspec.structs import replace

from ouro.memory.search.index_schema import SHIFT
from ouro.memory.search.scoring import Passage, score_passages
from ouro.memory.search.search import Filter, Hit, Looking
from ouro.memory.search.word_scores import best_of, rows_of, word_scores

MOST_CANDIDATES = 200
"""Passages that are looked at closely: by words, by vectors, by days, each."""
_OUTPUT_WORTH = 0.7
"""What a tool said counts less than what people said of it."""
_SESSIONS_OF_DAYS = 20


def find_messages(looking: Looking, k: int) -> list[Hit]:
    """What user and assistant said: the `k` best passages and those as good as copies of them."""
    allowed = _allowed(looking.database, looking.wanted)
    shares = _shares(looking, "messages", allowed, near=looking.weights.near_words)
    chosen = set(best_of(shares, MOST_CANDIDATES)) | set(_of(allowed, looking.nearest("messages", MOST_CANDIDATES)))
    chosen |= set(_of(allowed, _of_days(looking)))
    passages = [each for each in _passages(looking, "messages", chosen) if each.at >= looking.wanted.since]
    around = {place + step for place in chosen for step in (-1, 0, 1)} if looking.vectors else set()
    cosines = looking.cosines("messages", sorted(around))
    scored = score_passages(passages, shares, cosines, looking.question, looking.weights)
    return _hits(looking, "message", passages, scored, k)


def find_outputs(looking: Looking, k: int) -> list[Hit]:
    """What tools were asked and what they answered: by words alone."""
    allowed = _allowed(looking.database, looking.wanted)
    shares = {place: _OUTPUT_WORTH * share for place, share in _shares(looking, "outputs", allowed, near=False).items()}
    passages = [
        each
        for each in _passages(looking, "outputs", best_of(shares, MOST_CANDIDATES))
        if each.at >= looking.wanted.since
    ]
    scored = {each.id: {"words": shares[each.id]} for each in passages}
    return _hits(looking, "output", passages, scored, k)


def _allowed(database: sqlite3.Connection, wanted: Filter) -> frozenset[int] | None:
    """The sessions that may be looked at, by `seq`; None for all."""
    if not (wanted.session or wanted.project or wanted.since):
        return None
    rows = database.execute(
        "SELECT seq FROM sessions WHERE (? = '' OR id = ?) AND (? = '' OR project = ?) AND updated_at >= ?",
        (wanted.session, wanted.session, wanted.project, wanted.project, wanted.since),
    )
    return frozenset(seq for (seq,) in rows)


def _of(allowed: Collection[int] | None, places: Iterable[int]) -> list[int]:
    return [place for place in places if allowed is None or place >> SHIFT in allowed]


def _shares(looking: Looking, table: str, allowed: Collection[int] | None, *, near: bool) -> dict[int, float]:
    column = "passages" if table == "messages" else "outputs"
    (count,) = looking.database.execute(f"SELECT coalesce(sum({column}), 0) FROM sessions").fetchone()
    shares = word_scores(looking.database, table, looking.question.words, count, has_neighbours=near)
    return shares if allowed is None else {place: shares[place] for place in _of(allowed, shares)}


def _of_days(looking: Looking) -> list[int]:
    """What was said on the days that the question names: of the newest such sessions, from their beginning."""
    found: list[int] = []
    for first, last in looking.question.days:
        until = (date.fromisoformat(last) + timedelta(days=1)).isoformat()
        rows = looking.database.execute(
            "SELECT messages.id FROM (SELECT seq FROM sessions WHERE updated_at >= ? AND created_at < ?"
            " ORDER BY seq DESC LIMIT ?) AS those JOIN messages ON messages.id BETWEEN those.seq << ? AND"
            " (those.seq + 1) << ? WHERE messages.at >= ? AND messages.at < ? LIMIT ?",
            (first, until, _SESSIONS_OF_DAYS, SHIFT, SHIFT, first, until, MOST_CANDIDATES),
        )
        found += [place for (place,) in rows]
    return found


def _passages(looking: Looking, table: str, ids: Iterable[int]) -> list[Passage]:
    rows = rows_of(looking.database, table, "id, number, role, at, text", sorted(ids))
    return [Passage(*row) for row in rows]


def _hits(
    looking: Looking, kind: str, passages: Sequence[Passage], scored: dict[int, dict[str, float]], k: int
) -> list[Hit]:
    totals = {place: sum(parts.values()) for place, parts in scored.items()}
    # Copies of a session say the same: enough are taken that `k` different ones are left.
    best = heapq.nlargest(3 * k, passages, key=lambda each: (totals[each.id], each.id))
    found = []
    for each in best:
        row = looking.database.execute(
            "SELECT id, title, project FROM sessions WHERE seq = ?", (each.id >> SHIFT,)
        ).fetchone()
        if row and totals[each.id] > 0:
            hit = Hit(
                f"{row[0]}:{each.number}", "message", each.text, totals[each.id], scored[each.id], each.id, at=each.at,
                session=row[0], title=row[1], project=row[2], number=each.number, role=each.role,
            )  # fmt: skip
            found.append(hit if kind == "message" else replace(hit, kind="output"))
    return found
