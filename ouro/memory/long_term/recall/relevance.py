"""Relevance: whether a note is about the subject of a message, by shared words and vectors."""

from __future__ import annotations

from ouro.memory.index import MemoryHit, question_of, stem

MIN_SHARE = 0.3
"""A note is relevant when it has this share of the message's words, weighted by rarity;"""
MIN_SHARE_OF_TWO = 0.2
"""less is needed when two of the words name a subject;"""
MIN_COVER = 0.3
"""or when two such words are this share of the note's words;"""
MIN_COSINE = 0.45
"""or when the cosine of the vectors is at least this."""
MIN_SHARE_OF_ONE = 0.5
"""A single shared word is enough only when it is this share of the message."""
MIN_HYPOTHESIS_COSINE = 0.3
"""The least cosine of a note and a hypothesis."""
_PART = 400
_OF_TASKS = frozenset(
    """
    add again answer ask be better bit build change check clean code continue create current delete do done edit error
    explain file find fix folder follow function get give go good great help implement keep know last let line list
    look make mean move name need new next nice now ok okay old open plan please print problem proceed put read really
    remove rename replace rewrite right run same save say see set show start step stop sure take tell thank thanks thing
    think time try two understand undo update use want way well what whole why work works write wrong yes
    """.split()  # noqa: SIM905 (a list of this length reads better as words)
)
"""Words that say what to do, but name no subject."""


def gist(text: str) -> str:
    """The text to search for: of a long message its end, where the question is below pasted text, and its start."""
    return text if len(text) <= 2 * _PART else f"{text[-_PART:]}\n{text[:_PART]}"


class Relevance:
    def __init__(self, text: str) -> None:
        self._stems = _stems(text)

    def reason(self, hit: MemoryHit) -> str:
        """Why a note is relevant; empty when it is not."""
        close = hit.parts.get("vectors", 0.0)
        share = hit.parts.get("words", 0.0)
        own = _stems(hit.text) if share else frozenset()
        shared = self._stems & own
        shares_words = self._shares_words(shared, share, len(shared) / max(1, len(own)))
        reasons = [
            *([f"says {share:.0%} of the words"] if shares_words else []),
            *([f"{close:.2f} close in meaning"] if close >= MIN_COSINE else []),
        ]
        return ", ".join(reasons)

    def _shares_words(self, shared: frozenset[str], share: float, cover: float) -> bool:
        if not shared - _STEMS_OF_TASKS:
            return False
        if len(shared) == 1:
            return share >= MIN_SHARE_OF_ONE
        subjects = len(shared - _STEMS_OF_TASKS)
        return share >= MIN_SHARE or (subjects > 1 and (share >= MIN_SHARE_OF_TWO or cover >= MIN_COVER))


def _stems(text: str) -> frozenset[str]:
    return frozenset(stem(forms[0]) for forms in question_of(text).words)


_STEMS_OF_TASKS = frozenset(stem for word in _OF_TASKS for stem in _stems(word) or {word})
