"""Diagnose memory: find problems and suggest a fix for each. Changes nothing."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from ouro.errors import MemoryUnusable, SearchUnavailable
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entries import MemoryEntry, all_entries
from ouro.memory.long_term.git.files import MAX_FILES
from ouro.memory.long_term.notes.note import CATEGORIES
from ouro.memory.long_term.notes.notebook import NoteFile
from ouro.memory.long_term.remember import folded
from ouro.memory.long_term.scope import ScopeMemory
from ouro.utils.text import one_line

_MAX_NAMED = 5


class Finding(msgspec.Struct, frozen=True):
    level: Literal["ok", "warning", "problem"]
    where: str
    """The scope, or `index`."""
    what: str
    advice: str = ""
    """The suggested fix."""


def diagnose(editor: MemoryEditor, threshold: int = 5_000, categories: Collection[str] = ()) -> list[Finding]:
    """Check memory; returns the findings by scope.

    Args:
        threshold: tokens of the core above which it is consolidated.
        categories: of notes, in addition to the built-in ones.
    """
    notes = list(editor.notebook.all(archived=True))
    entries = all_entries(editor, archived=True)
    found: list[Finding] = []
    for scope in editor.scopes:
        own = [note for note in notes if note.scope == scope.scope]
        looked = [
            *_files(scope),
            *_git(scope),
            *_fields(scope.scope, own, {*CATEGORIES, *categories}),
            *_chains(scope.scope, own, {note.note.id: note for note in notes}),
            *_doubles(scope.scope, entries),
            *_sizes(scope, own, threshold),
        ]
        counted = f"{len(scope.loaded.core)} core files, {len(own)} notes"
        found += looked or [Finding("ok", scope.scope, f"{counted}: no problems")]
    return [*found, *_index(editor, len(notes))]


def _files(scope: ScopeMemory) -> Iterator[Finding]:
    for item in scope.loaded.skipped:
        is_hidden = "invisible" in item.reason
        advice = "Look at it in an editor." if is_hidden else "Repair it, move it out of the folder, or delete it."
        yield Finding("warning" if is_hidden else "problem", scope.scope, f"{item.name}: {item.reason}", advice)


def _git(scope: ScopeMemory) -> Iterator[Finding]:
    store = scope.store
    if shutil.which("git") is None:
        yield Finding("problem", scope.scope, "git is not installed: there is no history", "Install git.")
        return
    try:
        head = store.repository.head()
        pending = [commit.name for commit in store.edits_since(head.commit)] if store.repository.exists else []
    except MemoryUnusable as error:
        yield Finding("problem", scope.scope, error.message, error.hint or "The texts are saved without history.")
        return
    if store.obstacle:
        yield Finding("problem", scope.scope, store.obstacle, "The texts are saved, and committed when it is resolved.")
    if store.plain_git:
        yield Finding("warning", scope.scope, store.plain_git, "Move that .git away; ouro creates its own.")
    for proposal in scope.proposals():
        what = f"{named([edit.name for edit in proposal.edits])} waits for approval: {proposal.reason}"
        yield Finding("warning", scope.scope, what, f"ouro memory accept {proposal.id}, or reject {proposal.id}")
    if pending and not scope.untrusted:
        yield Finding("warning", scope.scope, f"not committed: {named(pending)}", "The next session commits it.")


def _fields(scope: str, notes: Sequence[NoteFile], categories: Collection[str]) -> Iterator[Finding]:
    for note in notes:
        for problem in note.problems:
            yield Finding("problem", scope, f"{note.name}: {problem}", f"ouro memory edit {note.note.id}")
        if unknown := sorted(set(note.note.extra) - {"origin"}):
            what = f"{note.name}: unknown fields, which are kept: {named(unknown)}"
            yield Finding("warning", scope, what, f"ouro memory edit {note.note.id}, if they are misspelt")
        if not note.problems and note.note.category not in categories:
            what = f"{note.name}: unknown category {one_line(note.note.category, 40)}"
            yield Finding("warning", scope, what, "Correct it, or add it to `memory.categories`.")
        if not note.problems and note.note.scope != note.scope:
            what = f"{note.name}: its scope is {note.note.scope}, but it is in {note.scope}"
            yield Finding("warning", scope, what, "The folder counts. Correct the note, or move the file.")


def _chains(scope: str, notes: Sequence[NoteFile], known: Mapping[str, NoteFile]) -> Iterator[Finding]:
    after = Counter(item.note.supersedes for item in notes if item.note.supersedes)
    for item in notes:
        note = item.note
        if note.supersedes and note.supersedes not in known:
            what = f"{item.name} supersedes {note.supersedes}, which does not exist"
            yield Finding(
                "warning", scope, what, f"ouro memory edit {note.id}: `supersedes: null`, or restore the file"
            )
        if _is_in_cycle(note.id, known):
            what = f"{item.name} supersedes itself, through other notes"
            yield Finding("problem", scope, what, f"ouro memory edit {note.id}: remove `supersedes`")
        if after[note.id] > 1:
            what = f"{after[note.id]} notes supersede {note.id}"
            yield Finding("warning", scope, what, "Let one of them supersede the other.")
        for edge in note.related:
            if edge.id not in known:
                what = f"{item.name} {edge.relationship} {one_line(edge.id, 40)}, which does not exist"
                yield Finding("warning", scope, what, f"ouro memory edit {note.id}: remove it from `related`")


def _is_in_cycle(note_id: str, known: Mapping[str, NoteFile]) -> bool:
    seen: set[str] = set()
    at = known[note_id].note.supersedes or ""
    while at in known and at not in seen:
        if at == note_id:
            return True
        seen.add(at)
        at = known[at].note.supersedes or ""
    return False


def _doubles(scope: str, entries: Sequence[MemoryEntry]) -> Iterator[Finding]:
    by_words: dict[str, list[MemoryEntry]] = {}
    for entry in entries:
        if entry.scope == scope and not entry.archived and "replaced" not in entry.badges:
            by_words.setdefault(folded(entry.text), []).append(entry)
    for same in by_words.values():
        if len(same) > 1:
            what = f"written {len(same)} times: {one_line(same[0].text, 60)} ({named([entry.id for entry in same])})"
            yield Finding("warning", scope, what, f"ouro memory forget {same[-1].id}")


def _sizes(scope: ScopeMemory, notes: Sequence[NoteFile], threshold: int) -> Iterator[Finding]:
    if scope.tokens > threshold:
        what = f"the core has {scope.tokens:,} tokens; the limit is {threshold:,} (memory.consolidation_threshold)"
        yield Finding("warning", scope.scope, what, "/memory consolidate merges it; `forget` what no longer holds.")
    if len(notes) > MAX_FILES * 0.9:
        what = f"{len(notes):,} notes; at most {MAX_FILES:,} files are read"
        yield Finding("problem", scope.scope, what, "Move files out of `archive/`.")


def _index(editor: MemoryEditor, notes: int) -> Iterator[Finding]:
    if editor.index is None:
        return
    try:
        state = editor.index().state()
    except SearchUnavailable as error:
        yield Finding("problem", "index", error.message, "ouro memory reindex")
        return
    if not state.size:
        yield Finding("warning", "index", "it cannot be written, and is rebuilt each time", f"Look at {state.path}")
    elif state.rows["notes"] < notes:
        what = f"it has {state.rows['notes']} notes of at least {notes}"
        yield Finding("warning", "index", what, "ouro memory reindex")
    else:
        yield Finding("ok", "index", f"{state.size:,} bytes, {state.rows['notes']:,} notes")


def named(names: Sequence[str]) -> str:
    """The first five names, and the number of the others."""
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
