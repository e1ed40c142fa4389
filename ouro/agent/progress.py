"""Progress: notices a turn whose tool calls bring nothing new, however they differ (L14)."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ouro.messages import ToolCall, ToolReply
from ouro.utils.late_pattern import late_pattern

_CHANGING_WORD = late_pattern(r"(?<!\w)\w*?\d\w*(?:[.:,+/=-]\w+)*")
"""A word with a digit: a counter, a time, an id. It differs in each output of a loop. A long word
without a digit is read once: the lookbehind lets no match begin inside of it.
"""
_MAX_SAME_CALL = 5
"""How often the output of the same call counts as new before a file changes."""
_MAX_FILES = 20_000
_READ, _TODO = "read", "todo"
_EDITS = frozenset({"edit", "write", "notebook_edit", "apply_patch"})


class Progress:
    """Counts the calls since something new: a changed file, output that was not there before, a
    todo that moved.

    Args:
        root: the folder whose files are looked at when calls bring no new output; None: no folder.
    """

    def __init__(self, root: Path | None) -> None:
        self._root = root
        self.failures = 0
        """Failed calls in a row."""
        self.idle = 0
        """Calls in a row without progress."""
        self._seen_lines: set[int] = set()
        self._seen_keys: set[str] = set()
        self._times_of_call: Counter[str] = Counter()
        self._newest = -1
        self.was_checked = False
        """Whether the files were looked at since the last progress."""

    def observe(self, calls: Sequence[ToolCall], results: Sequence[ToolReply]) -> None:
        """Count the calls of one answer."""
        for call, result in zip(calls, results, strict=True):
            self.failures = self.failures + 1 if result.failed else 0
            if self._note_call(call, result):
                self.restart_idle()
            else:
                self.idle += 1

    def has_changed_files(self) -> bool:
        """Whether files changed since the last time that this was asked. Blocks."""
        self.was_checked = True
        before, self._newest = self._newest, _newest_change(self._root)
        has_changed = before not in (-1, self._newest)
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

    def _note_call(self, call: ToolCall, result: ToolReply) -> bool:
        """Remember a call and its output; returns whether it is progress.

        A failed call is none, except a command, whose output may say something new. A change, a
        file that is read and a plan are progress if they are new; any other call if its output has
        a new line, and only the first times.
        """
        has_new_lines = self._note_lines(call, result)
        arguments = " ".join(json.dumps(dict(call.arguments), default=str).split())
        if result.failed and call.name != "shell":
            return False
        if call.name in _EDITS:
            return self._is_new_key(call.name, arguments, is_change=True)
        if call.name == _READ:
            path = os.path.normpath(str(call.arguments.get("path", "")).strip())
            return self._is_new_key(_READ, path) or has_new_lines
        if call.name == _TODO:
            return self._is_new_key(_TODO, _without_numbers(arguments))
        same = f"{call.name} {arguments}"
        self._times_of_call[same] += 1
        return has_new_lines and self._times_of_call[same] <= _MAX_SAME_CALL

    def _is_new_key(self, name: str, what: str, is_change: bool = False) -> bool:
        """Remember what a call was about; returns whether that is new. A change makes all calls
        count as new again.
        """
        key = f"{name} {what}"
        if key in self._seen_keys:
            return False
        self._seen_keys.add(key)
        if is_change:
            self._times_of_call.clear()
        return True

    def _note_lines(self, call: ToolCall, result: ToolReply) -> bool:
        """Remember the lines of an output; returns whether any of them is new."""
        is_content = call.name == _READ
        text = result.text if is_content else _without_numbers(result.text)
        lines = {hash(line.strip()) for line in text.splitlines() if line.strip()}
        new = lines - self._seen_lines
        self._seen_lines |= new
        return bool(new)


def _without_numbers(text: str) -> str:
    return str(_CHANGING_WORD.sub("#", text))


def _newest_change(root: Path | None) -> int:
    """A number that differs when a file below `root` was changed; folders of tools (`.git`,
    `__pycache__`) do not count.
    """
    newest = count = 0
    for folder, folders, names in os.walk(root or os.devnull):
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
