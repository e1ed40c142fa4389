"""Export of all memory as Markdown or JSON; both can be imported again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entries import MemoryEntry, all_entries, chain_of, core_entries, now, provenance
from ouro.memory.long_term.git.values import Scope
from ouro.memory.long_term.notes.notebook import NoteFile
from ouro.memory.long_term.scope import ScopeMemory

MARK = "<!-- ouro memory export 1 -->"
FORMAT = "ouro-memory"


def as_markdown(editor: MemoryEditor) -> str:
    """Core, then notes by category with chain and source, archived notes last."""
    entries = all_entries(editor, archived=True)
    parts = ["# What ouro remembers", MARK, f"Written on {now()[:10]}. `ouro memory import FILE` reads it again."]
    for scope in editor.scopes:
        parts += [f"## {scope.scope}", *_core(editor, scope), *_notes(scope.scope, entries)]
    return "\n\n".join(parts) + "\n"


def as_json(editor: MemoryEditor) -> dict[str, Any]:
    """Core texts and complete notes, by scope."""
    kept = list(editor.notebook.all(archived=True))
    return {
        "format": FORMAT,
        "version": 1,
        "exported_at": now(),
        "scopes": {
            scope.scope: {
                "core": dict(scope.loaded.core),
                "core_entries": [msgspec.to_builtins(e) for e in core_entries(editor) if e.scope == scope.scope],
                "notes": [_note(item) for item in kept if item.scope == scope.scope],
            }
            for scope in editor.scopes
        },
    }


def note_start(entry: MemoryEntry) -> str:
    return f"<!-- {entry.id} {entry.scope} {entry.category}{' archived' if entry.archived else ''} -->"


def note_end(note_id: str) -> str:
    return f"<!-- /{note_id} -->"


def _note(kept: NoteFile) -> Mapping[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(kept.note)
    return {**found, "archived": kept.archived}


def _core(editor: MemoryEditor, scope: ScopeMemory) -> Iterator[str]:
    entries = [entry for entry in core_entries(editor) if entry.scope == scope.scope]
    for category in scope.store.core:
        own = [entry for entry in entries if entry.category == category]
        if own:
            lines = [f"- {item.text}{f' <!-- {about} -->' if (about := provenance(item)) else ''}" for item in own]
            yield f"### {category}"
            yield "\n".join(lines)


def _notes(scope: Scope, entries: Sequence[MemoryEntry]) -> Iterator[str]:
    notes = [entry for entry in entries if entry.kind == "note" and entry.scope == scope]
    latest = [note for note in notes if "replaced" not in note.badges]
    for category in sorted({item.category for item in latest if not item.archived}):
        yield f"### Notes: {category}"
        for item in latest:
            if item.category == category and not item.archived:
                yield from _written(item, notes)
    if archive := [item for item in latest if item.archived]:
        yield "### Archive"
        for item in archive:
            yield from _written(item, notes)


def _written(entry: MemoryEntry, notes: Sequence[MemoryEntry]) -> Iterator[str]:
    yield f"{note_start(entry)}\n{entry.text.strip()}\n{note_end(entry.id)}"
    yield f"*{entry.id} · {provenance(entry)}*"
    before = chain_of(list(notes), entry)[:-1]
    if before:
        lines = [f"> - {item.at[:10]}: {' '.join(item.text.split())}" for item in before]
        yield "\n".join(["> Before:", *lines])
