"""Notebook: the notes of all scopes, as files; each change is one commit that can be undone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import groupby
from typing import Literal

import msgspec
from msgspec.structs import replace

from ouro.errors import NoteError
from ouro.events import NoteKept
from ouro.memory.long_term.git.files import ARCHIVE, FileRefused, is_note_name
from ouro.memory.long_term.git.values import ORIGIN, SESSION, TURN, Origin, Scope
from ouro.memory.long_term.notes.note import Edge, Note, Relationship, note_text, parse_note
from ouro.memory.long_term.notes.validity import Anchors
from ouro.memory.long_term.store import GitMemoryStore
from ouro.utils.text import clean, one_line, plural

_TEXT_WIDTH = 80
"""Characters of a note's text in the subject of a commit, and in an event about several notes."""
_CONFIDENCE_OF_CONFIRMATION = 0.15
"""Added to the confidence in an inferred note when it is confirmed."""
_MIN_CONFIDENCE_AFTER_CHECK = 0.8
"""The least confidence in a note after a check of its files has passed."""
_MIN_CONFIDENCE_BY_USER = 0.9
"""The least confidence in a note that the user confirmed."""
Change = Literal[
    "add",
    "supersede",
    "refine",
    "contradict",
    "confirm",
    "archive",
    "rewrite",
    "share",
    "describe",
]
_RELATIONSHIPS: Mapping[Change, Relationship] = {"refine": "refines", "contradict": "contradicts"}
Trailers = Mapping[str, str]
FileChanges = Mapping[str, str | None]
"""File name -> its new text; None removes the file."""
Commit = Callable[[Scope, FileChanges, str, Trailers], str]
"""Writes files of a scope in one commit; returns its id. Raises as `save_and_commit`."""


class NoteFile(msgspec.Struct, frozen=True):
    """A note with the file that it was read from."""

    note: Note
    scope: Scope
    name: str
    """Relative to the scope's folder; in `archive/` if the note is archived."""
    problems: tuple[str, ...] = ()

    @property
    def archived(self) -> bool:
        return self.name.startswith(f"{ARCHIVE}/")


class WrittenNote(msgspec.Struct, frozen=True):
    """A change of a note that was written."""

    change: Change
    note: Note
    scope: Scope
    commit: str = ""
    """The commit; empty if none was needed, or none could be made."""
    before: str = ""
    """The text of the note that it replaces; empty if it replaces none."""


