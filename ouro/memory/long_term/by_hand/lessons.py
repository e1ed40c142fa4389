"""Lessons: what went wrong here before and what works, newest first, each with whence it is."""

from __future__ import annotations

from ouro.memory.long_term.by_hand.desk import Desk
from ouro.memory.long_term.by_hand.entries import Entry, note_entries

_CATEGORIES = ("corrections", "patterns")
_DOES_NOT_COUNT = {"archived", "replaced", "unconfirmed"}


def lessons(desk: Desk) -> list[Entry]:
    """The corrections and patterns that count in this project. Blocks."""
    found = (each for each in note_entries(desk) if each.category in _CATEGORIES)
    return sorted((e for e in found if not _DOES_NOT_COUNT & {*e.badges}), key=lambda each: each.at, reverse=True)
