"""What a person wants remembered is kept at once, without a model: put in its place, doubles confirmed."""

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
from ouro.memory.long_term.placement import Place, place
from ouro.memory.long_term.trust.proposals import carried_over
from ouro.utils.files import write_private
from ouro.utils.log import log
from ouro.utils.runtime import ensure_private_dir, get_home, tilde
from ouro.utils.text import one_line

MOST_CHARACTERS = 10_000
"""Of one thing to remember; what is longer is a document."""
_MARKS = re.compile(r"(?:[#>\s]+|[-*+]\s+)+")
"""Of headings, quotations and lists, in front."""
_WORD = re.compile(r"[^\W_]+")


class RememberResult(msgspec.Struct, frozen=True):
    """What became of it."""

    state: Literal["kept", "confirmed", "restored"]
    entry: MemoryEntry
    why: str = ""
    """Why it went there."""
    undo: str = ""
    """The commit that takes it back; empty where nothing was written, or no commit could be made."""


def remember_text(desk: MemoryEditor, text: str, scope: Scope | None = None) -> RememberResult:
    """Keep what the person says.

    Raises:
        UsageError: it is empty, or far too long; or its file cannot be written just now.
        SecretInMemory: it holds a secret; nothing was written.
        LongTermMemoryError, OSError: it could not be written.
    """
    chosen = place(checked(text), desk.names, scope)
    if not chosen.text:
        raise UsageError("Say what to remember.", commands=["memory remember Run the tests with pytest -q"])
    desk.scope(chosen.scope)  # it says so where that scope is not in use
    known = same_as(chosen.text, all_entries(desk, archived=True))
    if known is not None and known.scope == chosen.scope:
        return _confirmed(desk, known)
    return _as_note(desk, chosen) if chosen.is_note else _as_line(desk, chosen)


def checked(text: str) -> str:
    """`text` as it can be kept: without what no reader can see, and not too long.

    Raises:
        UsageError: it is too long.
    """
    if len(text) > MOST_CHARACTERS:
        raise UsageError(
            f"That is {len(text):,} characters; one thing to remember has at most {MOST_CHARACTERS:,}.",
            "Import a document instead.",
            ["memory import FILE"],
        )
    text = visible_text(text)[0].strip()
    marks = _MARKS.match(text)
    return text[marks.end() :] if marks else text


def folded(text: str) -> str:
    """The words of a text, the same however they are written and set."""
    return " ".join(_WORD.findall(text.casefold()))


def same_as(text: str, entries: list[MemoryEntry]) -> MemoryEntry | None:
    """The entry that says the same in the same words; one in use before one of the archive."""
    words = folded(text)
    found = [each for each in entries if folded(each.text) == words and "replaced" not in each.badges]
    return min(found, key=lambda each: each.archived, default=None) if words else None


def note_of(desk: MemoryEditor, chosen: Place, trigger: Trigger = "user") -> Note:
    """A new note of what was said."""
    entities, at = entities_in(chosen.text), now()
    anchors = Anchors(desk.root).of(entities) if desk.root and chosen.scope == "repo" else ()
    return Note(
        id=new_id(),
        created_at=at,
        updated_at=at,
        confirmed_at=at,
        scope=chosen.scope,
        category=chosen.category,
        session_id=desk.moment.session,
        turn=desk.moment.turn,
        trigger=trigger,
        entities=entities,
        anchors=anchors,
        text=chosen.text,
    )


def appended(text: str, lines: list[str]) -> str:
    """A core file with new lines at its end."""
    new = "".join(f"- {' '.join(each.split()).lstrip('-*+# ')}\n" for each in lines)
    return f"{text.rstrip()}\n{new}".lstrip("\n")


def _as_line(desk: MemoryEditor, chosen: Place) -> RememberResult:
    name = f"{chosen.category}.md"
    line = 0

    def with_line(before: str) -> str:
        nonlocal line
        text = appended(before, [chosen.text])
        line = len(text.splitlines())
        return text

    done = desk.rewrite(chosen.scope, name, with_line, f"Remember: {one_line(chosen.text, 80)}")
    entry = _entry(desk, chosen, f"{chosen.scope}/{name}:{line}", name)
    return RememberResult("kept", replace(entry, line=line), chosen.why, done.undo if done else "")


