"""RowList: a list of which only visible rows are drawn, with its scroll bar; PickList: choices that
typing filters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Generic, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding
from textual.geometry import Offset, Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBar, ScrollBarRender
from textual.strip import Strip

from ouro.frontends.tui.blocks.styled_lines import crop, split_at_code
from ouro.utils.text import clean

if TYPE_CHECKING:
    from ouro.display import Choice

_KEY_STEPS = {"up": -1, "down": 1, "ctrl+p": -1, "ctrl+n": 1}
"""By how many rows a key moves the mark, also while a search field has the focus."""
_TO_THE_END = 1_000_000
_LETTER_STEPS = {
    "j": 1,
    "k": -1,
    "g": -_TO_THE_END,
    "home": -_TO_THE_END,
    "G": _TO_THE_END,
    "end": _TO_THE_END,
}
PAGES = {"pageup": -1, "pagedown": 1}


class LineScrollBar(ScrollBar):
    """A vertical scrollbar that draws equal rows only once.

    Textual draws each row by itself, which takes as long as the text beside it.
    """

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines of the bar within `crop`. Equal lines share one strip, which is faster.

        If the bar has no height, or if Textual draws it in another way, Textual does it.
        """
        bar = self.render()
        height = max(self.size.height, crop.bottom)
        if not (isinstance(bar, ScrollBarRender) and isinstance(bar.style, Style) and height):
            return super().render_lines(crop)
        style = bar.style
        assert style.color is not None
        assert style.bgcolor is not None
        rows = bar.render_bar(
            height, bar.virtual_size, bar.window_size, bar.position, bar.thickness,
            back_color=style.bgcolor, bar_color=style.color,
        ).segments  # fmt: skip
        strips = {row: self._strip(row).crop(*crop.column_span) for row in set(rows)}
        return [strips[rows[y]] for y in crop.line_range]

    def _strip(self, row: Segment) -> Strip:
        """A segment of the scroll bar in the colours of the widget."""
        background = self.background_colors[1]
        style = self.visual_style.rich_style + row.style
        strip = Strip([Segment(row.text, style)], row.cell_length)
        for line_filter in self.get_line_filters():
            strip = strip.apply_filter(line_filter, background)
        return strip


