"""CommentSheet: a sheet on whose lines the user comments; all comments go back as one message."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from typing import Generic, TypeVar

from textual.binding import Binding
from textual.widget import Widget

from ouro.frontends.tui.screens.dialogs import Sheet, SheetFrame
from ouro.frontends.tui.widgets.typed_field import TypedField
from ouro.utils.text import plural

K = TypeVar("K", bound=Hashable)


class CommentField(TypedField):
    """The line in which a comment is written, hidden until then."""

    def __init__(self) -> None:
        super().__init__(
            placeholder="comment on this line",
            select_on_focus=False,
            compact=True,
            id="picker-search",
        )
        self.display = False


class CommentSheet(Sheet[str | None], Generic[K]):
    """Enter writes a comment on the marked line, Delete removes it, Ctrl+S sends all. Its result is
    the message; None without comments.
    """

    BINDINGS = [Binding("ctrl+s", "send", show=False, priority=True)]  # noqa: RUF012 (Textual's own form)

    def __init__(
        self, frame: SheetFrame, lines: Widget, field: CommentField, comments: dict[K, str]
    ) -> None:
        """`lines` is the widget with the lines, and `field` the one in which a comment is written.
        `comments` has the comments by the keys of their lines. `lines` must have been made with the
        same dictionary, because it shows them.
        """
        super().__init__(frame)
        self._lines_widget = lines
        self._field = field
        self._comments = comments
        self._asked_to_discard = False
        """Whether the last key was an Esc while there were comments: a second Esc discards them."""

    @property
    @abstractmethod
    def _marked_key(self) -> K | None:
        """The line that is marked; None if it cannot be commented on."""

    @abstractmethod
    def _message(self) -> str:
        """All comments as one message."""

    def action_send(self) -> None:
        """Close the sheet with a message of all comments, also the one that is being written. Without
        comments the result is None.
        """
        if self._field.display:
            self._save_comment()
        self.dismiss(self._message() or None)

    def action_close(self) -> None:
        """Go back one step: close the field, or if it is closed the sheet. If there are comments,
        the sheet closes only when Esc is pressed twice.
        """
        if self._field.display:
            self._end_comment()
        elif self._comments and not self._asked_to_discard:
            self._asked_to_discard = True
            unsent = plural(len(self._comments), "comment")
            self.key_line.show_message(f"Ctrl+S sends {unsent} · Esc again discards", "-asks")
        else:
            self.dismiss(None)

    def on_input_submitted(self) -> None:
        self._save_comment()

    def _take_comment_key(self, key: str) -> bool:
        """Write a comment on Enter, or remove one on Delete. Returns whether the key was used. No
        key is used while a comment is being written. On a line that cannot have a comment, Enter
        shows a message.
        """
        if self._asked_to_discard:
            self._asked_to_discard = False
            self.key_line.show_keys()
        if self._field.display:
            return False
        if self._marked_key is None:
            if key == "enter":
                self.key_line.show_message("Comments are on lines: choose one with ↓.", "")
            return key == "enter"
        if key == "enter":
            self._begin_comment()
        elif key in ("delete", "backspace"):
            self._comments.pop(self._marked_key, None)
            self._lines_widget.refresh()
        else:
            return False
        return True

    def _begin_comment(self) -> None:
        """Open the field with the comment on the marked line."""
        if self._marked_key is None:
            return
        self._field.value = self._comments.get(self._marked_key, "")
        self._field.display = True
        self._field.focus()
        self._field.cursor_position = len(self._field.value)

    def _save_comment(self) -> None:
        """Make the text of the field the comment on the marked line, and close the field. An empty
        text removes the comment.
        """
        key, comment = self._marked_key, self._field.value.strip()
        if key is not None and comment:
            self._comments[key] = comment
        elif key is not None:
            self._comments.pop(key, None)
        self._end_comment()

    def _end_comment(self) -> None:
        self._field.display = False
        self._lines_widget.focus()
        self._lines_widget.refresh()
