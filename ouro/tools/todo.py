"""TodoWrite: the agent's plan, shown to the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar

import msgspec

from ouro.display import Display, Todo, Todos, TodoState
from ouro.safety import Effect
from ouro.tools.tool import Tool, ToolContext, ToolResult


class Plan:
    """The agent's todos: the tool writes them, the front end reads them."""

    def __init__(self) -> None:
        self.items: tuple[Todo, ...] = ()

    def change(self, items: tuple[Todo, ...]) -> None:
        """Replace the plan."""
        self.items = items


class TodoItem(msgspec.Struct, frozen=True):
    """One step."""

    text: Annotated[str, msgspec.Meta(min_length=1, description="What is to be done, in a few words.")]
    state: Annotated[TodoState, msgspec.Meta(description="How far it is.")] = "pending"


class TodoArgs(msgspec.Struct, frozen=True):
    todos: Annotated[list[TodoItem], msgspec.Meta(description="The whole plan, in order; it replaces the one before.")]


class TodoWrite(Tool[TodoArgs]):
    """Write down the plan for a task, and how far it is. The user sees it all the time.

    - Use it for work of three or more steps, or when the user asks for several things. Not for a single small change.
    - Each call gives the whole list: what you leave out is gone.
    - Keep exactly one step in_progress while you work; mark it done as soon as it is, not later in one go.
    - A step is done when it works: tests pass, nothing is half made. Add the steps that you find on the way.
    """

    name: ClassVar[str] = "todo"
    effect: ClassVar[Effect] = Effect.NONE
    Args = TodoArgs

    def __init__(self, on_change: Callable[[tuple[Todo, ...]], None]) -> None:
        self._on_change = on_change

    def title(self, args: TodoArgs) -> str:
        done = sum(item.state == "done" for item in args.todos)
        return f"plan {done}/{len(args.todos)}"

    async def run(self, args: TodoArgs, ctx: ToolContext) -> ToolResult:
        todos = tuple(Todo(item.text, item.state) for item in args.todos)
        self._on_change(todos)
        done = sum(todo.state == "done" for todo in todos)
        now = next((todo.text for todo in todos if todo.state == "in_progress"), "")
        text = f"The plan is kept: {done} of {len(todos)} done." + (f" Now: {now}" if now else "")
        return ToolResult(text, Display(f"{done} of {len(todos)} done", Todos(todos)))
