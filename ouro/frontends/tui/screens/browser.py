"""Browser: a screen with a search field, a list of rows, and the page of the marked row."""

from __future__ import annotations

import asyncio
import math
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

from rich.cells import cell_len
from textual import events, on
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from ouro.errors import OuroError
from ouro.frontends.tui.blocks.styled_lines import code_content
from ouro.frontends.tui.keymap import Keymap, Place
from ouro.frontends.tui.screens.dialogs import (
    MOVE_KEYS,
    Keys,
    MessageKind,
    SearchField,
    Sheet,
    make_frame,
)
from ouro.frontends.tui.widgets.row_list import RowList
from ouro.session.opening import OpenRequest
from ouro.utils.text import clean

PAGE_DELAY = 0.06
"""Seconds for which a row is marked before its page is loaded."""
PageStyle = Literal["", "title", "detail", "who", "flag", "added", "removed"]
_PAGE_STYLES: Mapping[PageStyle, str] = {
    "": "",
    "title": "$mark bold",
    "detail": "$muted",
    "who": "$secondary",
    "flag": "$warning",
    "added": "$success",
    "removed": "$error",
}


@dataclass(frozen=True, slots=True)
class PageLink:
    """A link that Enter opens, and the object that keys such as undo work on."""

    kind: Literal["note", "core", "proposal", "turn", "commit", "hunk"]
    target: str
    """The id of the object; of a turn the id of its session, of a hunk that of its commit."""
    turn: int = 0
    """The number of the turn; 0 for a link to a message."""
    hunk: int = 0
    message: int = 0
    """The number of the message; 0 if it is not known."""


class PageLine(NamedTuple):
    """A line of a page. `speaker` is written before it."""

    text: str
    style: PageStyle = ""
    link: PageLink | None = None
    speaker: str = ""


class Page:
    """The text beside or below the list, as lines with styles and links."""

    def __init__(self, title: str = "", detail: str = "") -> None:
        """Make a page that begins with a title and a line of details. Without a title it is empty."""
        self.lines: list[PageLine] = []
        if title:
            self.add(title, "title")
            self.add(detail, "detail")

    def add(
        self, text: str, style: PageStyle = "", link: PageLink | None = None, speaker: str = ""
    ) -> None:
        """Add a text, line by line. All lines get the style and the link. The speaker is named
        before the first line.
        """
        for line in clean(text).splitlines() or [""]:
            self.lines.append(PageLine(line, style, link, speaker))
            speaker = ""

    def section(self, title: str, style: PageStyle = "who", link: PageLink | None = None) -> None:
        """Add a blank line and the title of a section."""
        self.add("")
        self.add(title, style, link)


