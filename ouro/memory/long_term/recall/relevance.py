"""Whether a note is relevant to a message: by shared words, weighted by rarity, and by the cosine of their vectors."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ouro.memory.index import MemoryHit, question_of, stem
from ouro.memory.long_term.notes.entities import entities_in

MIN_SHARE = 0.3
"""A note is relevant when it has this share of the message's words, weighted by rarity;"""
MIN_SHARE_OF_TWO = 0.2
"""less is needed when two of the words name a subject;"""
MIN_COVER = 0.3
"""or when two such words are this share of the note's words;"""
MIN_COSINE = 0.45
"""or when the cosine of the vectors is at least this."""
MIN_SHARE_OF_ONE = 0.45
"""A single shared word is enough only when it is this share of the message."""
MIN_BOTH, MIN_BOTH_OF_ANY = 0.5, 0.55
"""Share and cosine together, when a word that names a subject is shared; and when any word is, which needs:"""
MIN_COSINE_OF_SUBJECT, MIN_COSINE_OF_ANY, MIN_COSINE_ALONE = 0.2, 0.4, 0.5
MIN_FOR_GENERAL = 0.9
"""Share and cosine for a general question (`What is a mutex?`), or where two words of any program are shared."""
NEAR_BEST, NEAR_BEST_OF_BOTH = 0.6, 0.9
"""Share of the best score that others need, and those that are relevant only by share and cosine together."""
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
    asked, is_general = stems(question), bool(_GENERAL.search(question))
    owned = stems(" ".join(_OWNED.findall(question)))
    best = max((_both(hit) for hit in hits), default=0.0)
    found = {}
    for hit in hits:
        if is_general and _both(hit) < MIN_FOR_GENERAL:
            continue
        reason = _reason(asked, owned, hit, _both(hit) / best if best else 0.0)
        if reason:
            found[hit.id] = reason
    return found


def is_used(note: str, prompt: str, done: str, *, is_of_file: bool = False) -> bool:
    """Whether what was done in a turn shows a note: a name of it, or half of its words, that are not in the prompt.

    Args:
        note: its text.
        done: what the assistant said, and what it gave to tools.
        is_of_file: the note came because a file was used, whose name shows nothing.
    """
    done = done[-_MAX_DONE:]
    names = {entity for entity in entities_in(note) if not (is_of_file and entity.startswith("file:"))}
    if any(entity.partition(":")[2] in done for entity in names.difference(entities_in(prompt))):
        return True
    own = stems(note) - stems(prompt) - _STEMS_OF_TASKS - _STEMS_OF_CODE
    return len(own & stems(done)) >= max(2, len(own) / 2)


def _both(hit: MemoryHit) -> float:
    return hit.parts.get("words", 0.0) + hit.parts.get("vectors", 0.0)


def _reason(asked: frozenset[str], owned: frozenset[str], hit: MemoryHit, of_best: float) -> str:
    """Why a note is relevant to a message of these stems, of which `owned` name a subject; empty when it is not."""
    share, cosine = hit.parts.get("words", 0.0), hit.parts.get("vectors", 0.0)
    own = stems(hit.text) if share else frozenset()
    shared = asked & own
    of_tasks = _STEMS_OF_TASKS - owned
    subject = shared - of_tasks - (_STEMS_OF_CODE - owned)
    reasons = []
    is_specific = subject or len(shared) > 2 or (len(shared) > 1 and share >= MIN_FOR_GENERAL)
    by_words = is_specific and _says_the_same(
        len(shared), len(shared - of_tasks), share, len(shared) / max(1, len(own))
    )
    if of_best >= NEAR_BEST and by_words:
        reasons.append(f"says {share:.0%} of the words")
    if of_best >= NEAR_BEST and cosine >= (MIN_COSINE if shared else MIN_COSINE_ALONE):
        reasons.append(f"{cosine:.2f} close in meaning")
    if reasons or of_best < NEAR_BEST_OF_BOTH or len(asked) < 3:
        return ", ".join(reasons)
    by_subject = subject and cosine >= MIN_COSINE_OF_SUBJECT and share + cosine >= MIN_BOTH
    by_any = shared and cosine >= MIN_COSINE_OF_ANY and share + cosine >= MIN_BOTH_OF_ANY
    return f"says {share:.0%} of the words, {cosine:.2f} close in meaning" if by_subject or by_any else ""


def _says_the_same(count: int, subject_count: int, share: float, cover: float) -> bool:
    if subject_count and count == 1:
        return share >= MIN_SHARE_OF_ONE
    of_two = share >= MIN_SHARE_OF_TWO or cover >= MIN_COVER
    return (subject_count > 0 and share >= MIN_SHARE) or (subject_count > 1 and of_two)


_STEMS_OF_TASKS = frozenset(found for word in _OF_TASKS for found in stems(word) or {word})
_STEMS_OF_CODE = frozenset(map(stem, _OF_CODE))
