"""Confidence over time: what was only concluded fades when nothing confirms it."""

from __future__ import annotations

from datetime import UTC, datetime

from ouro.memory.long_term.notes.note import Note

FADED = 0.3
"""Below this a note belongs into the archive."""


def confidence_now(note: Note, now: datetime, half_life_days: float) -> float:
    """The confidence in a note at `now`: halved for each half-life since it was last confirmed.

    What the person said does not fade. Neither does a note whose times cannot be read, or lie ahead: a clock that
    was wrong once must not cost a memory.
    """
    if note.source == "user":
        return note.confidence
    since = _time(note.confirmed_at) or _time(note.updated_at) or _time(note.created_at)
    if since is None or since >= now:
        return note.confidence
    days = (now - since).total_seconds() / 86_400
    return float(note.confidence * 0.5 ** (days / half_life_days))


def has_faded(note: Note, now: datetime, half_life_days: float) -> bool:
    """Whether it belongs into the archive."""
    return confidence_now(note, now, half_life_days) < FADED and note.source != "user"


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
