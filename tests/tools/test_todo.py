"""The tool `todo`: the agent's plan."""

from __future__ import annotations

import pytest
from fakes.tool_benches import call

from ouro.display import Display, Todo, Todos
from ouro.errors import ToolError
from ouro.tools.todo import TodoPlan, TodoWrite
from ouro.tools.tool import ToolResult


async def test_whole_list_is_stored_shown_and_confirmed():
    plan = TodoPlan()
    todos = [
        {"text": "read", "state": "done"},
        {"text": "write", "state": "in_progress"},
        {"text": "test"},
    ]
    expected = (Todo("read", "done"), Todo("write", "in_progress"), Todo("test"))
    assert await call(TodoWrite(plan), todos=todos) == ToolResult(
        "Plan saved: 1 of 3 done. Now: write", Display("write", Todos(expected))
    )
    assert plan.items == expected


@pytest.mark.parametrize(
    ("states", "summary"), [(("done", "pending"), "next: 2"), (("done", "done"), "all done")]
)
async def test_the_summary_does_not_repeat_the_count_of_the_title(states, summary):
    todos = [{"text": str(number), "state": state} for number, state in enumerate(states, 1)]
    assert (await call(TodoWrite(TodoPlan()), todos=todos)).display.summary == summary


async def test_an_unknown_state_is_refused():
    with pytest.raises(ToolError, match="Wrong arguments for todo"):
        await call(TodoWrite(TodoPlan()), todos=[{"text": "x", "state": "later"}])


def test_a_variant_of_a_tool_inherits_its_description():
    class Steps(TodoWrite):
        name = "steps"

    description = TodoWrite(TodoPlan()).spec().description
    assert Steps(TodoPlan()).spec().description == description != ""
