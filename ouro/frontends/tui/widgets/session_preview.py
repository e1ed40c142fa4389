"""SessionPreview: what the marked session was about."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from ouro.frontends.session_lines import preview_lines, size, title
from ouro.frontends.tui.look import short_path
from ouro.utils.terminal_text import clean

if TYPE_CHECKING:
    from ouro.session import Preview, SessionInfo


class SessionPreview(VerticalScroll, can_focus=False):
    """Title, figures, the summary where there is one, the first and the last words."""

    COMPONENT_CLASSES = {"preview--title", "preview--detail", "preview--who", "preview--found"}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__(id="session-preview")
        self._words = Static(markup=False)

    def compose(self) -> ComposeResult:
        """One text."""
        yield self._words

    def clear(self) -> None:
        """Nothing is marked."""
        self._words.update("")

    def tell(self, info: SessionInfo, text: str) -> None:
        """It cannot be looked into; say why."""
        self._words.update(self._head(info).append(f"\n{clean(text)}"))

    def show(self, info: SessionInfo, preview: Preview, snippet: str) -> None:
        """What is in it."""
        text = self._head(info)
        if snippet:
            text.append(f"\n… {clean(snippet)} …\n", self._style("found"))
        for who, words in preview_lines(preview, max(20, self.size.width)):
            text.append("\n")
            if who:
                text.append(f"{who}  ", self._style("who"))
            text.append(f"{words}\n")
        self._words.update(text)
        self.scroll_home(animate=False)

    def _head(self, info: SessionInfo) -> Text:
        text = Text(overflow="fold").append(title(info), self._style("title"))
        facts = [short_path(Path(info.project)), info.model.rpartition("/")[2], f"began {info.created_at[:10]}"]
        facts += [f"{info.messages:,} messages", size(info.size), info.id[:8]]
        facts += [f"a copy of {info.fork_of[:8]}"] if info.fork_of else []
        text.append("\n" + clean(" · ".join(filter(None, facts))) + "\n", self._style("detail"))
        return text

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"preview--{name}", partial=True)
