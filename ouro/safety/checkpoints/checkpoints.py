"""The checkpoints of one session: the files before its turns, and what its turns changed.

A turn that may run commands has a commit of all files before it. When the turn has ended, two small
commits keep the files that it changed, before and after. The files that tools change are kept one
by one, before they change.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from ouro.safety.checkpoints.checkpoint_repository import REFS, Repository, hash_file
from ouro.safety.checkpoints.file_index import CheckpointIndex, FilesNow
from ouro.safety.checkpoints.large_files import (
    LargeFile,
    changed_large,
    has_room,
    keep_content,
    key_now,
    remember_large,
)
from ouro.safety.checkpoints.nested_repositories import changed_inside, submodules
from ouro.safety.checkpoints.trees import (
    ABSENT,
    CommitNotes,
    FileState,
    TreeChange,
    changes_between,
    commit,
    is_inside,
    read_notes,
    small_trees,
)
from ouro.safety.checkpoints.turn_journal import (
    CutTurn,
    TurnJournal,
    TurnRecord,
    cut_turns,
    open_turns,
)
from ouro.utils.files import sweep_written_dirs

Moment = Literal["before", "after"]
MAX_FILE_BYTES = 5_000_000
_DAY = 86_400
_IN_MEMORY = 64_000_000
_NOT_KNOWN = "it may have been there before the turn: commands did not wait for the checkpoint"
_NOT_KEPT = "it changed before it was kept: commands did not wait for the checkpoint"


class TurnFiles(msgspec.Struct, frozen=True):
    """A turn with its checkpoints; an empty commit: no checkpoint."""

    number: int
    before: str = ""
    after: str = ""
    """Written by earlier versions: all files after the turn."""
    undone: str = ""
    """Set if the turn's changes of files were undone."""
    old: str = ""
    """The changed files before the turn."""
    new: str = ""
    """The changed files after the turn."""


class ChangedFiles(msgspec.Struct):
    """What a turn changed."""

    files: dict[str, TreeChange] = msgspec.field(default_factory=dict)
    unsure: set[str] = msgspec.field(default_factory=set)
    """Of these, files that others may have changed: the user is asked."""
    lost: dict[str, str] = msgspec.field(default_factory=dict)
    """Changed files that cannot be restored -> the reason."""


