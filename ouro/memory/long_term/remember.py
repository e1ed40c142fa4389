"""What users do with memory: remember, forget, confirm, archive, restore and edit, without a model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from ouro.errors import OuroError, SearchUnavailable, UsageError
from ouro.events import CoreChanged
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entries import MemoryEntry, all_entries, chain_of, find_entry, note_entries, now, plain
from ouro.memory.long_term.git.files import visible_text
from ouro.memory.long_term.git.values import FileEdit, Scope
from ouro.memory.long_term.notes.entities import entities_in
from ouro.memory.long_term.notes.note import Note, Trigger, is_note_name, new_id, parse_note
from ouro.memory.long_term.notes.notebook import archived_files
from ouro.memory.long_term.notes.validity import Anchors
from ouro.memory.long_term.placement import Placement, place
from ouro.memory.long_term.trust.proposals import carried_over
from ouro.utils.files import write_private
from ouro.utils.log import log
from ouro.utils.runtime import ensure_private_dir, get_home, tilde
from ouro.utils.text import one_line

MAX_CHARACTERS = 10_000
"""Maximum characters of a text to remember; a longer one is a document."""
_MARKS = re.compile(r"(?:[#>\s]+|[-*+]\s+)+")
"""Markdown marks of headings, quotations and lists."""
_WORD = re.compile(r"[^\W_]+")


class RememberResult(msgspec.Struct, frozen=True):
    """The result of `remember`."""

    state: Literal["kept", "confirmed", "restored"]
    entry: MemoryEntry
    why: str = ""
    """Why it went there."""
    undo: str = ""
    """The commit to undo; empty when nothing was written, or no commit could be made."""


def remember_text(editor: MemoryEditor, text: str, scope: Scope | None = None) -> RememberResult:
    """Remember a text; if it is remembered already, confirm it.

    Raises:
        UsageError: it is empty or too long, or its file has unapproved changes.
        SecretInMemory: it holds a secret; nothing was written.
        LongTermMemoryError, OSError: it could not be written.
    """
    chosen = place(checked(text), editor.names, scope)
    if not chosen.text:
        raise UsageError(
            "Nothing to remember: the text is empty.", commands=["memory remember Run the tests with pytest -q"]
        )
    editor.scope(chosen.scope)  # raises when that scope is not in use
    known = same_as(chosen.text, all_entries(editor, archived=True))
    if known is not None and known.scope == chosen.scope:
        return _confirmed(editor, known)
    return _as_note(editor, chosen) if chosen.is_note else _as_line(editor, chosen)


def checked(text: str) -> str:
    """`text` without invisible characters and Markdown marks.

    Raises:
        UsageError: it is too long.
    """
    if len(text) > MAX_CHARACTERS:
        raise UsageError(
            f"That is {len(text):,} characters; one thing to remember has at most {MAX_CHARACTERS:,}.",
            "Import a document instead.",
            ["memory import FILE"],
        )
    text = visible_text(text)[0].strip()
    marks = _MARKS.match(text)
    return text[marks.end() :] if marks else text


def folded(text: str) -> str:
    """The words of a text, without case and punctuation."""
    return " ".join(_WORD.findall(text.casefold()))


def same_as(text: str, entries: list[MemoryEntry]) -> MemoryEntry | None:
    """The entry with the same words; one in use before an archived one."""
    words = folded(text)
    found = [entry for entry in entries if folded(entry.text) == words and "replaced" not in entry.badges]
    return min(found, key=lambda item: item.archived, default=None) if words else None


def note_of(editor: MemoryEditor, chosen: Placement, trigger: Trigger = "user") -> Note:
    entities, at = entities_in(chosen.text), now()
    anchors = Anchors(editor.root).of(entities) if editor.root and chosen.scope == "repo" else ()
    return Note(
        id=new_id(),
        created_at=at,
        updated_at=at,
        confirmed_at=at,
        scope=chosen.scope,
        category=chosen.category,
        session_id=editor.moment.session,
        turn=editor.moment.turn,
        trigger=trigger,
        entities=entities,
        anchors=anchors,
        text=chosen.text,
    )


def appended(text: str, lines: list[str]) -> str:
    new = "".join(f"- {' '.join(line.split()).lstrip('-*+# ')}\n" for line in lines)
    return f"{text.rstrip()}\n{new}".lstrip("\n")


def _as_line(editor: MemoryEditor, chosen: Placement) -> RememberResult:
    name = f"{chosen.category}.md"
    line = 0

    def with_line(before: str) -> str:
        nonlocal line
        text = appended(before, [chosen.text])
        line = len(text.splitlines())
        return text

    done = editor.rewrite(chosen.scope, name, with_line, f"Remember: {one_line(chosen.text, 80)}")
    entry = _entry(editor, chosen, f"{chosen.scope}/{name}:{line}", name)
    return RememberResult("kept", replace(entry, line=line), chosen.why, done.undo if done else "")


def _as_note(editor: MemoryEditor, chosen: Placement) -> RememberResult:
    written = editor.notebook.add(note_of(editor, chosen), "person")
    entry = _entry(editor, chosen, written.note.id, written.note.file_name)
    return RememberResult("kept", entry, chosen.why, written.commit)


def _entry(editor: MemoryEditor, chosen: Placement, entry_id: str, file: str) -> MemoryEntry:
    return MemoryEntry(
        id=entry_id,
        kind="note" if chosen.is_note else "core",
        scope=chosen.scope,
        category=chosen.category,
        text=chosen.text,
        file=file,
        at=now(),
        session=editor.moment.session,
        turn=editor.moment.turn,
        source="user" if chosen.is_note else "person",
    )


def _confirmed(editor: MemoryEditor, known: MemoryEntry) -> RememberResult:
    """A known note is confirmed, and restored from the archive; a known core line needs no change."""
    if known.kind == "core":
        return RememberResult("confirmed", known)
    commit = confirm_note(editor, known)
    state: Literal["confirmed", "restored"] = "restored" if known.archived else "confirmed"
    return RememberResult(state, replace(known, file=f"{known.id}.md", badges=()), undo=commit)


def confirm_note(editor: MemoryEditor, entry: MemoryEntry) -> str:
    """Record that the user confirmed a note; an archived one is restored. Returns the commit."""
    return editor.notebook.confirm(entry.id, "person").commit


def restore_note(editor: MemoryEditor, entry: MemoryEntry) -> str:
    """Restore a note from the archive; returns the commit.

    Raises:
        UsageError: it is not archived.
    """
    if not entry.archived:
        raise UsageError(f"{entry.id} is not in the archive.", "`confirm` records that it still holds.")
    return confirm_note(editor, entry)


def archive_note(editor: MemoryEditor, entry: MemoryEntry) -> str:
    """Exclude a note from recall; returns the commit.

    Raises:
        UsageError: it is archived already.
    """
    done = editor.notebook.archive([entry.id], "person")
    if not done:
        raise UsageError(f"{entry.id} is in the archive already.")
    return done[0].commit


MAX_FOUND = 20
_SHARE = 0.6
"""Share of the best score below which a hit does not count."""


class Forgotten(msgspec.Struct, frozen=True):
    entries: tuple[MemoryEntry, ...]
    changes: tuple[CoreChanged, ...]
    """One for each scope."""


def find_to_forget(editor: MemoryEditor, text: str) -> list[MemoryEntry]:
    """The entries to forget: the one with that id, else those with all the words, else search hits.

    Raises:
        UsageError: `text` is empty.
    """
    words = folded(text[:MAX_CHARACTERS]).split()
    entries = all_entries(editor)
    if not words:
        raise UsageError(
            "Nothing to forget: give words of the entry, or its id.",
            commands=["memory forget the staging password rule"],
        )
    named = [entry for entry in entries if _is_named(entry, text.strip())]
    if named:
        return named
    holding = [entry for entry in entries if set(words) <= set(folded(entry.text).split())]
    return (holding or _found(editor, text, entries))[:MAX_FOUND]


def forget_entries(editor: MemoryEditor, entries: Sequence[MemoryEntry]) -> Forgotten:
    """Remove core lines, and archive notes with all their versions: one commit a scope.

    Raises:
        UsageError: a line has changed since it was read.
        LongTermMemoryError, OSError: it could not be written.
    """
    done = []
    for scope in editor.names:
        own = [entry for entry in entries if entry.scope == scope]
        changes = {**_without_lines(editor, scope, own), **_archived(editor, scope, own)}
        if changes and (
            event := editor.write(scope, changes, f"Forget: {one_line('; '.join(e.text for e in own), 80)}")
        ):
            done.append(event)
    return Forgotten(tuple(entries), tuple(done))


def _is_named(entry: MemoryEntry, text: str) -> bool:
    return text == entry.id or (text.startswith("mem_") and len(text) >= 8 and entry.id.startswith(text))


def _found(editor: MemoryEditor, text: str, entries: list[MemoryEntry]) -> list[MemoryEntry]:
    if editor.index is None:
        return []
    from ouro.memory.index import Search, SearchFilter

    places = {
        f"{editor.scope(entry.scope).store.folder}/{entry.file}": entry for entry in entries if entry.kind == "note"
    }
    lines = {(f"{editor.scope(e.scope).store.folder}/{e.file}", e.line): e for e in entries if e.kind == "core"}
    try:
        hits = Search(editor.index(), None).find(text, MAX_FOUND, SearchFilter(kinds=("note", "core")))
    except SearchUnavailable as error:
        log.warning("forget compares words only: %s", error)
        return []
    least = hits[0].score * _SHARE if hits else 0.0
    found = [places.get(h.path) or lines.get((h.path, h.number)) for h in hits if h.score >= least]
    return [item for item in found if item is not None]


def _without_lines(editor: MemoryEditor, scope: Scope, entries: Sequence[MemoryEntry]) -> dict[str, str | None]:
    changes: dict[str, str | None] = {}
    for name in dict.fromkeys(entry.file for entry in entries if entry.kind == "core"):
        lines = editor.text(scope, name).splitlines()
        for entry in sorted((e for e in entries if e.file == name), key=lambda e: -e.line):
            if entry.line > len(lines) or plain(lines[entry.line - 1]) != entry.text:
                raise UsageError(f"{entry.id} has changed since it was read.", "List the entries again.")
            del lines[entry.line - 1]
        text = "\n".join(lines).strip("\n")
        changes[name] = f"{text}\n" if text.strip() else None
    return changes


def _archived(editor: MemoryEditor, scope: Scope, entries: Sequence[MemoryEntry]) -> dict[str, str | None]:
    notes = [entry for entry in entries if entry.kind == "note"]
    known = note_entries(editor) if notes else []
    chains = {item.id: item for note in notes for item in chain_of(known, note) if item.scope == scope}
    changes: dict[str, str | None] = {}
    for version in chains.values():
        if not version.archived:
            changes |= archived_files(editor.notebook.find(version.id))
    return changes


EDITED = "edited-"
"""Prefix of the files with edited texts that memory refused."""


class OpenedFile(msgspec.Struct, frozen=True):
    scope: Scope
    name: str
    text: str


class SavedFile(msgspec.Struct, frozen=True):
    changed: bool
    undo: str = ""
    problems: tuple[str, ...] = ()
    """What of a note's front matter cannot be read; it was saved as written."""


