"""Picker: choose one line of many; typing narrows them down."""

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


_FEW = 6
"""So many choices are found without a search; typing narrows them down all the same."""


class Picker(Sheet[str | None]):
    """Lines to choose from: arrows or digits mark, typing narrows down, Enter takes."""

    def __init__(
        self, title: str, choices: Sequence[Choice], current: str = "", search: str = "", grace: float = 0.0
    ) -> None:
        """`grace`: seconds for which Enter takes nothing: it may have been typed before the picker was there."""
        super().__init__()
        self._grace = grace
        self._listens_from = 0.0
        self._title = title
        self._list = PickList(choices, current)
        few = "few" if len(choices) <= _FEW else ""
        self._search = Input(search, placeholder="type to search", compact=True, id="picker-search", classes=few)

    def compose(self) -> ComposeResult:
        """Title, search, lines, keys."""
        with Vertical(classes="sheet"):
            yield Static(clean(self._title), classes="sheet--title", markup=False)
            yield self._search
            yield self._list
            yield Static("↑↓ Enter · Esc closes", classes="sheet--keys", markup=False)

    def on_mount(self) -> None:
        """What is typed goes into the search."""
        self._search.focus()
        self._listens_from = time.monotonic() + self._grace

    @on(Input.Changed)
    def _narrow(self, event: Input.Changed) -> None:
        self._list.narrow(event.value)

    @on(Input.Submitted)
    def _take(self) -> None:
        self._list.narrow(self._search.value)
        chosen = self._list.chosen
        if chosen is not None and time.monotonic() >= self._listens_from:
            self.dismiss(chosen.value)

    async def _on_key(self, event: events.Key) -> None:
        steps = {"up": -1, "down": 1, "pageup": -10, "pagedown": 10, "ctrl+p": -1, "ctrl+n": 1}
        if event.key in steps:
            event.stop()
            self._list.move(steps[event.key])

    def on_pick_list_picked(self) -> None:
        """The mouse took a line."""
        self._take()


class PickList(Widget):
    """The lines that fit what is searched for; only those in sight are drawn."""

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
        """The marked line; None where nothing fits."""
        return self._fitting[self.place] if self._fitting else None

    def narrow(self, text: str) -> None:
        """Keep the lines that hold all these words."""
        words = text.lower().split()
        if words != self._words:
            self._words = words
            self._fit()
            self.place = 0
            self.refresh()

    def change(self, choices: Sequence[Choice]) -> None:
        """Have other lines, narrowed down as these are."""
        self._take(choices)
        self._fit()
        self.place = 0
        self.refresh(layout=True)

    def mark(self, value: str) -> None:
        """Mark the line of that value; the first where none has it."""
        self.place = self._place_of(value)

    def move(self, by: int) -> None:
        """Mark another line."""
        self.place = max(0, min(len(self._fitting) - 1, self.place + by))

    def _take(self, choices: Sequence[Choice]) -> None:
        self._all = list(choices)
        self._searched = [f"{each.label} {each.detail}".lower() for each in choices]
        self._fitting = self._all

    def _fit(self) -> None:
        pairs = zip(self._all, self._searched, strict=True)
        self._fitting = [each for each, searched in pairs if all(word in searched for word in self._words)]

    def _place_of(self, value: str) -> int:
        return next((place for place, each in enumerate(self._fitting) if value and each.value == value), 0)

    def render(self) -> Text:
        """The lines around the marked one."""
        if not self._fitting:
            return Text("nothing fits")
        rows = max(1, self.size.height)
        first = max(0, min(self.place - rows // 2, len(self._fitting) - rows))
        shown = self._fitting[first : first + rows]
        wide = min(max(Text(clean(each.label)).cell_len for each in shown), max(1, self.size.width - 4))
        lines = [self._line(each, first + number == self.place, wide) for number, each in enumerate(shown)]
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
        """A line each, as far as there is room."""
        return max(1, len(self._all))

    def on_click(self, event: events.Click) -> None:
        """Take the line that was clicked."""
        at = event.get_content_offset(self)
        rows = max(1, self.size.height)
        first = max(0, min(self.place - rows // 2, len(self._fitting) - rows))
        if at is not None and first + at.y < len(self._fitting):
            self.place = first + at.y
            self.post_message(self.Picked())
