"""Checkup: what is wrong with a memory, and what to do about each of it. Changes nothing."""

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

_MOST_NAMED = 5


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    level: Literal["ok", "warning", "problem"]
    where: str
    """The scope; `index`."""
    what: str
    advice: str = ""
    """What to do about it."""


def diagnose(desk: MemoryEditor, threshold: int = 5_000, categories: Collection[str] = ()) -> list[Finding]:
    """All that was looked at, by scope.

    Args:
        threshold: tokens of a core above which it is consolidated.
        categories: of notes, beside the built-in ones.
    """
    notes = list(desk.notebook.all(archived=True))
    entries = all_entries(desk, archived=True)
    found: list[Finding] = []
    for scope in desk.scopes:
        own = [each for each in notes if each.scope == scope.scope]
        looked = [
            *_files(scope),
            *_git(scope),
            *_fields(scope.scope, own, {*CATEGORIES, *categories}),
            *_chains(scope.scope, own, {each.note.id: each for each in notes}),
            *_doubles(scope.scope, entries),
            *_sizes(scope, own, threshold),
        ]
        counted = f"{len(scope.loaded.core)} core files, {len(own)} notes"
        found += looked or [Finding("ok", scope.scope, f"{counted}: nothing to mend")]
    return [*found, *_index(desk, len(notes))]


def _files(scope: ScopeMemory) -> Iterator[Finding]:
    for each in scope.loaded.skipped:
        is_hidden = "invisible" in each.reason
        advice = "Look at it in an editor." if is_hidden else "Mend it, move it out of the folder, or delete it."
        yield Finding("warning" if is_hidden else "problem", scope.scope, f"{each.name}: {each.reason}", advice)


def _git(scope: ScopeMemory) -> Iterator[Finding]:
    store = scope.store
    if shutil.which("git") is None:
        yield Finding("problem", scope.scope, "git is not installed: there is no history", "Install git.")
        return
    try:
        head = store.repository.head()
        pending = [each.name for each in store.edits_since(head.commit)] if store.repository.exists else []
    except MemoryUnusable as error:
        yield Finding("problem", scope.scope, error.message, error.hint or "The texts are kept all the same.")
        return
    if store.obstacle:
        yield Finding("problem", scope.scope, store.obstacle, "The texts are kept; they are committed once it is over.")
    if store.plain_git:
        yield Finding("warning", scope.scope, store.plain_git, "Move that .git away, and ouro puts its own there.")
    for each in scope.proposals():
        what = f"{named([edit.name for edit in each.edits])} waits for you: {each.reason}"
        yield Finding("warning", scope.scope, what, f"ouro memory accept {each.id}, or reject {each.id}")
    if pending and not scope.doubted:
        yield Finding("warning", scope.scope, f"not committed: {named(pending)}", "The next session commits it.")


def _fields(scope: str, notes: Sequence[NoteFile], categories: Collection[str]) -> Iterator[Finding]:
    for each in notes:
        for problem in each.problems:
            yield Finding("problem", scope, f"{each.name}: {problem}", f"ouro memory edit {each.note.id}")
        if unknown := sorted(set(each.note.extra) - {"origin"}):
            what = f"{each.name}: fields that ouro does not know, and keeps: {named(unknown)}"
            yield Finding("warning", scope, what, f"ouro memory edit {each.note.id}, if they are misspelt")
        if not each.problems and each.note.category not in categories:
            what = f"{each.name}: no category is called {one_line(each.note.category, 40)}"
            yield Finding("warning", scope, what, "Correct it, or name it under `memory.categories`.")
        if not each.problems and each.note.scope != each.scope:
            what = f"{each.name}: says it is of {each.note.scope}, and lies in {each.scope}"
            yield Finding("warning", scope, what, "The folder counts. Correct the note, or move the file.")


def _chains(scope: str, notes: Sequence[NoteFile], known: Mapping[str, NoteFile]) -> Iterator[Finding]:
    after = Counter(each.note.supersedes for each in notes if each.note.supersedes)
    for each in notes:
        note = each.note
        if note.supersedes and note.supersedes not in known:
            what = f"{each.name} takes the place of {note.supersedes}, which is not there"
            yield Finding(
                "warning", scope, what, f"ouro memory edit {note.id}: `supersedes: null`, or restore the file"
            )
        if _is_in_cycle(note.id, known):
            what = f"{each.name} takes the place of itself, by way of others"
            yield Finding("problem", scope, what, f"ouro memory edit {note.id}: take out `supersedes`")
        if after[note.id] > 1:
            what = f"{after[note.id]} notes take the place of {note.id}"
            yield Finding("warning", scope, what, "Let one of them supersede the other.")
        for edge in note.related:
            if edge.id not in known:
                what = f"{each.name} {edge.relationship} {one_line(edge.id, 40)}, which is not there"
                yield Finding("warning", scope, what, f"ouro memory edit {note.id}: take it out of `related`")


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
    for each in entries:
        if each.scope == scope and not each.archived and "replaced" not in each.badges:
            by_words.setdefault(folded(each.text), []).append(each)
    for same in by_words.values():
        if len(same) > 1:
            what = f"said {len(same)} times: {one_line(same[0].text, 60)} ({named([each.id for each in same])})"
            yield Finding("warning", scope, what, f"ouro memory forget {same[-1].id}")


def _sizes(scope: ScopeMemory, notes: Sequence[NoteFile], threshold: int) -> Iterator[Finding]:
    if scope.tokens > threshold:
        what = f"the core has {scope.tokens:,} tokens; {threshold:,} are meant (memory.consolidation_threshold)"
        yield Finding("warning", scope.scope, what, "/memory consolidate merges it; `forget` what no longer holds.")
    if len(notes) > MAX_FILES * 0.9:
        what = f"{len(notes):,} notes; {MAX_FILES:,} files are read at most"
        yield Finding("problem", scope.scope, what, "Move what is in `archive/` elsewhere.")


def _index(desk: MemoryEditor, notes: int) -> Iterator[Finding]:
    if desk.index is None:
        return
    try:
        state = desk.index().state()
    except SearchUnavailable as error:
        yield Finding("problem", "index", error.message, "ouro memory reindex")
        return
    if not state.size:
        yield Finding("warning", "index", "it cannot be written, and is made anew each time", f"Look at {state.path}")
    elif state.rows["notes"] < notes:
        what = f"it knows {state.rows['notes']} notes of at least {notes}"
        yield Finding("warning", "index", what, "ouro memory reindex")
    else:
        yield Finding("ok", "index", f"{state.size:,} bytes, {state.rows['notes']:,} notes")


def named(names: Sequence[str]) -> str:
    """The first few of these, and how many more there are."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
