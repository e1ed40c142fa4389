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
from ouro.frontends.tui.blocks.diff_data import FileDiff, HunkLines, read_hunk
from ouro.frontends.tui.blocks.palette import Palette
from ouro.frontends.tui.blocks.styled_lines import StyledLine, crop, mark_span, selected_text
from ouro.frontends.tui.widgets.row_list import LineScroll
from ouro.utils.git_diff import DiffedFile
from ouro.utils.text import clean

AHEAD_AFTER = 0.1
"""Seconds after the first page is shown until the next one is drawn: the first frames come before."""
MARGIN = "❯ "
"""Before the marked line; others have spaces there."""


class ParsedFile(msgspec.Struct, frozen=True):
    """A file of a diff of git, and its lines before and after, as they are drawn."""

    file: DiffedFile
    shown: FileDiff

    def line_text(self, place: DiffPlace) -> str:
        """The text of the line at a place of this file. Empty if the place has no line."""
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
    names: list[str] = []
    hunks: list[HunkLines] = []
    for hunk_text in file.hunks:
        name, hunk = read_hunk(hunk_text)
        names.append(name)
        hunks.append(hunk)
    return ParsedFile(file, FileDiff(before, after, hunks, names))


class DiffLines(LineScroll, can_focus=True):
    """The lines of a diff. Keys move the mark from line to line; `comments` are shown at the right of
    their lines.
    """

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
        self._palette = Palette(variables={})
        self.line = 0
        """The number of the marked line in the layout."""

    @property
    def palette(self) -> Palette:
        return self._palette

    @property
    def text_width(self) -> int:
        """The cells beside the mark and the scroll bar."""
        return max(1, self.scrollable_content_region.width - len(MARGIN))

    @property
    def marked(self) -> DiffPlace | None:
        """What is drawn on the marked line; None if there are no lines."""
        if self._layout is None or len(self._layout.lines) == 0:
            return None
        return self._layout.place(self.line)

    def show(self, layout: DiffLayout | None, line: int, nothing: str = "") -> None:
        """Show a layout with this line marked, or the last one if there are fewer. Without lines show
        the text `nothing`.
        """
        self._layout, self._nothing = layout, nothing
        count = len(layout.lines) if layout is not None else 0
        self.virtual_size = Size(self.size.width, count)
        self.line = max(0, min(line, count - 1))
        self._show_line()
        self.refresh()
        self.post_message(self.Marked())
        self.set_timer(AHEAD_AFTER, self._draw_ahead)

    async def go_to(self, line: int) -> None:
        """Mark a line, and scroll so that it is near the top, because what is below it is of interest."""
        lines_above = min(2, self.size.height // 4)
        top = max(0, line - lines_above)
        await self._draw_page(top)
        self.scroll_to(y=top, animate=False, force=True)
        self.move(line - self.line)

    async def _draw_page(self, top: int) -> None:
        """Draw the page that begins at the line `top`, before it is seen. Near the end it is the
        last page. A thread draws it, so that other keys and frames are handled in the meantime.
        """
        if self._layout is None:
            return
        lines, height = self._layout.lines, self.size.height
        top = min(top, len(lines) - height)
        if not lines.is_drawn(top, top + height):
            await asyncio.to_thread(lines.draw, top, top + height)

    @work(group="ahead", exclusive=True)
    async def _draw_ahead(self) -> None:
        """Draw the pages below and above the present one, which the next key may show."""
        top, height = self.scroll_offset.y, self.size.height
        await self._draw_page(top + height)
        await self._draw_page(max(0, top - height))

    async def action_move(self, by: int) -> None:
        """Move the mark by `by` lines, after drawing the page that is shown then."""
        new_line = self._line_after(by)
        await self._draw_page(self._top_with(new_line))
        self.move(by)

    def _line_after(self, by: int) -> int:
        """The number of the line that is `by` lines below the mark, or above it if `by` is
        negative. Beyond the first or the last line, it is that line.
        """
        count = len(self._layout.lines) if self._layout is not None else 0
        return max(0, min(count - 1, self.line + by))

    def move(self, by: int) -> None:
        """Move the mark by `by` lines, and paint only the two lines that change."""
        old_line, new_line = self.line, self._line_after(by)
        if new_line == old_line:
            return
        self.line = new_line
        self._show_line()
        for number in (old_line, new_line):
            self.refresh(Region(0, number - self.scroll_offset.y, self.size.width, 1))
        self.post_message(self.Marked())

    async def action_page(self, by: int) -> None:
        """Scroll by a page, up for -1, and move the mark by the same number of lines."""
        lines = by * max(1, self.size.height - 1)
        await self._draw_page(max(0, self.scroll_offset.y + lines))
        self.step(lines)
        self.move(lines)

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self._use_theme())
        self._use_theme()

    def _use_theme(self) -> None:
        self._palette = Palette(self.app.theme_variables)

    def on_click(self, event: events.Click) -> None:
        """Mark the line that is clicked; a click on the marked line picks it. After a text was selected
        with the mouse, nothing happens.
        """
        offset = event.get_content_offset(self)
        if offset is None or self.text_selection is not None or self._layout is None:
            return
        line = offset.y + self.scroll_offset.y
        if line == self.line:
            self.post_message(self.Picked())
        elif line < len(self._layout.lines):
            self.move(line - self.line)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """After a scroll, also by the mouse, keep the mark on a visible line: it moves as little as
        possible. Then draw the next pages.
        """
        super().watch_scroll_y(old_value, new_value)
        top, height = round(new_value), max(1, self.size.height)
        line_in_sight = max(top, min(self.line, top + height - 1))
        if line_in_sight != self.line:
            self.move(line_in_sight - self.line)
        self.call_after_refresh(self._draw_ahead)

    def get_selection(self, selection: Selection) -> tuple[str, str]:
        """The selected text without the margins, and a line break as its end."""
        lines = self._layout.lines if self._layout is not None else ()
        start = selection.start.y if selection.start else 0
        end = selection.end.y + 1 if selection.end else len(lines)
        numbered = [(number, self._with_margin(lines[number])) for number in range(start, end)]
        return selected_text(numbered, selection), "\n"

    def render_line(self, y: int) -> Strip:
        """The row `y` of the widget: a line of the diff, with the selected text marked, and at the
        right the start of its comment. Without a diff, the first row says that there is none.
        """
        row = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        base = self._palette.text
        if self._layout is None or row >= len(self._layout.lines):
            text = crop(f"  {self._nothing}", width) if y == 0 and self._nothing else ""
            return Strip([Segment(text, self._palette.muted)]).crop_extend(0, width, base)
        line = self._with_margin(self._layout.lines[row], is_marked=row == self.line)
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(row)) is not None:
            line = mark_span(line, span, self.screen.get_component_rich_style("screen--selection"))
        comment = self._comment_at(row)
        strip = Strip(line.segments).crop_extend(0, width, base)
        if comment:
            width_of_line = min(12, width // 3)  # so much of it is seen in any case
            note = crop(f"  ← {clean(comment)}", max(1, width - width_of_line))
            strip = strip.crop(0, width - cell_len(note))
            strip = Strip([*strip, Segment(note, self._palette.warning)])
        return strip.apply_offsets(0, row)

    def _with_margin(self, line: StyledLine, *, is_marked: bool = False) -> StyledLine:
        """The line behind a margin: the mark, or spaces."""
        blank = Segment(" " * len(MARGIN), self._palette.text)
        margin = Segment(MARGIN, self._palette.accent) if is_marked else blank
        gutter = line.gutter + len(MARGIN)
        return StyledLine([margin, *line.segments], gutter, line.joint, line.filling)

    def _comment_at(self, row: int) -> str:
        """The comment to show on this line of the layout. Empty if there is none. A line of the
        file may be wrapped into several lines; only the first of them shows the comment.
        """
        if not self._comments or self._layout is None:
            return ""
        place = self._layout.place(row)
        is_continued = row > 0 and self._layout.place(row - 1) == place
        return "" if is_continued else self._comments.get(place, "")

    def _show_line(self) -> None:
        """Scroll so that the marked line is visible."""
        top = self._top_with(self.line)
        if top != self.scroll_offset.y:
            self.scroll_to(y=top, animate=False, force=True)

    def _top_with(self, line: int) -> int:
        """The first line in sight after as little scrolling as needed to show `line`."""
        height = max(1, self.size.height)
        return min(max(self.scroll_offset.y, line - height + 1), line)


def lay_out(
    files: Sequence[ParsedFile], width: int, palette: Palette, *, has_two_columns: bool
) -> DiffLayout:
    """Lay out files with their notes, in one column or two."""
    notes = [parsed.file.shown_notes for parsed in files]
    shown = [parsed.shown for parsed in files]
    return DiffLayout(shown, notes, width, palette, has_two_columns=has_two_columns)
