"""ResumePanel: what changed since the session was last used, and how much of it to resume with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual import events
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.style import Style
from textual.widget import Widget

from ouro.frontends.session_lines import card_choices, card_lines, now, title_of
from ouro.frontends.tui.look import HEADER_FROM_HEIGHT
from ouro.session.opening import Part

if TYPE_CHECKING:
    from ouro.session import ResumeCard

_BETWEEN = "   "


class ResumePanel(Widget):
    """The panel above the prompt, which keeps the focus. A message without a choice resumes the full session.

    On empty input Tab marks the next choice, Enter takes it, Esc closes the panel.
    """

    @dataclass
    class Chosen(Message):
        part: Part

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
        self.border_title = f"resumed: {title_of(card.info)}"
        keys = "Tab next · Enter takes it · Esc closes" if len(self._choices) > 1 else "Enter · Esc closes"
        self.border_subtitle = f"{keys} · or type a message"
        self.display = True
        self.refresh(layout=True)

    def close(self) -> None:
        self._card = None
        self.display = False

    def mark_next(self) -> None:
        if self.is_open:
            self._place = (self._place + 1) % len(self._choices)
            self.refresh()

    def choose_marked(self) -> None:
        if self.is_open:
            self._choose(self._place)

    @property
    def _choices(self) -> list[tuple[Part, str]]:
        return card_choices(self._card) if self._card is not None else []

    def on_click(self, event: events.Click) -> None:
        if (place := event.style.meta.get("place")) is not None:
            self._choose(place)

    def _choose(self, place: int) -> None:
        self.post_message(self.Chosen(self._choices[place][0]))
        self.close()

    def render(self) -> Content:
        return Content("\n").join(self._rows(self.size.width))

    def get_content_height(self, _container: Size, _viewport: Size, width: int) -> int:
        return len(self._rows(width))

    def _rows(self, width: int) -> list[Content]:
        if self._card is None:
            return []
        facts = card_lines(self._card, self.clock())
        if self.app.size.height < HEADER_FROM_HEIGHT:
            facts = [fact for fact in facts if fact[0] == "first call"]
        rows = [Content.assemble((f"{name:<12}", "$muted"), words) for name, words in facts]
        return [row.truncate(max(1, width), ellipsis=True) for row in (*rows, *self._choice_rows(width))]

    def _choice_rows(self, width: int) -> list[Content]:
        """The choices, as many in a row as fit."""
        rows = [Content()]
        for place, (_part, words) in enumerate(self._choices):
            is_marked = place == self._place
            choice = Content.styled(f"{'❯' if is_marked else ' '} {words}", "$mark bold" if is_marked else "")
            choice = choice.stylize(Style.from_meta({"place": place}))
            if rows[-1] and rows[-1].cell_length + len(_BETWEEN) + choice.cell_length > width:
                rows.append(Content())
            rows[-1] = Content.assemble(rows[-1], _BETWEEN if rows[-1] else "", choice)
        return rows
