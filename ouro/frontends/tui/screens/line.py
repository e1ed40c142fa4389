"""LineSheet: one line of text, such as a key that is not shown."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input, Static

from ouro.frontends.tui.screens.sheet import Sheet
from ouro.utils.text import clean


class LineSheet(Sheet[str | None]):
    """Asks for a line; Enter gives it, Esc gives none."""

    def __init__(self, title: str, secret: bool, text: str = "") -> None:
        """`text` is in the field to begin with."""
        super().__init__()
        self._title = title
        self._secret = secret
        self._text = text

    def compose(self) -> ComposeResult:
        """Title, field, keys."""
        with Vertical(classes="sheet"):
            yield Static(clean(self._title), classes="sheet--title", markup=False)
            yield Input(self._text, select_on_focus=False, password=self._secret, compact=True, id="picker-search")
            yield Static("Enter · Esc closes", classes="sheet--keys", markup=False)

    @on(Input.Submitted)
    def _take(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())
