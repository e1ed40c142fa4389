"""TranscriptView: all blocks of a session as one scrolling column of lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from time import monotonic, perf_counter

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.cache import LRUCache
from textual.geometry import Region, Size
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from textual.timer import Timer

from ouro.frontends.tui.blocks.block_list import BlockLine, BlockList, TranscriptBlock
from ouro.frontends.tui.blocks.messages import MARGIN, UserMessage, queued_lines
from ouro.frontends.tui.blocks.paged_lines import plain_lines
from ouro.frontends.tui.blocks.palette import Palette
from ouro.frontends.tui.blocks.styled_lines import (
    StyledLine,
    crop,
    mark_span,
    selected_text,
    text_to_copy,
)
from ouro.frontends.tui.scrolling_layout import ScrollingLayout
from ouro.frontends.tui.widgets.row_list import LineScroll
from ouro.utils.text import plural

MAX_STRIPS = 300
"""The number of cached strips. Each has some fifty objects, which the garbage collector visits."""
MIN_FRAME = 1 / 25
"""Seconds between two frames while text is streamed."""
FRAME_PAUSE_FACTOR = 6
"""After a frame, the next one waits at least this many times its duration."""
MAX_QUEUED_IN_SIGHT = 3
"""Queued messages that stay in sight while the user reads above."""
_MAX_COVERED_ROWS = MAX_QUEUED_IN_SIGHT + 1
"""The rows that queued messages and the hint may cover."""
_CLOCK_SECONDS = 0.25
"""Seconds between two updates of clocks in blocks."""


class TranscriptView(LineScroll):
    """All blocks of a session. Stays at its end unless the user scrolled up.

    Args:
        outputs_key: the key that opens tool outputs, as blocks name it.
        clock: the seconds that running blocks show.
    """

    class TopReached(Message):
        """The user scrolled to the first line."""

    class QueueClicked(Message):
        """The user clicked on a queued message that stays in sight."""

    def __init__(
        self,
        *,
        outputs_key: str = "Ctrl+O",
        receipt_key: str = "Ctrl+Y",
        send_key: str = "Alt+S",
        clock: Callable[[], float] = monotonic,
        id: str | None = None,  # noqa: A002
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.outputs_key = outputs_key
        """The key that opens tool outputs, as blocks name it."""
        self.receipt_key = receipt_key
        """The key of the memory receipt; empty: it has none."""
        self.send_key = send_key
        """The key that sends what another project knows; empty: it has none."""
        self.clock = clock
        self.following = True
        """Whether it stays at the end."""
        self._palette = Palette(variables={})
        self._blocks = BlockList(self._palette)
        self._frame_timer: Timer | None = None
        self._move_timer: Timer | None = None
        self._frame_cost = 0.0
        self._strips: LRUCache[tuple[StyledLine, int], Strip] = LRUCache(MAX_STRIPS)
        self._queued: tuple[Sequence[str], Sequence[str]] = ((), ())
        """The messages that steer the turn, and those that are queued."""
        self._starting_message: UserMessage | None = None
        self._queue_rows: list[StyledLine] = []
        self._footer: list[StyledLine] = []
        """The lines below the blocks: the starting message, and `_queue_rows`."""
        self._last_seen: tuple[TranscriptBlock, int] | None = None
        """The last block when the user left the end, and how many lines it had then."""
        self._is_arranging = False
        """Whether it changes its own height or position, which is no scroll by the user."""
        self._card: TranscriptBlock | None = None
        """The card that is marked by keys."""
        self._search_text = ""
        """The searched text, in lower case."""
        self._match: BlockLine | None = None
        """The last match of the search."""

    def add(self, block: TranscriptBlock, *, start: TranscriptBlock | None = None) -> None:
        """Add a block at the end. `start` is the first block of what is added together: if all from
        there on is longer than the screen, scroll to its first line instead of the end.
        """
        self._blocks.add(block)
        self.draw_soon()
        if start is None or not self.following:
            return
        self._draw()  # now the heights are known
        lines_from_start = self._blocks.total - self._blocks.top(start) - start.gap
        if lines_from_start > self.size.height:
            self._go_to(start, int(start.gap))
            self._last_seen = (block, 0)  # no line of it was seen: the hint counts them all

    def prepend(self, blocks: Sequence[TranscriptBlock]) -> None:
        """Put blocks before all others, without moving what is visible."""
        line_on_top = self._blocks.block_at(self.scroll_offset.y)
        self._blocks.prepend(blocks)
        self._return_to(line_on_top)

    @property
    def blocks(self) -> Sequence[TranscriptBlock]:
        return self._blocks.blocks

    def draw_soon(self) -> None:
        """Draw all changes with the next frame: MIN_FRAME from now, or later if the last frame was
        slow. Does nothing before the widget is mounted.
        """
        if self._frame_timer is None and self.is_mounted:
            pause = max(MIN_FRAME, self._frame_cost * FRAME_PAUSE_FACTOR)
            self._frame_timer = self.set_timer(pause, self._draw)

    def _draw(self) -> None:
        """Draw what has changed, measure how long it takes, and keep clocks in blocks going."""
        if self._frame_timer is not None:
            self._frame_timer.stop()
            self._frame_timer = None
        started = perf_counter()
        self._arrange(self._blocks.draw_changes())
        self._frame_cost = perf_counter() - started
        # Only while something moves: an idle program must not wake up.
        if self._move_timer is None and self._blocks.moving:
            self._move_timer = self.set_timer(_CLOCK_SECONDS, self._redraw_clocks)

    def discard(self, *blocks: TranscriptBlock) -> None:
        self._blocks.remove(blocks)
        if self._last_seen is not None and self._last_seen[0] in blocks:
            self._last_seen = None
        self.draw_soon()

    def clear(self) -> None:
        self.discard(*self._blocks.blocks)
        self.set_queued(steering=(), queued=())
        self.following = True

    def set_queued(
        self,
        steering: Sequence[str],
        queued: Sequence[str],
        starting: UserMessage | None = None,
    ) -> None:
        """Show the messages that wait, below the blocks.

        Args:
            steering: those that the running turn gets.
            queued: those for later turns.
            starting: the message of a turn that begins, as the transcript will show it.
        """
        self._queued = (tuple(steering), tuple(queued))
        self._starting_message = starting
        self.draw_soon()

    def toggle_outputs(self) -> None:
        """Open all tool outputs and thinking, or fold them if all are open."""
        foldable = [block for block in self._blocks.blocks if block.foldable]
        self._fold(foldable, not all(block.is_open for block in foldable))

    def mark_card(self, by: int) -> bool:
        """Mark the next card (`by` is 1) or the previous one (-1), and scroll to it. If none is marked
        yet, -1 marks the last card, and 1 none. The first card stays marked with -1. Returns False if
        no card is marked afterwards: after the last card the mark ends, and the view follows the end
        of the transcript.
        """
        cards = [block for block in self._blocks.blocks if block.foldable]
        behind_last = len(cards)
        index = behind_last if by > 0 else behind_last - 1
        if self._card in cards:
            index = max(0, cards.index(self._card) + by)
        self._card = cards[index] if 0 <= index < len(cards) else None
        if self._card is None:
            self.follow()
        elif not self._is_visible(self._card):
            self._go_to(self._card, line=0, lines_above=self.size.height // 3)
        self.refresh()
        return self._card is not None

    def _is_visible(self, block: TranscriptBlock) -> bool:
        """Whether the first line of a block, after its gap, is on the screen."""
        row = self._blocks.top(block) + block.gap - self.scroll_offset.y
        return 0 <= row < self.size.height

    def toggle_card(self) -> bool:
        """Unfold or fold the marked card, or mark the last one first. Returns False without cards."""
        if self._card not in self._blocks.blocks and not self.mark_card(-1):
            return False
        if self._card is not None:
            self._fold([self._card], not self._card.is_open, keep=self._card)
        return True

    def open_only(
        self, blocks_to_open: Collection[TranscriptBlock] | None = None
    ) -> frozenset[TranscriptBlock]:
        """Open these tool outputs and thinking, or all of them for None, and fold the others. Returns
        those that were open before.
        """
        foldable = frozenset(block for block in self._blocks.blocks if block.foldable)
        open_before = frozenset(block for block in foldable if block.is_open)
        open_after = foldable
        if blocks_to_open is not None:
            open_after = foldable.intersection(blocks_to_open)
        self._fold(open_after - open_before, is_open=True)
        self._fold(open_before - open_after, is_open=False)
        return open_before

    def follow(self) -> None:
        """Scroll to the end, and stay there when lines are added."""
        self.following = True
        self._arrange()

    def go_to_prompt(self, number_from_end: int) -> None:
        """Scroll to a message of the user: 1 is the last one, 2 the one before it. Does nothing if there
        are fewer messages.
        """
        self._draw()  # new blocks do not have a height yet
        messages = self._prompts()
        if 0 < number_from_end <= len(messages):
            self._go_to(messages[-number_from_end], line=0)

    def _prompts(self) -> list[UserMessage]:
        return [block for block in self._blocks.blocks if isinstance(block, UserMessage)]

    def go_to_next_prompt(self, by: int) -> None:
        """Scroll to the next message of the user below the top of the screen (`by` is 1), or to the
        previous one above it (-1). If there is none, scroll to the end or to the beginning.
        """
        top = self.scroll_offset.y
        below: list[UserMessage] = []
        above: list[UserMessage] = []
        for message in self._prompts():
            first_line = self._blocks.top(message) + message.gap
            if first_line > top:
                below.append(message)
            elif first_line < top:
                above.append(message)
        if by > 0 and below:
            self._go_to(below[0], int(below[0].gap))
        elif by > 0:
            self.follow()
        elif above:
            self._go_to(above[-1], int(above[-1].gap))
        else:
            self.action_scroll_home()

    def find(self, text: str, by: int) -> bool:
        """Mark all matches of `text`, and scroll to the next one below (`by` is 1) or above (-1).

        Starts at the last match, else at the last visible line, or at the end if nothing is below
        it. Returns False if there is no match in that direction. An empty text ends the search.
        """
        self._search_text = text.lower()
        if not text:
            self._match = None
            self.refresh()
            return False
        start = self._search_start()
        matches = self._matches_below(start) if by > 0 else self._matches_above(start)
        match = next(matches, None)
        if match is None:
            self.refresh()
            return False
        self._match = match
        self._go_to(match.block, match.number, lines_above=self.size.height // 3)
        return True

    def _search_start(self) -> BlockLine | None:
        """The last match, if its block is still there; else the last visible line. None if nothing
        is below the visible part.
        """
        if self._match is not None and self._match.block in self._blocks.blocks:
            return self._match
        return self._blocks.block_at(self.scroll_offset.y + self.size.height)

    def _matches_below(self, start: BlockLine | None) -> Iterator[BlockLine]:
        """Yield the matches after a line, from top to bottom; none if there is no start."""
        blocks = self._blocks.blocks
        first = blocks.index(start.block) if start else len(blocks)
        for block in blocks[first:]:
            for line in self._matches(block):
                if start is None or block is not start.block or line > start.number:
                    yield BlockLine(block, line)

    def _matches_above(self, start: BlockLine | None) -> Iterator[BlockLine]:
        """Yield the matches before a line, from bottom to top; all of them if there is no start."""
        blocks = self._blocks.blocks
        last = blocks.index(start.block) if start else len(blocks)
        for block in reversed(blocks[: last + 1]):
            for line in reversed(self._matches(block)):
                if start is None or block is not start.block or line < start.number:
                    yield BlockLine(block, line)

    def _matches(self, block: TranscriptBlock) -> list[int]:
        """The numbers of the lines of a block that contain the searched text. If a wrapped line has
        it in two parts, this is the first line of the block. Empty without a match.
        """
        source = block.as_markdown().lower()
        if not all(word in source for word in self._search_text.split()):
            return []  # without drawing the block
        lines = plain_lines(block.lines(self.size.width, self._palette))
        matches = [
            number for number, line in enumerate(lines) if self._search_text in line.text.lower()
        ]
        if matches:
            return matches
        is_in_wrapped_line = self._search_text in text_to_copy(lines).lower()
        return [0] if is_in_wrapped_line else []

    def _go_to(self, block: TranscriptBlock, line: int, lines_above: int = 0) -> None:
        """Leave the end, and scroll to a line of a block, so that `lines_above` lines are visible
        above it.
        """
        self._remember_end()
        self.following = False
        self._return_to(BlockLine(block, line), lines_above)

    def action_scroll_end(self) -> None:
        self.follow()

    def as_markdown(self) -> str:
        return "\n\n".join(filter(None, (block.as_markdown() for block in self._blocks.blocks)))

    def tail(self, lines: int) -> str:
        """The last lines of the transcript as plain text, to print when ouro ends."""
        self._blocks.measure_end(lines)
        total = self._blocks.total
        return "\n".join(line.text.rstrip() for _, line in self._blocks.lines(total - lines, total))

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self._use_theme())
        self._use_theme()
        self.draw_soon()

    def on_resize(self) -> None:
        self._restyle()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """After a scroll by the user, follow new lines if the end is reached. Scrolling up also draws
        the blocks above ahead of time; at the top, earlier messages are asked for.
        """
        super().watch_scroll_y(old_value, new_value)
        if self._is_arranging:
            return
        self.following = round(new_value) >= self.max_scroll_y
        self._arrange()
        if new_value < old_value:
            self.call_after_refresh(self._blocks.draw_ahead, self.scroll_offset.y, self.size.height)
        if round(new_value) == 0:
            self.post_message(self.TopReached())

    def step(self, lines: int) -> None:
        """Scroll by so many lines, up if negative. At the top, this asks for earlier messages."""
        if lines < 0 and self.scroll_offset.y == 0:
            self.post_message(self.TopReached())
        super().step(lines)

    def on_click(self, event: events.Click) -> None:
        """Go to the end for a click on the hint in the last row, show the queue for one on a queued
        message above it, and unfold or fold the card that is clicked elsewhere.
        """
        if self.text_selection is not None or event.button != 1:
            return
        rows_below = self.size.height - 1 - event.y
        hint_rows = 1 if self._hint() else 0
        if rows_below < hint_rows:
            self.follow()
            return
        if rows_below < hint_rows + len(self._queued_in_sight()):
            self.post_message(self.QueueClicked())
            return
        clicked = self._blocks.block_at(event.y + self.scroll_offset.y)
        if clicked is not None and clicked.block.foldable:
            self._fold([clicked.block], not clicked.block.is_open, keep=clicked.block)

    def get_selection(self, selection: Selection) -> tuple[str, str]:
        """The selected text without decoration; if all is selected, the transcript as Markdown. Both
        have a line break as their end.
        """
        if selection.start is None and selection.end is None:
            return self.as_markdown(), "\n"
        start = selection.start.y if selection.start else 0
        end = selection.end.y + 1 if selection.end else self._blocks.total
        return selected_text(self._blocks.lines(start, end), selection), "\n"

    def _rows(self, visible: Region) -> list[Strip]:
        """The visible rows, without the offsets that `render_line` adds for a selection."""
        # Read once: Textual computes each of them.
        size, top, selection = self.size, self.scroll_offset.y, self.text_selection
        return [self._strip(y, y + top, size, selection)[0] for y in visible.line_range]

    def render_line(self, y: int) -> Strip:
        """The row `y`. If a selection may begin in it, its cells know their line and column."""
        number = y + self.scroll_offset.y
        strip, is_text = self._strip(y, number, self.size, self.text_selection)
        return strip.apply_offsets(0, number) if is_text else strip

    def _strip(
        self, y: int, number: int, size: Size, selection: Selection | None
    ) -> tuple[Strip, bool]:
        """The row `y` of the widget, which shows the line `number` of the transcript or what is drawn
        over it; and whether a selection may begin there.
        """
        width, base = size.width, self._palette.text
        may_be_covered = y >= size.height - _MAX_COVERED_ROWS
        overlay = self._overlay_strip(y) if may_be_covered else None
        if overlay is not None:
            return overlay, False
        line = self._blocks.line(number)
        if line is None:
            return self._render_below(number - self._blocks.total), False
        if self._search_text and self._search_text in line.text.lower():
            return self._render_matches(line), False
        if self._is_head_of_card(number):
            without_margin = Strip(line.segments).crop_extend(0, width, base)
            without_margin = without_margin.crop(cell_len(MARGIN), width)
            mark = Strip([Segment("❯ ", self._palette.accent)])
            return Strip.join([mark, without_margin]), False
        if selection is not None and (span := selection.get_span(number)) is not None:
            line = mark_span(line, span, self._selection_style())
        return self._cached_strip(line, width), True

    def _selection_style(self) -> Style:
        return self.screen.get_component_rich_style("screen--selection")

    def _cached_strip(self, line: StyledLine, width: int) -> Strip:
        """A line without marks as a strip of this width, which is made once."""
        strip = self._strips.get((line, width))
        if strip is None:
            strip = Strip(line.segments).crop_extend(0, width, self._palette.text)
            self._strips.set((line, width), strip)
        return strip

    def _render_below(self, number: int) -> Strip:
        """The line `number` below the blocks: one of the footer, or an empty one."""
        segments = self._footer[number].segments if 0 <= number < len(self._footer) else []
        return Strip(segments).crop_extend(0, self.size.width, self._palette.text)

    def _render_matches(self, line: StyledLine) -> Strip:
        """A line with all places of the searched text marked."""
        style = self._selection_style()
        for match in re.finditer(re.escape(self._search_text), line.text.lower()):
            line = mark_span(line, match.span(), style)
        return Strip(line.segments).crop_extend(0, self.size.width, self._palette.text)

    def _is_head_of_card(self, number: int) -> bool:
        """Whether the line is the first one of the marked card, after its gap."""
        card = self._card
        return card is not None and self._blocks.block_at(number) == (card, int(card.gap))

    def _overlay_strip(self, y: int) -> Strip | None:
        """What is drawn over the row `y` while the user reads above: the last rows show the queued
        messages, and below them the hint with the number of new lines. None: nothing is.
        """
        palette, hint, queued = self._palette, self._hint(), self._queued_in_sight()
        hint_rows = 1 if hint else 0
        row = y - (self.size.height - len(queued) - hint_rows)
        if row < 0:
            return None
        if row < len(queued):
            return Strip(queued[row].segments).crop_extend(0, self.size.width, palette.text)
        if not hint:
            return None
        hint_strip = Strip([Segment(hint, palette.user_bar)])
        return hint_strip.crop_extend(0, self.size.width, palette.user_bar)

    def _queued_in_sight(self) -> Sequence[StyledLine]:
        """The lines of queued messages that are drawn over the transcript while the end, where they
        are, is not visible. If there are too many, the last line says how many are left out.
        """
        if self.following or not self._queue_rows or self.screen.has_class("-reading"):
            return ()
        room = max(1, min(MAX_QUEUED_IN_SIGHT, self.size.height // 3))
        _blank, *lines = self._queue_rows
        if len(lines) <= room:
            return lines
        hidden_count = len(lines) - room + 1
        note = crop(f"{MARGIN}… {plural(hidden_count, 'more queued message')}", self.size.width)
        return [*lines[: room - 1], StyledLine([Segment(note, self._palette.muted)])]

    def _redraw_clocks(self) -> None:
        """Draw the blocks again that show a clock."""
        self._move_timer = None
        for block in self._blocks.moving:
            block.invalidate()
            self.draw_soon()

    def _arrange(self, first_changed_line: int | None = None) -> None:
        """Update the footer, the height of what is scrolled, and the position, which is the end or
        else stays at the same line. Draw again from the first changed line on, or all for None.
        """
        height = self.size.height
        top = self.scroll_offset.y
        self._queue_rows = queued_lines(*self._queued, self.size.width, self._palette)
        self._footer = [*self._starting_lines(), *self._queue_rows]
        if self.following:
            self._blocks.measure_end(height)
            self._remember_end()
            top = max(0, self._blocks.total + len(self._footer) - height)
        else:
            top += self._blocks.measure(top, height)  # the blocks above may have grown
        self._resize_content()
        shift = top - self.scroll_offset.y
        if shift != 0 and (first_changed_line is None or not self._shift_rows(shift)):
            self._jump(top)
            return
        first_row = 0
        if first_changed_line is not None:
            # Also the rows that come in, and those that a hint may cover, which counts new lines.
            covered_rows = 0 if self.following else _MAX_COVERED_ROWS
            last_rows = max(shift, covered_rows)
            first_row = max(0, min(first_changed_line - top, height - last_rows))
        self.refresh(Region(0, first_row, self.size.width, height - first_row))

    def _shift_rows(self, shift: int) -> bool:
        """Scroll down by so many lines, and let the terminal move the rows that stay visible. Only the
        rows that come in must be drawn then. Returns False, and does nothing, if the rows on the
        screen are not those of the last frame, or if the layout of the screen cannot do this.
        """
        layout = self.screen._compositor
        has_room = 0 < shift < self.size.height
        if not (isinstance(layout, ScrollingLayout) and has_room) or self._repaint_regions:
            return False
        layout.shift_rows(self, shift)
        top = self.scroll_offset.y + shift
        self.set_reactive(TranscriptView.scroll_y, top)
        self.scroll_target_y = top
        self.vertical_scrollbar.position = top
        return True

    def _starting_lines(self) -> Sequence[StyledLine]:
        """The message of a turn that begins, with the gap that it will have."""
        if self._starting_message is None:
            return ()
        self._starting_message.gap = bool(self._blocks.blocks)
        return self._starting_message.lines(self.size.width, self._palette)

    def _resize_content(self) -> None:
        """Set the height of what is scrolled, without a layout: Textual would arrange the whole screen
        at each new line, and the place of this widget does not depend on its lines.
        """
        size = Size(self.size.width, self._blocks.total + len(self._footer))
        if size.height != self.virtual_size.height:
            self._is_arranging = True
            self.set_reactive(TranscriptView.virtual_size, size)
            self._scroll_update(size)
            self._is_arranging = False

    def _jump(self, top: int) -> None:
        """Scroll so that this line is on top, without the reactions to a scroll by the user."""
        self._is_arranging = True
        self.scroll_to(y=top, animate=False, force=True)
        self._is_arranging = False

    def _use_theme(self) -> None:
        self._palette = Palette(self.app.theme_variables)
        self._restyle()

    def _restyle(self) -> None:
        """Draw all again for a new width or theme. About the same words stay on top, though a long
        answer has more lines in a narrow window. If there were no new lines to hint at, there are
        none afterwards. The block on top and the last one are drawn at once to know their heights.
        """
        line_on_top = self._blocks.block_at(self.scroll_offset.y)
        was_all_seen = not self._hint()
        old_height = line_on_top.block.height if line_on_top is not None else 0
        # Before the first layout the widget has no width; the width of the screen is close enough.
        self._blocks.restyle(self.size.width or self.app.size.width, self._palette)
        if line_on_top is not None:
            block, old_number = line_on_top
            self._blocks.measure(self._blocks.top(block), 1)
            line_on_top = BlockLine(block, old_number * block.height // old_height)
        self._return_to(line_on_top)
        if was_all_seen:
            self._blocks.measure_end(1)
            self._remember_end()

    def _return_to(self, block_line: BlockLine | None, lines_above: int = 0) -> None:
        """Scroll to a line of a block, so that `lines_above` lines are visible above it. For None, or
        while the end is followed, only arrange the lines again.
        """
        if block_line is not None and not self.following:
            block, number = block_line
            # The blocks that will be visible are drawn first: only then their heights are known.
            self._blocks.measure(self._blocks.top(block), self.size.height)
            self._resize_content()
            top = self._blocks.top(block) + min(number, block.height - 1) - lines_above
            self._jump(max(0, min(top, self.max_scroll_y)))
        self._arrange()

    def _fold(
        self,
        blocks: Collection[TranscriptBlock],
        is_open: bool,
        keep: TranscriptBlock | None = None,
    ) -> None:
        """Open or fold blocks. The block `keep` stays where it is on the screen, also if the end was
        followed; without it, the line on top does. At the end, new lines are followed.
        """
        top = self.scroll_offset.y
        line_on_top = self._blocks.block_at(top)
        if keep is not None:
            line_on_top = BlockLine(keep, top - self._blocks.top(keep))
        self._blocks.fold(blocks, is_open)
        if keep is not None:
            self._remember_end()
            self.following = False
        self._return_to(line_on_top)
        is_at_end = self.scroll_offset.y >= self.max_scroll_y
        self.following = self.following or is_at_end

    def _remember_end(self) -> None:
        """Remember how far the user has seen the transcript."""
        blocks = self._blocks.blocks
        self._last_seen = (blocks[-1], blocks[-1].height) if blocks else None

    def _hint(self) -> str:
        """The text that counts the lines below which the user has not seen; empty if there are none,
        and while the end is followed.
        """
        if self.following or self._last_seen is None:
            return ""
        last_block, lines_seen = self._last_seen
        seen_at_end = self._blocks.top(last_block) + lines_seen
        seen_here = self.scroll_offset.y + self.size.height - 1  # the hint covers the last row
        new_lines = self._blocks.total - max(seen_at_end, seen_here)
        if new_lines <= 0:
            return ""
        return crop(f"  ↓ {plural(new_lines, 'new line')}", self.size.width)
