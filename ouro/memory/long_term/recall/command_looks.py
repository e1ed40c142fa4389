"""CommandLooks: looks at the files after commands that failed, to know what commands changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ouro.display import FileChange
from ouro.utils.git import git_branch

if TYPE_CHECKING:
    from ouro.memory.long_term.recall.attempts import CommandStep, Step
    from ouro.memory.long_term.recall.note_finder import NoteFinder

_MAX_LOOKS = 40
"""The looks that are kept of a session, the last ones."""
_MAX_BYTES = 64_000
"""Larger files are not compared."""
UNREADABLE = "\0"
"""Stands for the text of a file that is too large or no text. It equals the content of no file that
a tool showed.
"""

ChangedFiles = Callable[[], Mapping[Path, tuple[bytes | None, bytes | None]]]
"""Returns what the turn has changed until now: the contents before it, and now. Blocks."""


class ContentsOfTurn(NamedTuple):
    """The contents of a file before a turn and at a look in it; None: no such file."""

    before: str | None
    at_look: str | None


class CommandLook(msgspec.Struct, frozen=True):
    """The files that a turn had changed when the commands of an answer had ended."""

    turn: int
    first: str
    """The call of the first of these commands."""
    failed: str
    """The call of the first one that failed, else of the last."""
    files: Mapping[str, ContentsOfTurn]
    """The files that differ from before the turn, by path."""


class CommandLooks(msgspec.Struct, eq=False):
    """What commands changed in one session: a look is a comparison of the files after commands.
    Every method blocks.
    """

    finder: NoteFinder
    changed_files: ChangedFiles
    _looks: list[CommandLook] = msgspec.field(default_factory=list)
    _branch: str = ""

    def look(self, turn: int, last_steps: Sequence[Step]) -> None:
        """Record what the turn has changed in files until now, if a command failed in its
        `last_steps`, or if its last look found changes: the commands may have undone them.
        """
        from ouro.memory.long_term.recall.attempts import CommandStep

        commands = [step for step in last_steps if isinstance(step, CommandStep)]
        if not commands:
            return
        first_failed = next(filter(_is_failure, commands), None)
        if first_failed is None and not self._has_seen_changes(turn):
            return
        seen_at = first_failed or commands[-1]
        look = CommandLook(
            turn,
            first=commands[0].call_id,
            failed=seen_at.call_id,
            files=self._changed_project_files(),
        )
        self._looks = [*self._looks, look][-_MAX_LOOKS:]

    def _has_seen_changes(self, turn: int) -> bool:
        """Whether the last look was in this turn, and found changes."""
        if not self._looks:
            return False
        last_look = self._looks[-1]
        return last_look.turn == turn and bool(last_look.files)

    def _changed_project_files(self) -> dict[str, ContentsOfTurn]:
        """The files of the project that the turn has changed until now, by path. Files of the
        project's memory are left out.
        """
        files: dict[str, ContentsOfTurn] = {}
        for path, (old_content, new_content) in self.changed_files().items():
            name = self.finder.make_relative(str(path))
            if name and not name.startswith(".ouro/"):
                files[name] = ContentsOfTurn(
                    _text_to_compare(old_content), _text_to_compare(new_content)
                )
        return files

    def add_changes(self, steps: Sequence[Step]) -> list[Step]:
        """The steps, and between them an edit for each change that a look has found. A look is made
        after several commands. The edit comes before the first of these commands that failed: it
        failed with the change in place. If the look finds that a change was undone, the edit comes
        before all of these commands.

        Files that a tool edited are left out: their contents are known from the edits. Looks at
        commands that are not among the steps are left out, too.
        """
        if not self._looks:
            return list(steps)
        from ouro.memory.long_term.recall.attempts import EditStep

        edited_paths = {step.change.path for step in steps if isinstance(step, EditStep)}
        call_ids = {step.call_id for step in steps}
        all_steps, contents = list(steps), _FileContents()
        for look in self._looks:
            if look.first not in call_ids:
                continue
            for change, call_id in contents.changes_at(look, edited_paths):
                index = [step.call_id for step in all_steps].index(call_id)
                all_steps.insert(index, EditStep(look.turn, call_id, change, is_by_command=True))
        return all_steps

    def record_branch(self) -> bool:
        """Record which branch is in use. Returns whether it differs from the one at the last call;
        the first call returns True on any branch.
        """
        last_branch, self._branch = self._branch, git_branch(self.finder.root)
        return last_branch != self._branch


class _FileContents(msgspec.Struct):
    """The contents of files, from look to look."""

    turn: int = 0
    before: dict[str, str | None] = {}
    """The contents before the turn."""
    last: dict[str, str | None] = {}
    """The contents at the last look."""

    def changes_at(self, look: CommandLook, edited_paths: set[str]) -> list[tuple[FileChange, str]]:
        """The changes between the last look and this one, except in `edited_paths`; this look is
        the last one then. With each change comes the id of the call before which it belongs among
        the steps.

        If an earlier look of the turn found a change in a file, and this one finds none, the file
        is as it was before the turn. In a file that an earlier turn changed, a change begins with
        the content at the last look, not with the one before the turn.
        """
        if look.turn != self.turn:
            self.before = {}
            self.turn = look.turn
        for path, contents in look.files.items():
            if path not in edited_paths:
                self.before[path] = contents.before
        changes: list[tuple[FileChange, str]] = []
        for path, content_before in self.before.items():
            is_restored = path not in look.files
            content = content_before if is_restored else look.files[path].at_look
            last_content = self.last.get(path, content_before)
            self.last[path] = content
            if content != last_content:
                call_id = look.first if is_restored else look.failed
                changes.append((FileChange(path, last_content, content), call_id))
        return changes


def _is_failure(step: CommandStep) -> bool:
    """Whether a command failed, and its exit code says something about the project."""
    from ouro.memory.long_term.recall.command_names import describe_command

    return step.failed and bool(describe_command(step.line))


def _text_to_compare(content: bytes | None) -> str | None:
    """The text of a file; None if there is no file, UNREADABLE if it is too large or no text."""
    if content is None:
        return None
    try:
        return content.decode() if len(content) <= _MAX_BYTES else UNREADABLE
    except UnicodeDecodeError:
        return UNREADABLE
