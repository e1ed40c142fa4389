"""Picker: choose one item of a list; typing filters it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input, Static

from ouro.frontends.tui.screens.sheet import Sheet
from ouro.frontends.tui.widgets.row_list import STEPS, PickList
from ouro.utils.text import clean

if TYPE_CHECKING:
    from ouro.display import Choice


MAX_WITHOUT_SEARCH = 6
"""Up to this many choices are shown without a search line; typing still filters."""


class Picker(Sheet[str | None]):
    """A list to choose from: arrows mark, typing filters, Enter chooses."""

    def __init__(
        self, title: str, choices: Sequence[Choice], current: str = "", search: str = "", grace: float = 0.0
    ) -> None:
        """`grace`: seconds in which Enter is ignored: it may have been typed before the picker appeared."""
        super().__init__()
        self._grace = grace
        self._accepts_from = 0.0
        self._title = title
        self._list = PickList(choices, current)
        few = "few" if len(choices) <= MAX_WITHOUT_SEARCH else ""
        self._search = Input(search, placeholder="type to search", compact=True, id="picker-search", classes=few)

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(clean(self._title), classes="sheet--title", markup=False)
            yield self._search
            yield self._list
            yield Static("↑↓ Enter · Esc closes", classes="sheet--keys", markup=False)

    def on_mount(self) -> None:
        self._search.focus()
        self._accepts_from = time.monotonic() + self._grace

    @on(Input.Changed)
    def _narrow(self, event: Input.Changed) -> None:
        self._list.narrow(event.value)

    @on(Input.Submitted)
    @on(PickList.Picked)
    def _take(self) -> None:
        self._list.narrow(self._search.value)
        chosen = self._list.marked
        if chosen is not None and time.monotonic() >= self._accepts_from:
            self.dismiss(chosen.value)

    async def _on_key(self, event: events.Key) -> None:
        if event.key in STEPS:
            event.stop()
            self._list.action_move(STEPS[event.key])
