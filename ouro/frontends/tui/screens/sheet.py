"""Sheet: screens over the conversation; ReadSheet: text to read; LineSheet: one line to type."""

from __future__ import annotations

from typing import TypeVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.look import HEADER_FROM_HEIGHT
from ouro.utils.text import clean

R = TypeVar("R")
_SCROLLS = {"page_up": "page_up", "page_down": "page_down", "top": "scroll_home", "bottom": "scroll_end"}
"""The Textual action of each scroll action of the keymap."""


class Sheet(ModalScreen[R]):
    """A framed sheet over the conversation; Esc and Ctrl+C close it without a result."""

    BINDINGS = [Binding("escape,ctrl+c", "close", show=False, priority=True)]  # noqa: RUF012 (Textual's own form)

    VERTICAL_BREAKPOINTS = [(0, "-low"), (HEADER_FROM_HEIGHT, "-normal")]  # noqa: RUF012 (as above)

    def action_close(self) -> None:
        self.dismiss(None)


class ReadSheet(Sheet[None]):
    """A text that scrolls; the key that opened it closes it."""

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
        pages = [self._keymap.shown(name) for name in ("page_up", "page_down")]
        keys = " ".join(["↑↓", *filter(None, pages)])
        return Static(f"{keys} · Esc closes", classes="sheet--keys", markup=False)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()

    def action_scroll_text(self, action: str) -> None:
        getattr(self.query_one(VerticalScroll), f"action_{action}")()


class LineSheet(Sheet[str | None]):
    """Asks for a line of text; None if the user cancels."""

    def __init__(self, title: str, secret: bool, text: str = "") -> None:
        """`text` is in the field to begin with."""
        super().__init__()
        self._title = title
        self._secret = secret
        self._text = text

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(clean(self._title), classes="sheet--title", markup=False)
            yield Input(self._text, select_on_focus=False, password=self._secret, compact=True, id="picker-search")
            yield Static("Enter · Esc closes", classes="sheet--keys", markup=False)

    @on(Input.Submitted)
    def _take(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())
