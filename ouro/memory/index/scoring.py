"""Scores of passages for a query: a sum of few terms, each of which improved the measured
results.
"""

from __future__ import annotations

import heapq
import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import NamedTuple

import msgspec

from ouro.memory.index.passages import POSITION_BITS
from ouro.memory.index.query import ParsedQuery
from ouro.memory.index.stems import find_stems
from ouro.memory.index.words import quote_start, quote_word
from ouro.utils.late_pattern import late_pattern

_AFTER_DAYS = 14
_QUESTION_END = late_pattern(r"\?[\s\"')”’]*(?:\[[^\]]*\]\s*)?\Z")
"""Ends with a question mark, possibly before a remark in brackets."""


# The weight of each term, relative to the share of the query's words and to the cosine, which count
# 1.0.
NEIGHBOUR_WEIGHT = 0.2
"""The weight of the cosines of the passages before and after."""
SPEAKER_WEIGHT = 0.3
"""Added if the passage is by the speaker whom the query names."""
DAYS_WEIGHT = 0.3
"""Added if the passage is from a day that the query names."""
QUESTION_WEIGHT = 0.1
"""Subtracted if the passage is a question: a question seldom contains the answer."""
SESSION_WEIGHT = 0.2
"""The weight of the best passage in the same session."""


class Passage(msgspec.Struct, frozen=True):
    """A part of a message or output, with what is known about its session."""

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
    """Returns the terms of the score of each passage, by its id and by their names; the score is
    their sum.

    Args:
        shares: the share of the query's words in each passage, by id.
        cosines: the cosine of each passage with the query, also of neighbours. A passage without
            one counts as the average; a neighbour without one as 0, because there may be none.
            Empty if words alone decide.
    """
    terms: dict[int, dict[str, float]] = {}
    best_of_session: dict[int, float] = {}
    average = sum(cosines.values()) / len(cosines) if cosines else 0.0
    for passage in passages:
        passage_id, session = passage.id, passage.id >> POSITION_BITS
        passage_terms = {"words": shares.get(passage_id, 0.0)}
        if cosines:
            own_cosine = cosines.get(passage_id, average)
            neighbour_cosines = cosines.get(passage_id - 1, 0.0) + cosines.get(passage_id + 1, 0.0)
            weighted_sum = own_cosine + NEIGHBOUR_WEIGHT * neighbour_cosines
            passage_terms["vectors"] = max(0.0, weighted_sum / (1 + 2 * NEIGHBOUR_WEIGHT))
        if question.speaker and passage.role == question.speaker:
            passage_terms["speaker"] = SPEAKER_WEIGHT
        if question.days and (day_share := match_days(passage.at, question)):
            passage_terms["days"] = DAYS_WEIGHT * day_share
        if _QUESTION_END.search(passage.text):
            passage_terms["asks"] = -QUESTION_WEIGHT
        terms[passage_id] = passage_terms
        best_of_session[session] = max(
            best_of_session.get(session, 0.0), sum(passage_terms.values())
        )
    for passage_id, passage_terms in terms.items():
        passage_terms["session"] = SESSION_WEIGHT * best_of_session[passage_id >> POSITION_BITS]
    return terms


def match_days(at: str, question: ParsedQuery) -> float:
    """Returns how well a time fits the days that the query names: 1.0 on such a day, 0.5 in the two
    weeks after it, because events are often mentioned later, and otherwise 0.0.
    """
    day = at[:10]
    if any(first <= day <= last for first, last in question.days):
        return 1.0
    for _, last in question.days:
        if last < day <= (date.fromisoformat(last) + timedelta(days=_AFTER_DAYS)).isoformat():
            return 0.5
    return 0.0


MAX_PASSAGES = 2_000
"""Maximum passages with a word that are looked at, newest first: a more frequent word distinguishes
little.
"""
MAX_PASSAGES_OF_ALL = 6_000
"""Maximum passages with all words together; rare words come first."""
_MIN_WEIGHT = 1e-9
"""The weight of a word that all passages have."""
MIN_COUNT = 30
"""The rarity of words is computed with at least so many passages: with three notes every word would
be common.
"""
NEARNESS = ((1, 0.7), (-1, 0.5), (2, 0.4), (-2, 0.3), (3, 0.2), (-3, 0.2))
"""A word also counts for passages around it: .7 for the next passage, .5 for the one before …;
largest first.
"""


EVERY_PASSAGE = "TRUE"
"""The SQL condition that limits nothing."""


