"""Finds out that a turn is stuck: its tool calls bring nothing new, however they differ (L14 in
docs/threats.md).
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ouro.messages import ToolCall, ToolReply
from ouro.utils.late_pattern import late_pattern

_WORD_WITH_DIGIT = late_pattern(r"(?<!\w)\w*?\d\w*(?:[.:,+/=-]\w+)*")
"""A counter, a time, an id: it differs in each output of a loop. A long word without a digit is read
once, because the lookbehind lets no match begin inside of it.
"""
_MAX_SAME_CALL = 5
"""How often the output of the same call counts as new before a file changes."""
_MAX_FILES = 20_000
_READ_TOOL, _TODO_TOOL = "read", "todo"
_EDIT_TOOLS = frozenset({"edit", "write", "notebook_edit", "apply_patch"})


class ProgressWatch:
    """Counts the calls since something new: a changed file, output that was not there before, a
    todo that moved.

    Args:
        root: the folder whose files are looked at when calls bring no new output; None for none.
    """

    def __init__(self, root: Path | None) -> None:
        self._root = root
        """The folder whose changed files are progress; None if there is none."""
        self.failures = 0
        """Failed calls in a row."""
        self.idle = 0
        """Calls in a row without progress."""
        self._seen_lines: set[int] = set()
        """The hashes of all lines of output so far."""
        self._seen_keys: set[str] = set()
        """The changes, read files and plans so far, as keys of `_add_key`."""
        self._times_of_call: Counter[str] = Counter()
        """How often each call was made since the last change of a file."""
        self._newest: int | None = None
        """What `_newest_change` returned last; None before the first look."""
        self.was_checked = False
        """Whether the files were looked at since the last progress."""

    def observe(self, calls: Sequence[ToolCall], results: Sequence[ToolReply]) -> None:
        """Count the calls of one answer."""
        for call, result in zip(calls, results, strict=True):
            self.failures = self.failures + 1 if result.failed else 0
            if self._add_call(call, result):
                self.restart_idle()
            else:
                self.idle += 1

    def check_files(self) -> bool:
        """Look at the files, and return whether any has changed since the last look; False at the
        first look. If so, outputs of repeated calls count as new again. Blocks.
        """
        self.was_checked = True
        last_change, self._newest = self._newest, _newest_change(self._root)
        has_changed = last_change is not None and last_change != self._newest
        if has_changed:
            self._times_of_call.clear()
        return has_changed

    def restart(self) -> None:
        """Count from zero: the user wants the turn to continue."""
        self.failures = 0
        self.restart_idle()

    def restart_idle(self) -> None:
        """Count calls without progress from zero."""
        self.idle, self.was_checked = 0, False

    def _add_call(self, call: ToolCall, result: ToolReply) -> bool:
        """Store a call and the lines of its output; returns whether the call is progress.

        A failed call is not, except a command, whose output may have something new. A change of a
        file, the reading of a file and a plan are progress if the same was not done before. Any
        other call is progress if its output has a new line; the same call counts at most
        _MAX_SAME_CALL times.
        """
        has_new_lines = self._add_lines(call, result)
        arguments = " ".join(json.dumps(dict(call.arguments), default=str).split())
        if result.failed and call.name != "shell":
            return False
        if call.name in _EDIT_TOOLS:
            return self._add_key(call.name, arguments, is_change=True)
        if call.name == _READ_TOOL:
            path = os.path.normpath(str(call.arguments.get("path", "")).strip())
            return self._add_key(_READ_TOOL, path) or has_new_lines
        if call.name == _TODO_TOOL:
            return self._add_key(_TODO_TOOL, _without_numbers(arguments))
        call_key = f"{call.name} {arguments}"
        self._times_of_call[call_key] += 1
        return has_new_lines and self._times_of_call[call_key] <= _MAX_SAME_CALL

    def _add_key(self, name: str, subject: str, is_change: bool = False) -> bool:
        """Store that a tool was called with a subject, such as a path. Returns whether that is the
        first time.

        Args:
            is_change: whether the call changes a file. After such a call the same command may have
                another output: calls are counted from 0 again.
        """
        key = f"{name} {subject}"
        if key in self._seen_keys:
            return False
        self._seen_keys.add(key)
        if is_change:
            self._times_of_call.clear()
        return True

    def _add_lines(self, call: ToolCall, result: ToolReply) -> bool:
        """Store the lines of an output; returns whether any of them is new. Lines that differ only
        in numbers count as the same line; in a file that was read they are different lines.
        """
        is_content = call.name == _READ_TOOL
        text = result.text if is_content else _without_numbers(result.text)
        lines = {hash(line.strip()) for line in text.splitlines() if line.strip()}
        new_lines = lines - self._seen_lines
        self._seen_lines |= new_lines
        return bool(new_lines)


def _without_numbers(text: str) -> str:
    """The text with a `#` for each word that has a digit."""
    return str(_WORD_WITH_DIGIT.sub("#", text))


def _newest_change(root: Path | None) -> int:
    """A number that changes when a file below `root` is changed, added or removed: the time of the
    newest change, in nanoseconds, plus the number of files. Folders of tools (`.git`,
    `__pycache__`) are left out, and only about _MAX_FILES files are looked at. 0 without a folder.
    """
    if root is None:
        return 0
    newest = count = 0
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith((".", "__"))]
        for name in names:
            count += 1
            try:
                newest = max(newest, os.lstat(f"{folder}/{name}").st_mtime_ns)
            except OSError:
                continue
        if count > _MAX_FILES:
            break
    return newest + count
