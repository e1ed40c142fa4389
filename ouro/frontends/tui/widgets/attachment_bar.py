"""AttachmentBar: what the message in the prompt would attach, as chips with sizes, before sending."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from textual.content import Content
from textual.geometry import Size
from textual.reactive import reactive
from textual.widget import Widget

from ouro.frontends.tui.screen_constants import HEADER_FROM_HEIGHT
from ouro.utils.text import clean

if TYPE_CHECKING:
    from ouro.session import Attachment

MAX_LINES = 3
_LOOK_DELAY = 0.12
"""Seconds without a key until the files are looked at."""
_GAP = "  "


class AttachmentBar(Widget):
    """The line above the prompt; hidden while nothing is attached.

    Args:
        find: returns the attachments of a text.
    """

    chips: reactive[tuple[Attachment, ...]] = reactive((), layout=True)

    def __init__(self, find: Callable[[str], Awaitable[Sequence[Attachment]]]) -> None:
        super().__init__(id="attachments")
        self._find = find
        self._text = ""

    def show_attachments_of(self, text: str) -> None:
        """Show the attachments of a text when the user has not typed for _LOOK_DELAY. A text
        without `@` has no attachments.
        """
        if "@" not in text:
            self._text, self.chips = "", ()
        elif text != self._text:
            self._text = text
            # A function, and no coroutine: a worker may be replaced before it begins, and then
            # nothing would await the coroutine.
            find: Callable[[], Awaitable[None]] = partial(self._find_attachments, text)
            self.run_worker(find, exclusive=True)

    async def _find_attachments(self, text: str) -> None:
        """Wait for _LOOK_DELAY, find the attachments of a text, and show them if the text is still
        the same.
        """
        await asyncio.sleep(_LOOK_DELAY)
        attachments = await self._find(text)
        if text == self._text:
            self.chips = tuple(attachments)

    def watch_chips(self) -> None:
        self.display = bool(self.chips)

    @property
    def _max_rows(self) -> int:
        return 1 if self.app.size.height < HEADER_FROM_HEIGHT else MAX_LINES

    def get_content_height(self, _container: Size, _viewport: Size, width: int) -> int:
        return len(self._rows(width))

    def render(self) -> Content:
        return Content("\n").join(self._rows(self.size.width))

    def _rows(self, width: int) -> list[Content]:
        """The rows of chips. Each row has as many chips as fit, and the last row counts the chips
        that have no room. If a chip with a problem has no room, the chips with problems are put
        first.
        """
        rows, hidden = self._fill_rows(self.chips, width)
        if any(chip.problem for chip in hidden):
            problems_first = sorted(self.chips, key=lambda chip: not chip.problem)
            rows, _ = self._fill_rows(problems_first, width)
        return rows

    def _fill_rows(
        self, attachments: Sequence[Attachment], width: int
    ) -> tuple[list[Content], Sequence[Attachment]]:
        """Put chips into rows, in this order. Returns the rows, and the attachments that have no
        room; the last row says how many these are.
        """
        rows = [Content()]
        for number, attachment in enumerate(attachments):
            chip = _chip(attachment).truncate(max(1, width), ellipsis=True)
            row_is_full = rows[-1].cell_length + len(_GAP) + chip.cell_length > width
            if rows[-1] and row_is_full:
                if len(rows) == self._max_rows:
                    hidden = attachments[number:]
                    more = Content.styled(f"{_GAP}+{len(hidden)} more", "$muted")
                    room = max(1, width - more.cell_length)
                    rows[-1] = Content.assemble(rows[-1].truncate(room, ellipsis=True), more)
                    return rows, hidden
                rows.append(Content())
            rows[-1] = Content.assemble(rows[-1], _GAP if rows[-1] else "", chip)
        return rows, ()


def _chip(attachment: Attachment) -> Content:
    """An attachment with its size, or with its problem if it has one."""
    name = clean(attachment.name)
    if attachment.problem:
        return Content.styled(f"✗ {name}: {clean(attachment.problem)}", "$warning")
    size = f" {attachment.size}" if attachment.size else ""
    return Content.assemble((f"@{name}", "$secondary"), (size, "$muted"))
