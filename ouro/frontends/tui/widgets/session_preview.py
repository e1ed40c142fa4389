"""SessionPreview: what the marked session was about."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.timer import Timer
from textual.widgets import Static

from ouro.errors import OuroError
from ouro.frontends.session_lines import cost, preview_lines, size, title
from ouro.frontends.tui.look import short_path
from ouro.utils.text import clean

if TYPE_CHECKING:
    from ouro.frontends.session_matches import Match
    from ouro.session import SessionCatalog, SessionExcerpt, SessionInfo

_LOOK_AFTER = 0.06
"""Seconds that a session has to be marked before its words are read."""


class SessionPreview(VerticalScroll, can_focus=False):
    """Title, figures, the summary where there is one, the first and the last words."""

    COMPONENT_CLASSES = {"preview--title", "preview--detail", "preview--who", "preview--found"}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__(id="session-preview")
        self._words = Static(markup=False)
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        """One text."""
        yield self._words

    def look(self, marked: Match | None, session_catalog: SessionCatalog) -> None:
        """Look into the marked session, where it stays marked for a moment; None: nothing is marked."""
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(
            _LOOK_AFTER, lambda: self.run_worker(self._read(marked, session_catalog), group="look", exclusive=True)
        )

    async def _read(self, marked: Match | None, session_catalog: SessionCatalog) -> None:
        if marked is None:
            self._words.update("")
            return
        try:
            preview = await asyncio.to_thread(session_catalog.preview, marked.info)
        except (OuroError, OSError) as error:
            self._words.update(self._head(marked.info).append(f"\n{clean(str(error))}"))
        else:
            self._show_words(marked.info, preview, marked.snippet)

    def _show_words(self, info: SessionInfo, preview: SessionExcerpt, snippet: str) -> None:
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
        facts += [f"{info.messages:,} messages", size(info.size), cost(info.cost), info.id[:8]]
        facts += [f"a copy of {info.fork_of[:8]}"] if info.fork_of else []
        text.append("\n" + clean(" · ".join(filter(None, facts))) + "\n", self._style("detail"))
        return text

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"preview--{name}", partial=True)
