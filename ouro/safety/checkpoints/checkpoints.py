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

import msgspec

from ouro.safety.checkpoints.branch_switches import files_of_switch
from ouro.safety.checkpoints.checkpoint_repository import REFS, Repository, hash_file
from ouro.safety.checkpoints.file_index import CheckpointIndex, FilesNow
from ouro.safety.checkpoints.ignored_files import IgnoredFiles
from ouro.safety.checkpoints.large_files import (
    LargeFile,
    changed_large,
    git_mode,
    has_room,
    keep_content,
    key_now,
    remember_large,
)
from ouro.safety.checkpoints.nested_repositories import changed_inside, submodules
from ouro.safety.checkpoints.trees import (
    ABSENT,
    LINK_MODE,
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
from ouro.utils.git import git_branch

MAX_FILE_BYTES = 5_000_000
"""Checkpoints leave out larger files, unless the settings name another limit."""
_DAY = 86_400
_MAX_BYTES_IN_MEMORY = 64_000_000
"""Larger files are written into the repository piece by piece."""
# Why a file cannot be restored.
_NOT_KNOWN = "it may have been there before the turn: commands did not wait for the checkpoint"
_NOT_KEPT = "it changed before it was kept: commands did not wait for the checkpoint"
_IGNORED = "git ignores it, and only small texts of what it ignores are kept"
_BEGAN_UNKNOWN = 1
"""`TurnRecord.began` of a turn without a journal: commands may have run, at a time not known."""


class TurnFiles(msgspec.Struct, frozen=True):
    """A turn and the commits of its checkpoints; each is empty if there is none."""

    number: int
    before: str = ""
    """All files before the turn."""
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
    """Files of `files` that others may have changed: the user is asked before they are restored."""
    lost: dict[str, str] = msgspec.field(default_factory=dict)
    """The reason why a changed file cannot be restored, by its name."""
    permissions: dict[str, int] = msgspec.field(default_factory=dict)
    """The permissions that ignored files of `files` had before the turn: they may hold secrets."""


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
        self.ignored = IgnoredFiles(self.repository)
        self.undone_parts: list[Sequence[TreeChange]] = []
        """What `PartUndo` has undone in this process, and may redo; the last one is redone
        first.
        """
        self._journals: dict[int, TurnJournal] = {}
        """The journals of the turns that this process holds, by their numbers."""
        self._journal_lock = threading.Lock()
        """Held while a journal is begun or written: tools run in parallel threads."""
        self.left_out: frozenset[str] = frozenset()
        """What the last checkpoint left out: nested repositories, large and unreadable files."""
        self._last_checkpoint: tuple[object, str, Path] = (None, "", self.folder)
        """What the last checkpoint holds, its commit, and the file of its ref."""
        self.is_undoing = False
        """Whether an undo is written down that this process carries out."""

    def take_before(self, number: int) -> None:
        """Make the checkpoint before the turn that begins with message `number`: it stores all files.
        Raises CheckpointError: git is missing or failed.

        All files are committed, and the ref `before` of the turn names the commit. If nothing
        changed since the last checkpoint, the ref names the commit of that one.

        Notes in the commit name the large files that it leaves out, and the files of which it may
        hold an earlier state (`late`).
        """
        journal = self._journals.get(number)
        self.index.changed_since = journal.record.began if journal else 0
        with self.repository.lock():
            now = self.index.refresh()
            self.left_out = now.left_out
            large = remember_large(self.repository, now.left_out)
            notes = {
                "large": {name: [file.key, file.mode] for name, file in large.items()},
                "late": sorted(now.late),
                "branch": git_branch(self.root),
                **self.ignored.keep(),
            }
            # With the day: commits are deleted by their date, so an old one is not used again.
            content = (now, notes, time.time() // _DAY)
            last_content, commit_id, ref_file = self._last_checkpoint
            # The ref may have been deleted by another ouro, and the commit with it.
            if content != last_content or not ref_file.is_file():
                notes = {name: value for name, value in notes.items() if value}
                commit_id = commit(self.repository, now.tree, names=now.left_out, details=notes)
            ref = self._turn_ref(number, "before")
            self.repository.write_ref(ref, commit_id)
            self._last_checkpoint = (content, commit_id, self.folder / ref)

    def take_after(self, number: int) -> ChangedFiles:
        """Make the checkpoint after a turn: record what the turn changed, end its journal, and return
        the changes. If this fails, the journal stays on disk, and the next start of ouro records
        them. Raises as `take_before`.
        """
        journal = self._journals.pop(number, None)
        without_journal = TurnRecord(self.session, number, began=_BEGAN_UNKNOWN)
        record = journal.record if journal else without_journal
        is_done = False
        try:
            with self.repository.lock():
                changes = self._find_changes(record)
                self._commit_changes(record, changes)
            is_done = True
        finally:
            if journal:
                journal.close(is_done=is_done)
        return changes

    def keep(self, number: int, path: Path) -> bool:
        """Store the content of a file that a tool is about to change. Returns False if it cannot be
        stored, because it is not a regular file or there is no room for it.

        Returns True without storing anything if the content is stored already for this turn, or if
        checkpoints do not have the file.
        """
        name = self._name_in_workspace(path)
        if not name or path.is_dir():
            return True  # not in the workspace, or the tool will refuse it
        with self._journal_lock:
            journal = self._journal(number)
            if name in journal.record.kept:
                # Written again, because the journal also records when a tool begins to write.
                journal.append(kept=[name, *journal.record.kept[name]])
                return True
            state = self._store_file(path)
            if state is None:
                return False
            journal.append(kept=[name, *state])
        return True

    def keep_written(self, number: int, path: Path) -> None:
        """Store the content of a file as a tool left it. A failure is ignored."""
        name = self._name_in_workspace(path)
        journal = self._journals.get(number)
        if not name or journal is None:
            return
        with self._journal_lock, suppress(OSError):
            if (state := self._store_file(path)) is not None:
                journal.append(written=[name, *state])

    def note_command_start(self, number: int, *, is_early: bool = False) -> None:
        """Write into the journal of the turn that a command begins, which may change any file.

        Args:
            is_early: whether the checkpoint before the turn is not complete yet. Files that change
                from now on may then be missing in it.
        """
        with self._journal_lock:
            journal = self._journal(number)
            journal.append(began=1)
            if is_early:
                self.index.changed_since = journal.record.began

    def note_command_end(self, number: int) -> None:
        """Write into the journal of the turn that a command has ended."""
        with self._journal_lock:
            if journal := self._journals.get(number):
                journal.append(ended=1)

    def _journal(self, number: int) -> TurnJournal:
        """Returns the journal of a turn. If there is none, a new one is begun."""
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
        """Returns the files that the turn has changed until now, each with its content before the
        turn and now. A content is None if the file did not exist, or does not exist now.

        Empty if there are more than `max_files`. Raises CheckpointError: there is no checkpoint.
        """
        with self.repository.lock():
            self.index.changed_since = 0  # also files that a command may have changed are updated
            now = self.index.refresh()
        before = self._turn_ref(number, "before")
        changes = [*changes_between(self.repository, before, now.tree)]
        if len(changes) > max_files:
            return {}
        return {
            self.root / change.path: (
                self._read_content(change.old),
                self._read_content(change.new),
            )
            for change in changes
        }

    def _read_content(self, state: FileState) -> bytes | None:
        """Returns the content that a file has in this state; None if it does not exist."""
        return None if state == ABSENT else self.repository.read_blob(state.blob)

    def release(self) -> list[int]:
        """Close the journals of the turns whose changes are not recorded yet, so that another
        process can record them. Returns the numbers of these turns.
        """
        numbers = sorted(self._journals)
        for number in numbers:
            self._journals.pop(number).close(is_done=False)
        return numbers

    def has_turn_elsewhere(self) -> bool:
        """Whether a turn of this session has a journal that this process does not hold. Another
        process records its changes now, or was killed before it recorded them.
        """
        return any(number not in self._journals for number in open_turns(self.folder, self.session))

    def recover(self) -> list[CutTurn]:
        """Record the changes of turns that were cut off: the ouro process ended before it recorded
        them. Returns these turns.
        """
        # Half-written files are not changes of a turn.
        sweep_written_dirs(ouro_folders=())
        recovered = []
        for cut in cut_turns(self.folder, self.session, self._journals):
            with self.repository.lock():
                changes = self._find_changes(cut.record, cut)
                self._commit_changes(cut.record, changes)
            cut.delete()
            recovered.append(cut)
        return recovered

    def turns(self) -> tuple[TurnFiles, ...]:
        """Returns the turns of this session that have checkpoints, oldest first."""
        if not self.repository.exists:
            return ()
        commits_by_turn: dict[int, dict[str, str]] = {}
        words = ("--format=%(objectname) %(refname)", f"{REFS}/turns/{self.session}/")
        for line in self.repository.git("for-each-ref", *words).splitlines():
            commit_id, ref = line.split(" ", 1)
            number, moment = ref.split("/")[-2:]
            if moment in TurnFiles.__struct_fields__:  # a newer ouro may have other refs
                commits_by_turn.setdefault(int(number), {})[moment] = commit_id
        return tuple(
            TurnFiles(number, **commits_by_turn[number]) for number in sorted(commits_by_turn)
        )

    def changes(self, turn: TurnFiles) -> tuple[TreeChange, ...]:
        """Returns the changes of files of a turn; empty if the turn has not ended."""
        return tuple(self.turn_changes(turn).files.values())

    def turn_changes(self, turn: TurnFiles) -> ChangedFiles:
        """Returns what a turn changed, and which of these files cannot be restored. The result is
        empty if the turn has not ended.
        """
        if turn.new:
            start, end = turn.old, turn.new
        else:
            start, end = turn.before, turn.after
        if not (start and end):
            return ChangedFiles()
        end_notes = read_notes(self.repository, end)
        left_out = end_notes.left_out | read_notes(self.repository, start).left_out
        differences = changes_between(self.repository, start, end)
        files = {change.path: change for change in differences if change.path not in left_out}
        return ChangedFiles(
            files,
            set(end_notes.details.get("unsure", ())),
            dict(end_notes.details.get("lost", {})),
            dict(end_notes.details.get("permissions", {})),
        )

    def state(self, path: Path) -> FileState | None:
        """Returns the state of a file as it is now; None for a folder or a device."""
        return state_of(path)

    def _write_content(self, state: FileState, content: bytes) -> None:
        """Write the content of a file into the repository, unless the file does not exist."""
        if state != ABSENT:
            self.repository.write_object("blob", content)

    def _turn_ref(self, number: int, moment: str, session: str = "") -> str:
        """Returns the ref of a checkpoint of a turn; `moment` is a field of `TurnFiles`. `session`
        is the session of the turn; empty: the session of this object.
        """
        return f"{REFS}/turns/{session or self.session}/{number}/{moment}"

    def _name_in_workspace(self, path: Path) -> str:
        """Returns the path of a file relative to the workspace. Empty if checkpoints do not have
        it: it is outside, in `.git`, or ouro keeps its history elsewhere (memory and plans).
        """
        try:
            parent = Path(os.path.realpath(path.parent))  # a link itself is not followed
            name = (parent / path.name).relative_to(self.root).as_posix()
        except (OSError, ValueError):
            return ""
        is_kept_by_ouro = name.startswith((".ouro/memory/", ".ouro/plans/"))
        return name if is_inside(name) and not is_kept_by_ouro else ""

    def _store_file(self, path: Path) -> FileState | None:
        """Write the content of a file into the repository, and return the state of the file. The
        state is `ABSENT` if the file does not exist. It is None, and nothing is written, for a
        folder, a device, and a large file for which there is no room.
        """
        status = path.lstat() if os.path.lexists(path) else None
        is_file = status is not None and stat.S_ISREG(status.st_mode)
        if status is not None and is_file and status.st_size > _MAX_BYTES_IN_MEMORY:
            if not has_room(self.folder, status.st_size):
                return None
            return FileState(git_mode(status), self.repository.write_large_blob(path))
        state, content = state_and_content(path)
        if state is not None:
            self._write_content(state, content)
        return state

    def _find_changes(self, record: TurnRecord, cut: CutTurn | None = None) -> ChangedFiles:
        """Returns what a turn changed: the difference between the files before it and the files
        now.

        If a command ran, all files are compared; otherwise only the files that tools were going to
        change. What later turns have changed since does not count.

        Args:
            record: the journal of the turn; `began` is 0 if no command ran.
            cut: the same turn, if ouro was killed in it: others may have changed files since.
        """
        changes = ChangedFiles()
        if record.began:
            self._add_all_differences(record, changes)
        # What later turns changed is not of this turn.
        later = self._files_kept_by_later_turns(record)
        for name in set(later) & set(changes.files):
            changes.files[name] = TreeChange(name, *changes.files[name].old, *later[name])
        self._add_kept(record, later, changes)
        if cut is not None:
            not_by_tools = changes.files.keys() - record.written.keys()
            changes.unsure |= {
                name for name in not_by_tools if cut.is_unsure(name, str(self.root / name))
            }
        return changes

    def _add_kept(
        self, record: TurnRecord, later: Mapping[str, FileState], changes: ChangedFiles
    ) -> None:
        """Add the files that tools were going to change to `changes`. Their old content is known
        exactly, so that they replace what a comparison of all files has found.

        Args:
            later: the files that later turns have changed, as they were before.
        """
        for name, old in record.kept.items():
            changes.lost.pop(name, None)
            changes.unsure.discard(name)
            changes.files.pop(name, None)
            known = later.get(name) or record.written.get(name)
            try:
                new = known or self._store_file(self.root / name)
            except OSError as error:  # one file must not keep the others from being recorded
                changes.lost[name] = f"it cannot be read now ({error.strerror})"
                continue
            if new is not None and new != old:
                changes.files[name] = TreeChange(name, *old, *new)

    def _files_kept_by_later_turns(self, record: TurnRecord) -> dict[str, FileState]:
        """Returns the state of each file that tools of later turns of this process have changed, as
        it was before these turns changed it.
        """
        kept: dict[str, FileState] = {}
        # The latest turn first, so that the state before the earliest one remains.
        for number, journal in sorted(self._journals.items(), reverse=True):
            if number > record.number and record.session == self.session:
                kept |= journal.record.kept
        return kept

    def _add_all_differences(self, record: TurnRecord, changes: ChangedFiles) -> None:
        """Add the differences between all files before the turn and all files now to `changes`.

        If there is no complete checkpoint from before the turn, the files are compared with the
        last state of the index. In this case files that look new are lost, and all others are
        unsure.
        """
        ref = self.folder / self._turn_ref(record.number, "before", record.session)
        is_complete = ref.is_file()
        start, notes = "", CommitNotes()  # an empty start differs in no file
        if is_complete:
            start = ref.read_text().strip()
            notes = read_notes(self.repository, start)
        elif (last_files := self.index.last_files()) is not None:
            start = commit(self.repository, last_files.tree)
        else:
            self._add_files_not_kept(record, changes)
        self.index.changed_since = 0
        now = self.index.refresh()
        for change in changes_between(self.repository, start, now.tree):
            if change.path not in notes.left_out | now.left_out:
                changes.files[change.path] = change
        if not is_complete:
            self._move_new_files_to_lost(changes)
        unsure = set(notes.details.get("late", ())) if is_complete else set(changes.files)
        changes.unsure.update(unsure & set(changes.files))
        self._add_left_out(record, before=notes, now=now, changes=changes)
        self._add_ignored(notes, changes)
        branch = notes.details.get("branch", "")
        for name, reason in files_of_switch(self.root, branch, changes.files.values()).items():
            del changes.files[name]
            changes.lost[name] = reason
        if record.began > _BEGAN_UNKNOWN:
            self._add_nested_repositories(record, now, changes)

    def _move_new_files_to_lost(self, changes: ChangedFiles) -> None:
        """Move the files that look new from `changes.files` to `changes.lost`. The checkpoint
        before the turn is incomplete, so they may have been there already.
        """
        new = [change.path for change in changes.files.values() if change.old == ABSENT]
        for name in new:
            del changes.files[name]
            changes.lost[name] = _NOT_KNOWN

    def _add_files_not_kept(self, record: TurnRecord, changes: ChangedFiles) -> None:
        """Add to `changes.lost` the files that changed since the first command, for a turn without
        a checkpoint and without an index to compare with. Only files that git does not track are
        looked at.
        """
        untracked = self.repository.git_files("ls-files", "-z", "-o", "--exclude-standard")
        for name in os.fsdecode(untracked).split("\0"):
            path = self.root / name
            if name and os.path.lexists(path) and path.lstat().st_ctime_ns > record.began:
                changes.lost[name] = _NOT_KEPT

    def _add_left_out(
        self, record: TurnRecord, before: CommitNotes, now: FilesNow, changes: ChangedFiles
    ) -> None:
        """Add to `changes` the changed files that checkpoints leave out, before the turn or now.

        A file that was large before the turn is added to `files` if there is a copy of its old
        content. All others are added to `lost`: large files without a copy, files that are too
        large now, and files that were left out for another reason.
        """
        limit = _megabytes(self.max_file_bytes)
        large = {name: LargeFile(*words) for name, words in before.details.get("large", {}).items()}
        for name, large_file in changed_large(self.repository, large).items():
            change = self._large_change(name, large_file)
            if change is None:
                changes.lost[name] = f"it was over {limit}, and its content was not kept"
            elif change.old != change.new:
                changes.files[name] = change
        for name in now.left_out - before.left_out:
            # A name without a key is no regular file, such as a nested repository.
            if key_now(self.root / name):
                changes.lost[name] = f"it is over {limit} now"
        if record.began <= _BEGAN_UNKNOWN:
            return  # no time to compare with
        for name in before.left_out - set(large) - now.left_out:
            with suppress(OSError):
                if (self.root / name).lstat().st_ctime_ns > record.began:
                    changes.lost[name] = _NOT_KEPT

    def _add_ignored(self, before: CommitNotes, changes: ChangedFiles) -> None:
        """Add to `changes` what the turn did to files that git ignores: small texts to `files`, and
        folders that are gone to `lost`.
        """
        for change, permissions in self.ignored.find_changes(before.details):
            changes.files.setdefault(change.path, change)
            changes.permissions[change.path] = permissions
        for name in self.ignored.find_lost_folders(before.details):
            changes.lost[name] = _IGNORED

    def _add_nested_repositories(
        self, record: TurnRecord, now: FilesNow, changes: ChangedFiles
    ) -> None:
        """Add to `changes.lost` the nested repositories in which commands of the turn changed
        files.
        """
        kept = {*record.kept, *record.written, *changes.files}
        for name in {*now.left_out, *submodules(self.root)}:
            if reason := changed_inside(self.root, name, record.began, kept):
                changes.lost[name] = reason

    def _large_change(self, name: str, large: LargeFile) -> TreeChange | None:
        """Returns the change of a file that was large before the turn, and writes its old content
        into the repository. None if the old content is lost, or if a folder or a device is there
        now.

        If a regular file is there now, only the id of its content is needed: the content is not
        written.
        """
        old_blob = keep_content(self.repository, large)
        path = self.root / name
        if not old_blob:
            return None
        is_file_now = bool(key_now(path))
        if not is_file_now:
            new = self._store_file(path)
            return TreeChange(name, large.mode, old_blob, *new) if new else None
        with path.open("rb") as file:
            mode = git_mode(os.fstat(file.fileno()))
            return TreeChange(name, large.mode, old_blob, mode, new_blob=hash_file(file))

    def _add_earlier_changes(self, record: TurnRecord, changes: ChangedFiles) -> None:
        """Add to `changes` what was recorded when the same turn ended before: a turn ends again if
        its subagents changed files after its end. A file that is in both gets the old state of the
        earlier record, and the new state of `changes`.
        """
        refs = {
            moment: self._turn_ref(record.number, moment, record.session)
            for moment in ("old", "new")
        }
        if not all((self.folder / ref).is_file() for ref in refs.values()):
            return
        commits = {moment: (self.folder / ref).read_text().strip() for moment, ref in refs.items()}
        earlier = self.turn_changes(
            TurnFiles(record.number, old=commits["old"], new=commits["new"])
        )
        changes.lost = earlier.lost | changes.lost
        changes.permissions = changes.permissions | earlier.permissions
        for name, change in earlier.files.items():
            new = changes.files[name].new if name in changes.files else change.new
            changes.files[name] = TreeChange(name, *change.old, *new)

    def _commit_changes(self, record: TurnRecord, changes: ChangedFiles) -> None:
        """Write the two small commits of a turn: the changed files as they were before it (`old`)
        and after it (`new`). Changes that earlier commits of this turn hold are included.
        """
        self._add_earlier_changes(record, changes)
        blobs = set[str]()
        for change in changes.files.values():
            blobs.update(blob for mode, blob in (change.old, change.new) if mode != ABSENT.mode)
        missing = self.repository.copy_objects(blobs)
        for change in tuple(changes.files.values()):
            if change.old_blob in missing:
                changes.lost[change.path] = "its old content is not in the repository any more"
                del changes.files[change.path]
        old, new = small_trees(self.repository, tuple(changes.files.values()))
        notes: Mapping[str, object] = {
            "unsure": sorted(changes.unsure),
            "lost": changes.lost,
            "permissions": changes.permissions,
        }
        for moment, tree in (("old", old), ("new", new)):
            commit_id = commit(
                self.repository, tree, names=(), details=notes if moment == "new" else None
            )
            self.repository.write_ref(
                self._turn_ref(record.number, moment, record.session), commit_id
            )


def _megabytes(size: int) -> str:
    """Returns a number of bytes as text, such as `5 MB`."""
    return f"{size / 1_000_000:g} MB"


def state_of(path: Path) -> FileState | None:
    """Returns the state of a file as it is now, `ABSENT` if it does not exist; None for a folder or
    a device.
    """
    state, _content = state_and_content(path)
    return state


def state_and_content(path: Path) -> tuple[FileState | None, bytes]:
    """Returns the state of a file as it is now, and its content. The content of a link is its
    target. The state is `ABSENT` if the file does not exist, and None for a folder or a device.
    """
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            mode, content = LINK_MODE, os.fsencode(path.readlink())
        elif stat.S_ISREG(status.st_mode):
            mode, content = git_mode(status), path.read_bytes()
        else:
            return None, b""
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT, b""
    header = b"blob %d\0" % len(content)
    blob = hashlib.sha1(header + content, usedforsecurity=False).hexdigest()
    return FileState(mode, blob), content
