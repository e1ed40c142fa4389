"""Bearing: whether a note that shares words or meaning with a message has to do with it, or only sounds alike."""

from __future__ import annotations

from ouro.memory.index.query import question_of
from ouro.memory.index.scoring import stem
from ouro.memory.index.search import MemoryHit

LEAST_SHARE = 0.3
"""A note has to do with a message when it says this share of the message's words, weighted by their rarity,"""
LEAST_SHARE_OF_TWO = 0.2
"""of which less is needed where two of them are about something,"""
LEAST_COVER = 0.3
"""or two such words are this share of the note's words,"""
LEAST_CLOSENESS = 0.45
"""or when the two are this close in meaning: the cosine of their vectors."""
LEAST_ALONE = 0.5
"""One word that they share is enough only where it is this much of the message."""
LEAST_IMAGINED = 0.3
"""The cosine of a note and what a model imagines that it says, below which they have nothing to do with each other."""
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
"""Words that say what is to be done, and never about what."""


def gist(text: str) -> str:
    """What a message is about: of a long one its end, where the question stands below what was pasted, and its start.

    Also what is looked for: of a long question only the first words are.
    """
    return text if len(text) <= 2 * _PART else f"{text[-_PART:]}\n{text[:_PART]}"


class Bearing:
    """Of notes on one message."""

    def __init__(self, text: str) -> None:
        self._stems = _stems(text)

    def reason(self, hit: MemoryHit) -> str:
        """Why a note has to do with the message; empty where it does not."""
        close = hit.parts.get("vectors", 0.0)
        share = hit.parts.get("words", 0.0)
        own = _stems(hit.text) if share else frozenset()
        said = self._stems & own
        is_said = self._is_said(said, share, len(said) / max(1, len(own)))
        reasons = [
            *([f"says {share:.0%} of the words"] if is_said else []),
            *([f"{close:.2f} close in meaning"] if close >= LEAST_CLOSENESS else []),
        ]
        return ", ".join(reasons)

    def _is_said(self, said: frozenset[str], share: float, cover: float) -> bool:
        if not said - _STEMS_OF_TASKS:
            return False
        if len(said) == 1:
            return share >= LEAST_ALONE
        telling = len(said - _STEMS_OF_TASKS)
        return share >= LEAST_SHARE or (telling > 1 and (share >= LEAST_SHARE_OF_TWO or cover >= LEAST_COVER))


def _stems(text: str) -> frozenset[str]:
    return frozenset(stem(forms[0]) for forms in question_of(text).words)


_STEMS_OF_TASKS = frozenset(stem for word in _OF_TASKS for stem in _stems(word) or {word})
