"""The state of memory: `diagnose` finds problems and suggests fixes, `memory_stats` counts. Nothing is changed."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, get_args

import msgspec

from ouro.errors import MemoryUnusable, SearchUnavailable
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entries import MemoryEntry, all_entries
from ouro.memory.long_term.git.files import ARCHIVE, MAX_FILES
from ouro.memory.long_term.notes.note import CATEGORIES, Trigger, is_note_name, parse_note
from ouro.memory.long_term.notes.notebook import NoteFile
from ouro.memory.long_term.notes.validity import age_in_days
from ouro.memory.long_term.recall.recall_log import RecallLog
from ouro.memory.long_term.scope import ScopeMemory
from ouro.memory.long_term.supersession import fold_words
from ouro.utils.text import one_line, plural

_MAX_NAMED = 5
_TRIGGER = re.compile(rf"---\n(?:(?!---)[^\n]*\n)*?trigger: ({'|'.join(get_args(Trigger))})\n")
_AGES = ((1, "today"), (7, "a week"), (30, "a month"), (365, "a year"), (float("inf"), "older"))
"""Days, and what an entry is counted as that is younger."""


class Finding(msgspec.Struct, frozen=True):
    level: Literal["ok", "warning", "problem"]
    where: str
    """The scope, or `index`."""
    what: str
    advice: str = ""


class MemoryStats(msgspec.Struct, frozen=True):
    core: Mapping[str, int]
    """The number of lines, by `scope/category`."""
    notes: Mapping[str, int]
    """Notes in use, by `scope/category`."""
    archived: int
    replaced: int
    contradicted: int
    sources: Mapping[str, int]
    """Notes by source; core lines by author."""
    triggers: Mapping[str, int]
    ages: Mapping[str, int]
    """Entries by the age of their last change."""
    prompt_tokens: Mapping[str, int]
    """Tokens of the core in each request, by scope."""
    sizes: Mapping[str, int]
    """Bytes of the files, by scope."""
    recalled: Mapping[str, int]
    """Note id -> number of messages it was sent with, for the ten most recalled."""
    last_recalled: str = ""
    """The time when a note last went to a model."""


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
            *_check_files(scope),
            *_check_git(scope),
            *_check_fields(scope.scope, own, {*CATEGORIES, *categories}),
            *_check_links(scope.scope, own, {note.note.id: note.note.supersedes or "" for note in notes}),
            *_check_duplicates(scope.scope, entries),
            *_check_sizes(scope, own, threshold),
        ]
        counted = f"{plural(len(scope.loaded.core), 'core file')}, {plural(len(own), 'note')}"
        found += looked or [Finding("ok", scope.scope, f"{counted}: no problems")]
    return [*found, *_check_index(editor, len(notes))]


def memory_stats(editor: MemoryEditor, recall_log: RecallLog) -> MemoryStats:
    """Count entries. Reads each note, for its trigger."""
    entries = all_entries(editor, archived=True)
    core = [entry for entry in entries if entry.kind == "core"]
    notes = [entry for entry in entries if entry.kind == "note"]
    used = [note for note in notes if {"archived", "replaced"}.isdisjoint(note.badges)]
    ids = {note.id for note in notes}
    badges = Counter(badge for note in notes for badge in note.badges)
    recalls = recall_log.counts()
    ages = Counter(_age(entry.at) for entry in [*core, *used])
    return MemoryStats(
        core=_count(f"{item.scope}/{item.category}" for item in core),
        notes=_count(f"{item.scope}/{item.category}" for item in used),
        archived=badges["archived"],
        replaced=badges["replaced"],
        contradicted=badges["contradicted"],
        sources=_count(item.source or "unknown" for item in [*core, *used]),
        triggers=_count(trigger for scope in editor.scopes for trigger in _triggers(scope)),
        ages={name: ages[name] for name in [*(name for _, name in _AGES), "unknown"] if ages[name]},
        prompt_tokens={scope.scope: scope.tokens for scope in editor.scopes},
        # A fingerprint is `inode:size:…`.
        sizes={scope.scope: sum(int(p.split(":")[1]) for p in scope.loaded.files.values()) for scope in editor.scopes},
        recalled=dict(Counter({note: count for note, count in recalls.counts.items() if note in ids}).most_common(10)),
        last_recalled=max((at for note, at in recalls.last.items() if note in ids), default=""),
    )


def _triggers(scope: ScopeMemory) -> Iterator[str]:
    """Of the notes that are not archived; a note that ouro wrote is not parsed: ten times as slow."""
    names = {*scope.loaded.notes} - {*scope.untrusted}
    texts = scope.store.texts([name for name in names if not name.startswith(f"{ARCHIVE}/") and is_note_name(name)])
    for name, text in texts.items():
        if text is not None:
            found = _TRIGGER.match(text)
            yield found[1] if found else parse_note(name, text).note.trigger


def _check_files(scope: ScopeMemory) -> Iterator[Finding]:
    for item in scope.loaded.skipped:
        is_hidden = "invisible" in item.reason
        advice = "Look at it in an editor." if is_hidden else "Repair it, move it out of the folder, or delete it."
        yield Finding("warning" if is_hidden else "problem", scope.scope, f"{item.name}: {item.reason}", advice)


def _check_git(scope: ScopeMemory) -> Iterator[Finding]:
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
        what = f"{_list_names([edit.name for edit in proposal.edits])} waits for approval: {proposal.reason}"
        yield Finding("warning", scope.scope, what, f"ouro memory accept {proposal.id}, or reject {proposal.id}")
    if pending and not scope.untrusted:
        yield Finding("warning", scope.scope, f"not committed: {_list_names(pending)}", "The next session commits it.")


def _check_fields(scope: str, files: Sequence[NoteFile], categories: Collection[str]) -> Iterator[Finding]:
    for file in files:
        note, edit = file.note, f"ouro memory edit {file.note.id}"
        for problem in file.problems:
            yield Finding("problem", scope, f"{file.name}: {problem}", edit)
        if unknown := sorted(set(note.extra) - {"origin"}):
            what = f"{file.name}: unknown fields, which are kept: {_list_names(unknown)}"
            yield Finding("warning", scope, what, f"{edit}, if they are misspelt")
        if not file.problems and note.category not in categories:
            what = f"{file.name}: unknown category {one_line(note.category, 40)}"
            yield Finding("warning", scope, what, "Correct it, or add it to `memory.categories`.")
        if not file.problems and note.scope != file.scope:
            what = f"{file.name}: its scope is {note.scope}, but it is in {file.scope}"
            yield Finding("warning", scope, what, "The folder counts. Correct the note, or move the file.")


def _check_links(scope: str, files: Sequence[NoteFile], before: Mapping[str, str]) -> Iterator[Finding]:
    """Findings about links; `before` has each note of all scopes with the one that it supersedes."""
    after = Counter(file.note.supersedes for file in files if file.note.supersedes)
    for file in files:
        note, edit = file.note, f"ouro memory edit {file.note.id}"
        if note.supersedes and note.supersedes not in before:
            what = f"{file.name} supersedes {note.supersedes}, which does not exist"
            yield Finding("warning", scope, what, f"{edit}: `supersedes: null`, or restore the file")
        older: set[str] = set()
        at = before[note.id]
        while at and at not in older:
            older.add(at)
            at = before.get(at, "")
        if note.id in older:
            what = f"{file.name} supersedes itself, through other notes"
            yield Finding("problem", scope, what, f"{edit}: remove `supersedes`")
        if after[note.id] > 1:
            what = f"{after[note.id]} notes supersede {note.id}"
            yield Finding("warning", scope, what, "Let one of them supersede the other.")
        for edge in note.related:
            if edge.id not in before:
                what = f"{file.name} {edge.relationship} {one_line(edge.id, 40)}, which does not exist"
                yield Finding("warning", scope, what, f"{edit}: remove it from `related`")


def _check_duplicates(scope: str, entries: Sequence[MemoryEntry]) -> Iterator[Finding]:
    by_words: dict[str, list[MemoryEntry]] = {}
    for entry in entries:
        if entry.scope == scope and {"archived", "replaced"}.isdisjoint(entry.badges):
            by_words.setdefault(fold_words(entry.text), []).append(entry)
    for same in by_words.values():
        if len(same) > 1:
            what = (
                f"written {len(same)} times: {one_line(same[0].text, 60)} ({_list_names([entry.id for entry in same])})"
            )
            yield Finding("warning", scope, what, f"ouro memory forget {same[-1].id}")


def _check_sizes(scope: ScopeMemory, notes: Sequence[NoteFile], threshold: int) -> Iterator[Finding]:
    if scope.tokens > threshold:
        what = f"the core has {scope.tokens:,} tokens; the limit is {threshold:,} (memory.consolidation_threshold)"
        yield Finding("warning", scope.scope, what, "/memory consolidate merges it; `forget` what no longer holds.")
    if len(notes) > MAX_FILES * 0.9:
        what = f"{len(notes):,} notes; at most {MAX_FILES:,} files are read"
        yield Finding("problem", scope.scope, what, "Move files out of `archive/`.")


def _check_index(editor: MemoryEditor, notes: int) -> Iterator[Finding]:
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


def _list_names(names: Sequence[str]) -> str:
    """The first five names, and the number of the others."""
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def _count(words: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(words).items()))


def _age(at: str) -> str:
    days = age_in_days(at, datetime.now(UTC))
    return "unknown" if days is None else next(name for limit, name in _AGES if days < limit)
