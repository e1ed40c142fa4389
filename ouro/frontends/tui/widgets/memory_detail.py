"""MemoryDetail: all there is to tell of one thing in memory, and what can be followed from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import Static

from ouro.utils.text import clean

Style = Literal["", "title", "detail", "who", "flag", "added", "removed"]


@dataclass(frozen=True, slots=True)
class Link:
    """Something that Enter follows, or that a key works on."""

    kind: Literal["note", "turn", "commit", "hunk"]
    target: str
    turn: int = 0
    hunk: int = 0
    message: int = 0


@dataclass(slots=True)
class Page:
    """Lines, some of them links."""

    lines: list[tuple[str, Style, Link | None]] = field(default_factory=list)

    def add(self, text: str, style: Style = "", link: Link | None = None) -> None:
        """One line, or several; a link is one."""
        for line in clean(text).splitlines() or [""]:
            self.lines.append((line, style, link))


class MemoryDetail(VerticalScroll, can_focus=True):
    """A page. ↑↓ go from link to link where there are any, else they scroll."""

    COMPONENT_CLASSES = {  # noqa: RUF012 (Textual's own form)
        "preview--title", "preview--detail", "preview--who", "preview--flag", "preview--marked", "preview--added",
        "preview--removed",
    }  # fmt: skip
    BINDINGS = [  # noqa: RUF012 (as above)
        Binding("up,k", "step(-1)", show=False),
        Binding("down,j", "step(1)", show=False),
        Binding("pageup", "page_up", show=False),
        Binding("pagedown", "page_down", show=False),
    ]

    class Followed(Message):
        """A link was clicked."""

    def __init__(self) -> None:
        super().__init__(id="memory-detail")
        self._text = Static(markup=False)
        self._page = Page()
        self._links: list[int] = []
        self._place = 0

    def compose(self) -> ComposeResult:
        """One text."""
        yield self._text

    @property
    def link(self) -> Link | None:
        """The marked link; None where there is none."""
        return self._page.lines[self._links[self._place]][2] if self._links else None

    def show(self, page: Page) -> None:
        """Have this page, from its beginning."""
        self._page, self._place = page, 0
        seen: list[Link] = []
        self._links = []
        for number, (_line, _style, link) in enumerate(page.lines):
            if link is not None and link not in seen:
                seen.append(link)
                self._links.append(number)
        self._draw()
        self.scroll_home(animate=False)

    def action_step(self, by: int) -> None:
        """Mark the next link; without links, scroll."""
        place = self._place + by
        if not self._links or not 0 <= place < len(self._links):
            self.scroll_relative(y=by, animate=False, force=True)
            return
        self._place = place
        self._draw()
        line = self._drawn_line(self._links[place])
        if not self.scroll_offset.y <= line < self.scroll_offset.y + self.size.height - 1:
            self.scroll_to(y=max(0, line - self.size.height // 2), animate=False, force=True)

    def on_focus(self) -> None:
        """The marked link is shown only while the keys work on it."""
        self.call_later(self._draw)

    def on_blur(self) -> None:
        """As above."""
        self.call_later(self._draw)

    def _draw(self) -> None:
        text = Text(overflow="fold")
        marked = self._links[self._place] if self._links and self.has_focus else -1
        for number, (line, style, link) in enumerate(self._page.lines):
            sign = ("❯ " if number == marked else "› ") if number in self._links else ("  " if link else "")
            name = "marked" if number == marked else style
            rich = self.get_component_rich_style(f"preview--{name}", partial=True) if name else ""
            text.append(f"{sign}{line}\n", rich)
        self._text.update(text)

    def _drawn_line(self, number: int) -> int:
        """Where a line stands as it is folded."""
        width = max(1, self._text.size.width)
        lines: Sequence[tuple[str, Style, Link | None]] = self._page.lines[:number]
        return sum(max(1, -(-(Text(line).cell_len + 2 * (link is not None)) // width)) for line, _style, link in lines)
