"""Completion: suggestions for `/` commands and `@` files while they are typed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ouro.display import Choice
from ouro.frontends.file_index import FileIndex
from ouro.frontends.tui.widgets.row_list import PickList

ROWS = 8
_FILE = re.compile(r"(?:^|[\s(\[{<,;:=\"'`])(@\S*)$")
_COMMAND = re.compile(r"/[\w:-]*\Z")


class Completion(PickList):
    """The popup above the prompt. The prompt keeps the focus and handles the keys.

    The value of a suggestion replaces the typed word; it ends with a space unless it is a command without arguments.
    """

    def __init__(self, commands: Callable[[], Sequence[Choice]], files: Callable[[], FileIndex | None]) -> None:
        super().__init__(id="completion")
        self._commands = commands
        self._files = files
        self._dismissed = ""
        self.typed = ""
        """The word that a suggestion replaces."""

    @property
    def is_open(self) -> bool:
        return bool(self.rows)

    def look_at(self, before: str) -> None:
        typed = _word(before)
        if typed and typed == self._dismissed:
            return
        self._dismissed = ""
        suggestions = self._suggest(typed) if typed else []
        if typed != self.typed or suggestions != self.rows:
            self.typed = typed
            self.change(suggestions, keep=False)
        self.display = bool(suggestions)

    def move(self, by: int) -> None:
        """Mark another one; after the last comes the first."""
        self.place = (self.place + by) % len(self.rows)

    def close(self, before: str = "") -> None:
        """Close; it stays closed until the text before the cursor is no longer `before`."""
        self._dismissed, self.display = _word(before), False
        self.change([])

    def _suggest(self, typed: str) -> list[Choice]:
        if typed.startswith("/"):
            return _matching_commands(self._commands(), typed[1:].lower())[:ROWS]
        files = self._files()
        if files is None:
            return [Choice(typed, "reading the list of files …")]
        names = files.search(typed[1:], ROWS)
        return [Choice(f'@"{name}" ' if re.search(r"\s", name) else f"@{name} ", name) for name in names]


def _word(before: str) -> str:
    """The command or file being typed; empty if it is neither."""
    if "\n" not in before and _COMMAND.fullmatch(before):
        return before
    found = _FILE.search(before.rpartition("\n")[2])
    return found[1] if found else ""


def _matching_commands(commands: Sequence[Choice], wanted: str) -> list[Choice]:
    """The command of that name, then those that begin with it, then those that contain its letters in order."""
    scattered = re.compile(".*".join(map(re.escape, wanted)))
    named = [(command.label[1:].lower(), command) for command in commands]
    fits = [(label, command) for label, command in named if scattered.search(label)]
    fits.sort(key=lambda fit: (fit[0].partition(" ")[0] != wanted, not fit[0].startswith(wanted)))
    return [command for _, command in fits]
