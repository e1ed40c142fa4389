"""The state of memory: `diagnose` finds problems and suggests fixes, `memory_stats` counts. Nothing
is changed.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Literal, NamedTuple, get_args

import msgspec

from ouro.errors import MemoryUnusable, SearchUnavailable
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entry_lookup import MemoryEntry, all_entries
from ouro.memory.long_term.git.files import (
    ARCHIVE,
    MAX_FILES,
    MERGE_CONFLICT,
    NO_MEMORY_FILE,
    is_note_name,
)
from ouro.memory.long_term.notes.note import CATEGORIES, DEAD_ENDS, Trigger, parse_note
from ouro.memory.long_term.notes.notebook import NoteFile
from ouro.memory.long_term.notes.validity import age_in_days
from ouro.memory.long_term.recall.recall_log import RecallLog
from ouro.memory.long_term.scope import ScopeMemory
from ouro.memory.long_term.supersession import fold_words
from ouro.memory.long_term.team import EXPIRES, OWNER
from ouro.utils.text import join_names, one_line, plural

_TRIGGER_FIELD = re.compile(
    rf"---\n(?:(?!---)[^\n]*\n)*?trigger: ({'|'.join(get_args(Trigger))})\n"
)
"""The trigger in the front matter of a note."""
_ID_FIELD = re.compile(r"---\n(?:(?!---)[^\n]*\n)*?id: (\w+)\n")
"""The id in the front matter of a note."""
_AGE_GROUPS = (
    (1, "today"),
    (7, "a week"),
    (30, "a month"),
    (365, "a year"),
    (float("inf"), "older"),
)
"""A number of days, and the name of the group for entries younger than that."""


Level = Literal["ok", "warning", "problem"]


class Problem(NamedTuple):
    """A problem in a place that is known to the caller; or, with the level `ok`, that there is none."""

    level: Level
    what: str
    advice: str
    """What the user can do; empty if nothing is needed."""


class Finding(msgspec.Struct, frozen=True):
    """A problem of memory, or that there is none."""

    level: Level
    where: str
    """The scope, or `index`."""
    what: str
    advice: str = ""


class MemoryStats(msgspec.Struct, frozen=True):
    """Counts of what memory holds."""

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
    """Note id -> number of messages it was sent with, for the ten notes that are recalled most
    often.
    """
    last_recalled: str = ""
    """The time when a note last went to a model."""


def diagnose(
    editor: MemoryEditor, threshold: int = 5_000, categories: Collection[str] = ()
) -> list[Finding]:
    """Check memory: the findings of each scope, then of the index. A scope without problems has one
    finding that says so.

    Args:
        threshold: tokens of the core above which it is consolidated.
        categories: of notes, in addition to the built-in ones.
    """
    files = list(editor.notebook.all(archived=True))
    entries = all_entries(editor, archived=True)
    older_versions = {file.note.id: file.note.supersedes or "" for file in files}
    findings: list[Finding] = []
    for scope in editor.scopes:
        notes = [file for file in files if file.scope == scope.name]
        in_use = [entry for entry in entries if entry.scope == scope.name and entry.is_in_use]
        problems = [
            *_check_files(scope),
            *_check_git(scope),
            *_check_fields(notes, {*CATEGORIES, DEAD_ENDS, *categories}),
            *_check_links(notes, older_versions),
            *_check_duplicates(in_use),
            *_check_sizes(scope, notes, threshold),
        ]
        if not problems:
            counts = f"{plural(len(scope.loaded.core), 'core file')}, {plural(len(notes), 'note')}"
            problems = [Problem("ok", f"{counts}: no problems", advice="")]
        findings += [
            Finding(problem.level, where=scope.name, what=problem.what, advice=problem.advice)
            for problem in problems
        ]
    index_problems = _check_index(editor, len(files))
    findings += [
        Finding(problem.level, where="index", what=problem.what, advice=problem.advice)
        for problem in index_problems
    ]
    return findings


def memory_stats(editor: MemoryEditor, recall_log: RecallLog) -> MemoryStats:
    """Count what memory holds, and how often notes were recalled. Reads each note, for its trigger."""
    entries = all_entries(editor, archived=True)
    core = [entry for entry in entries if entry.kind == "core"]
    notes = [entry for entry in entries if entry.kind == "note"]
    used = [note for note in notes if note.is_in_use]
    badges = Counter(chain.from_iterable(note.badges for note in notes))
    recalled, last_recalled = _count_recalls(notes, recall_log)
    return MemoryStats(
        core=_count(f"{item.scope}/{item.category}" for item in core),
        notes=_count(f"{item.scope}/{item.category}" for item in used),
        archived=badges["archived"],
        replaced=badges["replaced"],
        contradicted=badges["contradicted"],
        sources=_count(item.source or "unknown" for item in [*core, *used]),
        triggers=_count(chain.from_iterable(map(_read_triggers, editor.scopes))),
        ages=_count_ages([*core, *used]),
        prompt_tokens={scope.name: scope.tokens for scope in editor.scopes},
        sizes={scope.name: _size(scope) for scope in editor.scopes},
        recalled=recalled,
        last_recalled=last_recalled,
    )


def _count_recalls(
    notes: Sequence[MemoryEntry], recall_log: RecallLog
) -> tuple[dict[str, int], str]:
    """The ten of these notes that were recalled most often, by id, with how often; and the time
    when any of these notes was last recalled, empty if none was.
    """
    ids, recalls = {note.id for note in notes}, recall_log.counts()
    counts = Counter(
        {note_id: count for note_id, count in recalls.counts.items() if note_id in ids}
    )
    times = [at for note_id, at in recalls.last.items() if note_id in ids]
    return dict(counts.most_common(10)), max(times, default="")


def _count_ages(entries: Iterable[MemoryEntry]) -> dict[str, int]:
    """The number of entries in each of the `_AGE_GROUPS`, and of unknown age, without empty groups."""
    ages = Counter(_age_group(entry.at) for entry in entries)
    names = [*(name for _, name in _AGE_GROUPS), "unknown"]
    return {name: ages[name] for name in names if ages[name]}


def _size(scope: ScopeMemory) -> int:
    """The bytes of all files of a scope."""
    # A fingerprint is `inode:size:…`.
    return sum(int(fingerprint.split(":")[1]) for fingerprint in scope.loaded.files.values())


def _read_triggers(scope: ScopeMemory) -> Iterator[str]:
    """Yield the trigger of each trusted note outside of the archive. It is read by a pattern if
    possible: parsing a note takes ten times as long.
    """
    names = {*scope.loaded.notes} - {*scope.untrusted}
    texts = scope.store.texts([name for name in names if not name.startswith(f"{ARCHIVE}/")])
    for name, text in texts.items():
        if text is not None:
            match = _TRIGGER_FIELD.match(text)
            yield match[1] if match else parse_note(name, text).note.trigger


def _check_files(scope: ScopeMemory) -> Iterator[Problem]:
    """Yield a problem for each file that was not loaded or has a merge conflict, and a warning for
    each file that has invisible characters, which were left out.
    """
    for file in scope.loaded.skipped:
        what = f"{file.name}: {file.reason}"
        if "invisible" in file.reason:
            yield Problem("warning", what, "Look at it in an editor.")
        elif file.reason == MERGE_CONFLICT:
            yield Problem("problem", what, "Delete the side that does not hold, and the marks.")
        elif file.reason == NO_MEMORY_FILE and (name := _name_of_note(scope, file.name)):
            yield Problem("problem", what, f"It is a note: rename it to {name}.")
        else:
            yield Problem("problem", what, "Repair it, move it out of the folder, or delete it.")


def _name_of_note(scope: ScopeMemory, name: str) -> str:
    """The name that the file of a renamed note must have, by the `id` in its front matter; empty if
    the file is no note, or there is a file of that name.
    """
    id_line = _ID_FIELD.match(scope.store.find(name) or "")
    note_name = f"{id_line[1]}.md" if id_line else ""
    is_free = note_name not in scope.loaded.files
    return note_name if is_note_name(note_name) and is_free else ""


def _check_git(scope: ScopeMemory) -> Iterator[Problem]:
    """Yield what keeps changes from being committed, an unsafe `.git`, changes that wait for
    approval, and changes that are not committed.
    """
    store = scope.store
    if shutil.which("git") is None:
        yield Problem("problem", "git is not installed: there is no history", "Install git.")
        return
    uncommitted: list[str] = []
    try:
        head = store.repository.head()
        if store.repository.exists:
            uncommitted = [edit.name for edit in store.edits_since(head.commit)]
    except MemoryUnusable as error:
        yield Problem(
            "problem", error.message, error.hint or "The texts are saved without history."
        )
        return
    if store.obstacle:
        yield Problem(
            "problem", store.obstacle, "The texts are saved, and committed when it is resolved."
        )
    if store.plain_git:
        is_foreign = f"{store.folder / '.git'} is not" in store.plain_git
        advice = (
            "Move it away; ouro creates its own." if is_foreign else "Delete it; the history stays."
        )
        yield Problem("warning", store.plain_git, advice)
    for proposal in scope.proposals():
        what = (
            f"waiting for approval: {join_names([edit.name for edit in proposal.edits])}:"
            f" {proposal.reason}"
        )
        yield Problem("warning", what, f"ouro memory accept {proposal.id}, or reject {proposal.id}")
    if uncommitted and not scope.untrusted:
        yield Problem(
            "warning", f"not committed: {join_names(uncommitted)}", "The next session commits it."
        )


def _check_fields(files: Sequence[NoteFile], categories: Collection[str]) -> Iterator[Problem]:
    """Yield the problems of fields of notes: those that cannot be read or are unknown, an unknown
    category, and a scope that is not that of the folder.
    """
    for file in files:
        note, edit = file.note, f"ouro memory edit {file.note.id}"
        for problem in file.problems:
            yield Problem("problem", f"{file.name}: {problem}", edit)
        if unknown := sorted(set(note.extra) - {"origin", OWNER, EXPIRES}):
            what = f"{file.name}: unknown fields, which are kept: {join_names(unknown)}"
            yield Problem("warning", what, f"{edit}, if they are misspelt")
        if not file.problems and note.category not in categories:
            what = f"{file.name}: unknown category {one_line(note.category, 40)}"
            yield Problem("warning", what, "Correct it, or add it to `memory.categories`.")
        if not file.problems and note.scope != file.scope:
            what = f"{file.name}: its scope is {note.scope}, but it is in {file.scope}"
            yield Problem("warning", what, "The folder counts. Correct the note, or move the file.")


def _find_superseded(note_id: str, older_versions: Mapping[str, str]) -> set[str]:
    """The ids of the notes that a note supersedes, directly or through others; in a circle also its
    own. `older_versions`: the note that each note supersedes; empty if it supersedes none.
    """
    superseded: set[str] = set()
    older_id = older_versions[note_id]
    while older_id and older_id not in superseded:
        superseded.add(older_id)
        older_id = older_versions.get(older_id, "")
    return superseded


def _check_links(files: Sequence[NoteFile], older_versions: Mapping[str, str]) -> Iterator[Problem]:
    """Yield the problems of links: to a note that does not exist, of a note that supersedes itself,
    and of a note that several notes supersede. `older_versions` has, for each note of all scopes,
    the note that it supersedes; empty if it supersedes none.
    """
    newer_counts = Counter(file.note.supersedes for file in files if file.note.supersedes)
    for file in files:
        note, edit = file.note, f"ouro memory edit {file.note.id}"
        if note.supersedes and note.supersedes not in older_versions:
            what = f"{file.name} supersedes {note.supersedes}, which does not exist"
            yield Problem("warning", what, f"{edit}: `supersedes: null`, or restore the file")
        if note.id in _find_superseded(note.id, older_versions):
            yield Problem(
                "problem",
                f"{file.name} supersedes itself, through other notes",
                f"{edit}: remove `supersedes`",
            )
        if newer_counts[note.id] > 1:
            yield Problem(
                "warning",
                f"{newer_counts[note.id]} notes supersede {note.id}",
                "Let one of them supersede the other.",
            )
        for edge in note.related:
            if edge.id not in older_versions:
                what = (
                    f"{file.name} {edge.relationship} {one_line(edge.id, 40)}, which does not exist"
                )
                yield Problem("warning", what, f"{edit}: remove it from `related`")


def _check_duplicates(entries: Sequence[MemoryEntry]) -> Iterator[Problem]:
    """Yield a warning for each text that several entries have, in the same words."""
    by_words: dict[str, list[MemoryEntry]] = {}
    for entry in entries:
        by_words.setdefault(fold_words(entry.text), []).append(entry)
    for duplicates in by_words.values():
        if len(duplicates) == 1:
            continue
        ids = join_names([entry.id for entry in duplicates])
        what = f"written {len(duplicates)} times: {one_line(duplicates[0].text, 60)} ({ids})"
        yield Problem("warning", what, f"ouro memory forget {duplicates[-1].id}")


def _check_sizes(
    scope: ScopeMemory, notes: Sequence[NoteFile], threshold: int
) -> Iterator[Problem]:
    """Yield a warning for a core above the `threshold`, and a problem for almost too many notes."""
    if scope.tokens > threshold:
        what = (
            f"the core has {scope.tokens:,} tokens; the limit is {threshold:,}"
            " (memory.consolidation_threshold)"
        )
        yield Problem(
            "warning", what, "/memory consolidate merges it; `forget` what no longer holds."
        )
    is_nearly_full = len(notes) > MAX_FILES * 0.9  # while there is time to move files
    if is_nearly_full:
        what = f"{len(notes):,} notes; at most {MAX_FILES:,} files are read"
        yield Problem("problem", what, "Move files out of `archive/`.")


def _check_index(editor: MemoryEditor, note_count: int) -> Iterator[Problem]:
    """Yield whether the index can be used, and has at least `note_count` notes; nothing if there is
    no index here.
    """
    if editor.index is None:
        return
    try:
        state = editor.index().state()
    except SearchUnavailable as error:
        yield Problem("problem", error.message, "ouro memory reindex")
        return
    if not state.size:
        yield Problem(
            "warning", "it cannot be written, and is rebuilt each time", f"Look at {state.path}"
        )
    elif state.rows["notes"] < note_count:
        yield Problem(
            "warning",
            f"it has {state.rows['notes']} notes of at least {note_count}",
            "ouro memory reindex",
        )
    else:
        yield Problem("ok", f"{state.size:,} bytes, {state.rows['notes']:,} notes", "")


def _count(words: Iterable[str]) -> dict[str, int]:
    """How often each word occurs, sorted by word."""
    return dict(sorted(Counter(words).items()))


def _age_group(at: str) -> str:
    """The name of the group of `_AGE_GROUPS` for an entry that was last changed at that time;
    `unknown` if the time cannot be read.
    """
    days = age_in_days(at, datetime.now(UTC))
    if days is None:
        return "unknown"
    return next(name for limit, name in _AGE_GROUPS if days < limit)
