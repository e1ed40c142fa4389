"""What a person wants remembered is kept at once, without a model: put in its place, doubles confirmed."""

from __future__ import annotations

import re
from typing import Literal

import msgspec
from msgspec.structs import replace

from ouro.errors import UsageError
from ouro.memory.long_term.by_hand.desk import Desk
from ouro.memory.long_term.by_hand.entries import Entry, all_entries, now
from ouro.memory.long_term.by_hand.placing import Place, place
from ouro.memory.long_term.git.files import visible_text
from ouro.memory.long_term.git.values import Scope
from ouro.memory.long_term.notes.anchors import Anchors
from ouro.memory.long_term.notes.entities import entities_in
from ouro.memory.long_term.notes.note import Note, Trigger, new_id, note_text
from ouro.utils.text import one_line

MOST_CHARACTERS = 10_000
"""Of one thing to remember; what is longer is a document."""
_MARKS = re.compile(r"(?:[#>\s]+|[-*+]\s+)+")
"""Of headings, quotations and lists, in front."""
_WORD = re.compile(r"[^\W_]+")


class Remembering(msgspec.Struct, frozen=True):
    """What became of it."""

    state: Literal["kept", "confirmed", "restored"]
    entry: Entry
    why: str = ""
    """Why it went there."""
    undo: str = ""
    """The commit that takes it back; empty where nothing was written, or no commit could be made."""


def remember(desk: Desk, text: str, scope: Scope | None = None) -> Remembering:
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


def same_as(text: str, entries: list[Entry]) -> Entry | None:
    """The entry that says the same in the same words; one in use before one of the archive."""
    words = folded(text)
    found = [each for each in entries if folded(each.text) == words and "replaced" not in each.badges]
    return min(found, key=lambda each: each.archived, default=None) if words else None


def note_of(desk: Desk, chosen: Place, trigger: Trigger = "user") -> Note:
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


def _as_line(desk: Desk, chosen: Place) -> Remembering:
    name = f"{chosen.category}.md"
    line = 0

    def with_line(before: str) -> str:
        nonlocal line
        text = appended(before, [chosen.text])
        line = len(text.splitlines())
        return text

    done = desk.rewrite(chosen.scope, name, with_line, f"Remember: {one_line(chosen.text, 80)}")
    entry = _entry(desk, chosen, f"{chosen.scope}/{name}:{line}", name)
    return Remembering("kept", replace(entry, line=line), chosen.why, done.undo if done else "")


def _as_note(desk: Desk, chosen: Place) -> Remembering:
    note = note_of(desk, chosen)
    done = desk.write(note.scope, {note.file_name: note_text(note)}, f"Remember: {one_line(note.text, 80)}")
    return Remembering("kept", _entry(desk, chosen, note.id, note.file_name), chosen.why, done.undo if done else "")


def _entry(desk: Desk, chosen: Place, entry_id: str, file: str) -> Entry:
    return Entry(
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


def _confirmed(desk: Desk, known: Entry) -> Remembering:
    """It is known: a note counts as confirmed, and comes back from the archive; a core line needs nothing."""
    if known.kind == "core":
        return Remembering("confirmed", known)
    commit = confirm(desk, known)
    state: Literal["confirmed", "restored"] = "restored" if known.archived else "confirmed"
    return Remembering(state, replace(known, file=f"{known.id}.md", badges=()), undo=commit)


def confirm(desk: Desk, entry: Entry) -> str:
    """The person says that a note still holds: nothing doubts it any more, and its files are anchored as they are now.

    Gives the commit.
    """
    kept = desk.notebook.find(entry.id)
    note = kept.note
    changed = Anchors(desk.root).of(note.entities) if desk.root and note.anchors else note.anchors
    note = replace(note, confirmed_at=now(), source="user", confidence=max(note.confidence, 0.9), anchors=changed)
    changes: dict[str, str | None] = {note.file_name: note_text(note)}
    if kept.archived:
        changes[kept.name] = None
    verb = "Restore" if kept.archived else "Confirm"
    done = desk.write(kept.scope, changes, f"{verb}: {one_line(note.text, 80)}")
    return done.undo if done else ""


def restore(desk: Desk, entry: Entry) -> str:
    """Take a note out of the archive; gives the commit.

    Raises:
        UsageError: it is not in the archive.
    """
    if not entry.archived:
        raise UsageError(f"{entry.id} is not in the archive.", "`confirm` says that it still holds.")
    return confirm(desk, entry)


def put_away(desk: Desk, entry: Entry) -> str:
    """Move a note into the archive: kept, but not recalled. Gives the commit."""
    kept = desk.notebook.find(entry.id)
    if kept.archived:
        raise UsageError(f"{entry.id} is in the archive already.")
    changes: dict[str, str | None] = {kept.name: None, f"archive/{kept.note.file_name}": note_text(kept.note)}
    done = desk.write(kept.scope, changes, f"Archive: {one_line(kept.note.text, 80)}")
    return done.undo if done else ""
