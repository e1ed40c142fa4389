"""Notebook: the notes of all scopes, as files; each change is one commit that can be undone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec
from msgspec.structs import replace

from ouro.errors import NoteError
from ouro.memory.long_term.git.files import ARCHIVE, FileRefused
from ouro.memory.long_term.git.values import ORIGIN, SESSION, TURN, Origin, Scope
from ouro.memory.long_term.notes.note import (
    Edge,
    Note,
    ParsedNote,
    Relationship,
    is_note_name,
    note_text,
    parse_note,
)
from ouro.memory.long_term.notes.validity import Anchors
from ouro.memory.long_term.store import GitMemoryStore
from ouro.utils.text import one_line

_SUBJECT_WIDTH = 80
_CONFIRMATION = 0.15
"""What a confirmation adds to the confidence in an inferred note."""
_CONFIRMED_BY_USER = 0.9
"""The least confidence in a note that the user confirmed."""
Change = Literal["add", "supersede", "refine", "contradict", "confirm", "archive", "rewrite", "share"]
_RELATIONSHIPS: Mapping[Change, Relationship] = {"refine": "refines", "contradict": "contradicts"}
Trailers = Mapping[str, str]
Commit = Callable[[Scope, Mapping[str, str | None], str, Trailers], str]
"""Writes files (None: removes them) of a scope in one commit; returns its id. Raises as `save_and_commit`."""


class NoteFile(msgspec.Struct, frozen=True):
    note: Note
    scope: Scope
    name: str
    """Below the scope's folder; in `archive/` when the note is archived."""
    problems: tuple[str, ...] = ()

    @property
    def archived(self) -> bool:
        return self.name.startswith(f"{ARCHIVE}/")


class Written(msgspec.Struct, frozen=True):
    change: Change
    note: Note
    scope: Scope
    commit: str
    """Undoing it undoes the change; empty when no commit could be made."""


