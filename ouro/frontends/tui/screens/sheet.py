"""Sheet: what all screens that lie over the conversation have in common; ReadSheet: those that are only read."""

from __future__ import annotations

from typing import TypeVar

from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.look import HEADER_FROM_HEIGHT

R = TypeVar("R")
_SCROLLS = {"page_up": "page_up", "page_down": "page_down", "top": "scroll_home", "bottom": "scroll_end"}
"""What an action of the keymap is for a text that scrolls."""


class Sheet(ModalScreen[R]):
    """A framed sheet over the conversation; Esc and Ctrl+C close it without a result."""

    BINDINGS = [Binding("escape,ctrl+c", "close", show=False, priority=True)]  # noqa: RUF012 (Textual's own form)

    VERTICAL_BREAKPOINTS = [(0, "-low"), (HEADER_FROM_HEIGHT, "-normal")]  # noqa: RUF012 (as above)

    def action_close(self) -> None:
        """Close it."""
        self.dismiss(None)


class ReadSheet(Sheet[None]):
    """One text that scrolls, with the keys that scroll the conversation; the key that opened it closes it."""

    BINDINGS = [Binding("q,enter", "close", show=False)]  # noqa: RUF012 (as above)

    def __init__(self, keymap: Keymap, opened_by: str) -> None:
        """`opened_by` is the action whose keys open it."""
        super().__init__()
        self._keymap = keymap
        for name, scroll in _SCROLLS.items():
            for key in keymap.keys(name):
                self._bindings.bind(key, f"scroll_text('{scroll}')", show=False)
        for key in keymap.keys(opened_by):
            self._bindings.bind(key, "close", show=False)

    def keys_line(self) -> Static:
        """The foot of the sheet."""
        pages = [self._keymap.shown(name) for name in ("page_up", "page_down")]
        keys = " ".join(["↑↓", *filter(None, pages)])
        return Static(f"{keys} · Esc closes", classes="sheet--keys", markup=False)

    def on_mount(self) -> None:
        """Scroll with the keys at once."""
        self.query_one(VerticalScroll).focus()

    def action_scroll_text(self, action: str) -> None:
        """Scroll it so."""
        getattr(self.query_one(VerticalScroll), f"action_{action}")()
