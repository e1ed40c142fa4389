"""Undo and redo what turns changed in files."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ouro.errors import UsageError
from ouro.safety.checkpoints.checkpoint_repository import (
    REFS,
    CheckpointError,
    start_checkpoint_git,
)
from ouro.safety.checkpoints.checkpoints import Checkpoints, TurnFiles, state_and_content, state_of
from ouro.safety.checkpoints.trees import (
    ABSENT,
    LINK_MODE,
    PLAIN_MODE,
    PROGRAM_MODE,
    FileState,
    TreeChange,
    commit,
    small_trees,
)
from ouro.safety.checkpoints.turn_diffs import TurnDiffs
from ouro.utils.decoding import from_plain
from ouro.utils.files import append_private, open_folder, write_private
from ouro.utils.git_process import GitProfile, finish_git
from ouro.utils.text_files import save_file

BESIDE_SUFFIX = ".ouro-undo"
"""Suffix of a file next to one that the user has changed meanwhile; it has the text that undo would
have written.
"""
RESTORED = ""
"""The outcome of a file that was restored."""
MERGED = "merged"
"""The outcome of a file that was restored and still has the user's own changes."""
NOT_KNOWN = "it changed in the turn or after it, which is not known"
"""The outcome of a file that is restored only if the user agrees. All others are reasons why a file
was not restored.
"""
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_MERGE_TIMEOUT = 120.0
UNDOING_FOLDER = "undoing"
"""The folder of the plans that are carried out, one for each session."""
QUESTION_SUFFIX = ".asked"
"""Suffix of the file with the question that the user has not answered yet."""


