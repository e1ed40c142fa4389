"""TodoWrite: the agent's plan, shown to the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from ouro.display import Display, Todo, Todos, TodoState
from ouro.safety import Effect
from ouro.tools.tool import Tool, ToolContext, ToolResult
from ouro.utils.text import one_line


class TodoPlan(msgspec.Struct):
    """The agent's todos: the tool writes them, the front end reads them."""

    items: tuple[Todo, ...] = ()


class TodoItem(msgspec.Struct, frozen=True):
    text: Annotated[str, msgspec.Meta(min_length=1)]
    state: TodoState = "pending"


class TodoArgs(msgspec.Struct, frozen=True):
    todos: list[TodoItem]


class TodoWrite(Tool[TodoArgs]):
    """Show the user the plan of a task with three or more steps.

    Send the whole list in each call. Keep one step in_progress; mark it done as soon as it works.
    """

    name = "todo"
    effect = Effect.NONE
    Args = TodoArgs

    def __init__(self, plan: TodoPlan) -> None:
        self._plan = plan

    def title(self, args: TodoArgs) -> str:
        done = sum(item.state == "done" for item in args.todos)
        return f"plan {done}/{len(args.todos)}"

    async def run(self, args: TodoArgs, ctx: ToolContext) -> ToolResult:
        """Replace the todos. The summary for the user is the todo that is in progress; if there is
        none, the next one; if all are done, `all done`.
        """
        todos = tuple(Todo(item.text, item.state) for item in args.todos)
        self._plan.items = todos
        done = sum(todo.state == "done" for todo in todos)
        current = _first_text(todos, "in_progress")
        text = f"Plan saved: {done} of {len(todos)} done."
        if current:
            text += f" Now: {current}"
        summary = "all done"
        if done < len(todos):
            pending = _first_text(todos, "pending")
            following = f"next: {pending}" if pending else ""
            summary = one_line(current or following, 60)
        return ToolResult(text, Display(summary, Todos(todos)))


def _first_text(todos: Sequence[Todo], state: TodoState) -> str:
    """The text of the first todo in this state; empty if there is none."""
    return next((todo.text for todo in todos if todo.state == state), "")