class Notebook:
    """Reads and writes the notes of all scopes: the only writer of notes. Every method blocks on files.

    Args:
        stores: where the notes of each scope are.
        latest: the last version of a note, by the id of any of its versions (`Graph.latest`).
        anchors: the hashes of the files that a note of the repository names, as they are now.
        now: the time, for what is written.
        untrusted: the files of a scope with unapproved changes: they are neither found nor changed.
        commit: writes instead of the stores, for what the user does in a session.
    """

    def __init__(
        self,
        stores: Mapping[Scope, GitMemoryStore],
        latest: Callable[[str], str] = str,
        anchors: Anchors | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        untrusted: Callable[[Scope], Collection[str]] = lambda _scope: (),
        commit: Commit | None = None,
    ) -> None:
        self._stores = stores
        self._untrusted = untrusted
        self._latest = latest
        self._anchors = anchors
        self._now = now
        self._commit = commit or self._save_and_commit

    @property
    def scopes(self) -> tuple[Scope, ...]:
        return tuple(self._stores)

    def all(self, *, archived: bool = False) -> Iterator[NoteFile]:
        """The notes of all scopes, also archived ones if `archived`; files that cannot be read are left out."""
        for scope, store in self._stores.items():
            for name in store.load_all().notes:
                if (name.startswith(f"{ARCHIVE}/") and not archived) or not is_note_name(name.rpartition("/")[2]):
                    continue
                if found := self._read(scope, name):
                    yield found

    def find(self, note_id: str) -> NoteFile:
        """The note of that id, in any scope, also an archived one.

        Raises:
            NoteError: there is none, or its file has unapproved changes.
        """
        if is_note_name(f"{note_id}.md"):
            for scope in self._stores:
                for name in (f"{note_id}.md", f"{ARCHIVE}/{note_id}.md"):
                    if found := self._read(scope, name):
                        return found
                    if name in self._untrusted(scope):
                        raise NoteError(
                            f"{note_id[:12]} was changed outside of ouro, and the change is not approved.",
                            "Accept or reject the change first.",
                            ["memory list"],
                        )
        raise NoteError(f"There is no note {note_id[:60]}.", commands=["memory list"])

    def add(self, note: Note, origin: Origin, trailers: Trailers | None = None, change: Change = "add") -> Written:
        """Write a new note.

        Raises:
            SecretInMemory: it holds a secret; nothing was written.
            LongTermMemoryError, OSError: it could not be written.
        """
        return self._write(change, self.dated(note), origin, trailers)

    def linked(self, note: Note, change: Change, target: str, related: Iterable[str] = ()) -> Note:
        """The note with its link to the last version of `target`, and `relates-to` edges to the notes `related`.

        A superseding note continues the chain: a chain is linear.

        Raises:
            NoteError: there is no such note.
        """
        if change in _RELATIONSHIPS:
            other = self.find(self._latest(target)).note
            note = replace(note, related=(*note.related, Edge(other.id, _RELATIONSHIPS[change])))
        elif change == "supersede":
            old = self.find(self._latest(target)).note
            note = replace(note, supersedes=old.id, version=old.version + 1)
        known = {note.id, note.supersedes, *(edge.id for edge in note.related)}
        ids = dict.fromkeys(self.find(self._latest(other)).note.id for other in related)
        edges = (Edge(other, "relates-to") for other in ids if other not in known)
        return replace(note, related=(*note.related, *edges))

    def confirm(self, note_id: str, origin: Origin, trailers: Trailers | None = None) -> Written:
        """Record that the note still holds; an archived one is restored.

        A note confirmed by the user (`origin` is `person`) counts as said by the user, and its anchors are renewed.

        Raises:
            NoteError: there is no such note.
            LongTermMemoryError, OSError: it could not be written.
        """
        found = self.find(note_id if origin == "person" else self._latest(note_id))
        note = replace(found.note, confirmed_at=self._stamp())
        if origin == "person":
            anchors = self._anchors.of(note.entities) if self._anchors and note.anchors else note.anchors
            note = replace(note, source="user", confidence=max(note.confidence, _CONFIRMED_BY_USER), anchors=anchors)
        else:
            note = replace(note, confidence=min(1.0, note.confidence + _CONFIRMATION))
        moved: dict[str, str | None] = {found.name: None} if found.archived else {}
        return self._put(found.scope, "confirm", note, {**moved, note.file_name: note_text(note)}, origin, trailers)

    def archive(self, note_ids: Sequence[str], origin: Origin) -> list[Written]:
        """Exclude notes from recall; their files move to the archive. One commit a scope.

        Raises:
            NoteError: one of them does not exist.
            LongTermMemoryError, OSError: it could not be written.
        """
        found = [file for file in map(self.find, note_ids) if not file.archived]
        return self._put_all("archive", found, archived_files, origin)

    def share(self, note_ids: Iterable[str], origin: Origin) -> list[Written]:
        """Let notes of one branch be recalled on all branches. One commit a scope.

        Raises:
            NoteError: one of them does not exist.
            LongTermMemoryError, OSError: it could not be written.
        """
        found = [replace(file, note=replace(file.note, branch=None)) for file in map(self.find, note_ids)]
        return self._put_all("share", found, lambda file: {file.name: note_text(file.note)}, origin)

    def rewrite(self, note: Note, origin: Origin) -> Written:
        """Change a note in its file; a new scope moves the file.

        Raises:
            NoteError: there is no such note.
            SecretInMemory, LongTermMemoryError, OSError: as `add`.
        """
        found = self.find(note.id)
        note = replace(note, updated_at=self._stamp())
        if note.scope == found.scope:
            return self._put(found.scope, "rewrite", note, {found.name: note_text(note)}, origin)
        written = self._write("rewrite", note, origin)
        self._put(found.scope, "rewrite", note, {found.name: None}, origin)
        return written

    def merge(self, note: Note, replaced: Sequence[NoteFile]) -> Written:
        """Write a note that replaces the last of `replaced`, and archive the others, in one commit.

        Raises:
            SecretInMemory, LongTermMemoryError, OSError: as `add`.
        """
        note = self.dated(note)
        changes: dict[str, str | None] = {note.file_name: note_text(note)}
        for file in replaced[:-1]:
            changes |= archived_files(file)
        return self._put(
            note.scope, "supersede", note, changes, "consolidation", subject=f"Merge {len(replaced)} notes"
        )

    def dated(self, note: Note) -> Note:
        now = self._stamp()
        return replace(note, created_at=note.created_at or now, updated_at=now, confirmed_at=note.confirmed_at or now)

    def _read(self, scope: Scope, name: str) -> NoteFile | None:
        if name in self._untrusted(scope):
            return None  # changing it would approve what is in it
        try:
            parsed: ParsedNote = parse_note(name.rpartition("/")[2], self._stores[scope].read(name))
        except (FileRefused, FileNotFoundError):
            return None  # the store lists the reason
        return NoteFile(parsed.note, scope, name, parsed.problems)

    def _write(self, change: Change, note: Note, origin: Origin, trailers: Trailers | None = None) -> Written:
        return self._put(note.scope, change, note, {note.file_name: note_text(note)}, origin, trailers)

    def _put_all(
        self,
        change: Change,
        files: Sequence[NoteFile],
        changes_of: Callable[[NoteFile], dict[str, str | None]],
        origin: Origin,
    ) -> list[Written]:
        done: list[Written] = []
        for scope in self._stores:
            if own := [file for file in files if file.scope == scope]:
                changes = {name: text for file in own for name, text in changes_of(file).items()}
                written = self._put(scope, change, own[0].note, changes, origin)
                done += [replace(written, note=file.note) for file in own]
        return done

    def _put(
        self,
        scope: Scope,
        change: Change,
        note: Note,
        changes: Mapping[str, str | None],
        origin: Origin,
        trailers: Trailers | None = None,
        subject: str = "",
    ) -> Written:
        provenance = {ORIGIN: origin, SESSION: note.session_id, TURN: str(note.turn or ""), **(trailers or {})}
        subject = f"{subject or change.capitalize()}: {one_line(note.text, _SUBJECT_WIDTH)}"
        return Written(change, note, scope, self._commit(scope, changes, subject, provenance))

    def _save_and_commit(
        self, scope: Scope, changes: Mapping[str, str | None], subject: str, trailers: Trailers
    ) -> str:
        if scope not in self._stores:
            raise NoteError(f"The {scope} memory is off here.", "Turn it on.", ["memory on"])
        return self._stores[scope].save_and_commit(changes, subject, trailers)

    def _stamp(self) -> str:
        return timestamp(self._now())


def archived_files(file: NoteFile) -> dict[str, str | None]:
    return {file.name: None, f"{ARCHIVE}/{file.note.file_name}": note_text(file.note)}


def timestamp(at: datetime | None = None) -> str:
    """A time (default: now) as notes have it: `2026-11-21T20:31:00Z`."""
    return (at or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
