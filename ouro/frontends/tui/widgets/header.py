"""Header: the first line of the screen: ouro, the folder, the session's title."""

from __future__ import annotations

from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

from ouro.frontends.tui.look import Look
from ouro.utils.text import clean


class Header(Widget):
    """One line; left out on low terminals."""

    COMPONENT_CLASSES = {"header--name"}  # noqa: RUF012 (Textual's own form)
    session_title: reactive[str] = reactive("")

    def __init__(self, look: Look) -> None:
        super().__init__(id="header")
        self._look = look

    def render(self) -> Text:
        line = Text(no_wrap=True, end="")
        line.append("ouro", self.get_component_rich_style("header--name", partial=True))
        line.append(f" {self._look.version}".rstrip() + f" · {clean(self._look.folder)}")
        line.truncate(self.size.width)
        title = Text(clean(self.session_title))
        title.truncate(max(0, self.size.width - line.cell_len - 3), overflow="ellipsis")
        if title.cell_len > 3:
            line.append(" " * (self.size.width - line.cell_len - title.cell_len))
            line.append_text(title)
        return line