class PassageRange(msgspec.Struct, frozen=True):
    """The passages of one table that a search may find: all of them, or those in `temp.allowed`."""

    count: int
    condition: str = EVERY_PASSAGE
    """The SQL condition for `passage`, the id of a passage."""

    @property
    def is_all(self) -> bool:
        return self.condition == EVERY_PASSAGE


def word_scores(
    database: sqlite3.Connection,
    table: str,
    words: Sequence[Sequence[str]],
    limits: PassageRange,
    *,
    has_neighbours: bool,
    by_start: bool = False,
) -> dict[int, float]:
    """Returns the share of the words that each passage has, by the id of the passage; passages with
    none of the words are left out. Words are weighted by their rarity; 1.0 means all words. A word
    that no passage has counts as a missing one.

    Args:
        words: each word as a sequence of its forms.
        limits: the passages in which words are looked for.
        has_neighbours: whether a word also counts for the passages around it, as NEARNESS says;
            these may be outside of the limits.
        by_start: whether a long word is also found with another ending.
    """
    quote = quote_start if by_start else quote_word
    # `paint` and `painting` have one stem, and count as one word with the forms of the first. In
    # reverse order the first word of a stem replaces the others in the dictionary.
    stems = find_stems(forms[0] for forms in words)
    forms_by_stem = dict(zip(reversed(stems), reversed(words), strict=True))
    found_words = [
        _find_word(database, table, [*map(quote, forms)], limits)
        for forms in forms_by_stem.values()
    ]
    total_weight = sum(word.weight for word in found_words)
    scores: dict[int, float] = {}
    passages_left = MAX_PASSAGES_OF_ALL
    found_words.sort(key=lambda word: len(word.passages))
    for words_done, word in enumerate(found_words):
        # All words together may have `passages_left` passages. Rare words come first: what they
        # leave unused is for the words that follow.
        words_left = len(found_words) - words_done
        ids = word.passages[: passages_left // words_left]
        passages_left -= len(ids)
        share_of_word = word.weight / total_weight
        nearness_by_passage = _add_neighbours(ids) if has_neighbours else dict.fromkeys(ids, 1.0)
        for passage_id, nearness in nearness_by_passage.items():
            scores[passage_id] = scores.get(passage_id, 0.0) + nearness * share_of_word
    return scores


def highest_scores(scores: Mapping[int, float], count: int) -> list[int]:
    """Returns the keys of the `count` highest scores, highest first."""
    return heapq.nlargest(count, scores, key=scores.__getitem__)


def _add_neighbours(ids: Sequence[int]) -> dict[int, float]:
    """Returns these passages and the ones around them, each with its nearness to one of them: 1.0
    for the passage itself, less for its neighbours. The highest one counts.
    """
    near = dict.fromkeys(ids, 1.0)
    for step, nearness in NEARNESS:  # the largest first, so that it stays
        for passage_id in ids:
            near.setdefault(passage_id + step, nearness)
    return near


class _FoundWord(NamedTuple):
    """A word of a question in the passages."""

    weight: float
    """High if the word is rare, and always above 0."""
    passages: list[int]
    """The ids of the passages with one of its forms, newest first; at most MAX_PASSAGES."""


def _find_word(
    database: sqlite3.Connection, table: str, quoted_forms: Sequence[str], limits: PassageRange
) -> _FoundWord:
    """Returns the weight of the word with these forms, and its passages."""
    match_expression = " OR ".join(quoted_forms)
    rows = database.execute(
        f"SELECT rowid AS passage FROM {table}_words WHERE {table}_words MATCH ? AND"
        f" {limits.condition} ORDER BY rowid DESC LIMIT ?",
        (match_expression, MAX_PASSAGES),
    )
    ids = [row[0] for row in rows]
    count = max(limits.count, MIN_COUNT)
    frequency = float(len(ids))  # the number of passages that have the word
    # For a common word it is estimated from the share of the newest passages that have it.
    if len(ids) == MAX_PASSAGES:
        bounds_query = f"SELECT (SELECT min(id) FROM {table}), (SELECT max(id) FROM {table})"
        first, last = database.execute(bounds_query).fetchone()
        frequency = min(count, len(ids) * max(1, last - first + 1) / (ids[0] - ids[-1] + 1))
    if not frequency:
        return _FoundWord(math.log(1 + count), ids)
    # The inverse document frequency of BM25.
    weight = math.log(1 + (count - frequency + 0.5) / (frequency + 0.5))
    # Shares are divided by the sum of the weights, which must not be 0.
    return _FoundWord(max(weight, _MIN_WEIGHT), ids)
