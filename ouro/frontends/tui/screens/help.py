"""HelpSheet: every key and every command, on one sheet."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static

from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.screens.sheet import ReadSheet


class HelpSheet(ReadSheet):
    """Keys, commands, and what messages can start with."""

    def __init__(
        self,
        keymap: Keymap,
        keys: Sequence[tuple[str, str]],
        commands: Sequence[tuple[str, str]],
        triggers: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(keymap, "help")
        self._keys = keys
        self._commands = commands
        self._triggers = triggers

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static("Keys", classes="sheet--title", markup=False)
            with VerticalScroll(classes="sheet--scroll"):
                yield Static(_table(self._keys))
                yield Static("Commands · /help NAME shows details and an example", classes="sheet--title", markup=False)
                yield Static(_table(self._commands))
                yield Static("At the start of a message", classes="sheet--title", markup=False)
                yield Static(_table(self._triggers))
            yield self.keys_line()


def _table(rows: Sequence[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 3))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table
