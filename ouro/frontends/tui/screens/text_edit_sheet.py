"""TextSheet: a text of several lines to change, in place or in the user's editor."""

from __future__ import annotations

from textual.binding import Binding
from textual.widgets import TextArea

from ouro.errors import UsageError
from ouro.frontends.tui import editor_and_pager
from ouro.frontends.tui.screens.dialogs import Keys, Sheet, make_frame

_EDITOR_KEYS: Keys = (("Ctrl+S", "uses it"), ("Ctrl+G", "your editor"), ("Esc", "back"))
_DISCARD_KEYS: Keys = (("Ctrl+S", "uses it"), ("Esc", "again discards your changes"))


class TextSheet(Sheet[str | None]):
    """A text for the user to change. Its result is the text; None if the user discards the changes."""

    BINDINGS = [  # noqa: RUF012 (Textual's own form)
        Binding("ctrl+s", "use", show=False, priority=True),
        Binding("ctrl+g", "open_editor", show=False, priority=True),
    ]

    def __init__(self, title: str, text: str) -> None:
        self._old_text = text
        self._asked_to_discard = False
        """Whether Esc was pressed once on a changed text."""
        self._area = TextArea(text, compact=True, soft_wrap=True, id="text-area")
        super().__init__(make_frame(title, self._area, keys=_EDITOR_KEYS, more="", id="text"))

    def on_mount(self) -> None:
        self._area.focus()

    def action_use(self) -> None:
        self.dismiss(self._area.text)

    async def action_open_editor(self) -> None:
        """Edit the text in the user's editor, and put the result into the field. If there is no
        editor, show why in the last line.
        """
        try:
            self._area.text = await editor_and_pager.edit(self.app, self._area.text)
        except UsageError as error:
            self.key_line.show_message(str(error), "-failed")

    def action_close(self) -> None:
        """Close without a result; if the text was changed, only at the second time."""
        if self._area.text == self._old_text or self._asked_to_discard:
            self.dismiss(None)
            return
        self._asked_to_discard = True
        self.key_line.show_keys(_DISCARD_KEYS)

    def on_text_area_changed(self) -> None:
        if self._asked_to_discard:
            self._asked_to_discard = False
            self.key_line.show_keys(_EDITOR_KEYS)