def _as_note(desk: MemoryEditor, chosen: Place) -> RememberResult:
    written = desk.notebook.add(note_of(desk, chosen), "person")
    entry = _entry(desk, chosen, written.note.id, written.note.file_name)
    return RememberResult("kept", entry, chosen.why, written.commit)


def _entry(desk: MemoryEditor, chosen: Place, entry_id: str, file: str) -> MemoryEntry:
    return MemoryEntry(
        id=entry_id,
        kind="note" if chosen.is_note else "core",
        scope=chosen.scope,
        category=chosen.category,
        text=chosen.text,
        file=file,
        at=now(),
        session=desk.moment.session,
        turn=desk.moment.turn,
        source="user" if chosen.is_note else "person",
    )


def _confirmed(desk: MemoryEditor, known: MemoryEntry) -> RememberResult:
    """It is known: a note counts as confirmed, and comes back from the archive; a core line needs nothing."""
    if known.kind == "core":
        return RememberResult("confirmed", known)
    commit = confirm_note(desk, known)
    state: Literal["confirmed", "restored"] = "restored" if known.archived else "confirmed"
    return RememberResult(state, replace(known, file=f"{known.id}.md", badges=()), undo=commit)


def confirm_note(desk: MemoryEditor, entry: MemoryEntry) -> str:
    """Record that the user confirmed a note; an archived one is restored. Returns the commit."""
    return desk.notebook.confirm(entry.id, "person").commit


def restore_note(desk: MemoryEditor, entry: MemoryEntry) -> str:
    """Restore a note from the archive; returns the commit.

    Raises:
        UsageError: it is not archived.
    """
    if not entry.archived:
        raise UsageError(f"{entry.id} is not in the archive.", "`confirm` records that it still holds.")
    return confirm_note(desk, entry)


def archive_note(desk: MemoryEditor, entry: MemoryEntry) -> str:
    """Exclude a note from recall; returns the commit.

    Raises:
        UsageError: it is archived already.
    """
    done = desk.notebook.archive([entry.id], "person")
    if not done:
        raise UsageError(f"{entry.id} is in the archive already.")
    return done[0].commit


MOST_FOUND = 20
_SHARE = 0.6
"""Of the best hit's score: what is worth less has to do with something else."""


class Forgotten(msgspec.Struct, frozen=True):
    """What went."""

    entries: tuple[MemoryEntry, ...]
    changes: tuple[CoreChanged, ...]
    """One for each scope; each can be undone."""


def fitting(desk: MemoryEditor, text: str) -> list[MemoryEntry]:
    """What would go: the entry of that id, else those that hold all the words, else what the search finds.

    Raises:
        UsageError: nothing was said.
    """
    words = folded(text[:MOST_CHARACTERS]).split()
    entries = all_entries(desk)
    if not words:
        raise UsageError(
            "Say what to forget: words of it, or its id.", commands=["memory forget the staging password rule"]
        )
    named = [each for each in entries if _is_named(each, text.strip())]
    if named:
        return named
    holding = [each for each in entries if set(words) <= set(folded(each.text).split())]
    return (holding or _found(desk, text, entries))[:MOST_FOUND]


def forget_entries(desk: MemoryEditor, entries: Sequence[MemoryEntry]) -> Forgotten:
    """Take core lines out, and put notes into the archive with all that came before them: one commit a scope.

    Raises:
        UsageError: a line is not there any more.
        LongTermMemoryError, OSError: it could not be written.
    """
    done = []
    for scope in desk.names:
        own = [each for each in entries if each.scope == scope]
        changes = {**_without_lines(desk, scope, own), **_put_away(desk, scope, own)}
        if changes and (event := desk.write(scope, changes, f"Forget: {one_line('; '.join(e.text for e in own), 80)}")):
            done.append(event)
    return Forgotten(tuple(entries), tuple(done))


def _is_named(entry: MemoryEntry, text: str) -> bool:
    return text == entry.id or (text.startswith("mem_") and len(text) >= 8 and entry.id.startswith(text))


