"""TodoPanel: the agent's plan, while one is open."""

from __future__ import annotations

from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

from ouro.display import Todo
from ouro.utils.text import clean

ROWS = 7


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
        first = max(0, min(current - 2, len(self.todos) - ROWS))
        return self.todos[first : first + ROWS]

    def get_content_height(self, *_: object) -> int:
        return min(ROWS, len(self.todos))
