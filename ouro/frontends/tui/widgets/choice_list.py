"""ChoiceList: a widget with the numbered choices of a question."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual import events
from textual.geometry import Offset, Size
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from ouro.frontends.tui.blocks.styled_lines import fold
from ouro.utils.text import clean


class ChoiceList(Widget):
    """The numbered choices of a question. Its panel has the focus and handles the keys."""

    COMPONENT_CLASSES = {"options--marked", "options--detail"}  # noqa: RUF012 (Textual's own form)
    marked_index: reactive[int] = reactive(0)
    ticked: reactive[frozenset[int]] = reactive(frozenset())
    comment: reactive[str] = reactive("", layout=True)
    """What the marked choice tells the agent."""

    class Picked(Message):
        """A click on a choice, which is marked now."""

    def __init__(self, lines: Sequence[tuple[str, str]], box_count: int = 0) -> None:
        """`lines`: the label and the detail of each choice. The first `box_count` have boxes to tick."""
        super().__init__()
        self.lines = lines
        self._box_count = box_count

    def move(self, by: int) -> None:
        """Mark the next choice (`by` is 1) or the previous one (-1); the first follows the last."""
        self.marked_index = (self.marked_index + by) % max(1, len(self.lines))

    def watch_marked_index(self) -> None:
        """Move the cursor of the terminal to the marked choice: screen readers follow it."""
        if not self.is_mounted:
            return
        counts = [len(lines) for lines in self._render_choices(self.size.width)]
        row = sum(counts[: self.marked_index]) - self._first_line()
        self.app.cursor_position = self.content_region.offset + Offset(0, row)

    def toggle_tick(self, number: int) -> None:
        """Tick the box of the choice with this index, or remove its tick."""
        self.ticked = self.ticked ^ {number}

    def render(self) -> Text:
        """The wrapped choices with their details; the marked choice has a sign.

        If not all lines fit, the lines from the marked choice on are shown. An arrow in the second
        column of the first line tells that lines above are hidden, and one in the last line that
        lines below are.
        """
        lines: list[Text] = []
        for choice_lines in self._render_choices(self.size.width):
            lines += choice_lines
        first = self._first_line()
        last = first + self.size.height - 1
        has_lines_above, has_lines_below = first > 0, last < len(lines) - 1
        if has_lines_above:
            lines[first] = _with_arrow(lines[first], "↑")
        if has_lines_below:
            is_only_line = has_lines_above and first == last
            lines[last] = _with_arrow(lines[last], "↕" if is_only_line else "↓")
        return Text("\n").join(lines[first : last + 1])

    def _first_line(self) -> int:
        """The number of the first line that is shown. It is the first line of the marked choice, or
        an earlier one if the lines after it would not fill the widget.
        """
        counts = [len(lines) for lines in self._render_choices(self.size.width)]
        first_of_marked = sum(counts[: self.marked_index])
        first_of_last_page = sum(counts) - self.size.height
        return max(0, min(first_of_marked, first_of_last_page))

    def _render_choices(self, width: int) -> list[list[Text]]:
        """The lines of each choice. The detail is beside the label if both fit into one line of
        this width, otherwise below it.
        """
        detail_style = self.get_component_rich_style("options--detail", partial=True)
        rendered = []
        for number, (label, detail) in enumerate(self.lines):
            lines = self._render_label(number, label, width)
            detail_text = clean(detail)
            width_beside = lines[0].cell_len + len("  ") + cell_len(detail_text)
            fits_beside = len(lines) == 1 and width_beside <= width
            if not detail:
                rendered.append(lines)
            elif fits_beside:
                rendered.append([lines[0].append("  ").append(detail_text, detail_style)])
            else:
                parts = fold([(detail_text, detail_style)], width - len("    "))
                detail_lines = [Text(f"    {part.text}", detail_style) for part in parts]
                rendered.append(lines + detail_lines)
        return rendered

    def _render_label(self, number: int, label: str, width: int) -> list[Text]:
        """The label of a choice, wrapped, behind its mark, number and box. If the choice is marked,
        the comment for the agent follows the label.
        """
        is_marked = number == self.marked_index
        box = " " * len("[ ] ") if self._box_count else ""
        if number < self._box_count:
            box = "[x] " if number in self.ticked else "[ ] "
        sign = f"{'❯' if is_marked else ' '} {number + 1} {box}"
        style = Style()
        if is_marked:
            style = self.get_component_rich_style("options--marked", partial=True)
            label += f", and tell the agent: {self.comment}" if self.comment else ""
        first, *rest = fold([(clean(label).replace("\n", " "), style)], width - len(sign))
        lines = [Text(sign).append(first.text, style)]
        lines += [Text(" " * len(sign)).append(part.text, style) for part in rest]
        return lines

    def get_content_height(self, _container: Size, _viewport: Size, width: int) -> int:
        return sum(len(lines) for lines in self._render_choices(width))

    def on_click(self, event: events.Click) -> None:
        """Mark and choose the choice that was clicked."""
        offset = event.get_content_offset(self)
        if offset is None:  # on the border
            return
        line = self._first_line() + offset.y
        end = 0
        for number, choice_lines in enumerate(self._render_choices(self.size.width)):
            end += len(choice_lines)
            if line < end:
                self.marked_index = number
                self.post_message(self.Picked())
                return


def _with_arrow(line: Text, arrow: str) -> Text:
    """The line with an arrow in its second column, which is blank in the lines of a choice."""
    return line[:1] + arrow + line[2:]
