"""What users do with memory: remember, forget, confirm, archive, restore and edit; no model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from ouro.errors import OuroError, SearchUnavailable, UsageError
from ouro.events import CoreChanged
from ouro.memory.backend import timestamp
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entries import (
    MemoryEntry,
    all_entries,
    chain_of,
    core_entries,
    find_entry,
    note_entries,
    with_sources,
)
from ouro.memory.long_term.git.files import is_note_name, visible_text
from ouro.memory.long_term.git.values import FileEdit, Origin, Scope, TurnRef
from ouro.memory.long_term.notes.entities import entities_in
from ouro.memory.long_term.notes.note import Note, ids_named, new_id, note_text, parse_note, plain
from ouro.memory.long_term.notes.notebook import Written, archive_changes
from ouro.memory.long_term.notes.notebook import timestamp as note_time
from ouro.memory.long_term.placement import NAMED, Placement, note_category, place
from ouro.memory.long_term.scope import ScopeMemory
from ouro.memory.long_term.supersession import (
    corrects,
    find_on_subject,
    find_replaced,
    fold_words,
    subject_words,
)
from ouro.memory.long_term.trust.approval import Proposal, apply_edit
from ouro.memory.tokens import estimate
from ouro.utils.files import write_private
from ouro.utils.log import log
from ouro.utils.relative_dates import local_day
from ouro.utils.runtime import ensure_private_dir, get_home, tilde
from ouro.utils.text import one_line

MAX_CHARACTERS = 10_000
"""Maximum characters of a text to remember; a longer text is a document to import."""
_MARKS = re.compile(r"(?:[#>\s]+|[-*+]\s+)+")
_MAX_CORRECTION = 600
"""Maximum characters of a correction that is written into the core, although it is longer than a
core line.
"""
CORE_TOKENS = 1_500
"""With so many tokens the core counts as full, because it is in every prompt. New text then becomes
a note.
"""
_MAX_RELATED = 4
_UNDECIDED = "you have not decided about it"
_MAX_WITH_RARE_WORD = 2
"""A word in more entries does not show that a text is about one of them."""
_CORE = {
    "architectural-decisions": "decisions",
    "coding-preferences": "preferences",
    "project-conventions": "",
    "corrections": "",
    "user-facts": "",
}
"""Category of a note -> the category of such a line in the core; empty: the text decides."""
MAX_FOUND = 20
_MIN_ID = 8
"""A shorter prefix of an id (`mem_3f6c`, `3f6c1e0b`) may be an ordinary word."""
_SHARE = 0.6
"""Search hits with a smaller share of the best score are ignored."""
EDITED = "edited-"
"""Prefix of the files with edited texts that memory refused."""


class RememberResult(msgspec.Struct, frozen=True):
    state: Literal["kept", "confirmed", "restored"]
    entry: MemoryEntry
    why: str = ""
    undo: str = ""
    """The commit to undo; empty when nothing was written, or no commit could be made."""
    replaced: tuple[MemoryEntry, ...] = ()
    """The entries that it corrects; they are no longer in use."""


def find_doubtful(editor: MemoryEditor, text: str) -> MemoryEntry | None:
    """The entry of which only the user knows whether a text replaces it: it is on the same subject,
    and the rules find nothing that the text replaces. None if there is no such entry.
    """
    chosen, entries = place(clean_text(text), editor.names), all_entries(editor)
    if find_same(chosen.text, entries) or find_replaced(chosen.text, entries, chosen.said):
        return None
    near = find_on_subject(chosen.text, entries) or _share_rare_word(chosen.text, entries)
    return near[0] if near else None


def _share_rare_word(text: str, entries: Sequence[MemoryEntry]) -> list[MemoryEntry]:
    """The entries that share a word with a text which few of them have."""
    own = subject_words(text)
    shared = {entry.id: own & subject_words(entry.text) for entry in entries}
    counts: Counter[str] = Counter()
    for words in shared.values():
        counts.update(words)
    is_rare = {word for word, count in counts.items() if count <= _MAX_WITH_RARE_WORD}
    return [entry for entry in entries if shared[entry.id] & is_rare]


def remember_text(
    editor: MemoryEditor, text: str, scope: Scope | None = None, replaces: str = ""
) -> RememberResult:
    """Remember a text; if it is remembered already, confirm it. What it corrects is replaced, in
    the same commit, and so is the entry with the id `replaces`.

    A line that waits for approval in the same words is approved with it.

    Raises UsageError (it is empty or too long), SecretInMemory, LongTermMemoryError or OSError:
    nothing was written.
    """
    chosen = place(clean_text(text), editor.names, scope, local_day())
    if not chosen.text:
        raise UsageError(
            "Nothing to remember: the text is empty.",
            commands=["memory remember Run the tests with make check"],
        )
    editor.scope(chosen.scope)  # raises when that scope is not in use
    found = all_entries(editor, archived=True, sources=False)
    # Writing a note that waits for approval would approve all that is in it.
    entries = [
        entry for entry in found if entry.kind == "core" or "unconfirmed" not in entry.badges
    ]
    known = find_same(chosen.text, entries)
    if known is not None and known.scope == chosen.scope:
        return _remember_again(editor, chosen, known)
    in_use = [entry for entry in entries if entry.is_in_use]
    named = [entry for entry in in_use if entry.id == replaces]
    chosen, replaced, near = _decide(
        editor, chosen, in_use, named, is_scope_named=bool(scope or NAMED.match(text))
    )
    related = (
        () if replaced else [entry.id for entry in near if entry.kind == "note"][:_MAX_RELATED]
    )
    if replaced:
        replaced = with_sources(editor, replaced)
    entry, undo = write_text(editor, chosen, replaced, related)
    return RememberResult("kept", entry, chosen.why, undo, tuple(replaced))


def _remember_again(editor: MemoryEditor, chosen: Placement, known: MemoryEntry) -> RememberResult:
    """Confirm an entry; restore it if it is archived; approve it if it is a line that waits."""
    if known.kind == "core":
        if "unconfirmed" not in known.badges:
            from ouro.memory.long_term.line_records import confirm_line

            confirm_line(editor.scope(known.scope), known.text)
            return RememberResult("confirmed", with_sources(editor, [known])[0])
        chosen = replace(chosen, is_note=False, category=known.category)
        entry, undo = write_text(editor, chosen, [known])
        return RememberResult("kept", entry, chosen.why, undo)
    commit = editor.notebook.confirm(known.id, "person").commit
    confirmed = replace(known, file=f"{known.id}.md", badges=())
    return RememberResult("restored" if known.archived else "confirmed", confirmed, undo=commit)


def keep_for_later(editor: MemoryEditor, text: str, scope: Scope | None = None) -> Proposal:
    """Store a text as a pending change: the user has not decided about it. Raises as
    `remember_text`.
    """
    chosen = place(clean_text(text), editor.names, scope, local_day())
    own = editor.scope(chosen.scope)
    own.store.demand_no_secret([chosen.text])
    return own.propose([edit_that_adds(editor, chosen)], _UNDECIDED, (), editor.moment)


def edit_that_adds(editor: MemoryEditor, chosen: Placement) -> FileEdit:
    """The edit that adds a placed text: a new note, or a line of the core."""
    if chosen.is_note:
        note = make_note(editor, chosen)
        return FileEdit(note.file_name, None, note_text(note))
    name = f"{chosen.category}.md"
    before = editor.text(chosen.scope, name)
    return FileEdit(name, before or None, append_lines(before, [chosen.text]))


def keep_in_core(
    editor: MemoryEditor, note: Note, said: str, corrected: str = "", *, is_sure: bool = False
) -> Written | None:
    """Write a note that capture made from the user's words `said` into the core, which is in each
    request.

    Returns None if it belongs into a note: it is long, names a file, is about another note or of a
    category of the settings, and no core line is on its subject; or the core is full. `corrected`
    is the core line that the classifier wants to replace: one without a common word only if it
    `is_sure`. Raises as `remember_text`.
    """
    lines, placed = core_entries(editor, sources=False), _place_captured(editor, note, said)
    if not is_sure and not shares_subject(corrected, note.text):
        corrected = ""
    named = [line for line in lines if line.text == corrected]
    is_known = named or find_on_subject(note.text, lines) or find_replaced(note.text, lines, said)
    if placed.is_note and not is_known:
        return None
    chosen, replaced, _ = _decide(editor, placed, all_entries(editor, sources=False), named)
    if known := find_same(note.text, [line for line in lines if line.scope == chosen.scope]):
        return Written("confirm", replace(note, id=known.id), known.scope, "")
    if chosen.is_note:
        return None
    entry, commit = write_text(editor, chosen, replaced, origin="capture")
    note = replace(note, id=entry.id, scope=chosen.scope)
    before = "; ".join(old.text for old in replaced)
    return Written("supersede" if replaced else "add", note, chosen.scope, commit, before)


def _place_captured(editor: MemoryEditor, note: Note, said: str) -> Placement:
    placed = place(note.text, editor.names, note.scope)
    is_about_note = bool(note.supersedes) or any(
        edge.relationship != "relates-to" for edge in note.related
    )
    is_note = placed.is_note or is_about_note or note.category not in _CORE
    category = placed.category if is_note else _CORE[note.category] or placed.category
    return replace(placed, is_note=is_note, category=category, said=said)


def shares_subject(text: str, other: str) -> bool:
    return not subject_words(text).isdisjoint(subject_words(other))


def _decide(
    editor: MemoryEditor,
    placed: Placement,
    in_use: Sequence[MemoryEntry],
    named: Sequence[MemoryEntry] = (),
    *,
    is_scope_named: bool = False,
) -> tuple[Placement, list[MemoryEntry], list[MemoryEntry]]:
    """The final place of a text, the entries that it replaces there, and those that are on its
    subject.

    A correction is written to the scope of what it corrects, and to the core if a core line is on
    its subject, so that it is as strong as that line. Other text becomes a note once the core has
    `CORE_TOKENS`. `named` entries are replaced if the rules find nothing else.
    """
    placed, replaced = _find_replaced(placed, in_use, named, is_scope_named=is_scope_named)
    near = find_on_subject(placed.text, [entry for entry in in_use if entry.scope == placed.scope])
    line = next((entry for entry in (*replaced, *near) if entry.kind == "core"), None)
    if line is None:
        placed = _make_note_if_full(editor, placed)
    elif not placed.until and (placed.is_note or line in replaced):
        placed = _put_in_file_of(line, placed)
    return placed, replaced, near


def _find_replaced(
    placed: Placement,
    in_use: Sequence[MemoryEntry],
    named: Sequence[MemoryEntry],
    *,
    is_scope_named: bool,
) -> tuple[Placement, list[MemoryEntry]]:
    """The entries that a text replaces, and its place: in their scope, unless the user named one."""
    replaced = find_replaced(placed.text, in_use, placed.said)
    if named and named[0] not in replaced:
        replaced, is_scope_named = [*named], False
    if replaced and not is_scope_named and replaced[0].scope != placed.scope:
        placed = replace(placed, scope=replaced[0].scope, why="it replaces what is there")
    if placed.until:
        return placed, []
    return placed, [entry for entry in replaced if entry.scope == placed.scope]


def _make_note_if_full(editor: MemoryEditor, placed: Placement) -> Placement:
    """A note instead of a core line if the core is full."""
    if placed.is_note:
        return placed
    if editor.scope(placed.scope).tokens + estimate(placed.text) <= CORE_TOKENS:
        return placed
    category = note_category(placed.text, placed.category, placed.scope)
    return replace(placed, is_note=True, category=category, why="the core is full")


def _put_in_file_of(line: MemoryEntry, placed: Placement) -> Placement:
    """A line of the core, in the file of `line`; unless it is too long."""
    if len(placed.text) > _MAX_CORRECTION:
        return placed
    why = f"{line.file} is on the same subject"
    return replace(placed, is_note=False, category=line.category, why=why)


def write_text(
    editor: MemoryEditor,
    chosen: Placement,
    replaced: Sequence[MemoryEntry] = (),
    related: Sequence[str] = (),
    origin: Origin = "person",
) -> tuple[MemoryEntry, str]:
    """Write a text, and remove the entries that it corrects, in one commit; returns the new entry
    and the commit.

    A new note is linked to the notes `related`, so that recall finds it together with them.
    """
    scope, moment = editor.scope(chosen.scope), editor.moment
    note = make_note(editor, chosen) if chosen.is_note else None
    old_notes = [entry for entry in replaced if entry.kind == "note"]
    target = old_notes[0].id if old_notes else ""
    scope.store.ensure_repo()
    with scope.alone():
        changes: dict[str, str | None] = {}
        if replaced:
            changes = _remove_lines(editor, chosen.scope, replaced)
            changes |= _archive_notes(
                editor, chosen.scope, old_notes[1:] if chosen.is_note else old_notes
            )
        if note is not None:
            note = editor.notebook.link(note, "supersede" if old_notes else "add", target, related)
            text, entry_id, name, line = note_text(note), note.id, note.file_name, 0
        else:
            name = f"{chosen.category}.md"
            text = append_lines(
                changes.get(name, editor.text(chosen.scope, name)) or "", [chosen.text]
            )
            line = len(text.splitlines())
            entry_id = f"{chosen.scope}/{name}:{line}"
        subject = f"Remember: {one_line(chosen.text, 80)}"
        done = editor.write(chosen.scope, {**changes, name: text}, subject, origin)
    entry = MemoryEntry(
        id=entry_id,
        kind="note" if chosen.is_note else "core",
        scope=chosen.scope,
        category=chosen.category,
        text=chosen.text,
        file=name,
        line=line,
        at=note.updated_at if note else timestamp(),
        session=moment.session,
        turn=moment.turn,
        source="user" if chosen.is_note else "person",
    )
    return entry, done.undo if done else ""


def clean_text(text: str) -> str:
    """Remove invisible characters and Markdown marks from a text. Raises UsageError: it is too
    long.
    """
    if len(text) > MAX_CHARACTERS:
        raise UsageError(
            f"That is {len(text):,} characters; one thing to remember has at most"
            f" {MAX_CHARACTERS:,}.",
            "Import a document instead.",
            ["memory import FILE"],
        )
    text = visible_text(text)[0].strip()
    marks = _MARKS.match(text)
    return text[marks.end() :] if marks else text


def find_same(text: str, entries: list[MemoryEntry]) -> MemoryEntry | None:
    """The entry with the same words; one in use before an archived one."""
    words = fold_words(text)
    # Only candidates are folded: all of 50,000 notes take 0.5 s.
    rare = max(words.split(), key=len, default="")
    likely = (
        entry
        for entry in entries
        if rare in entry.text.casefold() and "replaced" not in entry.badges
    )
    found = [entry for entry in likely if fold_words(entry.text) == words]
    return min(found, key=lambda item: item.archived, default=None) if words else None


def make_note(editor: MemoryEditor, chosen: Placement) -> Note:
    entities = entities_in(chosen.text)
    anchors = editor.anchors.of(entities) if editor.anchors and chosen.scope == "repo" else ()
    now = note_time()
    return Note(
        id=new_id(),
        scope=chosen.scope,
        category=chosen.category,
        created_at=now,
        updated_at=now,
        confirmed_at=now,
        session_id=editor.moment.session,
        turn=editor.moment.turn,
        entities=entities,
        anchors=anchors,
        until=chosen.until,
        text=chosen.text,
    )


def append_lines(text: str, lines: Sequence[str]) -> str:
    new = "".join(f"- {' '.join(line.split()).lstrip('-*+# ')}\n" for line in lines)
    return f"{text.rstrip()}\n{new}".lstrip("\n")


def find_to_forget(editor: MemoryEditor, text: str) -> list[MemoryEntry]:
    """The entries to forget: the entry with that id, else those with all the words, else search
    hits.
    """
    words = fold_words(text[:MAX_CHARACTERS]).split()
    entries = all_entries(editor)
    if not words:
        raise UsageError(
            "Nothing to forget: give words of the entry, or its id.",
            commands=["memory forget the staging password rule"],
        )
    word = text.strip()
    ids = {
        word,
        *(ids_named(word, (entry.id for entry in entries)) if len(word) >= _MIN_ID else ()),
    }
    if named := [entry for entry in entries if entry.id in ids]:
        return named
    holding = [entry for entry in entries if set(words) <= set(fold_words(entry.text).split())]
    return (holding or _search_entries(editor, text, entries))[:MAX_FOUND]


def _search_entries(
    editor: MemoryEditor, text: str, entries: Sequence[MemoryEntry]
) -> list[MemoryEntry]:
    if editor.index is None:
        return []
    from ouro.memory.index import Search, SearchFilter

    places = {
        (f"{editor.scope(entry.scope).store.folder}/{entry.file}", entry.line): entry
        for entry in entries
    }
    try:
        hits = Search(editor.index(), None).find(
            text, MAX_FOUND, SearchFilter(kinds=("note", "core"))
        )
    except SearchUnavailable as error:
        log.warning("forget compares words only: %s", error)
        return []
    least = hits[0].score * _SHARE if hits else 0.0
    best = [
        (hit.path, hit.number if hit.kind == "core" else 0) for hit in hits if hit.score >= least
    ]
    return [places[place] for place in best if place in places]


def forget_entries(
    editor: MemoryEditor, entries: Sequence[MemoryEntry], origin: Origin = "person"
) -> list[CoreChanged]:
    """Remove core lines, archive notes with all versions: a commit a scope. Raises UsageError: a
    line has changed.
    """
    done = []
    for scope in editor.names:
        own = [entry for entry in entries if entry.scope == scope]
        changes = {**_remove_lines(editor, scope, own), **_archive_notes(editor, scope, own)}
        subject = f"Forget: {one_line('; '.join(entry.text for entry in own), 80)}"
        if changes and (event := editor.write(scope, changes, subject, origin)):
            done.append(event)
    return done


def remove_corrected(
    scopes: Sequence[ScopeMemory], at: TurnRef, added: frozenset[tuple[Scope, str]]
) -> tuple[list[CoreChanged], tuple[tuple[Scope, str], ...]]:
    """Remove the entries that core lines of the agent replace. Returns the events, and the lines
    that the rules do not compare with others.
    """
    sure = sorted(line for line in added if corrects(line[1]))
    left = tuple(sorted(added - {*sure}))
    if not sure:
        return [], left
    editor = MemoryEditor(scopes, None, at)
    for scope, text in sure:
        others = [
            entry
            for entry in all_entries(editor, sources=False)
            if entry.scope == scope and (scope, entry.text) not in added
        ]
        forget_entries(editor, find_replaced(text, others), "agent")
    return editor.events, left


def _remove_lines(
    editor: MemoryEditor, scope: Scope, entries: Sequence[MemoryEntry]
) -> dict[str, str | None]:
    changes: dict[str, str | None] = {}
    for name in dict.fromkeys(entry.file for entry in entries if entry.kind == "core"):
        lines = editor.text(scope, name).splitlines()
        for entry in sorted((e for e in entries if e.file == name), key=lambda e: -e.line):
            if entry.line > len(lines) or plain(lines[entry.line - 1]) != entry.text:
                raise UsageError(
                    f"{entry.id} has changed since it was read.", "List the entries again."
                )
            del lines[entry.line - 1]
        text = "\n".join(lines).strip("\n")
        changes[name] = f"{text}\n" if text.strip() else None
    return changes


def replace_line(editor: MemoryEditor, entry: MemoryEntry, text: str) -> FileEdit:
    """The edit that replaces a core line with `text`. Raises UsageError if the line has changed."""
    before = editor.text(entry.scope, entry.file)
    _remove_lines(editor, entry.scope, [entry])  # raises
    lines = before.splitlines()
    lines[entry.line - 1] = append_lines("", [text]).rstrip()
    return FileEdit(entry.file, before, "\n".join(lines) + "\n")


def _archive_notes(
    editor: MemoryEditor, scope: Scope, entries: Sequence[MemoryEntry]
) -> dict[str, str | None]:
    notes = [entry for entry in entries if entry.kind == "note"]
    every = note_entries(editor) if notes else []
    versions: dict[str, MemoryEntry] = {}
    for note in notes:
        versions |= {item.id: item for item in chain_of(every, note) if item.scope == scope}
    changes: dict[str, str | None] = {}
    for version in versions.values():
        if not version.archived:
            changes |= archive_changes(editor.notebook.find(version.id))
    return changes


class OpenedFile(msgspec.Struct, frozen=True):
    scope: Scope
    name: str
    text: str


class SavedFile(msgspec.Struct, frozen=True):
    changed: bool
    undo: str = ""
    problems: tuple[str, ...] = ()
    """The problems in a note's front matter; the note was saved as written."""


