"""Notebook: the notes of all scopes, kept as files, each change a commit that can be taken back."""

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
    Anchor,
    Edge,
    Note,
    ParsedNote,
    Relationship,
    is_note_name,
    note_text,
    parse_note,
)
from ouro.memory.long_term.store import GitMemoryStore

_SUBJECT_WIDTH = 80
_MORE_SURE = 0.15
"""What one confirmation adds to the confidence in what was only concluded."""
Change = Literal[
    "add", "supersede", "refine", "contradict", "relate", "confirm", "archive", "restore", "rewrite", "share"
]
Trailers = Mapping[str, str]
_CHANGES: Mapping[Relationship, Change] = {"refines": "refine", "contradicts": "contradict", "relates-to": "relate"}


class NoteFile(msgspec.Struct, frozen=True):
    """A note as its file holds it."""

    note: Note
    scope: Scope
    name: str
    """The file, below the scope's folder; in `archive/` where it has faded or was put away."""
    complaints: tuple[str, ...] = ()

    @property
    def archived(self) -> bool:
        """Whether it is kept, but not recalled."""
        return self.name.startswith(f"{ARCHIVE}/")


class Written(msgspec.Struct, frozen=True):
    """A change of a note that was made."""

    change: Change
    note: Note
    scope: Scope
    commit: str
    """What takes it back when it is undone; empty where no commit could be made."""