class Notebook(msgspec.Struct, eq=False):
    """Reads and writes the notes of all scopes: the only writer of notes. Every method blocks on
    files.

    Methods that write raise SecretInMemory if a text holds a secret (nothing was written), and
    LongTermMemoryError or OSError if it could not be written. Methods that take the id of a note
    raise NoteError if there is no such note.
    """

    stores: Mapping[Scope, GitMemoryStore]
    latest: Callable[[str], str] = str
    """Returns the last version of a note, by the id of any of its versions."""
    anchors: Anchors | None = None
    """Finds the files that a note names; None: a confirmed note keeps its anchors."""
    untrusted: Callable[[Scope], Collection[str]] = lambda _scope: ()
    """Returns the files of a scope with unapproved changes: they are neither found nor changed."""
    commit: Commit | None = None
    """Writes instead of the stores, for actions of the user; None: the stores write."""

    @property
    def scopes(self) -> tuple[Scope, ...]:
        return tuple(self.stores)

    def all(self, *, archived: bool = False) -> Iterator[NoteFile]:
        """Yield the notes of all scopes, archived ones only if `archived`. Files that cannot be
        read, or have unapproved changes, are left out.
        """
        for scope, store in self.stores.items():
            for name in store.load_all().notes:
                is_wanted = archived or not name.startswith(f"{ARCHIVE}/")
                if is_wanted and (file := self._read_note(scope, name)):
                    yield file

    def texts(self, note_ids: Iterable[str]) -> dict[str, str]:
        """Id -> text of these notes; without notes that do not exist or have unapproved changes."""
        texts: dict[str, str] = {}
        for note_id in note_ids:
            with suppress(NoteError):
                texts[note_id] = self.find(note_id).note.text
        return texts

    def find(self, note_id: str) -> NoteFile:
        """The note of that id, also an archived one. Raises NoteError if there is no such note, or
        if it has unapproved changes.
        """
        no_note = NoteError(f"There is no note {note_id[:60]}.", commands=["memory list"])
        if not is_note_name(f"{note_id}.md"):
            raise no_note
        for scope in self.stores:
            for name in (f"{note_id}.md", f"{ARCHIVE}/{note_id}.md"):
                if file := self._read_note(scope, name):
                    return file
                if name in self.untrusted(scope):
                    raise NoteError(
                        f"{note_id[:12]} was changed outside of ouro, and the change is not approved.",
                        "Accept or reject the change first.",
                        ["memory list"],
                    )
        raise no_note

    def add(
        self, note: Note, origin: Origin, trailers: Trailers | None = None, change: Change = "add"
    ) -> WrittenNote:
        """Write a new note, which is linked already. `change` is what it does to another note,
        which it supersedes, refines or contradicts; the subject of the commit and the event name
        this. If it supersedes a note, the result also has the text of that one.

        The trailers of the commit are the origin, session and turn of the note; `trailers` are
        further ones, or replace these.
        """
        before = self.find(note.supersedes).note.text if note.supersedes else ""
        note = self.add_times(note)
        changes = {note.file_name: note_text(note)}
        written = self._write_note(note.scope, change, note, changes, origin, trailers)
        return replace(written, before=before)

    def link(
        self, note: Note, change: Change, target: str = "", related: Iterable[str] = ()
    ) -> Note:
        """The note with links to the last versions of other notes. A note that supersedes `target`
        becomes its next version; one that refines or contradicts it gets that link. To the notes
        `related` it gets the link `relates-to`, unless it has one already. Writes nothing.
        """
        if change in _RELATIONSHIPS:
            other = self.find(self.latest(target)).note
            note = replace(note, related=(*note.related, Edge(other.id, _RELATIONSHIPS[change])))
        elif change == "supersede":
            old = self.find(self.latest(target)).note
            note = replace(note, supersedes=old.id, version=old.version + 1)
        linked_ids = {note.id, note.supersedes, *(edge.id for edge in note.related)}
        latest_ids = dict.fromkeys(self.find(self.latest(other_id)).note.id for other_id in related)
        new_edges = [
            Edge(other_id, "relates-to") for other_id in latest_ids if other_id not in linked_ids
        ]
        return replace(note, related=(*note.related, *new_edges))

    def confirm(
        self,
        note_id: str,
        origin: Origin,
        trailers: Trailers | None = None,
        *,
        is_checked: bool = False,
    ) -> WrittenNote:
        """Record that a note still holds. This raises the confidence in it, and restores an
        archived one. The user (`origin` is `person`) confirms this version of the note; else its
        last version is confirmed. `trailers` as for `add`.

        A note that the user confirms counts as said by the user, its anchors are renewed, and it is
        no longer tentative. It is no longer tentative, too, if a check of its files has passed
        (`is_checked`).
        """
        file = self.find(note_id if origin == "person" else self.latest(note_id))
        note = replace(file.note, confirmed_at=timestamp())
        if origin == "person":
            anchors = note.anchors
            if self.anchors and anchors:
                anchors = self.anchors.of(note.entities)
            note = replace(
                note,
                source="user",
                confidence=max(note.confidence, _MIN_CONFIDENCE_BY_USER),
                anchors=anchors,
                tentative="",
            )
        elif is_checked:
            note = replace(
                note, confidence=max(note.confidence, _MIN_CONFIDENCE_AFTER_CHECK), tentative=""
            )
        else:
            note = replace(note, confidence=min(1.0, note.confidence + _CONFIDENCE_OF_CONFIRMATION))
        # If the note is archived, this moves the file out of the archive; else both names are the
        # same, and the second entry counts.
        changes: FileChanges = {file.name: None, note.file_name: note_text(note)}
        return self._write_note(
            file.scope,
            change="confirm",
            note=note,
            changes=changes,
            origin=origin,
            trailers=trailers,
        )

    def archive(self, note_ids: Iterable[str], origin: Origin) -> list[WrittenNote]:
        """Exclude notes from recall: their files move to the archive, in one commit for each scope.
        Returns the notes that were not archived already.
        """
        files = [file for file in map(self.find, note_ids) if not file.archived]
        return self._write_all("archive", files, changes_of=archive_changes, origin=origin)

    def share(self, note_ids: Iterable[str], origin: Origin) -> list[WrittenNote]:
        """Let notes that belong to a branch be recalled on all branches, in one commit for each
        scope. Returns the changed notes.
        """
        files = [
            replace(file, note=replace(file.note, branch=None)) for file in map(self.find, note_ids)
        ]
        return self._write_all(
            "share", files, changes_of=lambda file: {file.name: note_text(file.note)}, origin=origin
        )

    def describe(self, notes: Iterable[Note], origin: Origin) -> list[WrittenNote]:
        """Write notes again that have got search words, in one commit for each scope. Their times
        stay: they say the same. Returns the notes.
        """
        files = [replace(self.find(note.id), note=note) for note in notes]
        return self._write_all(
            "describe",
            files,
            changes_of=lambda file: {file.name: note_text(file.note)},
            origin=origin,
        )

    def rewrite(self, note: Note, origin: Origin) -> WrittenNote:
        """Write a note again into the file of its id. If its scope is another one now, the file
        moves to that scope, in a commit there and one here.
        """
        file = self.find(note.id)
        note = replace(note, updated_at=timestamp())
        text = note_text(note)
        if note.scope == file.scope:
            return self._write_note(
                file.scope, change="rewrite", note=note, changes={file.name: text}, origin=origin
            )
        written = self._write_note(
            note.scope, change="rewrite", note=note, changes={note.file_name: text}, origin=origin
        )
        self._write_note(
            file.scope, change="rewrite", note=note, changes={file.name: None}, origin=origin
        )
        return written

    def merge(self, note: Note, replaced: Sequence[NoteFile]) -> WrittenNote:
        """Write a note that supersedes the last of `replaced`, and archive the others, in one
        commit.
        """
        note = self.add_times(note)
        changes: dict[str, str | None] = {note.file_name: note_text(note)}
        for file in replaced[:-1]:
            changes |= archive_changes(file)
        subject = f"Merge {len(replaced)} notes"
        return self._write_note(
            note.scope,
            change="supersede",
            note=note,
            changes=changes,
            origin="consolidation",
            subject=subject,
        )

    def add_times(self, note: Note) -> Note:
        """The note as it is written now: updated at this time, and created and confirmed if it was
        not before.
        """
        now = timestamp()
        return replace(
            note,
            created_at=note.created_at or now,
            updated_at=now,
            confirmed_at=note.confirmed_at or now,
        )

    def _read_note(self, scope: Scope, name: str) -> NoteFile | None:
        """The note in a file; None if there is none, it cannot be read, or it has unapproved
        changes.
        """
        # Text that is not approved is not used; and a change of the note would approve it.
        if name in self.untrusted(scope):
            return None
        try:
            text = self.stores[scope].read(name)
        except FileRefused:
            return None  # the store reports the reason
        if text is None:
            return None
        parsed = parse_note(name, text)
        return NoteFile(parsed.note, scope, name, parsed.problems)

    def _write_all(
        self,
        change: Change,
        files: Sequence[NoteFile],
        changes_of: Callable[[NoteFile], FileChanges],
        origin: Origin,
    ) -> list[WrittenNote]:
        """Make the same change to all these notes, in one commit for each scope; `changes_of`
        returns the changes of files for a note. The commit is named for the first note of the
        scope. Returns the notes, those of one scope together.
        """
        written_notes: list[WrittenNote] = []
        for scope in self.stores:
            in_scope = [file for file in files if file.scope == scope]
            if not in_scope:
                continue
            changes: dict[str, str | None] = {}
            for file in in_scope:
                changes.update(changes_of(file))
            written_note = self._write_note(scope, change, in_scope[0].note, changes, origin)
            written_notes += [replace(written_note, note=file.note) for file in in_scope]
        return written_notes

    def _write_note(
        self,
        scope: Scope,
        change: Change,
        note: Note,
        changes: FileChanges,
        origin: Origin,
        trailers: Trailers | None = None,
        subject: str = "",
    ) -> WrittenNote:
        """Write the files of a change of a note in one commit, whose subject begins with `subject`
        (empty: with the change). `trailers` as for `add`. Raises NoteError if the memory of the
        scope is off.
        """
        all_trailers = {
            ORIGIN: origin,
            SESSION: note.session_id,
            TURN: str(note.turn or ""),
            **(trailers or {}),
        }
        subject = f"{subject or change.capitalize()}: {one_line(note.text, _TEXT_WIDTH)}"
        if self.commit:
            commit_id = self.commit(scope, changes, subject, all_trailers)
        elif scope in self.stores:
            commit_id = self.stores[scope].save_and_commit(changes, subject, all_trailers)
        else:
            raise NoteError(f"The {scope} memory is off here.", "Turn it on.", ["memory on"])
        return WrittenNote(change, note, scope, commit=commit_id)


