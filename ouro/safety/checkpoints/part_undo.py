"""PartUndo: undoes single hunks and files that a diff shows, and redoes them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from ouro.errors import UsageError
from ouro.safety.checkpoints.checkpoint_repository import REFS
from ouro.safety.checkpoints.checkpoints import Checkpoints, state_and_content, state_of
from ouro.safety.checkpoints.trees import ABSENT, FileState, TreeChange, commit, small_trees
from ouro.safety.checkpoints.undo import Undo
from ouro.utils.git_diff import DiffedFile, HunkSides, hunk_sides

_CHANGED_SINCE = "Its lines have changed since this diff was made."


class PartUndo:
    """Undoes single hunks and files of a diff. The changes that each undo made are remembered in
    `Checkpoints.undone_parts`, so that it can be redone. Everything blocks: use from a thread.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._repository = checkpoints.repository
        self._undo = Undo(checkpoints)

    def undo(self, file: DiffedFile, hunk: str = "") -> None:
        """Undo one hunk of a file, or all that the diff shows of the file if `hunk` is empty. All
        other lines of the file stay as they are.

        Raises:
            UsageError: the lines of the hunk are not in the file any more, or the file is binary.
        """
        if file.is_binary:
            raise UsageError(f"{file.path} is binary: /undo restores it, or git does.")
        with self._repository.lock():
            self._checkpoints.undone_parts.append(self._undo_part(file, hunk))

    def redo(self) -> dict[str, str]:
        """Redo the part that was undone last. Returns the outcome for each file, as `Undo.restore`
        does; the outcome is empty for a file that was restored.

        Raises:
            UsageError: there is nothing to redo.
            OSError, CheckpointError: a file cannot be read or written; it can be tried again.
        """
        undone_parts = self._checkpoints.undone_parts
        if not undone_parts:
            raise UsageError("There is nothing to redo: no hunk and no file was undone here.")
        with self._repository.lock():
            outcomes = {
                change.path: self._undo.restore(change.inverse())
                for change in reversed(undone_parts[-1])
            }
            undone_parts.pop()
        return outcomes

    def _undo_part(self, file: DiffedFile, hunk: str) -> tuple[TreeChange, ...]:
        """Undo a hunk, or the whole file if `hunk` is empty; returns the changes that were made."""
        if file.kind == "deleted":
            return self._restore_deleted(file)
        is_renamed_back = file.kind == "renamed" and not hunk
        if is_renamed_back:  # before anything is written
            self._require_absent(file.old_path)
        change = self._take_hunks_out(file, [hunk] if hunk else file.hunks, is_whole=not hunk)
        return self._rename_back(file, change) if is_renamed_back else (change,)

    def _require_absent(self, name: str) -> None:
        """Raise UsageError if there is a file with a name that is to be written again."""
        if state_of(self._checkpoints.root / name) != ABSENT:
            raise UsageError(f"{name} is there again.", _CHANGED_SINCE)

    def _restore_deleted(self, file: DiffedFile) -> tuple[TreeChange, ...]:
        """Write a deleted file again, with the lines that the diff shows; returns the change.
        Raises UsageError if there is such a file now.
        """
        self._require_absent(file.path)
        text = "".join("".join(hunk_sides(hunk).old) for hunk in file.hunks)
        return (self._write(file.path, file.old_mode, text),)

    def _take_hunks_out(
        self, file: DiffedFile, hunks: Sequence[str], *, is_whole: bool
    ) -> TreeChange:
        """Undo these hunks in a file; returns the change.

        The file is deleted if the diff shows it as added, nothing is left in it, and these are all
        of its hunks (`is_whole`, or it has only one).
        """
        path = self._checkpoints.root / file.path
        state, content = self._read(path, file.path)
        text = content.decode("utf-8", "surrogateescape")
        for hunk in reversed(hunks):  # the last one first: those before it keep their lines
            text = _reverse_hunk(text, hunk, file.path)
        are_all_hunks = is_whole or len(file.hunks) == 1
        if file.kind == "added" and not text and are_all_hunks:
            return self._delete(file.path, state, content)
        return self._write(file.path, state.mode, text, before=state, content=content)

    def _rename_back(self, file: DiffedFile, change: TreeChange) -> tuple[TreeChange, ...]:
        """Move a renamed file to its old name, which no file has. Its lines are restored already, by
        `change`.

        Returns three changes: `change`, that the file with the old name was written, and that the
        file with the new name was deleted.
        """
        state, content = self._read(self._checkpoints.root / file.path, file.path)
        text = content.decode("utf-8", "surrogateescape")
        written = self._write(file.old_path, state.mode, text)
        deleted = self._delete(file.path, state, content)
        return change, written, deleted

    def _read(self, path: Path, name: str) -> tuple[FileState, bytes]:
        """Returns the state and the content of a file. Raises UsageError if it is not there, or not
        a file.
        """
        state, content = state_and_content(path)
        if state is None or state == ABSENT:
            raise UsageError(f"{name} is not a file any more.")
        return state, content

    def _write(
        self, name: str, mode: str, text: str, *, before: FileState = ABSENT, content: bytes = b""
    ) -> TreeChange:
        """Write a file, and store its content from before and its new content; returns the change.

        Args:
            before: its state before; `ABSENT` if there is no file yet.
            content: its content before.
        """
        path = self._store_before(name, before, content)
        self._undo.write(path, mode, text.encode("utf-8", "surrogateescape"))
        after, content_after = state_and_content(path)
        if after is None or after == ABSENT:  # another program has deleted it already
            return TreeChange(name, *before, *ABSENT)
        self._repository.write_object("blob", content_after)
        return TreeChange(name, *before, *after)

    def _delete(self, name: str, before: FileState, content: bytes) -> TreeChange:
        """Delete a file, and store its content; returns the change. `before` is its state,
        `content` its content.
        """
        self._undo.remove(self._store_before(name, before, content))
        return TreeChange(name, *before, *ABSENT)

    def _store_before(self, name: str, before: FileState, content: bytes) -> Path:
        """Store the content of a file that is about to change, if there is a file already. Returns
        the path of the file. Raises UsageError if a folder on this path is a link.
        """
        path = self._checkpoints.root / name
        if self._undo.leads_away(path):
            raise UsageError(f"{name}: a folder on its path is a link.")
        if before != ABSENT:
            self._commit_file(name, before, content)
        return path

    def _commit_file(self, name: str, state: FileState, content: bytes) -> None:
        """Commit a file as it was before an undo, so that a user can restore it with git from the
        checkpoints.
        """
        self._repository.write_object("blob", content)
        change = TreeChange(name, *ABSENT, *state)
        _old_tree, tree = small_trees(self._repository, (change,))
        ref = f"{REFS}/undone/{self._checkpoints.session}/{time.time_ns()}"
        self._repository.git("update-ref", ref, commit(self._repository, tree))


