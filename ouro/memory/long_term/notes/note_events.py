"""Events about changed notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ouro.events import NoteKept
from ouro.memory.long_term.notes.note import Note
from ouro.memory.long_term.notes.notebook import Written
from ouro.utils.text import clean, one_line, plural


def note_event(written: Written) -> NoteKept:
    note = written.note
    return NoteKept(written.change, note.id, clean(note.text), written.scope, note.category, written.commit)


def proposal_event(notes: Sequence[Note]) -> NoteKept:
    """Notes wait for approval: one event for all of them."""
    first = notes[0]
    more = f" (and {len(notes) - 1} more)" if len(notes) > 1 else ""
    return NoteKept("propose", first.id, f"{clean(first.text)}{more}", first.scope, first.category)


def notes_event(operation: Literal["archive", "share"], written: Sequence[Written], why: str) -> list[NoteKept]:
    """Several notes were changed: one event for each commit."""
    events: list[NoteKept] = []
    for scope, commit in dict.fromkeys((change.scope, change.commit) for change in written):
        notes = [change.note for change in written if (change.scope, change.commit) == (scope, commit)]
        shown = "; ".join(one_line(note.text, 80) for note in notes[:3])
        text = f"{plural(len(notes), 'note')} {why}: {shown}{'; …' if len(notes) > 3 else ''}"
        events.append(NoteKept(operation, notes[0].id, text, scope, notes[0].category, commit))
    return events
