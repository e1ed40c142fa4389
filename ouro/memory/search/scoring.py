"""What passages are worth as an answer to a question: a sum of few parts, each measured to help."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date, timedelta

import msgspec

from ouro.memory.search.index_schema import SHIFT
from ouro.memory.search.question import Question

_AFTER_DAYS = 14
_ASKS = re.compile(r"\?[\s\"')”’]*(?:\[[^\]]*\]\s*)?\Z")
"""Ends with a question mark, before a remark in brackets perhaps."""


class Weights(msgspec.Struct, frozen=True):
    """How much each part counts beside the share of the question's words, which counts 1.0."""

    vectors: float = 1.0
    around: float = 0.2
    """Of this, the closeness of the passage before and of the one after."""
    speaker: float = 0.3
    days: float = 0.3
    asks: float = 0.1
    """Taken off what is a question itself: it seldom holds the answer."""
    session: float = 0.2
    """Of the best passage in the same session."""
    near_words: bool = True
    """Words in the passages around count, too."""


class Passage(msgspec.Struct, frozen=True):
    """A row of `messages`."""

    id: int
    number: int
    role: str
    at: str
    text: str


def score_passages(
    passages: Iterable[Passage],
    shares: Mapping[int, float],
    cosines: Mapping[int, float],
    question: Question,
    weights: Weights,
) -> dict[int, dict[str, float]]:
    """The parts of the score of each passage; the score is their sum."""
    found: dict[int, dict[str, float]] = {}
    usual = sum(cosines.values()) / len(cosines) if cosines else 0.0
    for each in passages:
        parts = {"words": shares.get(each.id, 0.0)}
        if cosines:
            parts["vectors"] = weights.vectors * _closeness(each.id, cosines, usual, weights.around)
        if question.speaker and each.role == question.speaker:
            parts["speaker"] = weights.speaker
        if question.days and (fit := days_fit(each.at, question)):
            parts["days"] = weights.days * fit
        if weights.asks and _ASKS.search(each.text):
            parts["asks"] = -weights.asks
        found[each.id] = parts
    if weights.session:
        _add_session(found, weights.session)
    return found


def _closeness(place: int, cosines: Mapping[int, float], usual: float, around: float) -> float:
    """Of a passage and its neighbours; one whose vector is still to be made is taken for a usual one."""
    beside = cosines.get(place - 1, 0.0) + cosines.get(place + 1, 0.0)
    return max(0.0, (cosines.get(place, usual) + around * beside) / (1 + 2 * around))


def days_fit(at: str, question: Question) -> float:
    """1.0 for what was said on a day that the question names, half for the two weeks after: one tells of it later."""

    day = at[:10]
    if any(first <= day <= last for first, last in question.days):
        return 1.0
    for _, last in question.days:
        if last < day <= (date.fromisoformat(last) + timedelta(days=_AFTER_DAYS)).isoformat():
            return 0.5
    return 0.0


def _add_session(found: Mapping[int, dict[str, float]], weight: float) -> None:
    best: dict[int, float] = {}
    for place, parts in found.items():
        best[place >> SHIFT] = max(best.get(place >> SHIFT, 0.0), sum(parts.values()))
    for place, parts in found.items():
        parts["session"] = weight * best[place >> SHIFT]
