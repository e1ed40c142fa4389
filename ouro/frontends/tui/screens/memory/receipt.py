"""ReceiptSheet: what long-term memory put into the prompt, entry by entry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static

from ouro.frontends.memory_lines import recalled_rows, recalled_summary, rows, summary
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.screens.sheet import ReadSheet
from ouro.utils.text import escaped

if TYPE_CHECKING:
    from ouro.events import NotesRecalled
    from ouro.session import MemoryReceipt

MAX_RESULT_WIDTH = 24
"""Columns of the result of an entry."""


class ReceiptSheet(ReadSheet):
    """The notes recalled for the last message, then the core at the start of the session."""

    def __init__(self, receipt: MemoryReceipt, recalled: NotesRecalled, keymap: Keymap) -> None:
        super().__init__(keymap, "receipt")
        self._receipt = receipt
        self._recalled = recalled

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(f"Recall · {recalled_summary(self._recalled)}", classes="sheet--title", markup=False)
            with VerticalScroll(classes="sheet--scroll"):
                if self._recalled.items:
                    yield Static(_table_with_reasons(recalled_rows(self._recalled)))
                yield Static(f"Core · {summary(self._receipt)}", classes="sheet--title", markup=False)
                found = list(rows(self._receipt))
                yield Static(_table(found) if found else Text("No memory yet."))
            yield self.keys_line()


def _table(found: Sequence[tuple[str, str, str]]) -> Table:
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    table.add_column(overflow="fold", justify="right", style="dim", max_width=MAX_RESULT_WIDTH)
    for sign, text, about in found:
        table.add_row(sign, Text(escaped(text), style="" if sign else "bold"), escaped(about))
    return table


def _table_with_reasons(found: Iterable[tuple[str, str, str]]) -> Table:
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    for sign, text, about in found:
        table.add_row(sign, Text.assemble(escaped(text), "\n", (escaped(about), "dim")))
    return table