class LineScroll(ScrollView):
    """Textual's ScrollView without animation, which would draw each step many times."""

    DEFAULT_CSS = """
    LineScroll {
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

    @property
    def vertical_scrollbar(self) -> ScrollBar:
        """The scrollbar, made as Textual makes it, but of the class that draws faster."""
        if self._vertical_scrollbar is None:
            bar = LineScrollBar(name="vertical", thickness=self.scrollbar_size_vertical)
            bar.display = False
            self._vertical_scrollbar = bar
            self.app._start_widget(self, bar)
        return self._vertical_scrollbar

    def render_lines(self, crop: Region) -> list[Strip]:
        """The visible rows. If a subclass returns them from `_rows`, this leaves out what Textual
        does for borders, padding and opacity, which is a third of the time of a page.
        """
        rows = self._rows(crop)
        if rows is None or any(self.styles.gutter) or self.opacity != 1:
            return super().render_lines(crop)
        background = self.background_colors[1]
        for line_filter in self.get_line_filters():
            rows = [row.apply_filter(line_filter, background) for row in rows]
        return [row.crop(*crop.column_span) for row in rows]

    def _rows(self, _visible: Region) -> list[Strip] | None:
        """The rows of the visible region, if a subclass has them ready. None: Textual calls
        `render_line` for each row.
        """
        return None

    def step(self, lines: int) -> None:
        self.scroll_to(y=self.scroll_offset.y + lines, animate=False, force=True)

    def action_page_up(self) -> None:
        self.step(1 - max(2, self.size.height))

    def action_page_down(self) -> None:
        self.step(max(2, self.size.height) - 1)

    def action_scroll_home(self) -> None:
        self.step(-self.virtual_size.height)

    def action_scroll_end(self) -> None:
        self.step(self.virtual_size.height)

    def action_scroll_up(self) -> None:
        self.step(-1)

    def action_scroll_down(self) -> None:
        self.step(1)


T = TypeVar("T")
Cell = tuple[str, str]
"""Text, and its style: `marked`, `detail`, `found`, `flag`, `code`, or empty."""


def code_cells(text: str, room: int, style: str, *, fills: bool = False) -> Iterable[Cell]:
    """Yield the text as cells. Together they have at most `room` columns, or with `fills` exactly
    `room`, because blanks are added. Text between backticks gets the style `code`, and the
    backticks are left out.
    """
    pieces = list(split_at_code(text))
    cropped = crop("".join(words for words, _ in pieces), room)
    if fills:
        cropped = set_cell_size(cropped, room)
    end = 0
    for words, is_code in pieces:
        yield cropped[end : end + len(words)], "code" if is_code else style
        end += len(words)
    yield cropped[end:], style  # the blanks


class RowList(LineScroll, Generic[T], can_focus=True):
    """A list with one line for each row. Subclasses draw the cells of a row."""

    COMPONENT_CLASSES = {  # noqa: RUF012
        "rows--marked",
        "rows--detail",
        "rows--found",
        "rows--flag",
        "rows--code",
    }
    BINDINGS = [  # noqa: RUF012 (as above)
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home,g", "move(-1000000)", show=False),
        Binding("end,G", "move(1000000)", show=False),
    ]
    marked_index: reactive[int] = reactive(0, repaint=False)
    LEADS_CURSOR = True
    """Whether the cursor of the terminal is on the marked row, where screen readers look."""

    class Picked(Message):
        """A click on a row, which is marked now."""

    class Marked(Message):
        """Another row is marked, or none."""

    def __init__(self, id: str | None = None) -> None:  # noqa: A002 (Textual's own name)
        super().__init__(id=id)
        self.rows: Sequence[T] = ()
        self._nothing = ""

    @property
    def marked(self) -> T | None:
        """The marked row; None if there are no rows."""
        return self.rows[self.marked_index] if self.rows else None

    def key_of(self, row: T) -> object:
        """The key that identifies a row when the rows change."""
        return row

    def cells(self, row: T, is_marked: bool, width: int) -> Iterable[Cell]:
        """The cells of a row, in `width` columns."""
        raise NotImplementedError

    def show(self, rows: Sequence[T], nothing: str = "", *, keep_mark: bool = True) -> None:
        """Show these rows, or the text `nothing` if there are none.

        With `keep_mark` the marked row stays marked. If it is gone, the row at its index is marked.
        Without `keep_mark` the first row is marked.
        """
        old_row = self.marked
        new_index = 0
        if keep_mark:
            new_index = min(self.marked_index, max(0, len(rows) - 1))
            if old_row is not None:
                new_index = self._index_of(old_row, rows, default=new_index)
        self.rows, self._nothing = rows, nothing
        self._update_height()
        self.marked_index = new_index
        self._show_marked_row()
        self.refresh()
        if old_row != self.marked:
            self.post_message(self.Marked())

    def _index_of(self, row: T, rows: Sequence[T], *, default: int) -> int:
        """The index of the row with the same key in other rows; `default` if it is not there."""
        key = self.key_of(row)
        for index, other in enumerate(rows):
            if self.key_of(other) == key:
                return index
        return default

    def action_move(self, by: int) -> None:
        """Move the mark down by `by` rows, or up if `by` is negative. It stops at the first and the
        last row.
        """
        index = max(0, min(len(self.rows) - 1, self.marked_index + by))
        if index != self.marked_index:
            self.marked_index = index
            self.post_message(self.Marked())

    def _move_around(self, by: int) -> None:
        """Move the mark as `action_move`, but by one row from the last row to the first, and back."""
        leaves_list = abs(by) == 1 and not 0 <= self.marked_index + by < len(self.rows)
        self.action_move(-by * _TO_THE_END if leaves_list else by)

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, self.size.height - 1))

    def move_by_key(self, key: str, *, is_alone: bool = False) -> bool:
        """Move the mark for a key; returns False if the key does not move it. Letters move it only
        with `is_alone`, which means that no search field takes them as text.
        """
        steps = {**_KEY_STEPS, **_LETTER_STEPS} if is_alone else _KEY_STEPS
        if key in steps:
            self._move_around(steps[key])
        elif key in PAGES:
            self.action_page(PAGES[key])
        return key in steps or key in PAGES

    def watch_marked_index(self, old: int, new: int) -> None:
        """Show another mark: scroll to it, move the cursor of the terminal there, and draw only the
        two rows that have changed.
        """
        self._show_marked_row()
        if self.is_mounted and self.LEADS_CURSOR:
            row = Offset(0, new - self.scroll_offset.y)
            self.app.cursor_position = self.content_region.offset + row
        for index in (old, new):
            self.refresh(Region(0, index - self.scroll_offset.y, self.size.width, 1))

    def on_resize(self) -> None:
        self._update_height()
        self._show_marked_row()

    def on_click(self, event: events.Click) -> None:
        """Mark and pick the row that was clicked."""
        offset = event.get_content_offset(self)
        if offset is None:  # on the border
            return
        index = offset.y + self.scroll_offset.y
        if 0 <= index < len(self.rows):
            self.action_move(index - self.marked_index)
            self.post_message(self.Picked())

    def render_line(self, y: int) -> Strip:
        """The line `y` of the widget: the cells of the row that is scrolled there, or a line of the
        text for an empty list. Below the last row it is blank.
        """
        index = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        cells: list[Cell] = []
        if 0 <= index < len(self.rows):
            is_marked = index == self.marked_index
            cells = [("❯ ", "marked") if is_marked else ("  ", "")]
            cells += self.cells(self.rows[index], is_marked, max(0, width - 2))
        elif not self.rows:
            lines = wrap(self._nothing, max(1, width - 4))  # a margin of two cells on each side
            text = lines[y] if y < len(lines) else ""
            cells = [("  ", ""), *code_cells(text, width, "detail")]
        list_style = self.rich_style  # Textual computes it from all ancestors each time
        segments = [Segment(text, self._style(name, list_style)) for text, name in cells]
        return Strip(segments).crop_extend(0, width, list_style)

    def _style(self, name: str, list_style: Style) -> Style:
        """The style of a cell, by its name; empty: the style of the list."""
        if not name:
            return list_style
        return list_style + self.get_component_rich_style(f"rows--{name}", partial=True)

    def _update_height(self) -> None:
        self.virtual_size = Size(self.size.width, len(self.rows))

    def _show_marked_row(self) -> None:
        """Scroll as little as needed to show the marked row."""
        top, height = self.scroll_offset.y, max(1, self.size.height)
        new_top = min(max(top, self.marked_index - height + 1), self.marked_index)
        if new_top != top:
            self.scroll_to(y=new_top, animate=False, force=True)


class PickList(RowList["Choice"], can_focus=False):
    """The choices that contain all searched words. It has no focus: the dialog passes it keys."""

    def __init__(
        self,
        choices: Sequence[Choice] = (),
        current: str = "",
        nothing: str = "No matches.",
        id: str | None = None,  # noqa: A002 (Textual's own name)
    ) -> None:
        """`current` is the value of the choice in use, which is marked first and has a tick."""
        super().__init__(id)
        self._all = self.rows = choices
        self._nothing = nothing
        self._current = current
        self._words: list[str] = []
        """The words that a choice must contain to be shown."""
        for index, choice in enumerate(choices):
            if current and choice.value == current:
                self.marked_index = index
                break

    def key_of(self, row: Choice) -> object:
        return row.value

    def fill(self, choices: Sequence[Choice], nothing: str) -> None:
        """Show choices in a list that was made without them. `nothing` is shown if no choice
        matches.
        """
        self._nothing = nothing
        self.change(choices)

    def narrow(self, text: str) -> None:
        """Show only the choices that contain all words of this text."""
        words = text.lower().split()
        if words != self._words:
            self._words = words
            self.change(self._all, keep_mark=False)

    def change(self, choices: Sequence[Choice], *, keep_mark: bool = True) -> None:
        """Replace the choices, and show those that contain the searched words. With `keep_mark` the
        same choice stays marked; without it, the best match of the search.
        """
        self._all = choices
        matching = choices if not self._words else list(filter(self._matches, choices))
        self.show(matching, self._nothing, keep_mark=keep_mark)
        if not keep_mark:
            self.action_move(self._index_of_best())
        self.refresh(layout=True)

    def _index_of_best(self) -> int:
        """The index of the best match: the first choice whose label begins with the search; 0 if there
        is none. So `llama` marks llama.cpp below Ollama.
        """
        search = " ".join(self._words)
        for index, choice in enumerate(self.rows):
            if choice.label.lower().startswith(search):
                return index
        return 0

    def _matches(self, choice: Choice) -> bool:
        """Whether a choice is listed: its label and detail contain all searched words."""
        if choice.fits_all:
            return True
        text = f"{choice.label} {choice.detail}".lower()
        return all(word in text for word in self._words)

    def cells(self, choice: Choice, is_marked: bool, width: int) -> Iterable[Cell]:
        """The label of a choice, a tick for the current one, and its detail. The widest visible
        label and detail decide where the details begin.
        """
        top = self.scroll_offset.y
        visible_choices = self.rows[top : top + max(1, self.size.height)]
        widest_label = max(cell_len(_label(other)) for other in visible_choices)
        widest_detail = max(cell_len(clean(other.detail)) + 2 for other in visible_choices)
        # A narrow list leaves more room to the labels, by which the user chooses.
        max_detail = width // 2 if width >= 60 else width * 2 // 5
        room_for_detail = max(2, min(widest_detail, max_detail))
        label_width = min(widest_label, max(1, width - room_for_detail))
        tick = "  ✓" if self._current and choice.value == self._current else ""
        style = "marked" if is_marked else ""
        label = _label(choice)
        if not choice.detail:  # the label may take the room of the detail
            label_width = max(label_width, min(cell_len(label), width - len(tick)))
        yield from code_cells(label, label_width, style, fills=True)
        yield tick, ""
        if choice.detail:
            detail = f"  {clean(choice.detail)}".replace("\n", " ")
            yield from code_cells(detail, max(0, width - label_width - len(tick)), "detail")

    def is_cut(self, choice: Choice) -> bool:
        """Whether the line is too narrow for a choice. It is if the drawn choice has more ellipses
        than the choice itself.
        """
        width = self.scrollable_content_region.width - 2  # without the mark of the row
        drawn_ellipses = sum(text.count("…") for text, _ in self.cells(choice, True, width))
        return drawn_ellipses > f"{choice.label}{choice.detail}".count("…")

    def get_content_height(self, *_: object) -> int:
        """The lines for all choices, so that the list keeps its height while a search narrows it."""
        return max(1, len(self._all))


def _label(choice: Choice) -> str:
    return clean(choice.label).replace("\n", " ⏎ ")
