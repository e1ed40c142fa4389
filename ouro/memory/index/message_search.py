"""Search in messages and tool outputs."""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterable, Sequence
from datetime import date, timedelta

from msgspec.structs import replace

from ouro.memory.index.schema import SHIFT
from ouro.memory.index.scoring import EVERYTHING, Passage, PassageRange, best_of, rows_of, score_passages, word_scores
from ouro.memory.index.search import MemoryHit, PassageFilter, SearchFilter, SearchRequest

MAX_CANDIDATES = 200
"""Candidates that are scored, from each of words, vectors and days."""
_OUTPUT_WORTH = 0.7
"""The weight of a tool output; messages about it count more."""
_SESSIONS_OF_DAYS = 20


def find_messages(looking: SearchRequest, k: int) -> list[MemoryHit]:
    """The `k` best passages of user and assistant messages, plus near copies of them."""
    within = _within(looking, "passages")
    shares = word_scores(
        looking.database, "messages", looking.question.words, within, has_neighbours=looking.weights.near_words
    )
    nearest = looking.nearest("messages", MAX_CANDIDATES, lambda: None if within.is_all else _only(looking.database))
    chosen = {*best_of(shares, MAX_CANDIDATES), *nearest, *_of_days(looking, within)}
    passages = [message for message in _passages(looking, "messages", chosen) if message.at >= looking.wanted.since]
    around = {place + step for place in chosen for step in (-1, 0, 1)} if looking.vectors else set()
    cosines = looking.cosines("messages", sorted(around))
    scored = score_passages(passages, shares, cosines, looking.question, looking.weights)
    return _hits(looking, "message", passages, scored, k)


def find_outputs(looking: SearchRequest, k: int) -> list[MemoryHit]:
    """Tool calls and outputs, by words alone."""
    found = word_scores(
        looking.database, "outputs", looking.question.words, _within(looking, "outputs"), has_neighbours=False
    )
    passages = _passages(looking, "outputs", best_of(found, MAX_CANDIDATES))
    scored = {passage.id: {"words": _OUTPUT_WORTH * found[passage.id]} for passage in passages}
    return _hits(looking, "output", passages, scored, k)


def prepare(database: sqlite3.Connection, wanted: SearchFilter) -> None:
    """Put the sessions that pass the filter into `temp.allowed`, if there is a filter.

    `since` is empty if the whole session passes.
    """
    database.execute("CREATE TEMP TABLE IF NOT EXISTS allowed (seq INTEGER PRIMARY KEY, since TEXT NOT NULL)")
    database.execute("DELETE FROM temp.allowed")
    if _is_filtered(wanted):
        database.execute(
            "INSERT INTO temp.allowed SELECT seq, CASE WHEN created_at >= :since THEN '' ELSE :since END FROM sessions"
            " WHERE :session IN ('', id) AND :project IN ('', project) AND updated_at >= :since",
            {"session": wanted.session, "project": wanted.project, "since": wanted.since},
        )


def _is_filtered(wanted: SearchFilter) -> bool:
    return bool(wanted.session or wanted.project or wanted.since)


def _within(looking: SearchRequest, column: str) -> PassageRange:
    """Of `messages`, where `column` is `passages`, or of `outputs`."""
    if not _is_filtered(looking.wanted):
        (count,) = looking.database.execute(f"SELECT coalesce(sum({column}), 0) FROM sessions").fetchone()
        return PassageRange(count)
    count, first, last = looking.database.execute(
        f"SELECT coalesce(sum({column}), 0), coalesce(min(seq), 1) << {SHIFT}, (coalesce(max(seq), 0) + 1) << {SHIFT}"
        " FROM temp.allowed JOIN sessions USING (seq)"
    ).fetchone()
    table = "messages" if column == "passages" else "outputs"
    is_late = f"(SELECT at FROM {table} WHERE id = passage) >= allowed.since"
    mine = f"allowed.seq = passage >> {SHIFT} AND (allowed.since = '' OR {is_late})"
    # SQLite seeks to the span and filters the rows in it one by one.
    span = f"passage >= {first} AND passage < {last}"
    return PassageRange(count, f"{span} AND EXISTS (SELECT 1 FROM temp.allowed WHERE {mine})")


def _only(database: sqlite3.Connection) -> PassageFilter:
    whole = database.execute("SELECT seq FROM temp.allowed WHERE since = ''").fetchall()
    some = database.execute(
        "SELECT messages.id FROM temp.allowed JOIN messages ON messages.id BETWEEN seq << ? AND ((seq + 1) << ?) - 1"
        " AND messages.at >= allowed.since WHERE allowed.since <> ''",
        (SHIFT, SHIFT),
    ).fetchall()
    return PassageFilter([place for (place,) in some], [seq for (seq,) in whole])


def _of_days(looking: SearchRequest, within: PassageRange) -> list[int]:
    """Passages from the days that the query names, newest sessions first."""
    allowed = EVERYTHING if within.is_all else "seq IN (SELECT seq FROM temp.allowed)"
    found: list[int] = []
    for first, last in looking.question.days:
        until = (date.fromisoformat(last) + timedelta(days=1)).isoformat()
        rows = looking.database.execute(
            f"SELECT messages.id AS passage FROM (SELECT seq FROM sessions WHERE updated_at >= ? AND created_at < ?"
            f" AND {allowed} ORDER BY seq DESC LIMIT ?) AS those JOIN messages ON messages.id BETWEEN those.seq << ?"
            f" AND (those.seq + 1) << ? WHERE messages.at >= ? AND messages.at < ? AND {within.condition} LIMIT ?",
            (first, until, _SESSIONS_OF_DAYS, SHIFT, SHIFT, first, until, MAX_CANDIDATES),
        )
        found += [place for (place,) in rows]
    return found


def _passages(looking: SearchRequest, table: str, ids: Iterable[int]) -> list[Passage]:
    rows = rows_of(looking.database, table, "id, number, role, at, text", sorted(ids))
    return [Passage(*row) for row in rows]


def _hits(
    looking: SearchRequest, kind: str, passages: Sequence[Passage], scored: dict[int, dict[str, float]], k: int
) -> list[MemoryHit]:
    totals = {place: sum(parts.values()) for place, parts in scored.items()}
    # Copies of a session have the same messages: take enough that `k` different ones remain.
    best = heapq.nlargest(3 * k, passages, key=lambda item: (totals[item.id], item.id))
    found = []
    for item in best:
        row = looking.database.execute(
            "SELECT id, title, project FROM sessions WHERE seq = ?", (item.id >> SHIFT,)
        ).fetchone()
        if row and totals[item.id] > 0:
            hit = MemoryHit(
                f"{row[0]}:{item.number}", "message", item.text, totals[item.id], scored[item.id], item.id, at=item.at,
                session=row[0], title=row[1], project=row[2], number=item.number, role=item.role,
            )  # fmt: skip
            found.append(hit if kind == "message" else replace(hit, kind="output"))
    return found
