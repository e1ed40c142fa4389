"""Picker: choose one item of a list; typing filters it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input, Static

from ouro.frontends.tui.screens.sheet import Sheet
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
    def _take(self) -> None:
        self._list.narrow(self._search.value)
        chosen = self._list.chosen
        if chosen is not None and time.monotonic() >= self._accepts_from:
            self.dismiss(chosen.value)

    async def _on_key(self, event: events.Key) -> None:
        steps = {"up": -1, "down": 1, "pageup": -10, "pagedown": 10, "ctrl+p": -1, "ctrl+n": 1}
        if event.key in steps:
            event.stop()
            self._list.move(steps[event.key])

    def on_pick_list_picked(self) -> None:
        self._take()


class PickList(Widget):
    """The choices that match the search; only those in sight are drawn."""

    COMPONENT_CLASSES = {"pick-list--marked", "pick-list--detail"}  # noqa: RUF012 (Textual's own form)
    place: reactive[int] = reactive(0)

    class Picked(Message):
        """The mouse took the marked line."""

    def __init__(self, choices: Sequence[Choice], current: str) -> None:
        super().__init__()
        self._current = current
        self._words: list[str] = []
        self._take(choices)
        self.set_reactive(PickList.place, self._place_of(current))

    @property
    def chosen(self) -> Choice | None:
        """The marked choice; None if nothing matches."""
        return self._matching[self.place] if self._matching else None

    def narrow(self, text: str) -> None:
        """Show the choices that contain all these words."""
        words = text.lower().split()
        if words != self._words:
            self._words = words
            self._fit()
            self.place = 0
            self.refresh()

    def change(self, choices: Sequence[Choice]) -> None:
        self._take(choices)
        self._fit()
        self.place = 0
        self.refresh(layout=True)

    def mark(self, value: str) -> None:
        self.place = self._place_of(value)

    def move(self, by: int) -> None:
        self.place = max(0, min(len(self._matching) - 1, self.place + by))

    def _take(self, choices: Sequence[Choice]) -> None:
        self._all = list(choices)
        self._searched = [f"{choice.label} {choice.detail}".lower() for choice in choices]
        self._matching = self._all

    def _fit(self) -> None:
        pairs = zip(self._all, self._searched, strict=True)
        self._matching = [choice for choice, searched in pairs if all(word in searched for word in self._words)]

    def _place_of(self, value: str) -> int:
        return next((place for place, choice in enumerate(self._matching) if value and choice.value == value), 0)

    def render(self) -> Text:
        if not self._matching:
            return Text("No matches.")
        rows = max(1, self.size.height)
        first = max(0, min(self.place - rows // 2, len(self._matching) - rows))
        shown = self._matching[first : first + rows]
        wide = min(max(Text(clean(choice.label)).cell_len for choice in shown), max(1, self.size.width - 4))
        lines = [self._line(choice, first + number == self.place, wide) for number, choice in enumerate(shown)]
        return Text("\n").join(lines)

    def _line(self, choice: Choice, marked: bool, wide: int) -> Text:
        label = Text(clean(choice.label).replace("\n", " ⏎ "), no_wrap=True, end="")
        label.truncate(wide, overflow="ellipsis", pad=True)
        if marked:
            label.stylize(self.get_component_rich_style("pick-list--marked", partial=True))
        line = Text("❯ " if marked else "  ", no_wrap=True, end="")
        line.append_text(label)
        line.append("  ✓" if choice.value == self._current and self._current else "")
        detail = self.get_component_rich_style("pick-list--detail", partial=True)
        line.append(f"  {clean(choice.detail)}".replace("\n", " ") if choice.detail else "", detail)
        line.truncate(max(1, self.size.width), overflow="ellipsis")
        return line

    def get_content_height(self, *_: object) -> int:
        return max(1, len(self._all))

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        rows = max(1, self.size.height)
        first = max(0, min(self.place - rows // 2, len(self._matching) - rows))
        if at is not None and first + at.y < len(self._matching):
            self.place = first + at.y
            self.post_message(self.Picked())
