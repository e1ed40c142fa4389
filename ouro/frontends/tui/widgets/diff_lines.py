"""DiffLines: the lines of a diff with a mark, of which only visible pages are drawn."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec
from rich.cells import cell_len
from rich.segment import Segment
from textual import events, work
from textual.binding import Binding
from textual.geometry import Region, Size
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip

from ouro.display import NO_FILE
from ouro.frontends.tui.blocks.diff import DiffLayout, DiffPlace
from ouro.frontends.tui.blocks.file_diff import FileDiff, read_hunk
from ouro.frontends.tui.blocks.lines import StyledLine, crop, mark_span, selected_text
from ouro.frontends.tui.blocks.palette import Palette
from ouro.frontends.tui.widgets.row_list import LineScroll
from ouro.utils.git_diff import DiffedFile
from ouro.utils.text import clean

AHEAD_AFTER = 0.1
"""Seconds after the first page is shown until the next one is drawn: the first frames come before."""
MARGIN = "❯ "
"""Before the marked line; others have spaces there."""


class ParsedFile(msgspec.Struct, frozen=True):
    """A file of a diff of git, and what is drawn of it."""

    file: DiffedFile
    shown: FileDiff

    def line_text(self, place: DiffPlace) -> str:
        """The text of a line; empty for a place without one."""
        if place.hunk < 0 or not place.sign:
            return ""
        for pair in self.shown.hunks[place.hunk]:
            if place.sign == "-" and pair.old_number == place.number:
                return pair.old or ""
            if place.sign != "-" and pair.new_number == place.number:
                return pair.new or ""
        return ""


def parse_file(file: DiffedFile) -> ParsedFile:
    """A file of a diff of git, with its hunks as lines side by side."""
    before, after = file.old_path or file.path, file.path
    before = NO_FILE if file.kind == "added" else before
    after = NO_FILE if file.kind == "deleted" else after
    hunks = [read_hunk(hunk) for hunk in file.hunks]
    names, lines = [name for name, _ in hunks], [lines for _, lines in hunks]
    return ParsedFile(file, FileDiff(before, after, lines, names))


class DiffLines(LineScroll, can_focus=True):
    """Up and Down move the mark; `comments` are shown behind their lines."""

    BINDINGS = [  # noqa: RUF012 (Textual's own form)
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup,b", "page(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("home,g", "move(-1000000000)", show=False),
        Binding("end,G", "move(1000000000)", show=False),
    ]

    class Marked(Message):
        """Another line is marked."""

    class Picked(Message):
        """A click on the marked line."""

    def __init__(self, comments: Mapping[DiffPlace, str]) -> None:
        super().__init__(id="diff-lines")
        self._comments = comments
        self._layout: DiffLayout | None = None
        self._nothing = ""
        """The text that is shown without lines."""
        self._palette = Palette({})
        self.line = 0
        """The screen row of the mark."""

    @property
    def palette(self) -> Palette:
        return self._palette

    @property
    def text_width(self) -> int:
        """The cells beside the mark and the scroll bar."""
        return max(1, self.scrollable_content_region.width - len(MARGIN))

    @property
    def marked(self) -> DiffPlace | None:
        """The line of a file that is marked; None if there is none."""
        has_lines = self._layout is not None and len(self._layout.lines) > 0
        return self._layout.place(self.line) if has_lines and self._layout else None

    def show(self, layout: DiffLayout | None, line: int, nothing: str = "") -> None:
        """Show a layout with this line marked; without lines the text `nothing`."""
        self._layout, self._nothing = layout, nothing
        count = len(layout.lines) if layout is not None else 0
        self.virtual_size = Size(self.size.width, count)
        self.line = max(0, min(line, count - 1))
        self._show_line()
        self.refresh()
        self.post_message(self.Marked())
        self.set_timer(AHEAD_AFTER, self._draw_ahead)

    async def go_to(self, line: int) -> None:
        """Mark a line, and show what is below it."""
        top = max(0, line - min(2, self.size.height // 4))
        await self._draw(top)
        self.scroll_to(y=top, animate=False, force=True)
        self.move(line - self.line)

    async def _draw(self, top: int) -> None:
        """Draw the page with `top` as its first line before it is seen. A thread does it, so that
        other keys and frames go between.
        """
        if self._layout is None:
            return
        lines, height = self._layout.lines, self.size.height
        top = min(top, len(lines) - height)
        if not lines.is_drawn(top, top + height):
            await asyncio.to_thread(lines.draw, top, top + height)

    @work(group="ahead", exclusive=True)
    async def _draw_ahead(self) -> None:
        """Draw the pages that the next key may show."""
        top, height = self.scroll_offset.y, self.size.height
        await self._draw(top + height)
        await self._draw(max(0, top - height))

    async def action_move(self, by: int) -> None:
        """Move the mark by some lines, and paint only the two that change."""
        await self._draw(self._top_with(self._line_after(by)))
        self.move(by)

    def _line_after(self, by: int) -> int:
        """The line that is so many lines below the mark; the last one, if there are fewer."""
        count = len(self._layout.lines) if self._layout is not None else 0
        return max(0, min(count - 1, self.line + by))

    def move(self, by: int) -> None:
        line = self._line_after(by)
        if line == self.line:
            return
        before, self.line = self.line, line
        self._show_line()
        for number in (before, line):
            self.refresh(Region(0, number - self.scroll_offset.y, self.size.width, 1))
        self.post_message(self.Marked())

    async def action_page(self, by: int) -> None:
        lines = by * max(1, self.size.height - 1)
        await self._draw(max(0, self.scroll_offset.y + lines))
        self.step(lines)
        self.move(lines)

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self._use_theme())
        self._use_theme()

    def _use_theme(self) -> None:
        self._palette = Palette(self.app.theme_variables)

    def on_click(self, event: events.Click) -> None:
        """Mark the line; a click on the marked line picks it. The end of a selection is no click."""
        at = event.get_content_offset(self)
        if at is None or self.text_selection is not None or self._layout is None:
            return
        line = at.y + self.scroll_offset.y
        if line == self.line:
            self.post_message(self.Picked())
        elif line < len(self._layout.lines):
            self.move(line - self.line)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """The mouse scrolls: the mark stays in sight."""
        super().watch_scroll_y(old_value, new_value)
        top, height = round(new_value), max(1, self.size.height)
        within = max(top, min(self.line, top + height - 1))
        if within != self.line:
            self.move(within - self.line)
        self.call_after_refresh(self._draw_ahead)

    def get_selection(self, selection: Selection) -> tuple[str, str]:
        """The selected text, without the margins."""
        lines = self._layout.lines if self._layout is not None else ()
        start = selection.start.y if selection.start else 0
        end = selection.end.y + 1 if selection.end else len(lines)
        numbered = [(number, self._with_margin(lines[number])) for number in range(start, end)]
        return selected_text(numbered, selection), "\n"

    def render_line(self, y: int) -> Strip:
        """A line of the diff with its selection, and the start of its comment at the right."""
        row, width = y + self.scroll_offset.y, self.scrollable_content_region.width
        base = self._palette.text
        if self._layout is None or row >= len(self._layout.lines):
            words = crop(f"  {self._nothing}", width) if y == 0 and self._nothing else ""
            return Strip([Segment(words, self._palette.muted)]).crop_extend(0, width, base)
        line = self._with_margin(self._layout.lines[row], is_marked=row == self.line)
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(row)) is not None:
            line = mark_span(line, span, self.screen.get_component_rich_style("screen--selection"))
        comment = self._comment_at(row)
        strip = Strip(line.segments).crop_extend(0, width, base)
        if comment:
            words = crop(f"  ← {clean(comment)}", max(1, width - min(12, width // 3)))
            strip = strip.crop(0, width - cell_len(words))
            strip = Strip([*strip, Segment(words, self._palette.warning)])
        return strip.apply_offsets(0, row)

    def _with_margin(self, line: StyledLine, *, is_marked: bool = False) -> StyledLine:
        """The line behind the mark, or behind spaces."""
        blank = Segment(" " * len(MARGIN), self._palette.text)
        margin = Segment(MARGIN, self._palette.accent) if is_marked else blank
        gutter = line.gutter + len(MARGIN)
        return StyledLine([margin, *line.segments], gutter, line.joint, line.filling)

    def _comment_at(self, row: int) -> str:
        """The comment for a screen row; empty unless it is the first row of its file line."""
        if not self._comments or self._layout is None:
            return ""
        place = self._layout.place(row)
        is_first = row == 0 or self._layout.place(row - 1) != place
        return self._comments.get(place, "") if is_first else ""

    def _show_line(self) -> None:
        """Scroll so that the marked line is visible."""
        top = self._top_with(self.line)
        if top != self.scroll_offset.y:
            self.scroll_to(y=top, animate=False, force=True)

    def _top_with(self, line: int) -> int:
        """The first line in sight after the least scroll that shows a line."""
        height = max(1, self.size.height)
        return min(max(self.scroll_offset.y, line - height + 1), line)


def lay_out(
    files: Sequence[ParsedFile], width: int, palette: Palette, *, has_two_columns: bool
) -> DiffLayout:
    """Lay out files with their notes, in one column or two."""
    notes = [parsed.file.shown_notes for parsed in files]
    shown = [parsed.shown for parsed in files]
    return DiffLayout(shown, notes, width, palette, has_two_columns=has_two_columns)
