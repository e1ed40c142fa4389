"""Forget what users or the agent no longer want in memory: find the entries, remove core lines,
archive notes.
"""

from __future__ import annotations

from collections.abc import Sequence

from ouro.errors import OuroError, SearchUnavailable, UsageError
from ouro.events import CoreChanged
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entry_lookup import MemoryEntry, all_entries, note_entries, versions_of
from ouro.memory.long_term.git.values import Origin, Scope, TurnRef
from ouro.memory.long_term.notes.note import find_ids, strip_list_mark
from ouro.memory.long_term.notes.notebook import archive_changes
from ouro.memory.long_term.scope import ScopeMemory
from ouro.memory.long_term.supersession import corrects, find_replaced, fold_words
from ouro.utils.log import log
from ouro.utils.text import one_line

MAX_PROPOSED = 20
"""The entries that are proposed to be forgotten, at most."""
_MAX_COMPARED_CHARACTERS = 10_000
"""Only so many characters of what the user typed are compared with entries."""
_MIN_ID_START = 8
"""A shorter prefix of an id (`mem_3f6c`, `3f6c1e0b`) may be an ordinary word."""
_MIN_SHARE_OF_BEST = 0.6
"""Search hits with a smaller share of the best score are ignored."""


def find_to_forget(editor: MemoryEditor, text: str) -> list[MemoryEntry]:
    """The entries that a user may mean by a text: those whose id is the text or begins with it;
    else those with all its words; else at most `MAX_PROPOSED` that a search finds. Raises
    UsageError if the text has no words.
    """
    words = fold_words(text[:_MAX_COMPARED_CHARACTERS]).split()
    entries = all_entries(editor)
    if not words:
        raise UsageError(
            "Nothing to forget: give words of the entry, or its id.",
            commands=["memory forget the staging password rule"],
        )
    if entries_with_id := _entries_with_id(text.strip(), entries):
        return entries_with_id
    with_all_words = [
        entry for entry in entries if set(words) <= set(fold_words(entry.text).split())
    ]
    found = with_all_words or _search_entries(editor, text, entries)
    return found[:MAX_PROPOSED]


def _entries_with_id(word: str, entries: Sequence[MemoryEntry]) -> list[MemoryEntry]:
    """The entries whose id is `word`, or begins with it if it is long enough."""
    ids = {word}
    if len(word) >= _MIN_ID_START:
        ids.update(find_ids(word, (entry.id for entry in entries)))
    return [entry for entry in entries if entry.id in ids]


def _search_entries(
    editor: MemoryEditor, text: str, entries: Sequence[MemoryEntry]
) -> list[MemoryEntry]:
    """Those of `entries` that a search for words finds, the best first; without hits that are much
    weaker than the best. Returns no entries if there is no index here, or it cannot be read.
    """
    if editor.index is None:
        return []
    from ouro.memory.index import Search, SearchFilter

    by_path_and_line = {
        (f"{editor.scope(entry.scope).store.folder}/{entry.file}", entry.line): entry
        for entry in entries
    }
    try:
        hits = Search(editor.index(), vectors=None).find(
            text, MAX_PROPOSED, SearchFilter(kinds=("note", "core"))
        )
    except SearchUnavailable as error:
        log.warning("forget compares words only: %s", error)
        return []
    min_score = hits[0].score * _MIN_SHARE_OF_BEST if hits else 0.0
    matches: list[MemoryEntry] = []
    for hit in hits:
        line = hit.number if hit.kind == "core" else 0
        entry = by_path_and_line.get((hit.path, line))
        if entry is not None and hit.score >= min_score:
            matches.append(entry)
    return matches


def forget_entries(
    editor: MemoryEditor, entries: Sequence[MemoryEntry], origin: Origin = "person"
) -> list[CoreChanged]:
    """Remove the core lines among the entries, and archive the notes with all their versions, in one
    commit for each scope. Returns an event for each commit. Raises UsageError if a line has changed
    since it was read.
    """
    events = []
    for scope in editor.names:
        in_scope = [entry for entry in entries if entry.scope == scope]
        changes = {
            **remove_lines(editor, scope, in_scope),
            **archive_notes(editor, scope, in_scope),
        }
        subject = f"Forget: {one_line('; '.join(entry.text for entry in in_scope), 80)}"
        if changes and (event := editor.write(scope, changes, subject, origin)):
            events.append(event)
    return events


def remove_replaced_entries(
    scopes: Sequence[ScopeMemory], turn: TurnRef, added_lines: frozenset[tuple[Scope, str]]
) -> tuple[list[CoreChanged], tuple[tuple[Scope, str], ...]]:
    """Remove the entries that lines which the agent added to the core correct, by rules: such a line
    says, for example, `no longer`.

    Returns the events; and, sorted, the added lines that correct nothing by these rules, or whose
    entry cannot be removed, which is logged: whether these replace an entry is not decided yet.

    Args:
        added_lines: scope and text of each.
    """
    corrections = sorted((scope, text) for scope, text in added_lines if corrects(text))
    unchecked = {*added_lines} - {*corrections}
    if not corrections:
        return [], tuple(sorted(unchecked))
    editor = MemoryEditor(scopes, moment=turn)
    for scope, text in corrections:
        others = [
            entry
            for entry in all_entries(editor, sources=False)
            if entry.scope == scope and (scope, entry.text) not in added_lines
        ]
        try:
            forget_entries(editor, find_replaced(text, others), "agent")
        except (OuroError, OSError) as error:
            # The turn is decided already: a failure must not hide its events.
            log.warning("memory: what `%s` replaces is not removed: %s", one_line(text, 80), error)
            unchecked.add((scope, text))
    return editor.events, tuple(sorted(unchecked))


def remove_lines(
    editor: MemoryEditor, scope: Scope, entries: Sequence[MemoryEntry]
) -> dict[str, str | None]:
    """The new texts of the core files of a scope without the lines in `entries`, by file name; None
    for a file that is then empty. Nothing is written. Raises UsageError if a line has changed since
    it was read.
    """
    changes: dict[str, str | None] = {}
    for name in dict.fromkeys(entry.file for entry in entries if entry.kind == "core"):
        lines = editor.text(scope, name).splitlines()
        in_file = [entry for entry in entries if entry.file == name]
        # From the last line to the first: the numbers of the lines before stay true.
        for entry in sorted(in_file, key=lambda entry: -entry.line):
            if entry.line > len(lines) or strip_list_mark(lines[entry.line - 1]) != entry.text:
                raise UsageError(
                    f"{entry.id} has changed since it was read.", "List the entries again."
                )
            del lines[entry.line - 1]
        text = "\n".join(lines).strip("\n")
        changes[name] = f"{text}\n" if text.strip() else None
    return changes


def archive_notes(
    editor: MemoryEditor, scope: Scope, entries: Sequence[MemoryEntry]
) -> dict[str, str | None]:
    """The changes of files that archive the notes in `entries`, with all their versions in this
    scope: name -> text, None for a removed file. Nothing is written.
    """
    notes = [entry for entry in entries if entry.kind == "note"]
    all_notes = note_entries(editor) if notes else []
    versions: dict[str, MemoryEntry] = {}
    for note in notes:
        chain = versions_of(all_notes, note)
        versions |= {version.id: version for version in chain if version.scope == scope}
    changes: dict[str, str | None] = {}
    for version in versions.values():
        if not version.archived:
            changes |= archive_changes(editor.notebook.find(version.id))
    return changes
