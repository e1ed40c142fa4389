"""ResumePanel: what the user should know before the first call after a resume, and what to resume with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.widget import Widget

from ouro.frontends.session_lines import card_choices, card_lines, now, title
from ouro.frontends.tui.look import HEADER_FROM_HEIGHT
from ouro.session.opening import Part

if TYPE_CHECKING:
    from ouro.session import ResumeCard

_BETWEEN = "   "
_NAME = 12


class ResumePanel(Widget):
    """Above the prompt, which keeps the focus. A message sent without a choice resumes with the full session.

    On empty input Tab marks the next choice, Enter takes it, Esc closes the panel.
    """

    COMPONENT_CLASSES = {"resume--name", "resume--marked"}  # noqa: RUF012 (Textual's own form)

    class Chosen(Message):
        def __init__(self, part: Part) -> None:
            super().__init__()
            self.part = part

    def __init__(self) -> None:
        super().__init__(id="resume")
        self.clock = now
        self._card: ResumeCard | None = None
        self._place = 0

    @property
    def is_open(self) -> bool:
        return self._card is not None

    def show(self, card: ResumeCard) -> None:
        self._card, self._place = card, 0
        self.border_title = f"resumed: {title(card.info)}"
        keys = "Tab next · Enter takes it · Esc closes" if len(self._choices) > 1 else "Enter · Esc closes"
        self.border_subtitle = f"{keys} · or type a message"
        self.display = True
        self.refresh(layout=True)

    def close(self) -> None:
        self._card = None
        self.display = False

    def press(self, action: str) -> None:
        """Tab (`queue`) or Enter (`send`) on empty input."""
        if self._card is None:
            return
        if action == "queue":
            self._place = (self._place + 1) % len(self._choices)
            self.refresh()
        else:
            self._choose(self._place)

    @property
    def _choices(self) -> list[tuple[Part, str]]:
        return card_choices(self._card) if self._card is not None else []

    def _choose(self, place: int) -> None:
        self.post_message(self.Chosen(self._choices[place][0]))
        self.close()

    def render(self) -> Text:
        return Text("\n").join(self._rows(self.size.width))

    def get_content_height(self, _container: Size, _viewport: Size, width: int) -> int:
        return len(self._rows(width))

    def _rows(self, width: int) -> list[Text]:
        if self._card is None:
            return []
        told = card_lines(self._card, self.clock())
        if self.app.size.height < HEADER_FROM_HEIGHT:
            told = [row for row in told if row[0] == "first call"]
        rows = []
        for name, words in told:
            row = Text(f"{name:<{_NAME}}", self.get_component_rich_style("resume--name", partial=True), no_wrap=True)
            rows.append(Text(no_wrap=True, end="").append_text(row).append(words))
        return [_cut(row, width) for row in [*rows, *(line for line, _ in self._choice_rows(width))]]

    def _choice_rows(self, width: int) -> list[tuple[Text, list[tuple[int, int]]]]:
        """The ways to go on, as many to a row as fit; with each row the column and the place of each."""
        marked = self.get_component_rich_style("resume--marked", partial=True)
        lines: list[tuple[Text, list[tuple[int, int]]]] = [(Text(no_wrap=True, end=""), [])]
        for place, (_part, words) in enumerate(self._choices):
            line, columns = lines[-1]
            if columns and line.cell_len + len(_BETWEEN) + 2 + len(words) > width:
                lines.append((Text(no_wrap=True, end=""), []))
                line, columns = lines[-1]
            line.append(_BETWEEN if columns else "")
            columns.append((line.cell_len, place))
            line.append(f"{'❯' if place == self._place else ' '} {words}", marked if place == self._place else "")
        return lines

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        choices = self._choice_rows(self.size.width)
        row = at.y - (self.size.height - len(choices)) if at is not None else -1
        if at is not None and 0 <= row < len(choices):
            places = [place for column, place in choices[row][1] if column <= at.x]
            self._choose(places[-1])


def _cut(row: Text, width: int) -> Text:
    row.truncate(max(1, width), overflow="ellipsis")
    return row