def open_file(editor: MemoryEditor, named: str) -> OpenedFile:
    """The named file: `facts`, `user/facts.md`, or a note by its id; a core file need not exist.

    Raises:
        UsageError: there is none, or it cannot be read.
    """
    scope, _, name = named.strip().rpartition("/")
    category = name.removesuffix(".md")
    if category in editor.scopes[0].store.core and scope in ("", *editor.names):
        chosen = editor.scope(scope or editor.names[0]).scope
        return OpenedFile(chosen, f"{category}.md", editor.text(chosen, f"{category}.md"))
    entry = find_entry(editor, named if ":" in named else category)
    return OpenedFile(entry.scope, entry.file, editor.text(entry.scope, entry.file))


def save_file(editor: MemoryEditor, opened: OpenedFile, after: str) -> SavedFile:
    """Save an edited file: an empty one is removed; changes made meanwhile elsewhere in the file stay.

    Raises:
        OuroError: it could not be saved; the hint names the file with the user's text.
    """
    if after.strip() == opened.text.strip():
        return SavedFile(False)
    after = f"{after.rstrip()}\n" if after.strip() else ""
    try:
        now = editor.text(opened.scope, opened.name)
        if now != opened.text:
            after = carried_over(FileEdit(opened.name, opened.text, after), now)
        done = editor.write(opened.scope, {opened.name: after or None}, f"Edit {opened.name}")
    except OuroError as error:
        hint = f"{error.hint} Your text is in {_save_refused_text(opened, after)}.".strip()
        raise UsageError(error.message, hint, error.commands) from error
    name = opened.name.rpartition("/")[2]
    problems = parse_note(name, after).problems if is_note_name(name) and after else ()
    return SavedFile(done is not None, done.undo if done else "", problems)


def _save_refused_text(opened: OpenedFile, text: str) -> str:
    path = ensure_private_dir(get_home() / "cache") / f"{EDITED}{opened.scope}-{opened.name.replace('/', '-')}"
    write_private(path, text)
    return tilde(path)
