"""Whether a note is relevant to a message: by shared words, weighted by rarity, or by words and vectors together."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ouro.memory.index import MemoryHit, question_of, stem
from ouro.memory.long_term.notes.entities import entities_in

MIN_SHARE = 0.3
"""By words, a note is relevant when it has this share of the message's words, weighted by rarity;"""
MIN_SHARE_OF_TWO = 0.2
"""less is needed when two of the words name a subject;"""
MIN_COVER = 0.3
"""or when two such words are this share of the note's words."""
MIN_SHARE_OF_ONE = 0.45
"""A single shared word is enough only when it is this share of the message."""
MIN_FOR_GENERAL = 0.9
"""Share for a general question (`What is a mutex?`), or where two words of any program are shared."""
NEAR_BEST = 0.6
"""Share of the best score that others need."""
_WEIGHTS = {
    "bias": -6.35, "share": 0.91, "cosine": 7.11, "above": 5.05, "subject": 2.37, "cover": -19.52, "general": -5.26,
    "gap": -11.15, "asked": 0.8, "both": 26.11,
}  # fmt: skip
"""With vectors, a note is relevant too when the weighted sum of what is known about the pair is above 0: a logistic
regression of two sets of notes (`benchmarks.recall_quality --fit`); what it does on a third one is measured."""
_FEW, _USUAL_COSINE = 5, 0.2
"""The cosines behind the first five are those of notes that are not meant; what they are where there are no others."""
MAX_SENTENCES = 4
_MAX_DONE = 20_000
"""Characters of what was done in a turn: the end."""
_GIST = 400
"""Characters of the beginning and of the end of a long message."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n\s*\n")
_GENERAL = re.compile(
    r"^\W*(?:what(?:['’]s| is| are) (?!the\b|our\b|my\b|this\b|that\b|it\b|wrong\b)|what is the difference between\b"
    r"|what does .{1,40} (?:mean|do)\b|explain (?!this\b|why\b|our\b|my\b|how (?:we|our)\b)"
    r"|how do(?:es)? (?!we\b|our\b|I\b|you\b|this\b|the\b).{1,40} work\b)|\bin general\b",
    re.IGNORECASE,
)
"""Asks for general knowledge, not about the project."""
_OWNED = re.compile(r"\b(?:my|our)\s+(\w+)", re.IGNORECASE)
"""`name` in `What is my name?` names a subject."""
_OF_TASKS = """
    add again answer ask be better bit build change check clean code continue create current delete do done edit error
    explain file find fix folder follow function get give go good great help implement keep know last let line list
    look make mean move name need new next nice now ok okay old open plan please print problem proceed put read really
    remove rename replace rewrite right run same save say see set show start step stop sure take tell thank thanks thing
    think time try two understand undo update use want way well what whole why work works write wrong yes
    """.split()  # noqa: SIM905 (a list of this length reads better as words)
"""Words that say what to do, but name no subject."""
_OF_CODE = """
    argument array bug case character class command comment compile count dictionary docstring exception fail format
    heading helper hint import input integer item length library loop method module number object only output parameter
    refactor return script short shorter simple size sort split string summarise test tool translate type typo unused
    value variable version word
    """.split()  # noqa: SIM905
"""Words of any program: alone they name no subject."""


def questions_in(text: str) -> list[str]:
    """What to search for: the message, and each of its sentences, as what is said beside one takes nothing from it.

    Of a long message its end, where the question is below pasted text, and its start.
    """
    whole = text if len(text) <= 2 * _GIST else f"{text[-_GIST:]}\n\n{text[:_GIST]}"
    sentences = [sentence.strip() for sentence in _SENTENCE.split(whole)]
    chosen = [sentence for sentence in sentences if _OWNED.search(sentence) or stems(sentence) - _STEMS_OF_TASKS]
    chosen = chosen if len(sentences) > 1 else []
    if len(chosen) > MAX_SENTENCES:
        chosen = [*chosen[: MAX_SENTENCES // 2], *chosen[-MAX_SENTENCES // 2 :]]
    return list(dict.fromkeys([whole, *chosen]))


def stems(text: str) -> frozenset[str]:
    return frozenset(stem(forms[0]) for forms in question_of(text).words)


def relevant(question: str, hits: Sequence[MemoryHit]) -> dict[str, str]:
    """The ids of the hits that are relevant to a question, each with the reason, in their order."""
    asked = stems(question)
    owned = stems(" ".join(_OWNED.findall(question)))
    best = max(map(_share, hits), default=0.0)
    is_vague = bool(_GENERAL.search(question)) and best < MIN_FOR_GENERAL
    near = [hit for hit in hits if _share(hit) >= NEAR_BEST * best and not is_vague]
    reasons = {hit.id: f"says {_share(hit):.0%} of the words" for hit in near if _says_the_same(asked, owned, hit)}
    for hit, known in zip(hits, features(question, hits), strict=True):
        if "vectors" in hit.parts and sum(_WEIGHTS[name] * value for name, value in known.items()) > 0:
            reasons[hit.id] = f"says {_share(hit):.0%} of the words, {_cosine(hit):.2f} close in meaning"
    return {hit.id: reasons[hit.id] for hit in hits if hit.id in reasons}


def features(question: str, hits: Sequence[MemoryHit]) -> list[dict[str, float]]:
    """What is known about each hit and the question, by the name of its weight."""
    asked, is_general = stems(question), float(bool(_GENERAL.search(question)))
    without = (_STEMS_OF_TASKS | _STEMS_OF_CODE) - stems(" ".join(_OWNED.findall(question)))
    others = sorted(map(_cosine, hits), reverse=True)[_FEW:]
    usual = sum(others) / len(others) if others else _USUAL_COSINE
    best = max((_share(hit) + _cosine(hit) for hit in hits), default=0.0)
    found = []
    for hit in hits:
        share, cosine, own = _share(hit), _cosine(hit), stems(hit.text)
        known = {
            "bias": 1.0,
            "share": share,
            "cosine": cosine,
            "above": cosine - usual,
            "subject": min(len((asked & own) - without), 3),
            "cover": len(asked & own) / max(1, len(own)),
            "general": is_general,
            "gap": best - share - cosine,
            "asked": min(len(asked - without), 6),
            "both": share * cosine,
        }
        found.append(known)
    return found


def is_used(note: str, prompt: str, done: str, *, is_of_file: bool = False) -> bool:
    """Whether what was done in a turn shows a note: a name of it, or half of its words, that are not in the prompt.

    Args:
        done: what the assistant said, and what it gave to tools.
        is_of_file: the note came because a file was used, whose name shows nothing.
    """
    done = done[-_MAX_DONE:]
    names = {entity for entity in entities_in(note) if not (is_of_file and entity.startswith("file:"))}
    if any(entity.partition(":")[2] in done for entity in names.difference(entities_in(prompt))):
        return True
    own = stems(note) - stems(prompt) - _STEMS_OF_TASKS - _STEMS_OF_CODE
    return len(own & stems(done)) >= max(2, len(own) / 2)


def _share(hit: MemoryHit) -> float:
    return hit.parts.get("words", 0.0)


def _cosine(hit: MemoryHit) -> float:
    return hit.parts.get("vectors", 0.0)


def _says_the_same(asked: frozenset[str], owned: frozenset[str], hit: MemoryHit) -> bool:
    """Whether a note is relevant by words to a message of these stems, of which `owned` name a subject."""
    share, own = _share(hit), stems(hit.text)
    shared = asked & own
    of_tasks = _STEMS_OF_TASKS - owned
    count, subjects = len(shared), len(shared - of_tasks)
    is_specific = shared - of_tasks - (_STEMS_OF_CODE - owned) or count > 2 or (count > 1 and share >= MIN_FOR_GENERAL)
    if not is_specific:
        return False
    if subjects and count == 1:
        return share >= MIN_SHARE_OF_ONE
    of_two = share >= MIN_SHARE_OF_TWO or count / max(1, len(own)) >= MIN_COVER
    return (subjects > 0 and share >= MIN_SHARE) or (subjects > 1 and of_two)


_STEMS_OF_TASKS = frozenset(found for word in _OF_TASKS for found in stems(word) or {word})
_STEMS_OF_CODE = frozenset(map(stem, _OF_CODE))
