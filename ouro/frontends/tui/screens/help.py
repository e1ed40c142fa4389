"""HelpSheet: every key and every command, on one sheet."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static

from ouro.frontends.tui.screens.sheet import Sheet


class HelpSheet(Sheet[None]):
    """Keys at the top, commands below; any key that is no scrolling key closes it."""

    BINDINGS = [Binding("q,question_mark,f1,enter", "close", show=False)]  # noqa: RUF012 (Textual's own form)

    def __init__(
        self,
        keys: Sequence[tuple[str, str]],
        commands: Sequence[tuple[str, str]],
        triggers: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__()
        self._keys = keys
        self._commands = commands
        self._triggers = triggers

    def compose(self) -> ComposeResult:
        """Both tables in one scroll."""
        with Vertical(classes="sheet"):
            yield Static("Keys", classes="sheet--title", markup=False)
            with VerticalScroll(classes="sheet--scroll"):
                yield Static(_table(self._keys))
                yield Static(
                    "Commands · /help memory tells more of one, with an example", classes="sheet--title", markup=False
                )
                yield Static(_table(self._commands))
                yield Static("At the start of a message", classes="sheet--title", markup=False)
                yield Static(_table(self._triggers))
            yield Static("↑↓ PageUp PageDown · Esc closes", classes="sheet--keys", markup=False)

    def on_mount(self) -> None:
        """Scroll with the keys at once."""
        self.query_one(VerticalScroll).focus()


def _table(rows: Sequence[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 3))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table
