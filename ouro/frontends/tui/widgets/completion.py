"""Completion: the commands and files that complete what the user types in the prompt."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ouro.display import Choice
from ouro.frontends.file_index import mention, mentioned_name, typed_mention
from ouro.frontends.tui.widgets.row_list import PickList

if TYPE_CHECKING:
    from ouro.session import Session

MAX_SUGGESTIONS = 8
MIN_WIDTH_OF_ARGUMENTS = 70
"""The columns from which on commands are listed with their arguments. With fewer, these would leave
a dozen for what a command does.
"""
_COMMAND_WORD = re.compile(r"/[\w:-]*\Z")


class Completion(PickList):
    """The popup above the prompt. The prompt keeps the focus and handles the keys.

    The value of a suggestion replaces the typed word; it ends with a space unless it is a command
    without arguments.
    """

    LEADS_CURSOR = False
    """It stays in the prompt, where input methods show what is composed."""

    def __init__(
        self,
        session: Callable[[], Session | None],
        find_files: Callable[[str], Sequence[str] | None],
    ) -> None:
        super().__init__(id="completion")
        self._session = session
        self._find_files = find_files
        self._dismissed = ""
        """The word for which the user has closed the popup; empty if there is none."""
        self.word = ""
        """The word that a suggestion replaces."""

    @property
    def is_open(self) -> bool:
        return bool(self.rows)

    @property
    def is_complete(self) -> bool:
        """Whether the typed word is a whole file name, and no other file fits. The list is not
        shown then, because the attachment bar shows the file.
        """
        is_only = self.word.startswith("@") and len(self.rows) == 1
        return is_only and self.rows[0].value.strip() == self.word

    @property
    def is_folder_typed(self) -> bool:
        """Whether the marked suggestion is a folder that is typed already, and others follow."""
        folder = self.marked.value.rstrip(' "') if self.marked is not None else ""
        return folder.endswith("/") and folder == self.word and len(self.rows) > 1

    def show_suggestions(self, before: str) -> None:
        """Show suggestions for the word at the end of `before`, the text before the cursor. The popup
        closes if there are none, and stays closed for a word for which the user has closed it.
        """
        word = _word_to_complete(before)
        if word and word == self._dismissed:
            return
        self._dismissed = ""
        suggestions = self._suggest(word) if word else []
        if word != self.word or suggestions != self.rows:
            self.word = word
            self.change(suggestions, keep_mark=False)
        self.display = bool(suggestions) and not self.is_complete

    def move(self, by: int) -> None:
        """Mark another suggestion; the first follows the last."""
        self.marked_index = (self.marked_index + by) % len(self.rows)

    def close(self, before: str = "") -> None:
        """Close the popup. It stays closed for the word at the end of `before`, the text before the
        cursor.
        """
        self._dismissed = _word_to_complete(before)
        self.display = False
        self.change([])

    def _suggest(self, word: str) -> list[Choice]:
        """The suggestions for a word: the commands that begin with it after `/`, or the files that
        match it after `@`. Until the list of files is read, it is a note about that.
        """
        if word.startswith("/"):
            from ouro.commands.command_lookup import (
                matching_commands,  # too heavy before the first frame
            )

            suggestions = matching_commands(self._session(), word[1:])[:MAX_SUGGESTIONS]
            if self.app.size.width < MIN_WIDTH_OF_ARGUMENTS:
                suggestions = [_without_arguments(suggestion) for suggestion in suggestions]
            return suggestions
        names = self._find_files(mentioned_name(word))
        if names is None:
            return [Choice(word, "reading the list of files …")]
        return [Choice(f"{mention(name)} ", name) for name in names]


def _without_arguments(command: Choice) -> Choice:
    return Choice(command.value, command.label.partition(" ")[0], command.detail)


def _word_to_complete(before: str) -> str:
    """The word at the end of the text, if it is a command (`/…`, which must be the whole text) or a
    file (`@…`). Otherwise empty.
    """
    if "\n" not in before and _COMMAND_WORD.fullmatch(before):
        return before
    last_line = before.rpartition("\n")[2]
    return typed_mention(last_line)
