"""CommandLooks: looks at the files after commands that failed, to know what commands changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ouro.display import FileChange
from ouro.utils.git import git_branch

if TYPE_CHECKING:
    from ouro.memory.long_term.recall.attempts import CommandStep, Step
    from ouro.memory.long_term.recall.note_finder import NoteFinder

_MAX_LOOKS = 40
"""The looks that are kept of a session."""
_MAX_BYTES = 64_000
"""Larger files are not compared."""
UNREADABLE = "\0"
"""Equals the content of no file that a tool showed."""

ChangedFiles = Callable[[], Mapping[Path, tuple[bytes | None, bytes | None]]]
"""Returns what the turn has changed until now: the contents before it, and now. Blocks."""


class CommandLook(msgspec.Struct, frozen=True):
    """The files that a turn had changed when the commands of an answer had ended."""

    turn: int
    first: str
    """The call of the first of these commands."""
    failed: str
    """The call of the first one that failed, else of the last."""
    files: Mapping[str, tuple[str | None, str | None]]
    """The contents before the turn, and then; None: no such file."""


class CommandLooks(msgspec.Struct, eq=False):
    """Every method blocks."""

    finder: NoteFinder
    changed_files: ChangedFiles
    _looks: list[CommandLook] = msgspec.field(default_factory=list)
    _branch: str = ""

    def look(self, turn: int, new: Sequence[Step]) -> None:
        """Look after the last steps of a turn if a command failed, and until the files are as
        before the turn again.
        """
        from ouro.memory.long_term.recall.attempts import CommandStep

        commands = [step for step in new if isinstance(step, CommandStep)]
        if not commands:
            return
        failed = next(filter(_is_failure, commands), None)
        if failed is None and not self._is_changed(turn):
            return
        last = failed or commands[-1]
        look = CommandLook(turn, commands[0].call_id, last.call_id, self._changed_project_files())
        self._looks = [*self._looks[1 - _MAX_LOOKS :], look]

    def _is_changed(self, turn: int) -> bool:
        """Whether the last look was in this turn, and found changes."""
        return any(look.turn == turn and look.files for look in self._looks[-1:])

    def _changed_project_files(self) -> dict[str, tuple[str | None, str | None]]:
        """The files of the project that the turn has changed, with their texts before it and now."""
        files: dict[str, tuple[str | None, str | None]] = {}
        for path, (before, now) in self.changed_files().items():
            name = self.finder.relative(str(path))
            if name and not name.startswith(".ouro/"):
                files[name] = (_text_to_compare(before), _text_to_compare(now))
        return files

    def add_changes(self, steps: Sequence[Step]) -> list[Step]:
        """The steps, with what commands had changed in each look, before the command that failed.

        A file that a tool edited is left out: its contents are known from the edits.
        """
        from ouro.memory.long_term.recall.attempts import EditStep

        edited = {step.change.path for step in steps if isinstance(step, EditStep)}
        known = {step.call_id for step in steps}
        found, contents = list(steps), _Contents()
        for look in self._looks:
            if look.first not in known:
                continue
            for change, call in contents.see(look, edited):
                index = next(at for at, step in enumerate(found) if step.call_id == call)
                found.insert(index, EditStep(look.turn, call, change, is_by_command=True))
        return found

    def changes_branch(self) -> bool:
        """Whether another branch is in use than at the last call: it changes files, and undoes
        nothing.
        """
        before, self._branch = self._branch, git_branch(self.finder.root)
        return before != self._branch


class _Contents(msgspec.Struct):
    """The contents of files, from look to look."""

    turn: int = 0
    before: dict[str, str | None] = {}
    """The contents before the turn."""
    last: dict[str, str | None] = {}

    def see(self, look: CommandLook, edited: set[str]) -> list[tuple[FileChange, str]]:
        """What has changed since the last look, each with the call before which it did."""
        if look.turn != self.turn:
            self.before, self.turn = {}, look.turn
        for path, (old, _) in look.files.items():
            if path not in edited:
                self.before[path] = old
        found: list[tuple[FileChange, str]] = []
        for path, old in self.before.items():
            is_back = path not in look.files
            now = old if is_back else look.files[path][1]
            earlier, self.last[path] = self.last.get(path, old), now
            if now != earlier:
                call = look.first if is_back else look.failed
                found.append((FileChange(path, earlier, now), call))
        return found


def _is_failure(step: CommandStep) -> bool:
    """Whether a command failed whose exit code says something about the project."""
    from ouro.memory.long_term.recall.command_ledger import describe_command

    return step.failed and bool(describe_command(step.line))


def _text_to_compare(content: bytes | None) -> str | None:
    """The text of a file; None if there is no file, UNREADABLE if it is too large or no text."""
    if content is None:
        return None
    try:
        return content.decode() if len(content) <= _MAX_BYTES else UNREADABLE
    except UnicodeDecodeError:
        return UNREADABLE