def open_file(editor: MemoryEditor, named: str) -> OpenedFile:
    """The named file: `facts`, `user/facts.md`, or a note by its id; a core file need not exist."""
    scope, _, name = named.strip().rpartition("/")
    category = name.removesuffix(".md")
    if category in editor.core and scope in ("", *editor.names):
        chosen = editor.scope(scope or editor.names[0]).scope
        return OpenedFile(chosen, f"{category}.md", editor.text(chosen, f"{category}.md"))
    entry = find_entry(editor, named if ":" in named else category)
    return OpenedFile(entry.scope, entry.file, editor.text(entry.scope, entry.file))


def save_file(editor: MemoryEditor, opened: OpenedFile, after: str) -> SavedFile:
    """Save an edited file: an empty one is removed; changes made meanwhile elsewhere in the file
    stay. A note that waits for approval is accepted with the edit: the user has read all of it.

    If it cannot be saved, the hint of the UsageError names the file with the user's text.
    """
    if after.strip() == opened.text.strip():
        return SavedFile(False)
    after = f"{after.rstrip()}\n" if after.strip() else ""
    try:
        now = editor.text(opened.scope, opened.name)
        is_read = now == opened.text
        if not is_read:
            after = apply_edit(FileEdit(opened.name, opened.text, after), now)
        done = editor.write(
            opened.scope,
            {opened.name: after or None},
            f"Edit {opened.name}",
            accepts_notes=is_read,
        )
    except OuroError as error:
        path = (
            ensure_private_dir(get_home() / "cache")
            / f"{EDITED}{opened.scope}-{opened.name.replace('/', '-')}"
        )
        write_private(path, after)
        hint = f"{error.hint} Your text is in {tilde(path)}.".strip()
        raise UsageError(error.message, hint, error.commands) from error
    problems = (
        parse_note(opened.name, after).problems if is_note_name(opened.name) and after else ()
    )
    return SavedFile(done is not None, done.undo if done else "", problems)
