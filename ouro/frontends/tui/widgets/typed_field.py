"""TypedField: a line of text whose editing keys act in the order of typing."""

from __future__ import annotations

from collections.abc import Collection

from textual import events
from textual.reactive import reactive
from textual.widgets import Input

_EDITING = frozenset({"backspace", "ctrl+k", "ctrl+u", "ctrl+w"})


class TypedField(Input):
    """An Input that deletes only what was typed before the key. All fields of ouro are of this
    class.

    Textual runs the action of a key after the key has passed all parents. On a busy machine the
    next letters were in the field by then, and Ctrl+U deleted them.
    """

    dialog_keys: Collection[str] = ()
    """Editing keys that the dialog uses itself."""
    cursor_blink = reactive(False, init=False)
    """As in the prompt: a blinking cursor also draws the screen again twice a second."""

    def _on_paste(self, event: events.Paste) -> None:
        """Insert a paste of several lines as one line. Textual would keep only the first of them."""
        event.stop()
        event.prevent_default()
        lines = event.text.splitlines()
        text = " ".join(map(str.strip, lines)).strip() if len(lines) > 1 else "".join(lines)
        self.replace(text, *self.selection)

    async def _on_key(self, event: events.Key) -> None:
        """Run the action of an editing key at once. Textual would first pass the key to the widgets
        around the field.
        """
        if event.key not in _EDITING or event.key in self.dialog_keys:
            return
        bindings = self._bindings.key_to_bindings.get(event.key, [])
        if bindings:
            event.stop()
            event.prevent_default()
            await self.run_action(bindings[0].action)