class Restored(msgspec.Struct, frozen=True):
    """What an undo or a redo of files did."""

    paths: tuple[str, ...] = ()
    """Files that are restored."""
    merged: tuple[str, ...] = ()
    """Restored files that still have the user's own changes."""
    left: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The reason why a file was not restored, by its name."""
    unsure: tuple[str, ...] = ()
    """The files of `left` that may have the user's own changes. They are restored if the user
    agrees.
    """


class RestorePlan(msgspec.Struct):
    """An undo or a redo, as it is written to disk before it begins."""

    numbers: tuple[int, ...]
    """The turns, in the order in which they are undone."""
    path: str
    """Only this file is restored; empty: all files."""
    undone: bool
    """Whether it is an undo, and not a redo."""
    sure: tuple[str, ...] = ()
    """Only these files are restored, because the user agreed; empty: all files."""
    session: str = ""
    """The session of the turns."""

    def includes(self, path: str) -> bool:
        """Whether a file is restored."""
        return self.path in ("", path) and (not self.sure or path in self.sure)


class Undo:
    """Undo and redo in the workspace of `checkpoints`. Everything blocks: use from a thread."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._repository = checkpoints.repository
        self._root, self._folder = checkpoints.root, checkpoints.folder
        self._permissions: Mapping[str, int] = {}
        """The permissions of files that git ignores, for those that are written again."""

    def undo(
        self, turns: Sequence[TurnFiles], path: str = "", sure: Collection[str] = ()
    ) -> Restored:
        """Restore the files as they were before `turns`. The last turn is undone first. Changes
        that the user has made later stay.

        Args:
            path: restores only this file, relative to the workspace; empty: all files.
            sure: restores only these files, because the user agreed that they are restored even if
                others may have changed them; empty: all files.
        """
        return self._carry_out(self._plan(turns, path, sure), turns)

    def prepare(self, turns: Sequence[TurnFiles], *, is_redo: bool = False) -> None:
        """Write to disk that `turns` will be undone, or redone with `is_redo`. If this process is
        killed before it has done that, the next one does it (`finish`).
        """
        plan = self._redo_plan(turns) if is_redo else self._plan(turns)
        with self._repository.lock():
            self._checkpoints.is_undoing = True
            self._write_plan(plan)

    def cancel(self) -> None:
        """Delete the plan that `prepare` has written, so that nothing is undone."""
        self._checkpoints.is_undoing = False
        self._plan_file().unlink(missing_ok=True)

    def _plan(
        self, turns: Sequence[TurnFiles], path: str = "", sure: Collection[str] = ()
    ) -> RestorePlan:
        """Returns the plan that undoes turns, the last turn first.

        Args:
            path: the only file to restore; empty: all files of the turns.
            sure: the only files to restore, about which the user was asked; empty: all files.
        """
        numbers = tuple(sorted((turn.number for turn in turns), reverse=True))
        return RestorePlan(
            numbers, path, undone=True, sure=tuple(sure), session=self._checkpoints.session
        )

    def _redo_plan(self, turns: Sequence[TurnFiles]) -> RestorePlan:
        """Returns the plan of a redo, with the first turn first."""
        numbers = tuple(sorted(turn.number for turn in turns))
        return RestorePlan(numbers, path="", undone=False, session=self._checkpoints.session)

    def _write_plan(self, plan: RestorePlan) -> None:
        write_private(self._plan_file(), json.dumps(msgspec.to_builtins(plan)) + "\n")

    def redo(self, turns: Sequence[TurnFiles]) -> Restored:
        """Redo the changes of `turns` that `undo` has undone, the first turn first."""
        return self._carry_out(self._redo_plan(turns), turns)

    def finish(self) -> Restored | None:
        """Finish an undo or redo of this session that another process began and did not end;
        returns what was restored. None if there is none, or if this process itself is carrying it
        out.
        """
        plan_file = self._plan_file()
        if self._checkpoints.is_undoing or not plan_file.exists():
            return None
        with self._repository.lock():
            lines = _whole_lines(plan_file)
            if not lines:  # not even the plan was written completely
                plan_file.unlink(missing_ok=True)
                return None
            plan = from_plain(lines[0], RestorePlan)
            turns = [turn for turn in self._checkpoints.turns() if turn.number in plan.numbers]
            done = {(number, path): outcome for number, path, outcome in lines[1:]}
            if not done:  # otherwise they were kept before the first file was restored
                self._keep_present_files(turns)
            outcomes = self._apply(plan, turns, done)
        return self._sort_outcomes(outcomes)

    def _plan_file(self) -> Path:
        return self._folder / UNDOING_FOLDER / self._checkpoints.session

    def _carry_out(self, plan: RestorePlan, turns: Sequence[TurnFiles]) -> Restored:
        """Store the present files, write the plan to disk, and carry it out. Returns what was
        restored.
        """
        with self._repository.lock():
            self._keep_present_files(turns)
            self._write_plan(plan)
            outcomes = self._apply(plan, turns, done={})  # nothing of a new plan is done yet
        return self._sort_outcomes(outcomes)

    def _apply(
        self,
        plan: RestorePlan,
        turns: Sequence[TurnFiles],
        done: Mapping[tuple[int, str], str],
    ) -> dict[str, str]:
        """Carry out a plan. The outcome of each file is appended to the file of the plan. At the
        end the turns are marked, and that file is deleted. Returns the outcome for each restored
        file.

        A file that several turns changed has the outcome that counts most: a reason why it was not
        restored counts more than MERGED, and MERGED more than RESTORED. Of several reasons the last
        one counts.

        Args:
            turns: the turns of the plan that still have checkpoints.
            done: the outcomes of an earlier process, by turn and file: these are not done again.
        """
        outcomes: dict[str, str] = {}
        by_number = {turn.number: turn for turn in turns}
        turns_to_restore = [by_number[number] for number in plan.numbers if number in by_number]
        for turn in turns_to_restore:
            for change, is_unsure in self._steps(plan, turn):
                outcome = done.get((turn.number, change.path))
                if outcome is None:
                    outcome = self._try_to_restore(change, is_unsure=is_unsure)
                    line = json.dumps([turn.number, change.path, outcome])
                    append_private(self._plan_file(), f"{line}\n")
                is_reason = outcome not in (RESTORED, MERGED)
                if is_reason or outcomes.get(change.path, RESTORED) == RESTORED:
                    outcomes[change.path] = outcome
        is_of_all_files = not (plan.path or plan.sure)
        if is_of_all_files:
            self._mark_turns(plan, turns_to_restore)
        self._note_question(plan, outcomes)
        self._plan_file().unlink(missing_ok=True)
        self._checkpoints.is_undoing = False
        return outcomes

    def open_questions(self) -> dict[str, tuple[int, ...]]:
        """Returns the files about which the user has not decided yet, each with the numbers of the
        turns that would be undone in it.
        """
        try:
            asked = json.loads(self._question_file().read_bytes())
        except (OSError, ValueError):
            return {}
        return {path: tuple(numbers) for path, numbers in asked.items()}

    def note_answers(self, paths: Collection[str]) -> None:
        """Remove these files from the open questions, because the user has decided about them."""
        unanswered = {
            path: turns for path, turns in self.open_questions().items() if path not in paths
        }
        if unanswered:
            write_private(self._question_file(), json.dumps(unanswered))
        else:
            self._question_file().unlink(missing_ok=True)

    def _question_file(self) -> Path:
        return self._plan_file().with_name(self._checkpoints.session + QUESTION_SUFFIX)

    def _note_question(self, plan: RestorePlan, outcomes: Mapping[str, str]) -> None:
        """After an undo, write the unsure files to disk as an open question. After a redo, remove
        its files from the open questions.
        """
        if not plan.undone:
            self.note_answers(outcomes.keys())
            return
        unsure = [path for path, outcome in outcomes.items() if outcome == NOT_KNOWN]
        if unsure:
            asked = self.open_questions() | dict.fromkeys(unsure, plan.numbers)
            write_private(self._question_file(), json.dumps(asked))

    def _steps(self, plan: RestorePlan, turn: TurnFiles) -> list[tuple[TreeChange, bool]]:
        """Returns the changes that restore the files of one turn. An undo (`plan.undone`) reverses
        what the turn changed; a redo makes it again. With each change comes whether it is unsure:
        then the user has to agree first if the file has changed since. Only an undo has unsure
        changes, and none for files that the user has agreed to. Deletions come first.
        """
        turn_changes = self._checkpoints.turn_changes(turn)
        self._permissions = turn_changes.permissions
        changes = [change for change in turn_changes.files.values() if plan.includes(change.path)]
        if plan.undone:
            changes = [change.inverse() for change in changes]
        # A file may replace the folder of a deleted one.
        changes.sort(key=lambda change: change.kind != "deleted")
        unsure = turn_changes.unsure - set(plan.sure) if plan.undone else set[str]()
        return [(change, change.path in unsure) for change in changes]

    def _mark_turns(self, plan: RestorePlan, turns: Sequence[TurnFiles]) -> None:
        """Mark the turns as undone after an undo; remove the mark after a redo."""
        for turn in turns:
            ref = f"{REFS}/turns/{plan.session}/{turn.number}/undone"
            commit_id = turn.new or turn.before
            self._repository.git("update-ref", *((ref, commit_id) if plan.undone else ("-d", ref)))

    def _try_to_restore(self, change: TreeChange, *, is_unsure: bool) -> str:
        """Restore a file, as `restore` does; returns the outcome, also for an error.

        An unsure file that has changed since the turn is left alone: its outcome is NOT_KNOWN.
        """
        try:
            if is_unsure and state_of(self._root / change.path) != change.new:
                return NOT_KNOWN
            return self.restore(change)
        except OSError as error:
            return f"it cannot be written ({error.strerror})"
        except CheckpointError:
            return "its content was not kept"

    def _sort_outcomes(self, outcomes: Mapping[str, str]) -> Restored:
        """Returns the files grouped by their outcomes."""
        left = {
            name: outcome for name, outcome in outcomes.items() if outcome not in (RESTORED, MERGED)
        }
        return Restored(
            paths=tuple(name for name, outcome in outcomes.items() if outcome == RESTORED),
            merged=tuple(name for name, outcome in outcomes.items() if outcome == MERGED),
            left=left,
            unsure=tuple(name for name, outcome in outcomes.items() if outcome == NOT_KNOWN),
        )

    def _keep_present_files(self, turns: Sequence[TurnFiles]) -> None:
        """Commit the present versions of the files that these turns changed, before they are undone
        or redone. A user can restore them with git from the checkpoints. Files that cannot be read
        are left out: they are not restored either.
        """
        files = {}
        for turn in turns:
            for name in self._checkpoints.turn_changes(turn).files:
                try:
                    state, content = state_and_content(self._root / name)
                except OSError:
                    continue
                if state is not None and not self.leads_away(self._root / name):
                    self._repository.write_object("blob", content)
                    files[name] = TreeChange(name, *ABSENT, *state)
        _old_tree, tree = small_trees(self._repository, tuple(files.values()))
        now = commit(self._repository, tree)
        ref = f"{REFS}/undone/{self._checkpoints.session}/{time.time_ns()}"
        self._repository.git("update-ref", ref, now)

    def leads_away(self, file: Path) -> bool:
        """Whether a folder above a file is a link, so that the file is in another place."""
        parent = file.parent
        while not parent.exists() and parent != self._root:
            parent = parent.parent
        return os.path.realpath(parent) != str(parent)

    def restore(self, change: TreeChange) -> str:
        """Give a file the state after a change (`change.new`): write or delete it. Returns the
        outcome: RESTORED, MERGED, or a reason why it was not restored.

        Raises:
            OSError: it cannot be read or written.
            CheckpointError: its content was not kept.
        """
        file = self._root / change.path
        if self.leads_away(file):
            return "a folder on its path is a link now"
        now, content = state_and_content(file)
        if now == change.new:
            return RESTORED
        if now is None:
            return "it is not a file any more"
        if now != change.old:
            return self._restore_changed(file, now, content, change)
        if change.kind == "deleted":
            self.remove(file)
        else:
            self.write(file, change.new_mode, self._repository.read_blob(change.new_blob))
        return RESTORED

    def _restore_changed(
        self, file: Path, now: FileState, content: bytes, change: TreeChange
    ) -> str:
        """Restore a file that the user has changed since, by a merge. Returns the outcome: MERGED,
        or a reason why the file was not restored.

        If it cannot be merged, the content after `change` is written to another file beside it,
        with BESIDE_SUFFIX. A file that the user has deleted, or that the change would delete, stays
        as it is.

        Args:
            now: the present state of the file.
            content: its present content.
        """
        if now == ABSENT:
            return "you have deleted it"
        if change.kind == "deleted":
            return "you have changed it since"
        wanted = self._repository.read_blob(change.new_blob)
        merged = self._merge(content, change, wanted)
        if merged is not None:
            self.write(file, change.new_mode, merged)
            return MERGED
        beside = file.with_name(file.name + BESIDE_SUFFIX)
        self.write(beside, PLAIN_MODE, wanted)
        if file.exists():
            shutil.copymode(file, beside)
        return f"you have changed it since; the other version is in {beside.name}"

    def _merge(self, own: bytes, change: TreeChange, other: bytes) -> bytes | None:
        """Returns the user's text `own` with a change merged into it; `other` is the text after
        that change. None if the user and the change have changed the same lines, if one of them is
        not text, or if git takes too long.
        """
        # A file that is added or deleted, and a link, have no two texts to compare.
        cannot_merge = {change.old_mode, change.new_mode} & {ABSENT.mode, LINK_MODE}
        if cannot_merge or b"\0" in own or b"\0" in other:
            return None
        base = self._repository.read_blob(change.old_blob)
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            versions = [Path(folder, name) for name in ("own", "base", "other")]
            for version, data in zip(versions, (own, base, other), strict=True):
                version.write_bytes(data)
            names = map(str, versions)
            words = [f"--work-tree={self._root}", "merge-file", "-p", "-q", *names]
            process = start_checkpoint_git(self._folder, self._root, words)
            try:
                result = finish_git(
                    GitProfile.CHECKPOINTS, process, data=b"", timeout=_MERGE_TIMEOUT
                )
            except subprocess.TimeoutExpired:
                return None
        return result.stdout if result.returncode == 0 else None

    def remove(self, file: Path) -> None:
        """Delete a file, and then the folders above it in the workspace as long as they are
        empty.
        """
        _unlink(file)
        with suppress(OSError):  # the first that is not empty ends the loop
            for parent in file.relative_to(self._root).parents[:-1]:
                (self._root / parent).rmdir()

    def write(self, file: Path, mode: str, data: bytes) -> None:
        """Write a file, or a link to `data`. `mode` is the mode that git gives to files: it says
        whether it is a link, and whether it can be run. All other permissions of an existing file
        stay.
        """
        file.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(file) and (mode == LINK_MODE or file.is_symlink()):
            _unlink(file)
        with open_folder(file.parent, follow=False) as folder:
            if mode == LINK_MODE:
                os.symlink(os.fsdecode(data), file.name, dir_fd=folder)
                return
            self._make_private(file, folder)
            expected = file.lstat() if file.exists() else None
            status = save_file(folder, file.name, data, expected=expected)
            permissions = stat.S_IMODE(status.st_mode) & ~0o111
            if mode == PROGRAM_MODE:  # who can read the file can run it
                permissions |= (permissions & 0o444) >> 2
            os.chmod(file.name, permissions, dir_fd=folder)

    def _make_private(self, file: Path, folder: int) -> None:
        """Make an empty file with the permissions that an ignored file had, if it is gone. So nobody
        else can read it while it is written, and what is written keeps them.

        Args:
            folder: the descriptor of its folder.
        """
        permissions = self._permissions.get(file.relative_to(self._root).as_posix())
        if permissions is None or os.path.lexists(file):
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(file.name, flags, 0o600, dir_fd=folder)
        os.fchmod(descriptor, permissions)
        os.close(descriptor)

    def undo_hunk(self, turns: Sequence[TurnFiles], path: str, hunk_id: str) -> Restored:
        """Undo one hunk of `TurnDiffs.diff` in a file. The present version of the file is stored first. A
        file that the turns made is deleted if nothing is left in it.

        Raises:
            UsageError: the diff does not have this hunk any more, or the file is in another place.
        """
        with self._repository.lock():
            pieces = list(TurnDiffs(self._checkpoints).pieces(turns, path))
            wanted = re.compile(rf"@@ .* @@ #{re.escape(hunk_id)}\n")
            hunk = next((piece for piece in pieces if wanted.match(piece)), "")
            file = self._root / path
            state, content = state_and_content(file)
            is_elsewhere = os.path.realpath(file.parent) != str(file.parent)
            if not hunk or state is None or is_elsewhere:
                raise UsageError(
                    f"{path} has no hunk #{hunk_id} now.", "`/diff` shows them as they are."
                )
            self._keep_present_files(turns)
            start, count, old_lines = _parse_hunk(hunk)
            lines = _LINE.findall(os.fsdecode(content))
            restored = "".join([*lines[:start], *old_lines, *lines[start + count :]])
            was_made = any("\nnew file mode " in piece for piece in pieces)
            if was_made and not restored:
                _unlink(file)
            else:
                self.write(file, state.mode, os.fsencode(restored))
        return Restored((path,))


