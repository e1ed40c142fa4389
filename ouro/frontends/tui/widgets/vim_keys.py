"""VimKeys: the keys and modes of Vim in the prompt."""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.widgets import TextArea
from textual.widgets.text_area import Selection

from ouro.frontends.vim_editing import VimEditor

_NAMES = {
    "escape": "<Esc>",
    "backspace": "<BS>",
    "left": "<Left>",
    "right": "<Right>",
    "home": "<Home>",
    "end": "<End>",
    "ctrl+r": "<C-r>",
    "space": " ",
}
_HISTORY = {"j": "next", "k": "previous"}


class VimKeys:
    """Handles the keys of a prompt as Vim does; in the insert mode the prompt edits by itself.

    Args:
        copy: puts a text on the clipboard.
        recall: moves in the history, by the name of the prompt's action.
    """

    def __init__(
        self, area: TextArea, copy: Callable[[str], object], recall: Callable[[str], object]
    ) -> None:
        """`copy` puts a text on the clipboard. `recall` shows the `previous` or the `next` entry of the
        prompt history.
        """
        self._area = area
        self._recall = recall
        self._editor = VimEditor(copy=copy)
        self._shown: Selection | None = None
        """The selection of the prompt after the last key."""

    @property
    def shown_mode(self) -> str:
        """The mode, with the keys of a command that is not complete."""
        return f"{self._editor.mode.upper()} {self._editor.pending}".strip()

    @property
    def is_idle(self) -> bool:
        """Whether Esc has nothing to end: it keeps its usual meaning, and so does Alt."""
        return self._editor.mode == "normal" and not self._editor.pending

    @property
    def _offset(self) -> int:
        return len(self._area.get_text_range((0, 0), self._area.cursor_location))

    def begin_message(self) -> None:
        """Insert again, because the prompt is empty after a message was sent."""
        self._editor.replace_text(self._area.text, self._offset)
        self._editor.begin_insert()

    def handle(self, event: events.Key) -> bool:
        """Handle a key as Vim does. Returns False if the key keeps its usual meaning.

        In the insert mode every key but Esc keeps its usual meaning. In the other modes, these keep
        it: a key that Vim does not know, an Esc that ends nothing, and on empty input a key that
        begins a command. In the first line `k`, and in the last line `j`, goes to the history.
        """
        editor = self._editor
        if editor.mode == "insert":
            if event.key != "escape":
                return False
            editor.end_insert(self._area.text, self._offset)
            self._show()
            return True
        key = _NAMES.get(event.key, event.character if event.is_printable else None)
        if key is None:
            return False
        is_idle = self.is_idle
        is_for_prompt = key == "<Esc>" or self._is_command(key)
        if is_idle and is_for_prompt:
            return False
        self._take_over_changes()
        if is_idle and key in _HISTORY and self._is_at_edge(key):
            self._recall(_HISTORY[key])
            return True
        editor.press(key)
        self._show()
        return True

    def _take_over_changes(self) -> None:
        """Give the text and the cursor of the prompt to the editor, if the prompt was changed since
        the last key, such as by the mouse or the history.

        Without a change this must not be done: a selection of the prompt ends behind Vim's cursor,
        so the cursor of the prompt then differs from that of the editor.
        """
        editor, area = self._editor, self._area
        if (area.text, area.selection) != (editor.text, self._shown):
            editor.replace_text(area.text, self._offset)

    def _is_command(self, key: str) -> bool:
        """Whether a key on empty input begins a command or shows the keys."""
        return not self._area.text and key in ("/", "?", "!", "#")

    def _is_at_edge(self, key: str) -> bool:
        """Whether the cursor is in the last line for `j`, or in the first one for `k`."""
        row, _ = self._area.cursor_location
        last_row = self._area.document.line_count - 1
        return row == (last_row if key == "j" else 0)

    def _show(self) -> None:
        """Put the text and the selection of the editor into the prompt."""
        editor, area = self._editor, self._area
        if area.text != editor.text:
            area.replace(editor.text, (0, 0), area.document.end)
        area.selection = self._shown = self._selection()

    def _selection(self) -> Selection:
        """The cursor of the editor, or what a visual mode has selected."""
        editor = self._editor
        if editor.mode not in ("visual", "visual line"):
            return Selection.cursor(self._location(editor.cursor))
        span = editor.selection
        start, end = self._location(span.start), self._location(span.end)
        forwards = editor.cursor >= editor.anchor
        return Selection(start, end) if forwards else Selection(end, start)

    def _location(self, offset: int) -> tuple[int, int]:
        """The row and the column of a place in the text, both from 0."""
        before = self._editor.text[:offset]
        return before.count("\n"), len(before) - before.rfind("\n") - 1
