"""What the store of long-term memory gives: files, commits, edits, as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

Scope = Literal["user", "repo"]
Origin = Literal["agent", "person", "outside", "capture", "consolidation", "import", "undo", "sync"]
"""Who a commit comes from: its trailer `Ouro-Origin`."""
CORE = ("decisions", "preferences", "facts")
"""The categories of the core, each in `<category>.md`, as they are shown; `memory.core` adds some."""
ORIGIN, SESSION, TURN, MESSAGE = "Ouro-Origin", "Ouro-Session", "Ouro-Turn", "Ouro-Message"
"""The trailers that say whence a commit is; the message is what the person said in that turn."""
UNDOES = "Ouro-Undoes"
"""The trailer that names the commits that one takes back."""


class SkippedFile(msgspec.Struct, frozen=True):
    """A file that was looked at and not taken."""

    name: str
    reason: str


class LoadedScope(msgspec.Struct, frozen=True):
    """One scope as it was read: what is injected, and what `has_changed_since_load` compares with."""

    scope: Scope
    folder: str
    head: str
    """The commit; empty before the first one, or where the history cannot be read."""
    core: Mapping[str, str]
    """Category -> text; those that are empty or not there are left out."""
    notes: tuple[str, ...] = ()
    """The names of the notes, relative to the folder, those in `archive/` among them."""
    skipped: tuple[SkippedFile, ...] = ()
    files: Mapping[str, str] = {}
    """Name -> fingerprint of each file that was seen."""


class FileEdit(msgspec.Struct, frozen=True):
    """What became of one file. No text: it was not there."""

    name: str
    before: str | None
    after: str | None


class Commit(msgspec.Struct, frozen=True):
    """One entry of the history."""

    id: str
    at: str
    """ISO 8601 with the zone it was made in."""
    subject: str
    trailers: Mapping[str, str] = {}
    paths: tuple[str, ...] = ()
    """The files that it changed."""
    author: str = ""
    parent: str = ""
    """The commit before it; empty for the first."""

    @property
    def origin(self) -> str:
        """Who it says it comes from; "outside" where it says nothing: nobody vouches for a trailer."""
        return self.trailers.get(ORIGIN, "outside")


class DiffHunk(msgspec.Struct, frozen=True):
    """One change of a commit in one file: the lines `before` gave way to the lines `after`."""

    number: int
    """Counted over the whole commit, from 1."""
    name: str
    start: int
    """Where `after` begins in the file as the commit left it, from 0."""
    before: tuple[str, ...]
    after: tuple[str, ...]

    def other_half(self, hunks: Iterable[DiffHunk]) -> DiffHunk | None:
        """Where the file only went to another folder: what it did there, or there before; else None."""
        base = self.name.rpartition("/")[2]
        for each in hunks:
            is_same_file = each.name != self.name and each.name.rpartition("/")[2] == base
            if is_same_file and (bool(each.before), bool(each.after)) == (not self.before, not self.after):
                return each
        return None


class UndoResult(msgspec.Struct, frozen=True):
    """What became of taking a commit back, or with it all that the agent wrote in its turn."""

    commit: str
    """The commit that takes it back; empty where nothing could be, or where no commit could be made."""
    edits: tuple[FileEdit, ...]
    conflicts: tuple[DiffHunk, ...]
    """What was left as it is, because its lines have changed since."""
    commits: tuple[Commit, ...] = ()
    """All that were taken back, the latest first."""


class BlamedLine(msgspec.Struct, frozen=True):
    """One line of a file and the commit that it is from."""

    number: int
    text: str
    commit: Commit