def _unlink(file: Path) -> None:
    """Delete a file, unless a folder above it is a link. Raises OSError."""
    with open_folder(file.parent, follow=False) as folder:
        os.unlink(file.name, dir_fd=folder)


def _whole_lines(path: Path) -> list[Any]:
    """Returns the values in a file of JSON lines. The last line is left out if it is incomplete,
    because a killed process wrote it.
    """
    text = path.read_bytes()
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n")]


class _ParsedHunk(NamedTuple):
    """What undoes a hunk: the lines of its new side are replaced by those of its old side."""

    start: int
    """The first line of its new side, from 0."""
    line_count: int
    """The number of lines of its new side."""
    old_lines: list[str]


def _parse_hunk(hunk: str) -> _ParsedHunk:
    """Returns what undoes a hunk, which is given as git wrote it."""
    head, *body = _LINE.findall(hunk)
    numbers = re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", head)
    assert numbers is not None
    count = int(numbers[2] or 1)
    old_lines: list[str] = []
    for line, following in zip(body, [*body[1:], ""], strict=True):
        if line[0] not in " -":
            continue
        has_no_newline = following.startswith("\\")  # git's note `\\ No newline at end of file`
        old_lines.append(line[1:].removesuffix("\n") if has_no_newline else line[1:])
    start = int(numbers[1])
    # git counts lines from 1. If the new side is empty, it names the line before it.
    return _ParsedHunk(start - 1 if count else start, count, old_lines)
