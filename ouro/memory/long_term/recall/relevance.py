"""Whether a note is relevant to a question, or was used: by its words, and how near it is in
meaning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ouro.memory.index import DAYS_WEIGHT, MemoryHit, parse_query, stem
from ouro.memory.long_term.notes.entities import entities_in
from ouro.memory.long_term.patterns import has, pattern_of_group

MIN_SHARE = 0.25
"""Share of the message's words, weighted by rarity, that a note needs to be relevant by words."""
MIN_SHARE_OF_ONE = 0.45
"""The same for a note that has only one word of the message."""
MIN_SHARE_OF_CODE = 0.9
"""The same for a note that has only two words of the message, if both are words of any program."""
STANDING = ("coding-preferences", "project-conventions", "corrections")
"""The categories of standing rules."""
STANDING_RULE = "a standing rule for such a task"
MAX_STANDING = 2
MIN_STANDING_SHARE = 0.17
"""As `MIN_SHARE`, for a standing rule."""
MIN_STANDING = 0.4
"""With vectors: the share of words and the cosine together."""
STRONG, STRONG_SHARE, MIN_SUBJECTS = 2.0, 0.4, 2
"""A hit of another project: the weighted sum of `_WEIGHTS` with vectors, the share of words without
them, and the words in common that name a subject (`benchmarks.recall_quality --elsewhere`).
"""
NEAR_BEST = 0.6
"""Notes with a smaller share of the best score are not relevant."""
_WEIGHTS = {
    "bias": -6.35,
    "share": 0.91,
    "cosine": 7.11,
    "above": 5.05,
    "subject": 2.37,
    "cover": -19.52,
    "general": -5.26,
    "gap": -11.15,
    "asked": 0.8,
    "both": 26.11,
}
"""Weights of the features of a note and a question: with vectors, a note is relevant if the
weighted sum is above 0.

From a logistic regression on two sets of notes (`benchmarks.recall_quality --fit`); a third set
measures it.
"""
_FEW, _USUAL_COSINE = 5, 0.2
"""Hits after the first five count as unrelated: their mean cosine is the baseline. Without such
hits it is 0.2.
"""
MAX_SENTENCES = 4
_MAX_DONE = 20_000
"""Characters that are read at the end of what was done in a turn."""
_GIST = 400
"""Characters that are searched for at each end of a long message."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n\s*\n")
_OF_TASKS = """
    add again answer ask be better bit build change check clean code continue create current delete do done edit error
    explain file find fix folder follow function get give go good great help implement keep know last let line list
    look make mean move name need new next nice now ok okay old open plan please print problem proceed put read really
    remove rename replace rewrite right run same save say see set show start step stop sure take tell thank thanks thing
    think time try two understand undo update use want way well what whole why work works write wrong yes
    """.split()
"""Words that say what to do, but do not name a subject."""
_OF_CODE = """
    argument array bug case character class command comment compile count dictionary docstring exception fail format
    heading helper hint import input integer item length library loop method module number object only output parameter
    refactor return script short shorter simple size sort split string summarise test tool translate type typo unused
    value variable version word
    """.split()
"""Words that occur in any program: alone they do not name a subject."""

_OF_DAYS = """
    ago agree anything april august choose couple day december decide decision discuss february few five four friday
    happen january july june learn march may monday month november october plan remember saturday september settle
    six sunday talk three thursday today tuesday wednesday week year yesterday
    """.split()


def questions_in(text: str) -> list[str]:
    """The texts to search for: the message, and each of its sentences.

    Of a long message only the end and the start are used: the question is often below pasted text.
    """
    whole = text if len(text) <= 2 * _GIST else f"{text[-_GIST:]}\n\n{text[:_GIST]}"
    sentences = [sentence.strip() for sentence in _SENTENCE.split(whole)]
    chosen = [
        sentence
        for sentence in sentences
        if has("owned", sentence) or stems(sentence) - _STEMS_OF_TASKS
    ]
    chosen = chosen if len(sentences) > 1 else []
    if len(chosen) > MAX_SENTENCES:
        chosen = [*chosen[: MAX_SENTENCES // 2], *chosen[-MAX_SENTENCES // 2 :]]
    return list(dict.fromkeys([whole, *chosen]))


def stems(text: str) -> frozenset[str]:
    """The stems of the words of a text that say something."""
    return frozenset(stem(forms[0]) for forms in parse_query(text).words)


def find_relevant(question: str, hits: Sequence[MemoryHit]) -> dict[str, str]:
    """The ids of the hits that are relevant to a question, each with the reason, in their order."""
    asked = stems(question)
    owned = stems(" ".join(pattern_of_group("owned").findall(question)))
    best = max(map(_share, hits), default=0.0)
    subjects = asked - _STEMS_OF_TASKS - _STEMS_OF_DAYS
    is_of_days = bool(has("asks", question)) and all(map(str.isdigit, subjects))
    reasons: dict[str, str] = {}
    for hit, known in zip(hits, features(question, hits), strict=True):
        if is_of_days and hit.parts.get("days", 0.0) >= DAYS_WEIGHT:
            reasons[hit.id] = f"noted on {hit.at[:10]}"
        elif "vectors" in hit.parts:
            if _weighted_sum(known) > 0:
                reasons[hit.id] = (
                    f"says {_share(hit):.0%} of the words, {_cosine(hit):.2f} close in meaning"
                )
        elif _share(hit) >= NEAR_BEST * best and _says_the_same(asked, owned, hit):
            reasons[hit.id] = f"says {_share(hit):.0%} of the words"
    return reasons


def features(question: str, hits: Sequence[MemoryHit]) -> list[dict[str, float]]:
    """The features of each hit for the question, by the name of their weights."""
    asked, is_general = stems(question), float(has("general_question", question))
    without = (_STEMS_OF_TASKS | _STEMS_OF_CODE) - stems(
        " ".join(pattern_of_group("owned").findall(question))
    )
    others = sorted(map(_cosine, hits), reverse=True)[_FEW:]
    usual = sum(others) / len(others) if others else _USUAL_COSINE
    best = max((_share(hit) + _cosine(hit) for hit in hits), default=0.0)
    found = []
    for hit in hits:
        share, cosine, said = _share(hit), _cosine(hit), stems(hit.text)
        known = {
            "bias": 1.0,
            "share": share,
            "cosine": cosine,
            "above": cosine - usual,
            "subject": min(len((asked & said) - without), 3),
            "cover": len(asked & said) / max(1, len(said)),
            "general": is_general,
            "gap": best - share - cosine,
            "asked": min(len(asked - without), 6),
            "both": share * cosine,
        }
        found.append(known)
    return found


def find_strong(question: str, hits: Sequence[MemoryHit]) -> list[MemoryHit]:
    """The hits that are worth showing although they are of another project, in their order."""
    relevant, asked = find_relevant(question, hits), stems(question)
    strong: list[MemoryHit] = []
    for hit, known in zip(hits, features(question, hits), strict=True):
        subjects = (asked & stems(hit.text)) - _STEMS_OF_TASKS - _STEMS_OF_CODE
        is_named = hit.id in relevant and len(subjects) >= MIN_SUBJECTS
        if is_named and _is_very_near(hit, known):
            strong.append(hit)
    return strong


def _is_very_near(hit: MemoryHit, known: Mapping[str, float]) -> bool:
    """Whether a hit is so near that it is shown although it is of another project."""
    if "vectors" in hit.parts:
        return _weighted_sum(known) > STRONG
    return _share(hit) >= STRONG_SHARE


def is_request(text: str) -> bool:
    """Whether a message may ask for work: it is no question."""
    return not text.rstrip().endswith(("?", "？", "؟"))


def nearness(hit: MemoryHit) -> float:
    """The share of words and the cosine of a hit, added."""
    return _share(hit) + _cosine(hit)


def is_rule_for(asked: frozenset[str], hit: MemoryHit) -> bool:
    """Whether a rule is near a task: by a word that few rules have, or in meaning."""
    is_named = bool((asked & stems(hit.text)) - _STEMS_OF_TASKS)
    if "vectors" in hit.parts:
        return nearness(hit) >= MIN_STANDING and (is_named or _cosine(hit) >= MIN_STANDING)
    return is_named and _share(hit) >= MIN_STANDING_SHARE


def is_used(note: str, prompt: str, done: str, *, is_of_file: bool = False) -> bool:
    """Whether a note was used in a turn: what was said and given to tools has a name, or half the
    words, of it alone.

    If the note was sent because of a file, the name of that file proves nothing.
    """
    done = done[-_MAX_DONE:]
    names = {
        entity for entity in entities_in(note) if not (is_of_file and entity.startswith("file:"))
    }
    if any(entity.partition(":")[2] in done for entity in names.difference(entities_in(prompt))):
        return True
    only_in_note = stems(note) - stems(prompt) - _STEMS_OF_TASKS - _STEMS_OF_CODE
    return len(only_in_note & stems(done)) >= max(2, len(only_in_note) / 2)


def _weighted_sum(known: Mapping[str, float]) -> float:
    """The weighted sum of the features of a hit; above 0 it counts as relevant."""
    return sum(_WEIGHTS[name] * value for name, value in known.items())


def _share(hit: MemoryHit) -> float:
    """The share of the words of the query in a hit."""
    return hit.parts.get("words", 0.0)


def _cosine(hit: MemoryHit) -> float:
    """How near a hit is in meaning; 0 without vectors."""
    return hit.parts.get("vectors", 0.0)


def _says_the_same(asked: frozenset[str], owned: frozenset[str], hit: MemoryHit) -> bool:
    """Whether a note is relevant, by words, to a message with the stems `asked`; `owned` stems name
    a subject.
    """
    shared = asked & stems(hit.text)
    subjects = shared - (_STEMS_OF_TASKS - owned)
    is_of_code = not subjects - (_STEMS_OF_CODE - owned)
    if len(shared) < 2:
        return not is_of_code and _share(hit) >= MIN_SHARE_OF_ONE
    least = MIN_SHARE_OF_CODE if is_of_code and len(shared) == 2 else MIN_SHARE
    return bool(subjects) and _share(hit) >= least


def _stems_of(words: Sequence[str]) -> frozenset[str]:
    found: set[str] = set()
    for word in words:
        found |= stems(word) or {word}
    return frozenset(found)


_STEMS_OF_TASKS = _stems_of(_OF_TASKS)
_STEMS_OF_DAYS = _stems_of(_OF_DAYS)
_STEMS_OF_CODE = frozenset(map(stem, _OF_CODE))
