"""Export of memory as Markdown and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entry_lookup import (
    MemoryEntry,
    all_entries,
    core_entries,
    describe_source,
    versions_of,
)
from ouro.memory.long_term.import_formats import FORMAT, MARK
from ouro.memory.long_term.notes.notebook import timestamp


def _core_line(line: MemoryEntry) -> str:
    """A core line in Markdown, with its source in a comment."""
    source = describe_source(line)
    return f"- {line.text} <!-- {source} -->" if source else f"- {line.text}"


def as_markdown(editor: MemoryEditor) -> str:
    """All of memory in Markdown, scope by scope: the core, then the notes by category, each with its
    source and earlier versions, then the archived notes. `memory import` reads it again.
    """
    entries = all_entries(editor, archived=True)
    introduction = f"Written on {timestamp()[:10]}. `ouro memory import FILE` reads it again."
    paragraphs = ["# What ouro remembers", MARK, introduction]
    for scope in editor.scopes:
        entries_of_scope = [entry for entry in entries if entry.scope == scope.name]
        paragraphs.append(f"## {scope.name}")
        for category in scope.store.core:
            core = [
                item
                for item in entries_of_scope
                if item.kind == "core" and item.category == category
            ]
            if core:
                paragraphs += [f"### {category}", "\n".join(map(_core_line, core))]
        notes = [entry for entry in entries_of_scope if entry.kind == "note"]
        paragraphs += _notes_as_markdown(notes)
    return "\n\n".join(paragraphs) + "\n"


def as_json(editor: MemoryEditor) -> dict[str, Any]:
    """All of memory as plain data: core texts and complete notes, by scope."""
    files = list(editor.notebook.all(archived=True))
    core = core_entries(editor)
    scopes = {}
    for scope in editor.scopes:
        entries = [entry for entry in core if entry.scope == scope.name]
        notes_of_scope = [file for file in files if file.scope == scope.name]
        scopes[scope.name] = {
            "core": dict(scope.loaded.core),
            "core_entries": list(map(msgspec.to_builtins, entries)),
            "notes": [
                {**msgspec.to_builtins(file.note), "archived": file.archived}
                for file in notes_of_scope
            ],
        }
    return {"format": FORMAT, "version": 1, "exported_at": timestamp(), "scopes": scopes}


def _notes_as_markdown(notes: Sequence[MemoryEntry]) -> Iterator[str]:
    """Yield the current notes by category, then the archived ones, as paragraphs of the document."""
    latest = [note for note in notes if "replaced" not in note.badges]
    for category in sorted({note.category for note in latest}):
        notes_of_category = [
            note for note in latest if note.category == category and not note.archived
        ]
        yield from _group_as_markdown(f"Notes: {category}", notes_of_category, notes)
    archived = [note for note in latest if note.archived]
    yield from _group_as_markdown("Archive", archived, notes)


def _group_as_markdown(
    title: str, group: Sequence[MemoryEntry], notes: Sequence[MemoryEntry]
) -> Iterator[str]:
    """Yield the notes of a group below a title, each with what it replaced; nothing if there are
    none.
    """
    if group:
        yield f"### {title}"
    for note in group:
        state = " archived" if note.archived else ""
        yield (
            f"<!-- {note.id} {note.scope} {note.category}{state} -->\n"
            f"{note.text.strip()}\n<!-- /{note.id} -->"
        )
        yield f"*{note.id} · {describe_source(note)}*"
        if earlier_versions := versions_of(notes, note)[:-1]:
            lines = [
                f"> - {version.at[:10]}: {' '.join(version.text.split())}"
                for version in earlier_versions
            ]
            yield "\n".join(["> Before:", *lines])
