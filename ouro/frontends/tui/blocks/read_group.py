"""ReadGroup: calls that read and search one after the other, as one line once they are done."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len
from rich.segment import Segment

from ouro.frontends.tui.blocks.block_list import TranscriptBlock
from ouro.frontends.tui.blocks.messages import MARGIN
from ouro.frontends.tui.blocks.paged_lines import put_below
from ouro.frontends.tui.blocks.palette import Palette
from ouro.frontends.tui.blocks.styled_lines import StyledLine, crop
from ouro.frontends.tui.blocks.tool_card import ToolCard
from ouro.frontends.tui.blocks.tool_kind import READ
from ouro.utils.text import plural

_READ_VERB = "read "
_LINE_RANGE = re.compile(r":\d{1,9}-\d{0,9}$")
"""The lines at the end of the title of a read, such as `:10-40`."""


class ReadGroup(TranscriptBlock):
    """Cards of reads and searches in a row. Finished ones are one line together; cards that run,
    wait or failed have their own. Unfolded, each card is shown.
    """

    foldable = True
    is_compact = True

    def __init__(self) -> None:
        super().__init__()
        self._cards: list[ToolCard] = []

    def add(self, card: ToolCard) -> None:
        """Add a card, which is open if the group is. From then on the group is drawn again after
        each change of the card.
        """
        card.on_change = self.invalidate
        card.set_open(self.is_open)
        self._cards.append(card)
        self.invalidate()

    def invalidate(self) -> None:
        self.is_moving = any(card.is_moving for card in self._cards)
        super().invalidate()

    def set_open(self, is_open: bool) -> None:
        super().set_open(is_open)
        for card in self._cards:
            card.set_open(is_open)

    def forget(self) -> None:
        super().forget()
        for card in self._cards:
            card.forget()

    def estimate(self, width: int) -> int:
        folded_cards, other_cards = self._parts()
        folded_lines = 1 if folded_cards else 0
        return folded_lines + sum(card.estimate(width) for card in other_cards)

    def as_markdown(self) -> str:
        return "\n\n".join(card.as_markdown() for card in self._cards)

    def _draw(self, width: int, palette: Palette) -> Sequence[StyledLine]:
        """One line for the cards that are folded together, if there are any, and below it the lines
        of the other cards.
        """
        folded_cards, other_cards = self._parts()
        lines: Sequence[StyledLine] = []
        if folded_cards:
            lines = [_folded_line(folded_cards, width, palette)]
        for card in other_cards:
            if card.is_moving:  # the line shows the time that has passed
                card.forget()
            lines = put_below(list(lines), card.lines(width, palette))
        return lines

    def _parts(self) -> tuple[list[ToolCard], list[ToolCard]]:
        """Two lists: the cards that are shown together in one line, and the other cards. If the
        group is unfolded, or if fewer than two cards are done, no cards are shown together.
        """
        done = [card for card in self._cards if card.state == "done"]
        if self.is_open or len(done) < 2:
            return [], self._cards
        return done, [card for card in self._cards if card.state != "done"]


def _folded_line(cards: Sequence[ToolCard], width: int, palette: Palette) -> StyledLine:
    """One line for several calls: how many files were read and how many searches were made, then
    the names of the files and the titles of the searches, until the line is full. A file that was
    read several times counts once.
    """
    titles = [card.title for card in cards]
    reads = [title for title in titles if title.startswith(_READ_VERB)]
    searches = [title for title in titles if not title.startswith(_READ_VERB)]
    files = dict.fromkeys(_LINE_RANGE.sub("", title).removeprefix(_READ_VERB) for title in reads)
    counts = []
    if files:
        counts.append(f"read {plural(len(files), 'file')}")
    if searches:
        counts.append(plural(len(searches), "search", "searches"))
    room = max(8, width - len(MARGIN) - 3)  # the last column belongs to the scroll bar
    head = crop(", ".join(counts), room)
    names = [file.rstrip("/").rpartition("/")[2] or file for file in files]
    details = crop(f" · {', '.join([*names, *searches])}", max(0, room - cell_len(head)))
    return StyledLine(
        [
            Segment(f"{MARGIN}{READ.sign} ", getattr(palette, READ.color)),
            Segment(head, palette.strong),
            Segment(details, palette.muted),
        ],
        gutter=len(MARGIN) + 2,
    )
