"""Header, TodoPanel and StatusLine: the state of the session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.content import Content
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
"""Todos that are shown at once."""
_DROPPED_FIRST = ("sandbox", "tokens", "memories", "cost", "branch", "context", "model")
_STYLES = {
    "ask": "$secondary", "edit": "$success", "plan": "$mark", "auto": "$warning bold",
    "info": "$foreground", "warning": "$warning", "error": "$error",
}  # fmt: skip
"""The styles of modes and of message levels."""
_TODO_STYLES = {"in_progress": "$foreground bold", "pending": "$muted", "done": "$faint"}


class Header(Widget):
    """The name of ouro, the folder and the title of the session; hidden on low terminals."""

    session_title: reactive[str] = reactive("")

    def __init__(self, look: Look) -> None:
        super().__init__(id="header")
        self._look = look

    def render(self) -> Content:
        where = f" {self._look.version}".rstrip() + f" · {clean(self._look.folder)}"
        line = Content.assemble(("ouro", "$mark bold"), where).truncate(self.size.width)
        room = self.size.width - line.cell_length
        title = Content(clean(self.session_title)).truncate(max(0, room - 3), ellipsis=True)
        return Content.assemble(line, " " * (room - title.cell_length), title) if title.cell_length > 3 else line


class TodoPanel(Widget):
    """The plan above the prompt; the todo in progress is always visible."""

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

    def render(self) -> Content:
        lines = [(f"{todo.mark} {clean(todo.text)}".replace("\n", " "), todo.state) for todo in self._in_sight()]
        width = max(1, self.size.width)
        return Content("\n").join(
            Content.styled(text, _TODO_STYLES[state]).truncate(width, ellipsis=True) for text, state in lines
        )

    def _in_sight(self) -> tuple[Todo, ...]:
        current = next((place for place, todo in enumerate(self.todos) if todo.state != "done"), 0)
        first = max(0, min(current - 2, len(self.todos) - MAX_TODOS))
        return self.todos[first : first + MAX_TODOS]

    def get_content_height(self, *_: object) -> int:
        return min(MAX_TODOS, len(self.todos))


class StatusLine(Widget):
    """Model, mode, branch, context, tokens, cost; or, for some seconds, a message."""

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

    def render(self) -> Content:
        width = max(0, self.size.width)
        if self.message:
            line = Content.styled(clean(self.message), _STYLES[self._level])
        elif self.status is None:
            line = Content(OPENING)
        else:
            queued = f"{self.queued} queued" if self.queued else ""
            line = self._fit({**status_items(self.status), "queued": queued}, width)
        return line.truncate(width, ellipsis=True)

    def _fit(self, parts: dict[str, str], width: int) -> Content:
        items = [item for item in self._items if parts[item]]
        for dropped in ("", *_DROPPED_FIRST):
            items = [item for item in items if item != dropped]
            line = Content(_BETWEEN).join(self._part(item, parts[item]) for item in items)
            if line.cell_length <= width:
                break
        return line

    def _part(self, item: str, text: str) -> Content:
        stands_out = item == "saved" or text.startswith("! ")
        return Content.styled(text, _STYLES[text] if item == "mode" else "$warning" if stands_out else "")
