"""Options: numbered lines to choose from, one of them marked."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from ouro.utils.text import clean

_INDENT = 4


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
        """A line each; a detail that does not fit goes below. The marked one has a sign of its own."""
        return Text("\n").join(line for lines in self._rendered(self.size.width) for line in lines)

    def _rendered(self, width: int) -> list[list[Text]]:
        marked_style = self.get_component_rich_style("options--marked", partial=True)
        detail_style = self.get_component_rich_style("options--detail", partial=True)
        rendered = []
        for number, (label, detail) in enumerate(self.lines):
            box = ("[x] " if number in self.ticked else "[ ] ") if self._several else ""
            marked = number == self.place
            line = Text(f"{'❯' if marked else ' '} {number + 1} {box}", no_wrap=True, end="")
            line.append(clean(label).replace("\n", " "), marked_style if marked else "")
            rest = Text(clean(detail), detail_style)
            if line.cell_len + 2 + rest.cell_len <= width or not detail:
                rendered.append([line.append("  ").append_text(rest)])
            else:
                rendered.append([line, *(Text(" " * _INDENT) + part for part in _folded(rest, width - _INDENT))])
            line.truncate(max(1, width), overflow="ellipsis")
        return rendered

    def get_content_height(self, _container: Size, _viewport: Size, width: int) -> int:
        """As many lines as the choices need at this width."""
        return sum(len(lines) for lines in self._rendered(width))

    def on_click(self, event: events.Click) -> None:
        """Take the line that was clicked."""
        at = event.get_content_offset(self)
        owners = [number for number, lines in enumerate(self._rendered(self.size.width)) for _ in lines]
        if at is not None and at.y < len(owners):
            self.place = owners[at.y]
            self.post_message(self.Picked())


def _folded(text: Text, width: int) -> list[Text]:
    """`text` in pieces of that width; nothing is left out."""
    width = max(1, width)
    return list(text.divide(range(width, len(text), width)))