class Notebook:
    """Every method reads or writes files: use from a thread.

    Args:
        stores: where the notes of each scope are.
        latest: the last version of a note, by the id of any of its versions (`Graph.latest`).
        now: the time, for what is written.
        doubted: the files of a scope that hold what nobody has vouched for: they are neither found nor changed.
    """

    def __init__(
        self,
        stores: Mapping[Scope, GitMemoryStore],
        latest: Callable[[str], str] = str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        doubted: Callable[[Scope], Collection[str]] = lambda _scope: (),
    ) -> None:
        self._stores = stores
        self._doubted = doubted
        self._latest = latest
        self._now = now

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The scopes that there are here."""
        return tuple(self._stores)

    def all(self, *, archived: bool = False) -> Iterator[NoteFile]:
        """The notes of all scopes, of the archive too where `archived`; what cannot be read is passed over."""
        for scope, store in self._stores.items():
            for name in store.load_all().notes:
                if (name.startswith(f"{ARCHIVE}/") and not archived) or not is_note_name(name.rpartition("/")[2]):
                    continue
                if kept := self._read(scope, name):
                    yield kept

    def find(self, note_id: str) -> NoteFile:
        """The note of that id, in whatever scope, in the archive too.

        Raises:
            NoteError: there is none, or nobody has vouched for what its file holds.
        """
        if is_note_name(f"{note_id}.md"):
            for scope in self._stores:
                for name in (f"{note_id}.md", f"{ARCHIVE}/{note_id}.md"):
                    if kept := self._read(scope, name):
                        return kept
                    if name in self._doubted(scope):
                        raise NoteError(
                            f"{note_id[:12]} was changed outside of ouro, and nobody has vouched for that yet.",
                            "Accept or reject the change first.",
                            ["memory list"],
                        )
        raise NoteError(f"There is no note {note_id[:60]}.", commands=["memory list"])

    def add(self, note: Note, origin: Origin, trailers: Trailers | None = None) -> Written:
        """Keep a new note; `trailers` say more of the commit.

        Raises:
            SecretInMemory: it holds a secret; nothing was written.
            LongTermMemoryError, OSError: it could not be written.
        """
        return self._write("add", self.dated(note), origin, trailers)

    def supersede(self, note_id: str, note: Note, origin: Origin, trailers: Trailers | None = None) -> Written:
        """Keep a note in the place of an older one, which stays.

        Raises:
            NoteError: there is no such note.
            SecretInMemory, LongTermMemoryError, OSError: as `add`.
        """
        return self._write("supersede", self.dated(self.successor(note_id, note)), origin, trailers)

    def connect(
        self,
        note: Note,
        note_id: str,
        relationship: Relationship,
        origin: Origin,
        trailers: Trailers | None = None,
    ) -> Written:
        """Keep a new note that refines, contradicts or has to do with another one.

        Raises:
            NoteError: there is no such note.
            SecretInMemory, LongTermMemoryError, OSError: as `add`.
        """
        tied = self.tied(note, note_id, relationship)
        return self._write(_CHANGES[relationship], self.dated(tied), origin, trailers)

    def successor(self, note_id: str, note: Note) -> Note:
        """The note as what takes the place of another one: a chain is linear, so behind its last version.

        Raises:
            NoteError: there is no such note.
        """
        old = self.find(self._latest(note_id)).note
        return replace(note, supersedes=old.id, version=old.version + 1)

    def tied(self, note: Note, note_id: str, relationship: Relationship) -> Note:
        """The note with an edge to the last version of another one.

        Raises:
            NoteError: there is no such note.
        """
        other = self.find(self._latest(note_id)).note
        return replace(note, related=(*note.related, Edge(other.id, relationship)))

    def confirm(
        self,
        note_id: str,
        origin: Origin,
        trailers: Trailers | None = None,
        anchors: Callable[[Note], tuple[Anchor, ...]] | None = None,
    ) -> Written:
        """Note that it still holds: it was said again, or borne out. `anchors` gives what it speaks of as of now.

        Raises:
            NoteError: there is no such note.
            LongTermMemoryError, OSError: it could not be written.
        """
        kept = self.find(self._latest(note_id))
        confidence = min(1.0, kept.note.confidence + _MORE_SURE)
        note = replace(kept.note, confidence=confidence, confirmed_at=self._stamp())
        if anchors is not None:
            note = replace(note, anchors=anchors(note))
        moved: dict[str, str | None] = {kept.name: None} if kept.archived else {}
        return self._put(kept.scope, "confirm", note, {**moved, note.file_name: note_text(note)}, origin, trailers)

    def archive(self, note_ids: Sequence[str], origin: Origin) -> list[Written]:
        """Put notes away: kept, but not recalled. One commit a scope.

        Raises:
            NoteError: one of them is not there.
            LongTermMemoryError, OSError: it could not be written.
        """
        found = [each for each in map(self.find, note_ids) if not each.archived]
        done: list[Written] = []
        for scope in self._stores:
            moved = [each for each in found if each.scope == scope]
            if not moved:
                continue
            changes: dict[str, str | None] = {}
            for each in moved:
                changes |= {each.name: None, f"{ARCHIVE}/{each.note.file_name}": note_text(each.note)}
            written = self._put(scope, "archive", moved[0].note, changes, origin)
            done += [replace(written, note=each.note) for each in moved]
        return done

    def restore(self, note_id: str, origin: Origin) -> Written:
        """Take a note out of the archive; it counts as confirmed.

        Raises:
            NoteError: there is none of that id.
            LongTermMemoryError, OSError: it could not be written.
        """
        kept = self.find(note_id)
        note = replace(kept.note, confirmed_at=self._stamp(), confidence=max(kept.note.confidence, 0.5))
        changes: dict[str, str | None] = {note.file_name: note_text(note)}
        return self._put(
            kept.scope, "restore", note, {**changes, **({kept.name: None} if kept.archived else {})}, origin
        )

    def share(self, note_ids: Iterable[str], origin: Origin) -> list[Written]:
        """Let notes that were known on a branch only be known to all. One commit a scope.

        Raises:
            NoteError: one of them is not there.
            LongTermMemoryError, OSError: it could not be written.
        """
        found = [self.find(each) for each in note_ids]
        done: list[Written] = []
        for scope in self._stores:
            shared = [(each.name, replace(each.note, branch=None)) for each in found if each.scope == scope]
            if shared:
                changes: dict[str, str | None] = {name: note_text(note) for name, note in shared}
                written = self._put(scope, "share", shared[0][1], changes, origin)
                done += [replace(written, note=note) for _, note in shared]
        return done

    def rewrite(self, note: Note, origin: Origin) -> Written:
        """Change a note where it stands, as a person would in an editor; a new scope moves it there.

        Raises:
            NoteError: there is no such note.
            SecretInMemory, LongTermMemoryError, OSError: as `add`.
        """
        kept = self.find(note.id)
        note = replace(note, updated_at=self._stamp())
        if note.scope == kept.scope:
            changes: dict[str, str | None] = {kept.name: note_text(note)}
            return self._put(kept.scope, "rewrite", note, changes, origin)
        written = self._write("rewrite", note, origin)
        self._put(kept.scope, "rewrite", note, {kept.name: None}, origin)
        return written

    def store(self, scope: Scope) -> GitMemoryStore:
        """Where the notes of a scope are.

        Raises:
            NoteError: that scope is off here.
        """
        if scope not in self._stores:
            raise NoteError(f"There is no memory of the scope `{scope}` here.", commands=["memory on"])
        return self._stores[scope]

    def _read(self, scope: Scope, name: str) -> NoteFile | None:
        if name in self._doubted(scope):
            return None  # it waits for the person: what is changed in it would count as vouched for
        try:
            parsed: ParsedNote = parse_note(name.rpartition("/")[2], self._stores[scope].read(name))
        except (FileRefused, FileNotFoundError):
            return None  # the store's own list says of each why it is left out
        return NoteFile(parsed.note, scope, name, parsed.complaints)

    def _write(self, change: Change, note: Note, origin: Origin, trailers: Trailers | None = None) -> Written:
        return self._put(note.scope, change, note, {note.file_name: note_text(note)}, origin, trailers)

    def _put(
        self,
        scope: Scope,
        change: Change,
        note: Note,
        changes: Mapping[str, str | None],
        origin: Origin,
        trailers: Trailers | None = None,
    ) -> Written:
        words = " ".join(note.text.split())
        short = words if len(words) <= _SUBJECT_WIDTH else words[: _SUBJECT_WIDTH - 1] + "…"
        whence = {ORIGIN: origin, SESSION: note.session_id, TURN: str(note.turn or ""), **(trailers or {})}
        commit = self.store(scope).save_and_commit(changes, f"{change.capitalize()}: {short}", whence)
        return Written(change, note, scope, commit)

    def dated(self, note: Note) -> Note:
        """The note with the time of now, where it has none."""
        now = self._stamp()
        return replace(note, created_at=note.created_at or now, updated_at=now, confirmed_at=note.confirmed_at or now)

    def _stamp(self) -> str:
        return self._now().astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
