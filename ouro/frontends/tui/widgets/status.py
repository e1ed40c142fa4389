"""Header, TodoPanel, StatusLine and ResumePanel: widgets that show the state of the session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual import events
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.style import Style
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from ouro.display import Todo
from ouro.frontends.session_format import (
    ITEMS_WITH_SCRIPT,
    card_choices,
    card_lines,
    now,
    session_title,
    status_items,
)
from ouro.frontends.tui.blocks.styled_lines import code_content
from ouro.frontends.tui.screen_constants import HEADER_FROM_HEIGHT, OPENING_TEXT
from ouro.frontends.tui.screen_settings import ScreenSettings
from ouro.session.opening import Part
from ouro.utils.text import clean

if TYPE_CHECKING:
    from ouro.events import Level
    from ouro.session import ResumeCard, Status

_ITEM_SEPARATOR, _CHOICE_GAP = " · ", "   "
MAX_TODOS = 7
"""Todos that are shown at once."""
_ITEMS_TO_DROP = ("sandbox", "tokens", "memories", "cost", "branch", "context", "model")
"""The items of the status line that are left out if there is no room, the first one first."""
_WORD_STYLES = {
    "ask": "$secondary",
    "edit": "$success",
    "plan": "$mark",
    "auto": "$warning bold",
    "info": "$foreground",
    "warning": "$warning",
    "error": "$error",
}
"""The styles of modes and of message levels."""
_TODO_STYLES = {"in_progress": "$foreground bold", "pending": "$muted", "done": "$faint"}


class Header(Widget):
    """The name of ouro, the folder and the title of the session; hidden on low terminals."""

    session_title: reactive[str] = reactive("")

    def __init__(self, settings: ScreenSettings) -> None:
        super().__init__(id="header")
        self._settings = settings

    def render(self) -> Content:
        """The version and folder at the left, and the title of the session at the right. The title is
        left out if it would have at most three cells.
        """
        where = f" {self._settings.version}".rstrip() + f" · {clean(self._settings.folder)}"
        left = Content.assemble(("ouro", "$mark bold"), where).truncate(self.size.width)
        room = self.size.width - left.cell_length
        # At least three blanks are between both.
        title = Content(clean(self.session_title)).truncate(max(0, room - 3), ellipsis=True)
        if title.cell_length <= 3:
            return left
        return Content.assemble(left, " " * (room - title.cell_length), title)


class TodoPanel(Static):
    """The plan above the prompt; the todo in progress is always visible."""

    todos: reactive[tuple[Todo, ...]] = reactive(())

    def __init__(self) -> None:
        super().__init__(id="todos", markup=False)
        self._is_wanted = True
        """Whether the plan is shown while todos are open. `toggle` changes it."""

    def toggle(self) -> bool:
        """Show or hide the plan; returns whether there is one. A plan that was hidden stays hidden when
        it changes.
        """
        self._is_wanted = not self.has_class("-open")
        self.set_class(self._is_wanted and bool(self.todos), "-open")
        return bool(self.todos)

    def watch_todos(self) -> None:
        """Show the todos around the first open one; the panel closes when all are done."""
        open_indexes = [index for index, todo in enumerate(self.todos) if todo.state != "done"]
        self.set_class(self._is_wanted and bool(open_indexes), "-open")
        done_count = len(self.todos) - len(open_indexes)
        self.border_title = f"plan {done_count}/{len(self.todos)}"
        first_open = open_indexes[0] if open_indexes else 0
        # Two that are done stay above the first open one.
        first_shown = max(0, min(first_open - 2, len(self.todos) - MAX_TODOS))
        rows = []
        for todo in self.todos[first_shown : first_shown + MAX_TODOS]:
            text = f"{todo.mark} {clean(todo.text)}".replace("\n", " ")
            rows.append(Content.styled(text, _TODO_STYLES[todo.state]))
        self.update(Content("\n").join(rows))


class StatusLine(Widget):
    """The items of the status line, such as model, mode and cost; or, for some seconds, a message."""

    status: reactive[Status | None] = reactive(None)
    message: reactive[str] = reactive("")
    script: reactive[str] = reactive("")
    """The line of the user's command; empty: the items."""
    queued: reactive[int] = reactive(0)
    """Messages that wait for the agent."""

    def __init__(self, items: Sequence[str]) -> None:
        super().__init__(id="status")
        self._items = tuple(items)
        self._level: Level = "info"
        self._timer: Timer | None = None
        """Ends the message."""
        self.asks_to_quit = False
        """Whether the message says that the same key quits now."""

    def show_message(
        self,
        text: str,
        level: Level = "info",
        seconds: float = 4.0,
        *,
        asks_to_quit: bool = False,
    ) -> None:
        """Show a message instead of the state of the session, for some seconds. A new message ends the
        one before.

        Args:
            asks_to_quit: whether it says that the same key quits now.
        """
        if self._timer is not None:
            self._timer.stop()
        self._level, self.message, self.asks_to_quit = level, text, asks_to_quit
        self._timer = self.set_timer(seconds, self.end_message)

    def end_message(self) -> None:
        self.message, self.asks_to_quit = "", False

    def render(self) -> Content:
        """The message if there is one, else the items of the session. If the user's status command has
        printed a line, that line is shown, too, and fewer items.
        """
        width = max(0, self.size.width)
        if self.message:
            line = code_content(clean(self.message), _WORD_STYLES[self._level])
        elif self.status is None:
            line = Content(OPENING_TEXT)
        else:
            queued = f"{self.queued} queued" if self.queued else ""
            texts = {**status_items(self.status), "queued": queued}
            line = self._line_with_script(texts) if self.script else self._fit_items(texts, width)
        return line.truncate(width, ellipsis=True)

    def _line_with_script(self, texts: dict[str, str]) -> Content:
        """The line if the user's status command has printed something: the items that the command
        cannot know or must not hide, then what it printed. `texts` has the text of each item, which
        is empty if there is nothing to show.
        """
        items = [item for item in self._items if item in ITEMS_WITH_SCRIPT and texts[item]]
        item_texts = [Content.styled(texts[item], _item_style(item, texts[item])) for item in items]
        return Content(_ITEM_SEPARATOR).join([*item_texts, _ansi_content(self.script)])

    def _fit_items(self, texts: dict[str, str], width: int) -> Content:
        """The items that fit into the line. While they are too long, the least important item is
        left out. Some items always stay, so the line may still be too long.
        """
        items = [item for item in self._items if texts[item]]
        line = _join_items(items, texts)
        for least_important in _ITEMS_TO_DROP:
            if line.cell_length <= width:
                break
            items = [item for item in items if item != least_important]
            line = _join_items(items, texts)
        return line