class PageView(VerticalScroll, can_focus=True):
    """Shows a page. ↑↓ go from link to link; without links they scroll."""

    BINDINGS = [  # noqa: RUF012 (Textual's own form)
        Binding("up,k", "step(-1)", show=False),
        Binding("down,j", "step(1)", show=False),
        Binding("pageup", "page_up", show=False),
        Binding("pagedown", "page_down", show=False),
    ]

    def __init__(self) -> None:
        self._text = Static(markup=False)
        super().__init__(self._text, id="browser-page")
        self._page = Page()
        self._link_lines: list[int] = []
        """The number of the first line of each link, in their order."""
        self._marked_index = 0
        """The index of the marked link in `_link_lines`."""

    @property
    def link(self) -> PageLink | None:
        """The marked link; None if the page has none."""
        if not self._link_lines:
            return None
        return self._page.lines[self._link_lines[self._marked_index]].link

    def show(self, page: Page) -> None:
        """Show a page from its top, with its first link marked. A link that has several lines is
        marked as one.
        """
        self._page, self._marked_index = page, 0
        first_lines: dict[PageLink, int] = {}
        for number, line in enumerate(page.lines):
            if line.link is not None:
                first_lines.setdefault(line.link, number)
        self._link_lines = list(first_lines.values())
        self._draw()
        self.scroll_home(animate=False)

    def action_step(self, by: int) -> None:
        """Mark the next link (`by` is 1) or the previous one (-1), and scroll so that it is seen. If
        there is no such link, scroll by one line.
        """
        new_index = self._marked_index + by
        if not 0 <= new_index < len(self._link_lines):
            self.scroll_relative(y=by, animate=False, force=True)
            return
        self._marked_index = new_index
        self._draw()
        width = max(1, self._text.size.width)
        lines_above = self._page.lines[: self._link_lines[new_index]]
        top = sum(_drawn_height(line, width) for line in lines_above)
        if not self.scroll_offset.y <= top < self.scroll_offset.y + self.size.height - 1:
            self.scroll_to(y=max(0, top - self.size.height // 2), animate=False, force=True)

    def on_focus(self) -> None:
        self.call_later(self._draw)

    on_blur = on_focus

    def _draw(self) -> None:
        """Draw the page with a sign before each link. The marked link stands out while the page has
        the focus.
        """
        pieces: list[tuple[str, str] | Content] = []
        shows_mark = bool(self._link_lines) and self.has_focus
        marked_line = self._link_lines[self._marked_index] if shows_mark else None
        for number, line in enumerate(self._page.lines):
            if number == marked_line:
                sign = "❯ "
            elif number in self._link_lines:
                sign = "› "
            else:
                sign = "  " if line.link else ""  # a further line of a link is indented
            if line.speaker:
                pieces.append((f"{line.speaker}  ", _PAGE_STYLES["who"]))
            style = _PAGE_STYLES["title" if number == marked_line else line.style]
            if line.style in ("added", "removed"):  # lines of a file: backticks are no markup
                pieces.append((f"{sign}{line.text}\n", style))
            else:
                pieces += [(sign, style), code_content(f"{line.text}\n", style)]
        self._text.update(Content.assemble(*pieces))


def _drawn_height(line: PageLine, width: int) -> int:
    """The screen rows that a line of a page takes at this width."""
    sign_width = 2 if line.link is not None else 0
    return max(1, math.ceil((cell_len(line.text) + sign_width) / width))


class Browser(Sheet[OpenRequest | None]):
    """A list with a search field, and the page of the marked row. Tab moves the focus between the
    list and the field. Subclasses fill the list and make the pages.

    A key of the keymap calls the method of its action: `rename_session` calls `_rename_session`.
    """

    BINDINGS = [Binding("ctrl+c", "clear_or_leave", show=False, priority=True)]  # noqa: RUF012 (Textual's own form)
    TITLE: ClassVar[str]
    READS_PAGES: ClassVar[bool] = False
    """Whether it opens with the focus in the list, and the page can get the focus."""

    def __init__(self, id: str, keymap: Keymap, place: Place, rows: RowList[Any]) -> None:  # noqa: A002
        self._keymap = keymap
        self._actions = keymap.actions_of(place)
        self._search = SearchField(
            placeholder="/ searches" if self.READS_PAGES else "type to search",
            id="browser-search",
            dialog_keys=self._actions,
        )
        self._count = Static("reading …", id="browser-count", markup=False)
        self._heading = Static(id="browser-heading", markup=False)
        self._list = rows
        self._page_view = PageView()
        self._page_view.can_focus = self.READS_PAGES
        sign = Static("❯ ", id="browser-sign", markup=False)
        head = Horizontal(sign, self._search, id="browser-head")
        body = Horizontal(rows, self._page_view, id="browser-body")
        self._key_place = place
        super().__init__(
            make_frame(
                self.TITLE,
                head,
                self._heading,
                body,
                keys=[("Esc", "closes")],
                id=id,
                beside=self._count,
                is_full=True,
            )
        )

    @abstractmethod
    async def _load(self) -> None:
        """Read the rows and show them."""

    @abstractmethod
    def _search_for(self, text: str) -> None:
        """Show the rows that match this text, the present text of the search field."""

    @abstractmethod
    async def _open(self) -> None:
        """Open the marked row: Enter or a click."""

    @abstractmethod
    async def _page(self) -> Page:
        """The page of the marked row."""

    @abstractmethod
    def _heading_text(self) -> str:
        """The line above the list."""

    @abstractmethod
    def _keys(self) -> Keys:
        """The keys in the last line; the last one is always shown."""

    def all_keys(self) -> Keys:
        """The keys that this screen has anywhere, for the list of keys."""
        return [
            *self._keymap.help_of_place(self._key_place),
            *MOVE_KEYS,
            ("Tab", "search, list"),
            ("Esc", "back"),
        ]

    def on_mount(self) -> None:
        (self._list if self.READS_PAGES else self._search).focus()
        self._show_frame()
        self.run_worker(self._load_or_explain(), group="load")

    async def _load_or_explain(self) -> None:
        """Read the rows and show them, or show why they cannot be read."""
        await self._attempt(self._load())

    def on_resize(self) -> None:
        self.call_after_refresh(self._show_frame)

    def on_descendant_focus(self) -> None:
        self._show_frame()

    @on(Input.Changed, "#browser-search")
    def _search_again(self, event: Input.Changed) -> None:
        self.key_line.show_keys()
        self._search_for(event.value)

    @on(RowList.Picked)
    async def _open_row(self) -> None:
        await self._open()

    @on(RowList.Marked)
    def _show_page_of_mark(self) -> None:
        self._show_page_later()

    def _show_page_later(self) -> None:
        self._start_page(PAGE_DELAY)

    def _start_page(self, delay: float) -> None:
        """Show the page of the marked row after `delay` seconds, instead of one that waits now."""
        # A function, and no coroutine: a worker may be replaced before it begins, and then nothing
        # would await the coroutine.
        show: Callable[[], Awaitable[None]] = partial(self._show_page, delay)
        self.run_worker(show, group="page", exclusive=True)

    async def _show_page(self, delay: float = 0.0) -> None:
        """After `delay` seconds, load the page of the marked row and show it. If it cannot be loaded,
        the page shows the error.
        """
        await asyncio.sleep(delay)
        try:
            page = await self._page()
        except (OuroError, OSError) as error:
            page = Page()
            page.add(" ".join(str(error).split()), "detail")
        if self.is_attached:  # the screen may have been closed while the page was loaded
            self._page_view.show(page)
            self._show_frame()

    async def _take_key(self, event: events.Key) -> bool:
        """Handle a key. Returns False if this screen has no action for it, or if it is text for the
        search field. In the search field, a key that edits text does that, even if it also has an
        action.
        """
        self.key_line.show_keys()  # instead of a message
        is_in_search = self._search.has_focus
        action = self._actions.get(event.key, "")
        begins_search = event.key == "slash" and not is_in_search
        if event.key == "enter":
            await self._open()
        elif event.key in ("tab", "shift+tab") or begins_search:
            (self._list if is_in_search else self._search).focus()
        elif is_in_search and self._list.move_by_key(event.key):
            pass  # the mark was moved; with the focus the list handles these keys itself
        elif not action or (is_in_search and self._edits_search(event)):
            return False
        else:
            await self._attempt(self._run_key_action(action))
        return True

    def _edits_search(self, event: events.Key) -> bool:
        """Whether a key is text for the search field, or moves the cursor in it."""
        moves_cursor = bool(self._search.value) and event.key in ("left", "right")
        return event.is_printable or moves_cursor

    async def _run_key_action(self, action: str) -> None:
        await getattr(self, f"_{action}")()

    async def _attempt(self, work: Awaitable[object]) -> bool:
        """Await the work; returns whether it succeeded. Its error is shown in the last line."""
        try:
            await work
        except (OuroError, OSError) as error:
            self._show_message(" ".join(str(error).split()), "-failed")
            return False
        return True

    def action_clear_or_leave(self) -> None:
        if not self.clear_field():
            self.action_leave()

    def action_leave(self) -> None:
        self.dismiss(None)

    def _show_frame(self) -> None:
        """Show the heading and, unless there is a message, the keys for the present focus. An
        action to which the user gave no key is left out.
        """
        self._heading.update(self._heading_text())
        if not self.key_line.has_message:
            more = "F1" if self._search.has_focus else "?"
            self.key_line.show_keys([key for key in self._keys() if key[0]], more)

    def _show_message(self, text: str, kind: MessageKind = "-asks") -> None:
        """Show a message in the last line until the next key. `kind` is `-asks` for a notice or
        question and `-failed` for an error.
        """
        self.key_line.show_message(text, kind)

    def _letter(self, action: str) -> str:
        """The key of an action, as the last line names it while the list has the focus. No text can
        be typed in the list, so it is a letter or Space if the action has one, else its first key.
        """
        for key in self._keymap.keys(action):
            if len(key) == 1 or key == "space":
                return key
        return self._keymap.key_text(action)
