"""Links between core lines and the notes on their subjects: recall follows them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ouro.memory.long_term.line_records import core_records, save_records
from ouro.memory.long_term.notes.entities import entities_in
from ouro.memory.long_term.notes.note import Note
from ouro.memory.long_term.supersession import find_on_subject

if TYPE_CHECKING:
    from ouro.memory.long_term.entries import MemoryEntry
    from ouro.memory.long_term.scope import ScopeMemory

_MAX_RELATED = 4


def relate_lines(scope: ScopeMemory, notes: Sequence[MemoryEntry]) -> None:
    """Link each line to the notes of its scope on the same subject. Blocks."""
    own = [note for note in notes if note.scope == scope.scope and note.is_in_use]
    changed = {}
    for text, record in core_records(scope).items():
        related = tuple(note.id for note in find_on_subject(text, own)[:_MAX_RELATED])
        if related != record.related:
            changed[text] = replace(record, related=related)
    save_records(scope, changed)


def linked_notes(scopes: Iterable[ScopeMemory], text: str) -> dict[str, str]:
    """The notes that are one hop from the core lines which a message is about: id -> the line.
    Blocks.
    """
    found: dict[str, str] = {}
    named = set(entities_in(text))
    for scope in scopes:
        for line, record in core_records(scope).items():
            if not record.related:
                continue
            is_named = not named.isdisjoint(record.entities)
            if is_named or find_on_subject(text, [Note(id=record.id, text=line)]):
                found |= dict.fromkeys(record.related, line)
    return found