def _reverse_hunk(text: str, hunk: str, name: str) -> str:
    """Returns the text with the old lines of a hunk instead of its new lines. If the new lines are
    at several places in the text, the place nearest to the line number of the hunk counts.

    Raises:
        UsageError: the new lines are not in the text.
    """
    sides = hunk_sides(hunk)
    lines = _split_lines(text)
    start = _find_new_lines(lines, sides)
    if start is None and "\r\n" in text:
        # git may have shown the lines as it would commit them, with `\n` only.
        sides = HunkSides(
            sides.start, _with_windows_endings(sides.old), _with_windows_endings(sides.new)
        )
        start = _find_new_lines(lines, sides)
    if start is None:
        raise UsageError(f"{name} has no such lines now.", _CHANGED_SINCE)
    return "".join([*lines[:start], *sides.old, *lines[start + len(sides.new) :]])


def _split_lines(text: str) -> list[str]:
    """Returns the lines of a text with their ends. Only a newline ends a line, as for git, and not
    the other characters at which `splitlines` splits.
    """
    *lines, rest = text.split("\n")
    ended = [f"{line}\n" for line in lines]
    return [*ended, rest] if rest else ended


def _find_new_lines(lines: list[str], sides: HunkSides) -> int | None:
    """Returns the index of the line at which the new lines of a hunk begin, from 0 as
    `sides.start`. If they are at several places, it is the one nearest to `sides.start`. None if
    they are not there.
    """
    new, count = sides.new, len(sides.new)
    if not new:  # the hunk only removed lines: they were at its start, or now at the end
        return min(sides.start, len(lines))
    starts = [
        start for start in range(len(lines) - count + 1) if lines[start : start + count] == new
    ]
    return min(starts, key=lambda start: abs(start - sides.start), default=None)


def _with_windows_endings(lines: list[str]) -> list[str]:
    """Returns the lines with `\\r\\n` instead of `\\n` at their ends."""
    return [f"{line[:-1]}\r\n" if line.endswith("\n") else line for line in lines]