class Checkpoints:
    """The checkpoints of one session in one workspace. Everything blocks: use from a thread."""

    def __init__(
        self, root: Path, base: Path, session: str, max_file_bytes: int = MAX_FILE_BYTES
    ) -> None:
        self.repository = Repository(root, base)
        self.root, self.folder = self.repository.root, self.repository.folder
        self.session = session
        self.max_file_bytes = max_file_bytes
        self.index = CheckpointIndex(self.repository, max_file_bytes)
        self.undone_parts: list[Sequence[TreeChange]] = []
        """What `PartUndo` has undone in this process, and may redo; the last one is redone first."""
        self._journals: dict[int, TurnJournal] = {}
        self._guard = threading.Lock()
        self.left_out: frozenset[str] = frozenset()
        """What the last checkpoint left out: nested repositories, large and unreadable files."""
        self._taken: tuple[object, str, Path] = (None, "", self.folder)
        """What the last checkpoint holds, its commit and its ref."""
        self.is_undoing = False
        """An undo is written down, and this process carries it out."""

    def take(self, number: int, moment: Moment) -> ChangedFiles:
        """Keep the files before the turn that begins with message `number`, or what it changed.

        Raises:
            CheckpointError: git is missing or failed.
        """
        if moment == "before":
            self._take_before(number)
            return ChangedFiles()
        return self._take_after(number)

    def _take_before(self, number: int) -> None:
        """Commit the files before a turn, and write its ref. If nothing changed since the last
        checkpoint, its commit is used again.
        """
        journal = self._journals.get(number)
        self.index.changed_since = journal.record.began if journal else 0
        with self.repository.lock():
            found = self.index.look()
            self.left_out = found.left_out
            large = remember_large(self.repository, found.left_out)
            more = {
                "large": {name: [one.key, one.mode] for name, one in large.items()},
                "late": sorted(found.late),
            }
            content = (found, more, time.time() // _DAY)  # old ones are deleted by their date
            known, made, place = self._taken
            if (
                content != known or not place.is_file()
            ):  # unchanged, and no other ouro has deleted it
                more = {name: value for name, value in more.items() if value}
                made = commit(self.repository, found.tree, found.left_out, more)
            ref = self._ref(number, "before")
            self.repository.write_ref(ref, made)
            self._taken = (content, made, self.folder / ref)

    def _take_after(self, number: int) -> ChangedFiles:
        """Keep what a turn changed, and end its journal. If this fails, the journal stays for the
        next start.
        """
        journal = self._journals.pop(number, None)
        record = journal.record if journal else TurnRecord(self.session, number, began=1)
        is_done = False
        try:
            with self.repository.lock():
                changes = self._changes_of(record)
                self._keep(record, changes)
            is_done = True
        finally:
            if journal:
                journal.close(is_done=is_done)
        return changes

    def keep(self, number: int, path: Path) -> bool:
        """Keep a file that a tool is about to change; False if there is no room for it."""
        name = self._name(path)
        if not name or path.is_dir():
            return True  # not in the workspace, or the tool will refuse it
        with self._guard:
            journal = self._journal(number)
            if name in journal.record.kept:
                journal.append(kept=[name, *journal.record.kept[name]])
                return True
            state = self._keep_file(path)
            if state is None:
                return False
            journal.append(kept=[name, *state])
        return True

    def keep_written(self, number: int, path: Path) -> None:
        """Keep a file as a tool left it."""
        name = self._name(path)
        journal = self._journals.get(number)
        if not name or journal is None:
            return
        with self._guard, suppress(OSError):
            if (state := self._keep_file(path)) is not None:
                journal.append(written=[name, *state])

    def command_began(self, number: int, *, is_early: bool = False) -> None:
        """A command begins that may change any file.

        Args:
            is_early: the checkpoint before the turn is not complete.
        """
        with self._guard:
            journal = self._journal(number)
            journal.append(began=1)
            if is_early:
                self.index.changed_since = journal.record.began

    def note_command_end(self, number: int) -> None:
        """Write into the journal of the turn that a command has ended."""
        with self._guard:
            if journal := self._journals.get(number):
                journal.append(ended=1)

    def _journal(self, number: int) -> TurnJournal:
        if number not in self._journals:
            self.repository.create()
            self._journals[number] = TurnJournal(self.folder, self.session, number)
        return self._journals[number]

    def may_have_changed(self, number: int) -> bool:
        """Whether the turn has a journal: a tool or a command of it may have changed files."""
        return number in self._journals

    def changed_until_now(
        self, number: int, max_files: int
    ) -> dict[Path, tuple[bytes | None, bytes | None]]:
        """The contents before the turn and now of the files that it has changed until now; None: no
        such file. Empty if these are more than `max_files`, or there is no checkpoint.
        """
        with self.repository.lock():
            self.index.changed_since = 0
            found = self.index.look()
        before = self._ref(number, "before")
        changes = [*changes_between(self.repository, before, found.tree)]
        if len(changes) > max_files:
            return {}
        return {
            self.root / change.path: (self._content(change.old), self._content(change.new))
            for change in changes
        }

    def _content(self, state: FileState) -> bytes | None:
        return None if state == ABSENT else self.repository.read_blob(state[1])

    def release(self) -> list[int]:
        """Give up the journals of turns whose changes are not kept yet: another process can do it.

        Returns:
            Their numbers.
        """
        left = sorted(self._journals)
        for number in left:
            self._journals.pop(number).close(is_done=False)
        return left

    def has_turn_elsewhere(self) -> bool:
        """Whether another process keeps a turn of this session, or was killed before it had."""
        return any(number not in self._journals for number in open_turns(self.folder, self.session))

    def recover(self) -> list[CutTurn]:
        """Keep what turns changed whose ouro has ended before it did; returns these turns."""
        sweep_written_dirs(())  # a file that was half written is no change of a turn
        found = []
        for cut in cut_turns(self.folder, self.session, self._journals):
            with self.repository.lock():
                changes = self._changes_of(cut.record, cut)
                self._keep(cut.record, changes)
            cut.delete()
            found.append(cut)
        return found

    def turns(self) -> tuple[TurnFiles, ...]:
        """The turns of this session that have checkpoints, oldest first."""
        if not self.repository.exists:
            return ()
        found: dict[int, dict[str, str]] = {}
        words = ("--format=%(objectname) %(refname)", f"{REFS}/turns/{self.session}/")
        for line in self.repository.git("for-each-ref", *words).splitlines():
            made, ref = line.split(" ", 1)
            number, moment = ref.split("/")[-2:]
            if moment in TurnFiles.__struct_fields__:
                found.setdefault(int(number), {})[moment] = made
        return tuple(TurnFiles(number, **found[number]) for number in sorted(found))

    def changes(self, turn: TurnFiles) -> tuple[TreeChange, ...]:
        """The files that a turn changed; none if it has not ended."""
        return tuple(self.turn_changes(turn).files.values())

    def turn_changes(self, turn: TurnFiles) -> ChangedFiles:
        """What a turn changed, and what of it cannot be restored."""
        start, end = (turn.old, turn.new) if turn.new else (turn.before, turn.after)
        if not (start and end):
            return ChangedFiles()
        message = read_notes(self.repository, end)
        left_out = message.left_out | read_notes(self.repository, start).left_out
        found = changes_between(self.repository, start, end)
        files = {change.path: change for change in found if change.path not in left_out}
        return ChangedFiles(
            files, set(message.more.get("unsure", ())), dict(message.more.get("lost", {}))
        )

    def state(self, path: Path) -> FileState | None:
        """The mode and blob id of a file as git has them; None for a folder or a device."""
        return file_state(path)[0]

    def _write_content(self, state: FileState, content: bytes) -> None:
        if state != ABSENT:
            self.repository.write_object("blob", content)

    def _ref(self, number: int, moment: str, session: str = "") -> str:
        return f"{REFS}/turns/{session or self.session}/{number}/{moment}"

    def _name(self, path: Path) -> str:
        """A path relative to the workspace; empty if checkpoints do not have it."""
        try:
            parent = Path(os.path.realpath(path.parent))
            name = (parent / path.name).relative_to(self.root).as_posix()
        except (OSError, ValueError):
            return ""
        return (
            name
            if is_inside(name) and not name.startswith((".ouro/memory/", ".ouro/plans/"))
            else ""
        )

    def _keep_file(self, path: Path) -> FileState | None:
        """Keep a file's content; None if it is not a file, or there is no room for it."""
        status = path.lstat() if os.path.lexists(path) else None
        if status is not None and stat.S_ISREG(status.st_mode) and status.st_size > _IN_MEMORY:
            if not has_room(self.folder, status.st_size):
                return None
            mode = "100755" if status.st_mode & 0o100 else "100644"
            return mode, self.repository.write_large_blob(path)
        state, content = file_state(path)
        if state is not None:
            self._write_content(state, content)
        return state

    def _changes_of(self, record: TurnRecord, cut: CutTurn | None = None) -> ChangedFiles:
        """Compare the files before a turn with the files as they are."""
        changes = ChangedFiles()
        if record.began:
            self._compare_all(record, changes)
        later = self._kept_later(record)
        for name in set(later) & set(changes.files):
            changes.files[name] = TreeChange(name, *changes.files[name].old, *later[name])
        for name, old in record.kept.items():
            new = later.get(name) or record.written.get(name) or self._keep_file(self.root / name)
            changes.lost.pop(name, None)
            changes.unsure.discard(name)
            changes.files.pop(name, None)
            if new is not None and new != old:
                changes.files[name] = TreeChange(name, *old, *new)
        if cut is not None:
            not_by_tools = changes.files.keys() - record.written.keys()
            changes.unsure |= {
                name for name in not_by_tools if cut.is_unsure(name, str(self.root / name))
            }
        return changes

    def _kept_later(self, record: TurnRecord) -> dict[str, FileState]:
        """The files that tools of later turns of this process change already, as they were."""
        found: dict[str, FileState] = {}
        for number, journal in sorted(self._journals.items(), reverse=True):
            if number > record.number and record.session == self.session:
                found |= journal.record.kept
        return found

    def _compare_all(self, record: TurnRecord, changes: ChangedFiles) -> None:
        """Add what differs between the files before the turn and now to `changes`. Without a
        checkpoint from before, everything is unsure.
        """
        ref = self.folder / self._ref(record.number, "before", record.session)
        start, message = "", CommitNotes()
        if ref.is_file():
            start = ref.read_text().strip()
            message = read_notes(self.repository, start)
        elif (known := self.index.last()) is not None:
            start = commit(self.repository, known.tree)
        else:
            self._name_unknown(record, changes)
        self.index.changed_since = 0
        now = self.index.look()
        is_complete = ref.is_file()
        for change in changes_between(self.repository, start, now.tree):
            if change.path not in message.left_out | now.left_out:
                changes.files[change.path] = change
        if not is_complete:
            self._leave_unknown(changes)
        unsure = set(message.more.get("late", ())) if is_complete else set(changes.files)
        changes.unsure.update(unsure & set(changes.files))
        self._compare_left_out(record, message, now, changes)
        if record.began > 1:
            self._name_nested(record, now, changes)

    def _leave_unknown(self, changes: ChangedFiles) -> None:
        """Name what looks new beside an incomplete checkpoint: it may have been there before."""
        new = [change.path for change in changes.files.values() if change.old == ABSENT]
        for name in new:
            del changes.files[name]
            changes.lost[name] = _NOT_KNOWN

    def _name_unknown(self, record: TurnRecord, changes: ChangedFiles) -> None:
        """Name the files that changed since the first command: nothing was kept before it."""
        listed = self.repository.git_files("ls-files", "-z", "-o", "--exclude-standard")
        for name in os.fsdecode(listed).split("\0"):
            path = self.root / name
            if name and os.path.lexists(path) and path.lstat().st_ctime_ns > record.began:
                changes.lost[name] = _NOT_KEPT

    def _compare_left_out(
        self, record: TurnRecord, before: CommitNotes, now: FilesNow, changes: ChangedFiles
    ) -> None:
        """Add what happened to files that checkpoints leave out: from a kept copy, or as a loss
        with its reason.
        """
        large = {name: LargeFile(*words) for name, words in before.more.get("large", {}).items()}
        for name, one in changed_large(self.repository, large).items():
            change = self._large_change(name, one)
            if change is None:
                limit = _megabytes(self.max_file_bytes)
                changes.lost[name] = f"it was over {limit}, and its content was not kept"
            elif change.old != change.new:
                changes.files[name] = change
        limit = _megabytes(self.max_file_bytes)
        for name in now.left_out - before.left_out:
            if key_now(self.root / name):
                changes.lost[name] = f"it is over {limit} now"
        for name in before.left_out - set(large) - now.left_out:
            path = self.root / name
            with suppress(OSError):
                if record.began and path.lstat().st_ctime_ns > record.began > 1:
                    changes.lost[name] = _NOT_KEPT

    def _name_nested(self, record: TurnRecord, now: FilesNow, changes: ChangedFiles) -> None:
        """Name the nested repositories in which commands of the turn changed files."""
        kept = {*record.written, *changes.files}
        for name in {*now.left_out, *submodules(self.root)}:
            if reason := changed_inside(self.root, name, record.began, kept):
                changes.lost[name] = reason

    def _large_change(self, name: str, large: LargeFile) -> TreeChange | None:
        """A large file's change with its old content; None if that is lost."""
        blob = keep_content(self.repository, large)
        path = self.root / name
        if not blob:
            return None
        if not key_now(path):
            new = self._keep_file(path)
            return TreeChange(name, large.mode, blob, *new) if new else None
        with path.open("rb") as file:
            mode = "100755" if os.fstat(file.fileno()).st_mode & 0o100 else "100644"
            return TreeChange(name, large.mode, blob, mode, hash_file(file))

    def _join_earlier(self, record: TurnRecord, changes: ChangedFiles) -> None:
        """Add what is kept of the turn already: its subagents may have gone on after its end."""
        refs = {
            moment: self._ref(record.number, moment, record.session) for moment in ("old", "new")
        }
        if not all((self.folder / ref).is_file() for ref in refs.values()):
            return
        made = {moment: (self.folder / ref).read_text().strip() for moment, ref in refs.items()}
        earlier = self.turn_changes(TurnFiles(record.number, old=made["old"], new=made["new"]))
        changes.lost = earlier.lost | changes.lost
        for name, change in earlier.files.items():
            new = changes.files[name].new if name in changes.files else change.new
            changes.files[name] = TreeChange(name, *change.old, *new)

    def _keep(self, record: TurnRecord, changes: ChangedFiles) -> None:
        """Write the two small commits of a turn; what they have already stays."""
        self._join_earlier(record, changes)
        wanted = set[str]()
        for change in changes.files.values():
            wanted.update(blob for mode, blob in (change.old, change.new) if mode != ABSENT[0])
        gone = self.repository.copy_objects(wanted)
        for change in tuple(changes.files.values()):
            if change.old_blob in gone:
                changes.lost[change.path] = "its old content is not in the repository any more"
                del changes.files[change.path]
        old, new = small_trees(self.repository, tuple(changes.files.values()))
        more: Mapping[str, object] = {"unsure": sorted(changes.unsure), "lost": changes.lost}
        for moment, tree in (("old", old), ("new", new)):
            made = commit(self.repository, tree, (), more if moment == "new" else None)
            self.repository.write_ref(self._ref(record.number, moment, record.session), made)


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:g} MB"


def file_state(path: Path) -> tuple[FileState | None, bytes]:
    """The mode and blob id of a file as git has them, and its content; None for a folder or a
    device.
    """
    try:
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            mode, content = "120000", os.fsencode(path.readlink())
        elif stat.S_ISREG(found.st_mode):
            mode, content = "100755" if found.st_mode & 0o100 else "100644", path.read_bytes()
        else:
            return None, b""
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT, b""
    header = b"blob %d\0" % len(content)
    return (mode, hashlib.sha1(header + content, usedforsecurity=False).hexdigest()), content