def _join_items(items: Sequence[str], texts: dict[str, str]) -> Content:
    """The texts of these items in their styles, with dots between them."""
    styled = [Content.styled(texts[item], _item_style(item, texts[item])) for item in items]
    return Content(_ITEM_SEPARATOR).join(styled)


def _ansi_content(line: str) -> Content:
    """A line as content of Textual. Codes of colours in the line are kept."""
    if "\x1b" not in line:
        return Content(line)
    from rich.text import Text  # few have a script

    return Content.from_rich_text(Text.from_ansi(line))


def _item_style(item: str, text: str) -> str:
    """The style of an item: a mode has its own, and a warning the one of warnings. Empty for any
    other item.
    """
    if item == "mode":
        return _WORD_STYLES[text]
    warns = item == "saved" or text.startswith("! ")  # `saved` is shown only if nothing is saved
    return "$warning" if warns else ""


class ResumePanel(Widget):
    """The resume card above the prompt, which keeps the focus. A message without a choice resumes
    the full session.

    On empty input Tab marks the next choice, Enter takes it, and Esc closes the panel.
    """

    @dataclass
    class Chosen(Message):
        part: Part

    def __init__(self) -> None:
        super().__init__(id="resume")
        self.clock = now
        self._card: ResumeCard | None = None
        """The facts about the resumed session; None while the panel is closed."""
        self._choices: list[tuple[Part, str]] = []
        """The parts with which it can be resumed, each with its label."""
        self._marked_index = 0
        """The index of the marked choice."""

    @property
    def is_open(self) -> bool:
        return self._card is not None

    def show(self, card: ResumeCard) -> None:
        """Show the card of a resumed session, with its first part marked."""
        self._card, self._choices, self._marked_index = card, card_choices(card), 0
        self.border_title = f"resumed: {session_title(card.info)}"
        keys = "Enter · Esc closes"
        if len(self._choices) > 1:
            keys = "Tab next · Enter takes it · Esc closes"
        self.border_subtitle = f"{keys} · or type a message"
        self.display = True
        self.refresh(layout=True)

    def close(self) -> None:
        self._card = None
        self.display = False

    def mark_next(self) -> None:
        if self.is_open:
            self._marked_index = (self._marked_index + 1) % len(self._choices)
            self.refresh()

    def choose_marked(self) -> None:
        if self.is_open:
            self._choose(self._marked_index)

    def on_click(self, event: events.Click) -> None:
        """Choose the choice that was clicked: its text has its index as `meta`."""
        index = event.style.meta.get("index")
        if index is not None:
            self._choose(index)

    def _choose(self, index: int) -> None:
        part, _label = self._choices[index]
        self.post_message(self.Chosen(part))
        self.close()

    def render(self) -> Content:
        return Content("\n").join(self._rows(self.size.width))

    def get_content_height(self, _container: Size, _viewport: Size, width: int) -> int:
        return len(self._rows(width))

    def _rows(self, width: int) -> list[Content]:
        """The facts and choices of the card, cut to this width. A low terminal has room for one fact:
        what the first call to the model costs.
        """
        if self._card is None:
            return []
        facts = card_lines(self._card, self.clock())
        if self.app.size.height < HEADER_FROM_HEIGHT:
            facts = [(name, text) for name, text in facts if name == "first call"]
        rows = [Content.assemble((f"{name:<12}", "$muted"), text) for name, text in facts]
        rows += self._choice_rows(width)
        return [row.truncate(max(1, width), ellipsis=True) for row in rows]

    def _choice_rows(self, width: int) -> list[Content]:
        """The choices in rows. Each row has as many choices as fit."""
        rows = [Content()]
        for index, (_part, label) in enumerate(self._choices):
            choice = Content(f"  {label}")
            if index == self._marked_index:
                choice = Content.styled(f"❯ {label}", "$mark bold")
            choice = choice.stylize(Style.from_meta({"index": index}))
            width_with_choice = rows[-1].cell_length + len(_CHOICE_GAP) + choice.cell_length
            if rows[-1] and width_with_choice > width:
                rows.append(Content())
            rows[-1] = Content.assemble(rows[-1], _CHOICE_GAP if rows[-1] else "", choice)
        return rows
