"""What became of notes, as it is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ouro.events import NoteKept
from ouro.memory.long_term.notes.note import Note
from ouro.memory.long_term.notes.notebook import Written
from ouro.utils.text import clean, one_line


def kept(written: Written) -> NoteKept:
    """One note was written."""
    note, change = written.note, written.change
    operation = "rewrite" if change in ("relate", "restore") else change
    return NoteKept(operation, note.id, clean(note.text), written.scope, note.category, written.commit)  # type: ignore[arg-type]  # the two names apart they are the same


def proposed(notes: Sequence[Note]) -> NoteKept:
    """Notes wait for the person: one line for all of them."""
    first = notes[0]
    more = f" (and {len(notes) - 1} more)" if len(notes) > 1 else ""
    return NoteKept("propose", first.id, f"{clean(first.text)}{more}", first.scope, first.category)


def together(operation: Literal["archive", "share"], written: Sequence[Written], why: str) -> list[NoteKept]:
    """What was done to several notes in one commit a scope."""
    told: list[NoteKept] = []
    for commit in dict.fromkeys((each.scope, each.commit) for each in written):
        notes = [each.note for each in written if (each.scope, each.commit) == commit]
        count = f"{len(notes)} notes" if len(notes) > 1 else "a note"
        shown = "; ".join(one_line(note.text, 80) for note in notes[:3])
        text = f"{count} {why}: {shown}{'; …' if len(notes) > 3 else ''}"
        told.append(NoteKept(operation, notes[0].id, text, commit[0], notes[0].category, commit[1]))
    return told
