"""Transcript: the conversation as one scrolling column of lines, drawn once and kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic, perf_counter

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.timer import Timer

from ouro.frontends.tui.blocks.block import Block
from ouro.frontends.tui.blocks.block_list import BlockList
from ouro.frontends.tui.blocks.lines import Line, copied, crop, indent, tidy
from ouro.frontends.tui.blocks.messages import Answer
from ouro.frontends.tui.blocks.palette import make_palette

_FRAME = 1 / 25
"""Seconds between two frames while text streams in."""
_SHARE = 6
"""A frame that took long is followed by a wait of so many times its length."""
_TICK = 0.25


class Transcript(ScrollView):
    """All blocks of a conversation. Stays at its end unless the reader scrolled up."""

    DEFAULT_CSS = """
    Transcript {
        height: 1fr;
        background: $background;
        overflow-x: hidden;
        overflow-y: scroll;
        scrollbar-size-vertical: 1;
        scrollbar-background: $background;
        scrollbar-background-hover: $background;
        scrollbar-background-active: $background;
    }
    """

    def __init__(
        self,
        *,
        outputs_key: str = "Ctrl+O",
        clock: Callable[[], float] = monotonic,
        id: str | None = None,  # noqa: A002
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.outputs_key = outputs_key
        """The key that opens tool outputs, as blocks name it."""
        self.clock = clock
        self.following = True
        """At the end, and staying there."""
        self._palette = make_palette({})
        self._blocks = BlockList(self._palette)
        self._queued: tuple[str, ...] = ()
        self._footer: list[Line] = []
        self._dirty: dict[Block, None] = {}
        self._moving: dict[Block, None] = {}
        self._frame_timer: Timer | None = None
        self._frame_cost = 0.0
        self._seen_total = 0
        self._is_scrolling = False

    def add(self, block: Block) -> None:
        """Put a block at the end."""
        self._blocks.add(block)
        self.update(block)

    def update(self, block: Block) -> None:
        """Show what changed in a block, with the next frame."""
        self._dirty[block] = None
        if block.is_moving:
            self._moving[block] = None
        self._schedule()

    def discard(self, *blocks: Block) -> None:
        """Take blocks out again."""
        self._blocks.remove(blocks)
        for block in blocks:
            self._dirty.pop(block, None)
            self._moving.pop(block, None)
        self._schedule()

    def clear(self) -> None:
        """Take everything out."""
        self.discard(*self._blocks.blocks)
        self.set_queued(())
        self.following = True

    def set_queued(self, texts: Sequence[str]) -> None:
        """The messages that wait to be delivered, drawn below the last block."""
        self._queued = tuple(texts)
        self._schedule()

    def toggle_outputs(self) -> None:
        """Open all tool outputs and thinking; fold them where all are open."""
        foldable = [block for block in self._blocks.blocks if block.foldable]
        self._fold(foldable, not all(block.is_open for block in foldable))

    def toggle_last(self) -> None:
        """Open or fold the newest tool output."""
        newest = next((block for block in reversed(self._blocks.blocks) if block.foldable), None)
        if newest is not None:
            self._fold([newest], not newest.is_open)

    def follow(self) -> None:
        """Go to the end, and stay there."""
        self.following = True
        self._arrange()

    def last_answer(self) -> str:
        """The newest answer, as Markdown."""
        answers = (block for block in reversed(self._blocks.blocks) if isinstance(block, Answer))
        return next((block.as_markdown() for block in answers), "")

    def as_markdown(self) -> str:
        """The whole conversation, as Markdown."""
        return "\n\n".join(text for block in self._blocks.blocks if (text := block.as_markdown()))

    def tail(self, lines: int) -> str:
        """The end of the conversation as plain text, for the terminal that is left behind."""
        self._blocks.settle_end(lines)
        total = self._blocks.total
        return "\n".join(line.text.rstrip() for _, line in self._blocks.lines(total - lines, total))

    # What Textual calls

    def on_mount(self) -> None:
        """Take the theme's colours, and follow the theme from now on."""
        super().on_mount()
        self.app.theme_changed_signal.subscribe(self, lambda _: self._restyle())
        self.set_interval(_TICK, self._tick)
        self._restyle()

    def on_resize(self) -> None:
        """Wrap for the new width: what is on the screen now, the rest when it is reached."""
        self._restyle()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """The reader scrolled: draw what came into sight."""
        super().watch_scroll_y(old_value, new_value)
        if not self._is_scrolling:
            self.following = round(new_value) >= self.max_scroll_y
            self._arrange()

    def on_click(self, event: events.Click) -> None:
        """A click on a card folds or opens it; one on the hint goes to the end."""
        if self.text_selection is not None or event.button != 1:
            return
        if self._hint() and event.y == self.size.height - 1:
            self.follow()
        elif (found := self._blocks.block_at(event.y + self.scroll_offset.y)) is not None and found[0].foldable:
            self._fold([found[0]], not found[0].is_open, keep=found[0])

    @property
    def allow_select(self) -> bool:
        """Text can be selected with the mouse."""
        return True

    def selection_updated(self, selection: Selection | None) -> None:
        """Another part is selected."""
        self.refresh()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """What is selected, without decoration and without the line breaks that only the width made."""
        if selection.start is None and selection.end is None:
            return self.as_markdown(), "\n"
        start = selection.start.y if selection.start else 0
        end = selection.end.y + 1 if selection.end else self._blocks.total
        picked = []
        for number, line in self._blocks.lines(start, end):
            first, last = selection.get_span(number) or (0, 0)
            text = line.text[: None if last == -1 else last]
            picked.append(Line([Segment(text)], max(first, line.gutter), line.joint))
        return copied(picked), "\n"

    def render_line(self, y: int) -> Strip:
        """Line `y` of what is in sight."""
        width, base = self.size.width, self._palette.text
        number = y + self.scroll_offset.y
        if y == self.size.height - 1 and (hint := self._hint()):
            return Strip([Segment(hint, self._palette.user_bar)]).crop_extend(0, width, self._palette.user_bar)
        line = self._blocks.line(number)
        if line is None:
            below = number - self._blocks.total
            line = self._footer[below] if 0 <= below < len(self._footer) else None
            return Strip(line.segments if line else []).crop_extend(0, width, base)
        selection = self.text_selection
        span = selection.get_span(number) if selection is not None else None
        return line.strip(width, number, base) if span is None else self._selected(line, span, number)

    # How it works

    def _schedule(self) -> None:
        if self._frame_timer is None and self.is_mounted:
            delay = max(_FRAME, self._frame_cost * _SHARE)
            self._frame_timer = self.set_timer(delay, self._frame)

    def _frame(self) -> None:
        """Draw what has changed since the last frame."""
        self._frame_timer = None
        started = perf_counter()
        dirty, self._dirty = list(self._dirty), {}
        changed = [line for block in dirty if (line := self._blocks.update(block)) is not None]
        self._arrange(min(changed, default=None))
        self._frame_cost = perf_counter() - started

    def _arrange(self, changed: int | None = None) -> None:
        """Bring size and position in order; `changed` is the first line that is another one."""
        height = self.size.height
        self._footer = self._draw_footer()
        top = self.scroll_offset.y
        if self.following:
            self._blocks.settle_end(height)
        else:
            top += self._blocks.settle(top, height)
        total = self._blocks.total + len(self._footer)
        if total != self.virtual_size.height:
            self.virtual_size = Size(self.size.width, total)
        if self.following:
            self._seen_total = total
            top = max(0, total - height)
        if top != self.scroll_offset.y:
            self._go(top)
        elif changed is None:
            self.refresh()
        elif changed < top + height:
            first = max(0, changed - top)
            self.refresh(Region(0, first, self.size.width, height - first))

    def _go(self, top: int) -> None:
        self._is_scrolling = True
        try:
            self.scroll_to(y=top, animate=False, force=True)
        finally:
            self._is_scrolling = False

    def _restyle(self) -> None:
        place = self._blocks.block_at(self.scroll_offset.y)
        self._palette = make_palette(self.app.theme_variables)
        self._blocks.restyle(self.size.width, self._palette)
        self._return_to(place)

    def _return_to(self, place: tuple[Block, int] | None) -> None:
        """Have the same block on top as before everything moved."""
        if place is not None and not self.following:
            block, within = place
            self._blocks.settle(self._blocks.top(block), self.size.height)
            self.virtual_size = Size(self.size.width, self._blocks.total + len(self._footer))
            self._go(min(self._blocks.top(block) + within, self.max_scroll_y))
        self._arrange()

    def _fold(self, blocks: Sequence[Block], is_open: bool, keep: Block | None = None) -> None:
        """Open or fold; `keep` stays where it is on the screen, else what is on top."""
        place = (keep, self.scroll_offset.y - self._blocks.top(keep)) if keep else self._blocks.block_at(self.scroll_offset.y)
        for block in blocks:
            block.set_open(is_open)
        self._blocks.refold(blocks)
        if keep is not None:
            self.following = False
        self._return_to(place)
        self.following = self.following or self.scroll_offset.y >= self.max_scroll_y

    def _tick(self) -> None:
        """Move the clocks."""
        for block in list(self._moving):
            if not block.is_moving:
                del self._moving[block]
            block.changed()
            self._dirty[block] = None
        if self._dirty:
            self._schedule()

    def _hint(self) -> str:
        new = self._blocks.total + len(self._footer) - self._seen_total
        if self.following:
            return ""
        if new <= 0:
            return ""
        return crop(f" ↓ {new} new line{'s' if new != 1 else ''}", self.size.width)

    def _draw_footer(self) -> list[Line]:
        palette = self._palette
        lines: list[Line] = [Line([])] if self._queued else []
        for text in self._queued:
            words = crop(tidy(text), max(1, self.size.width - 12))
            lines += indent([Line([Segment(words, palette.muted)])], ("  ⋯ queued: ", palette.warning), ("", Style.null()))
        return lines

    def _selected(self, line: Line, span: tuple[int, int], number: int) -> Strip:
        text = line.text
        start, end = span[0], len(text) if span[1] == -1 else span[1]
        style = self.screen.get_component_rich_style("screen--selection")
        strip = Strip(line.segments)
        cuts = [cell_len(text[:start]), cell_len(text[:end]), strip.cell_length]
        before, inside, after = strip.divide(cuts)
        joined = Strip.join([before, Strip(Segment.apply_style(inside, post_style=style)), after])
        return joined.crop_extend(0, self.size.width, self._palette.text).apply_offsets(0, number)


