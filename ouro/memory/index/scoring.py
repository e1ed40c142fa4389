"""Scores of passages for a query: a sum of few terms, each of which improved the measured results."""

from __future__ import annotations

import heapq
import math
import sqlite3
import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from functools import cache, lru_cache

import msgspec

from ouro.memory.index.query import SHIFT, ParsedQuery, quote_word
from ouro.utils.late_pattern import late_pattern

_AFTER_DAYS = 14
_ASKS = late_pattern(r"\?[\s\"')”’]*(?:\[[^\]]*\]\s*)?\Z")
"""Ends with a question mark, possibly before a remark in brackets."""


# The weight of each term, relative to the share of the query's words and to the cosine, which count
# 1.0.
AROUND = 0.2
"""The weight of the cosines of the passages before and after."""
SPEAKER = 0.3
DAYS = 0.3
QUESTION = 0.1
"""Subtracted if the passage is a question: a question seldom contains the answer."""
SESSION = 0.2
"""The weight of the best passage in the same session."""


class Passage(msgspec.Struct, frozen=True):
    id: int
    number: int
    role: str
    at: str
    text: str
    session: str
    title: str
    project: str


def score_passages(
    passages: Iterable[Passage],
    shares: Mapping[int, float],
    cosines: Mapping[int, float],
    question: ParsedQuery,
) -> dict[int, dict[str, float]]:
    """The terms of the score of each passage; the score is their sum. A missing vector counts as
    average.
    """
    found: dict[int, dict[str, float]] = {}
    best: dict[int, float] = {}
    average = sum(cosines.values()) / len(cosines) if cosines else 0.0
    for passage in passages:
        passage_id, session = passage.id, passage.id >> SHIFT
        parts = {"words": shares.get(passage_id, 0.0)}
        if cosines:
            around = cosines.get(passage_id - 1, 0.0) + cosines.get(passage_id + 1, 0.0)
            parts["vectors"] = max(
                0.0, (cosines.get(passage_id, average) + AROUND * around) / (1 + 2 * AROUND)
            )
        if question.speaker and passage.role == question.speaker:
            parts["speaker"] = SPEAKER
        if question.days and (fit := days_fit(passage.at, question)):
            parts["days"] = DAYS * fit
        if _ASKS.search(passage.text):
            parts["asks"] = -QUESTION
        found[passage_id] = parts
        best[session] = max(best.get(session, 0.0), sum(parts.values()))
    for passage_id, parts in found.items():
        parts["session"] = SESSION * best[passage_id >> SHIFT]
    return found


def days_fit(at: str, question: ParsedQuery) -> float:
    """1.0 on a day that the query names, half for the two weeks after it: events are often mentioned later."""
    day = at[:10]
    if any(first <= day <= last for first, last in question.days):
        return 1.0
    for _, last in question.days:
        if last < day <= (date.fromisoformat(last) + timedelta(days=_AFTER_DAYS)).isoformat():
            return 0.5
    return 0.0


MAX_PLACES = 2_000
"""Maximum places of a word that are looked at, newest first: a more frequent word distinguishes
little.
"""
MAX_LOOKED_AT = 6_000
"""Maximum places of all words together; rare words come first."""
MIN_COUNT = 30
"""The rarity of words is computed with at least so many passages: with three notes every word would
be common.
"""
NEAR = ((1, 0.7), (-1, 0.5), (2, 0.4), (-2, 0.3), (3, 0.2), (-3, 0.2))
"""A word also counts for passages around it: .7 for the next passage, .5 for the one before …;
largest first.
"""


EVERYTHING = "TRUE"


class PassageRange(msgspec.Struct, frozen=True):
    """The passages of one table that a search may find: all of them, or those in `temp.allowed`."""

    count: int
    condition: str = EVERYTHING
    """The SQL condition for `passage`, the id of a passage."""

    @property
    def is_all(self) -> bool:
        return self.condition == EVERYTHING


def word_scores(
    database: sqlite3.Connection,
    table: str,
    words: Sequence[Sequence[str]],
    within: PassageRange,
    *,
    has_neighbours: bool,
) -> dict[int, float]:
    """The share of `words`, weighted by rarity, in each passage of `table`: 1.0 is all of them.

    A word without any match still counts in the total. Neighbours may be outside of the filter.
    """
    # `paint` and `painting` count as one word.
    different = {stem(forms[0]): forms for forms in reversed(words)}
    found = [_passages_with_word(database, table, forms, within) for forms in different.values()]
    whole = sum(weight for weight, _ in found)
    scores: dict[int, float] = {}
    score = scores.get
    room = MAX_LOOKED_AT
    for left, (weight, every) in zip(
        range(len(found), 0, -1), sorted(found, key=lambda one: len(one[1])), strict=True
    ):
        ids = every[: room // left]
        room -= len(ids)
        worth = weight / whole
        near = _with_neighbours(ids) if has_neighbours else dict.fromkeys(ids, 1.0)
        for passage_id, nearness in near.items():
            scores[passage_id] = score(passage_id, 0.0) + nearness * worth
    return scores


def best_of(scores: Mapping[int, float], count: int) -> list[int]:
    """The keys of the `count` highest scores, best first."""
    return heapq.nlargest(count, scores, key=scores.__getitem__)


def _with_neighbours(ids: Sequence[int]) -> dict[int, float]:
    """These passages and the ones around them, each with its nearness: 1.0 for a passage itself."""
    near = dict.fromkeys(ids, 1.0)
    for step, nearness in NEAR:
        for passage_id in ids:
            near.setdefault(passage_id + step, nearness)
    return near


def _passages_with_word(
    database: sqlite3.Connection, table: str, forms: Sequence[str], within: PassageRange
) -> tuple[float, list[int]]:
    """The rarity of a word, and the passages with it, newest first."""
    question = " OR ".join(map(quote_word, forms))
    rows = database.execute(
        f"SELECT rowid AS passage FROM {table}_words WHERE {table}_words MATCH ? AND"
        f" {within.condition} ORDER BY rowid DESC LIMIT ?",
        (question, MAX_PLACES),
    )
    ids, count = [row[0] for row in rows], max(within.count, MIN_COUNT)
    often = float(len(ids))
    # For a common word the number is estimated from its rate in the newest passages.
    if len(ids) == MAX_PLACES:
        edges = f"SELECT (SELECT min(id) FROM {table}), (SELECT max(id) FROM {table})"
        first, last = database.execute(edges).fetchone()
        often = min(count, len(ids) * max(1, last - first + 1) / (ids[0] - ids[-1] + 1))
    weight = math.log(1 + (count - often + 0.5) / (often + 0.5)) if often else math.log(1 + count)
    return max(weight, 0.0) or 1e-9, ids


@lru_cache(maxsize=16_384)
def stem(word: str) -> str:
    """The stem of a word in the word index, from an index of this word alone."""
    with _ONE_AT_A_TIME:
        asked = _stemmer()
        asked.execute("INSERT INTO one VALUES (?)", (word,))
        row = asked.execute("SELECT term FROM terms").fetchone()
        asked.execute("DELETE FROM one")
    return str(row[0]) if row else word


_ONE_AT_A_TIME = threading.Lock()


@cache
def _stemmer() -> sqlite3.Connection:
    """A database with the tokenizer of the word index, for one word at a time."""
    database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    database.execute(
        "CREATE VIRTUAL TABLE one USING fts5(text, tokenize = 'porter unicode61"
        " remove_diacritics 2')"
    )
    database.execute("CREATE VIRTUAL TABLE terms USING fts5vocab(one, 'row')")
    return database
