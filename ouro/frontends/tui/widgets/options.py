"""Options: numbered lines to choose from, one of them marked."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual import events
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from ouro.utils.terminal_text import clean


class Options(Widget):
    """The choices of a question. It holds no focus: its panel tells it what to do."""

    COMPONENT_CLASSES = {"options--marked", "options--detail"}  # noqa: RUF012 (Textual's own form)
    place: reactive[int] = reactive(0)
    ticked: reactive[frozenset[int]] = reactive(frozenset())

    class Picked(Message):
        """The mouse took the marked choice."""

    def __init__(self, lines: Sequence[tuple[str, str]], several: bool = False) -> None:
        super().__init__()
        self.lines = lines
        self._several = several

    def move(self, by: int) -> None:
        """Mark another one; round at the ends."""
        self.place = (self.place + by) % max(1, len(self.lines))

    def tick(self, number: int) -> None:
        """Take one of several, or leave it again."""
        self.ticked = self.ticked ^ {number}

    def render(self) -> Text:
        """A line each, cut where it is too long; the marked one has a sign of its own."""
        marked_style = self.get_component_rich_style("options--marked", partial=True)
        detail_style = self.get_component_rich_style("options--detail", partial=True)
        rendered = []
        for number, (label, detail) in enumerate(self.lines):
            box = ("[x] " if number in self.ticked else "[ ] ") if self._several else ""
            marked = number == self.place
            line = Text(f"{'❯' if marked else ' '} {number + 1} {box}", no_wrap=True, end="")
            line.append(clean(label).replace("\n", " "), marked_style if marked else "")
            line.append(f"  {clean(detail)}" if detail else "", detail_style)
            line.truncate(max(1, self.size.width), overflow="ellipsis")
            rendered.append(line)
        return Text("\n").join(rendered)

    def get_content_height(self, *_: object) -> int:
        """A line a choice."""
        return len(self.lines)

    def on_click(self, event: events.Click) -> None:
        """Take the line that was clicked."""
        place = event.get_content_offset(self)
        if place is not None and place.y < len(self.lines):
            self.place = place.y
            self.post_message(self.Picked())