def archive_changes(file: NoteFile) -> dict[str, str | None]:
    """The changes of files that move a note into the archive: the text of each file by its name;
    None: it is removed.
    """
    return {file.name: None, f"{ARCHIVE}/{file.note.file_name}": note_text(file.note)}


def timestamp() -> str:
    """The current time as in notes: `2026-11-21T20:31:00Z`."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def note_event(written: WrittenNote) -> NoteKept:
    """The event that shows a change of a note, with the text of the note that it replaces."""
    note, text = written.note, written.note.text
    if written.before:
        # In full: a part that the new text does not mention must not be lost unseen.
        text += f" (before: {' '.join(written.before.split())})"
    return NoteKept(
        written.change,
        note.id,
        text=clean(text),
        scope=written.scope,
        category=note.category,
        undo=written.commit,
    )


def proposal_event(notes: Sequence[Note]) -> NoteKept:
    """The event that shows proposed notes, at least one: the first, and how many more there are."""
    first = notes[0]
    others = f" (and {len(notes) - 1} more)" if len(notes) > 1 else ""
    return NoteKept(
        "propose",
        first.id,
        text=f"{clean(first.text)}{others}",
        scope=first.scope,
        category=first.category,
    )


def notes_event(
    operation: Literal["archive", "share", "describe"], written: Sequence[WrittenNote], reason: str
) -> list[NoteKept]:
    """The events that show a change of several notes: one for each commit, with the number of its
    notes, the `reason`, and the first three texts. The notes of a commit must follow each other.
    """
    events: list[NoteKept] = []
    by_commit = groupby(written, key=lambda change: (change.scope, change.commit))
    for (scope, commit), changes in by_commit:
        notes = [change.note for change in changes]
        quotes = "; ".join(one_line(note.text, _TEXT_WIDTH) for note in notes[:3])
        if len(notes) > 3:
            quotes += "; …"
        text = f"{plural(len(notes), 'note')} {reason}: {quotes}"
        events.append(NoteKept(operation, notes[0].id, text, scope, notes[0].category, undo=commit))
    return events
