"""Header, TodoPanel and StatusLine: what the screen tells about the session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text
from textual.reactive import reactive
from textual.timer import Timer
from textual.widget import Widget

from ouro.display import Todo
from ouro.frontends.session_lines import status_items
from ouro.frontends.tui.look import OPENING, Look
from ouro.utils.text import clean

if TYPE_CHECKING:
    from ouro.session import Status

_BETWEEN = " · "
MAX_TODOS = 7
"""Of a plan, that are shown at once."""
_DROPPED_FIRST = ("sandbox", "tokens", "memories", "cost", "branch", "context", "model")
_STYLES = ("ask", "edit", "plan", "auto", "info", "warning", "error", "full")


class Header(Widget):
    """ouro, the folder and the title of the session; left out on low terminals."""

    COMPONENT_CLASSES = {"header--name"}  # noqa: RUF012 (Textual's own form)
    session_title: reactive[str] = reactive("")

    def __init__(self, look: Look) -> None:
        super().__init__(id="header")
        self._look = look

    def render(self) -> Text:
        line = Text(no_wrap=True, end="")
        line.append("ouro", self.get_component_rich_style("header--name", partial=True))
        line.append(f" {self._look.version}".rstrip() + f" · {clean(self._look.folder)}")
        line.truncate(self.size.width)
        title = Text(clean(self.session_title))
        title.truncate(max(0, self.size.width - line.cell_len - 3), overflow="ellipsis")
        if title.cell_len > 3:
            line.append(" " * (self.size.width - line.cell_len - title.cell_len))
            line.append_text(title)
        return line


class TodoPanel(Widget):
    """The plan above the prompt; the todo in progress stays in sight."""

    COMPONENT_CLASSES = {"todos--in_progress", "todos--done", "todos--pending"}  # noqa: RUF012 (Textual's own form)
    todos: reactive[tuple[Todo, ...]] = reactive((), layout=True)

    def __init__(self) -> None:
        super().__init__(id="todos")
        self._wanted = True

    def toggle(self) -> bool:
        """Show or hide the plan; returns whether there is one."""
        self._wanted = not self.has_class("-open")
        self.set_class(self._wanted and bool(self.todos), "-open")
        return bool(self.todos)

    def watch_todos(self) -> None:
        is_open = any(todo.state != "done" for todo in self.todos)
        self.set_class(self._wanted and is_open, "-open")
        done = sum(todo.state == "done" for todo in self.todos)
        self.border_title = f"plan {done}/{len(self.todos)}"

    def render(self) -> Text:
        lines = []
        for todo in self._in_sight():
            line = Text(f"{todo.mark} {clean(todo.text)}".replace("\n", " "), no_wrap=True, end="")
            line.stylize(self.get_component_rich_style(f"todos--{todo.state}", partial=True))
            line.truncate(max(1, self.size.width), overflow="ellipsis")
            lines.append(line)
        return Text("\n").join(lines)

    def _in_sight(self) -> tuple[Todo, ...]:
        current = next((place for place, todo in enumerate(self.todos) if todo.state != "done"), 0)
        first = max(0, min(current - 2, len(self.todos) - MAX_TODOS))
        return self.todos[first : first + MAX_TODOS]

    def get_content_height(self, *_: object) -> int:
        return min(MAX_TODOS, len(self.todos))


class StatusLine(Widget):
    """Model, mode, branch, context, tokens, cost; it can show a message for a moment."""

    COMPONENT_CLASSES = {f"status--{name}" for name in _STYLES}  # noqa: RUF012 (Textual's own form)
    status: reactive[Status | None] = reactive(None)
    message: reactive[str] = reactive("")
    queued: reactive[int] = reactive(0)
    """Messages that wait for the agent."""

    def __init__(self, items: Sequence[str]) -> None:
        super().__init__(id="status")
        self._items = tuple(items)
        self._level = "info"
        self._timer: Timer | None = None

    def show_message(self, text: str, level: str = "info", seconds: float = 4.0) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._level, self.message = level, text
        self._timer = self.set_timer(seconds, lambda: setattr(self, "message", ""))

    def render(self) -> Text:
        width = self.size.width
        if self.message:
            line = Text(clean(self.message), style=self._style(self._level), no_wrap=True, end="")
        elif self.status is None:
            line = Text(OPENING, no_wrap=True, end="")
        else:
            queued = f"{self.queued} queued" if self.queued else ""
            line = self._fitting({**status_items(self.status), "queued": queued}, width)
        line.truncate(max(0, width), overflow="ellipsis")
        return line

    def _fitting(self, parts: dict[str, str], width: int) -> Text:
        items = [item for item in self._items if parts[item]]
        for dropped in ("", *_DROPPED_FIRST):
            items = [item for item in items if item != dropped]
            line = Text(_BETWEEN, no_wrap=True, end="").join(self._part(item, parts[item]) for item in items)
            if line.cell_len <= width:
                break
        line.no_wrap, line.end = True, ""
        return line

    def _part(self, item: str, text: str) -> Text:
        if item == "mode":
            return Text(text, style=self._style(text))
        return Text(text, style=self._style("full") if item == "saved" or text.startswith("! ") else "")

    def _style(self, name: str) -> Style | str:
        return self.get_component_rich_style(f"status--{name}", partial=True) if name in _STYLES else ""
