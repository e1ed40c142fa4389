"""Links between core lines and the notes on their subjects: recall follows them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ouro.memory.long_term.core_line_provenance import core_records, save_records
from ouro.memory.long_term.notes.note import Note

if TYPE_CHECKING:
    from ouro.memory.long_term.entry_lookup import MemoryEntry
    from ouro.memory.long_term.scope import ScopeMemory

_MAX_RELATED = 4


def relate_lines(scope: ScopeMemory, notes: Sequence[MemoryEntry]) -> None:
    """Link each core line of a scope to those of `notes` in the same scope that are in use and on
    its subject, at most `_MAX_RELATED`. The links are saved in its record. Blocks.
    """
    notes_of_scope = [note for note in notes if note.scope == scope.name and note.is_in_use]
    from ouro.memory.long_term.supersession import find_on_subject

    changed_records = {}
    for text, record in core_records(scope).items():
        related = tuple(note.id for note in find_on_subject(text, notes_of_scope)[:_MAX_RELATED])
        if related != record.related:
            changed_records[text] = replace(record, related=related)
    save_records(scope, changed_records)


def linked_notes(scopes: Iterable[ScopeMemory], text: str) -> dict[str, str]:
    """The notes that are linked to core lines on the subject of a message, or that have an entity in
    common with it. Returns the text of the line by the id of each note. Blocks.
    """
    records = chain.from_iterable(core_records(scope).items() for scope in scopes)
    linked_records = [(line, record) for line, record in records if record.related]
    if not linked_records:
        return {}
    from ouro.memory.long_term.notes.entities import entities_in
    from ouro.memory.long_term.supersession import find_on_subject

    lines_by_note: dict[str, str] = {}
    entities = set(entities_in(text))
    for line, record in linked_records:
        is_named = not entities.isdisjoint(record.entities)
        # `find_on_subject` compares with notes only.
        line_as_note = Note(id=record.id, text=line)
        if is_named or find_on_subject(text, [line_as_note]):
            lines_by_note |= dict.fromkeys(record.related, line)
    return lines_by_note
