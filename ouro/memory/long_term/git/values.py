"""The values of long-term memory's store: files, commits, hunks."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Literal

import msgspec

from ouro.utils.text import whole_number

Scope = Literal["user", "repo"]
Origin = Literal["agent", "person", "outside", "capture", "consolidation", "import", "undo", "sync"]
CORE = ("decisions", "preferences", "facts")
"""The categories of the core, each in `<category>.md`, as they are shown; `memory.core` adds some.
"""
ORIGIN, SESSION, TURN, MESSAGE = "Ouro-Origin", "Ouro-Session", "Ouro-Turn", "Ouro-Message"
"""Trailers with the source of a commit; the message is what the user wrote in that turn."""
CLIENT = "Ouro-Client"
"""The trailer with the name of the program that asked for a change, through `ouro mcp serve`."""
UNDOES, REWIND = "Ouro-Undoes", "Ouro-Rewind"
"""Trailers with the commits that a commit undoes, and with the message that a rewind went back to.
"""

GONE = "-"
"""Stands for the content of a file that was removed."""
APPROVED, ACCEPTED, BEFORE = LEDGER_FILES = ("vouched", "accepted", "accepted.before")
"""Records of what was approved: contents, the accepted commit, and the one accepted before it."""


class SkippedFile(msgspec.Struct, frozen=True):
    """A file of memory that is not read, and the reason."""

    name: str
    reason: str


class LoadedScope(msgspec.Struct, frozen=True, dict=True):
    """The files of one scope at one moment."""

    head: str = ""
    """The commit; empty before the first one, or if the history cannot be read."""
    core: Mapping[str, str] = {}
    """Category -> text, without empty ones."""
    notes: tuple[str, ...] = ()
    """File names relative to the folder, including those in `archive/`."""
    skipped: tuple[SkippedFile, ...] = ()
    files: Mapping[str, str] = {}
    """Name -> fingerprint of each file."""
    listed_at: float = -math.inf
    """When the files were listed, by the monotonic clock."""
    folder_state: Mapping[str, str] = {}
    """What `GitMemoryStore.folder_state` returned before the files were listed."""
    refused: Mapping[str, str] = {}
    """Name -> why a file is not read, except for its text."""
    is_listed: bool = True
    """False: the files are those of a recorded listing. One that was changed in place since is not
    noticed.
    """
    has_no_acting_file: bool = False
    """That of a recorded listing."""
    recorded_fingerprint: str = ""
    """The fingerprint of a recorded listing."""

    @cached_property
    def fingerprint(self) -> str:
        """A text that changes whenever the core or a note file changes."""
        if self.recorded_fingerprint:
            return self.recorded_fingerprint
        notes = [(name, self.files.get(name, "")) for name in self.notes]
        return hashlib.sha256(msgspec.json.encode((self.core, notes))).hexdigest()


class RecordedListing(msgspec.Struct, frozen=True):
    """A listing of a memory folder in which all is accepted, recorded for the next start."""

    folder_state: Mapping[str, str] = msgspec.field(default_factory=dict, name="places")
    """What `GitMemoryStore.folder_state` returned before: while it returns the same, no file was
    added, removed or replaced. Empty: there is no listing.
    """
    notes: Mapping[str, str] = {}
    """Name -> fingerprint of each note."""
    others: Mapping[str, str] = {}
    """Name -> fingerprint of each other file."""
    refused: Mapping[str, str] = {}
    """Name -> why a file is not read."""
    fingerprint: str = ""
    """The fingerprint of the loaded files."""
    has_no_acting_file: bool = False
    """Whether no file is there that plain git obeys, and no folder in which one can be added without
    a change of `folder_state`.
    """


class FileEdit(msgspec.Struct, frozen=True):
    """A change of one file. None: the file does not exist."""

    name: str
    before: str | None
    after: str | None


Edits = Sequence[FileEdit]
"""The edits of one file, in their order."""


class Commit(msgspec.Struct, frozen=True):
    """A commit of a memory, as it is shown."""

    id: str
    at: str
    """ISO 8601, in the time zone in which it was made."""
    subject: str
    trailers: Mapping[str, str] = {}
    paths: tuple[str, ...] = ()
    """The files that it changed."""
    author: str = ""
    parent: str = ""
    """Empty for the first commit."""

    @property
    def origin(self) -> str:
        """The origin trailer, which can be forged; "outside" if there is none."""
        return self.trailers.get(ORIGIN, "outside")

    @property
    def source(self) -> TurnRef:
        """The turn that made it, by its trailers; without a session if none did."""
        numbers = [self.trailers.get(name, "") for name in (TURN, MESSAGE)]
        turn, message = [whole_number(text) or 0 for text in numbers]
        return TurnRef(self.trailers.get(SESSION, ""), turn, message)


class DiffHunk(msgspec.Struct, frozen=True):
    """A place in a file where the lines `after` replaced the lines `before`."""

    number: int
    """Counted over the whole commit, from 1."""
    name: str
    start: int
    """Where `after` begins in the new file, from 0."""
    before: tuple[str, ...]
    after: tuple[str, ...]

    def other_half(self, hunks: Iterable[DiffHunk]) -> DiffHunk | None:
        """The other half of a move to another folder, if this hunk is one half. One hunk removes a
        file, and the other adds a file of the same name in another folder. None if `hunks` hold no
        such hunk.
        """
        for hunk in hunks:
            has_same_name = hunk.name.rpartition("/")[2] == self.name.rpartition("/")[2]
            is_in_other_folder = hunk.name != self.name
            # One hunk only adds lines, the other one only removes them.
            removes_differ = bool(hunk.before) != bool(self.before)
            adds_differ = bool(hunk.after) != bool(self.after)
            is_opposite = removes_differ and adds_differ
            if has_same_name and is_in_other_folder and is_opposite:
                return hunk
        return None


class UndoResult(msgspec.Struct, frozen=True):
    """What an undo has changed, and what it could not."""

    commit: str
    """The undo commit; empty if nothing was left to undo, or no commit could be made."""
    edits: tuple[FileEdit, ...]
    conflicts: tuple[DiffHunk, ...]
    """Hunks that were not undone, because their lines have changed since."""
    commits: tuple[Commit, ...] = ()
    """All commits that were undone, latest first."""


class BlamedLine(msgspec.Struct, frozen=True):
    """A line of a file, with the commit that wrote it."""

    number: int
    text: str
    commit: Commit


class TurnRef(msgspec.Struct, frozen=True):
    """The session, turn and message in which something was written."""

    session: str = ""
    turn: int = 0
    message: int = 0
    """The number of the user's message; 0: not known."""
    client: str = ""
    """The program that asked for the change, if it is not ouro."""
    rewind: int = 0
    """The message to which a rewind goes back, by its number; 0: it is not a rewind."""

    def trailers(self, origin: Origin) -> dict[str, str]:
        """The trailers of a commit that was made in this turn; numbers that are not known are left
        out.
        """
        numbers = {TURN: self.turn, MESSAGE: self.message, REWIND: self.rewind}
        client = {CLIENT: self.client} if self.client else {}
        return {
            ORIGIN: origin,
            SESSION: self.session,
            **{name: str(n) for name, n in numbers.items() if n},
            **client,
        }


NO_TURN = TurnRef()
"""The turn of changes that are made outside of any session."""