def _found(desk: MemoryEditor, text: str, entries: list[MemoryEntry]) -> list[MemoryEntry]:
    """By the search: stems, spelling, rarity."""
    if desk.index is None:
        return []
    from ouro.memory.index.search import Search, SearchFilter

    places = {f"{desk.scope(each.scope).store.folder}/{each.file}": each for each in entries if each.kind == "note"}
    lines = {(f"{desk.scope(e.scope).store.folder}/{e.file}", e.line): e for e in entries if e.kind == "core"}
    try:
        hits = Search(desk.index(), None).find(text, MOST_FOUND, SearchFilter(kinds=("note", "core")))
    except SearchUnavailable as error:
        log.warning("forget looks for words only: %s", error)
        return []
    least = hits[0].score * _SHARE if hits else 0.0
    found = [places.get(h.path) or lines.get((h.path, h.number)) for h in hits if h.score >= least]
    return [each for each in found if each is not None]


def _without_lines(desk: MemoryEditor, scope: Scope, entries: Sequence[MemoryEntry]) -> dict[str, str | None]:
    changes: dict[str, str | None] = {}
    for name in dict.fromkeys(each.file for each in entries if each.kind == "core"):
        lines = desk.text(scope, name).splitlines()
        for each in sorted((e for e in entries if e.file == name), key=lambda e: -e.line):
            if each.line > len(lines) or plain(lines[each.line - 1]) != each.text:
                raise UsageError(f"{each.id} has changed meanwhile.", "Look again.")
            del lines[each.line - 1]
        text = "\n".join(lines).strip("\n")
        changes[name] = f"{text}\n" if text.strip() else None
    return changes


def _put_away(desk: MemoryEditor, scope: Scope, entries: Sequence[MemoryEntry]) -> dict[str, str | None]:
    notes = [each for each in entries if each.kind == "note"]
    known = note_entries(desk) if notes else []
    chains = {each.id: each for note in notes for each in chain_of(known, note) if each.scope == scope}
    changes: dict[str, str | None] = {}
    for each in chains.values():
        if not each.archived:
            changes |= archived_files(desk.notebook.find(each.id))
    return changes


EDITED = "edited-"
"""How the names of files begin that keep what a person has written and memory refused."""


class OpenedFile(msgspec.Struct, frozen=True):
    """A file as it is before it is edited."""

    scope: Scope
    name: str
    text: str


class SavedFile(msgspec.Struct, frozen=True):
    """What became of an edit."""

    changed: bool
    undo: str = ""
    problems: tuple[str, ...] = ()
    """What of a note's front matter cannot be understood; it was kept as the person wrote it."""


def open_file(desk: MemoryEditor, named: str) -> OpenedFile:
    """The file that is meant: `facts`, `user/facts.md`, or a note by its id; a core file need not be there yet.

    Raises:
        UsageError: there is none, or it may not be read.
    """
    scope, _, name = named.strip().rpartition("/")
    category = name.removesuffix(".md")
    if category in desk.scopes[0].store.core and scope in ("", *desk.names):
        chosen = desk.scope(scope or desk.names[0]).scope
        return OpenedFile(chosen, f"{category}.md", desk.text(chosen, f"{category}.md"))
    entry = find_entry(desk, named if ":" in named else category)
    return OpenedFile(entry.scope, entry.file, desk.text(entry.scope, entry.file))


def save_file(desk: MemoryEditor, opened: OpenedFile, after: str) -> SavedFile:
    """Keep what the editor gave: an empty file is removed; what was changed meanwhile elsewhere in the file stays.

    Raises:
        OuroError: it could not be kept; the hint says where the person's text lies.
    """
    if after.strip() == opened.text.strip():
        return SavedFile(False)
    after = f"{after.rstrip()}\n" if after.strip() else ""
    try:
        now = desk.text(opened.scope, opened.name)
        if now != opened.text:
            after = carried_over(FileEdit(opened.name, opened.text, after), now)
        done = desk.write(opened.scope, {opened.name: after or None}, f"Edit {opened.name}")
    except OuroError as error:
        hint = f"{error.hint} Your text is in {_kept(opened, after)}.".strip()
        raise UsageError(error.message, hint, error.commands) from error
    name = opened.name.rpartition("/")[2]
    problems = parse_note(name, after).problems if is_note_name(name) and after else ()
    return SavedFile(done is not None, done.undo if done else "", problems)


def _kept(opened: OpenedFile, text: str) -> str:
    path = ensure_private_dir(get_home() / "cache") / f"{EDITED}{opened.scope}-{opened.name.replace('/', '-')}"
    write_private(path, text)
    return tilde(path)
