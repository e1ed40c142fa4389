"""The agent's todos in a session that was resumed or rewound."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ouro.display import Todo, Todos, TodoState
from ouro.events import Emit, TodosChanged
from ouro.memory.manager import MemoryManager
from ouro.messages import ToolReply
from ouro.tools.todo import Plan

_HEADING = "## Plan"
_SIGNS: dict[TodoState, str] = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]"}
_STATES = {sign: state for state, sign in _SIGNS.items()}
_STEP = re.compile(r"- (\[[ >x]\]) (.+)")


def format_plan(todos: Sequence[Todo]) -> str:
    """The plan as text for a summary; empty without one."""
    return "\n".join([_HEADING, *(f"- {_SIGNS[todo.state]} {todo.text}" for todo in todos)]) if todos else ""


def find_plan(memory: MemoryManager) -> tuple[Todo, ...]:
    """The todos as the agent left them, as far as loaded; else as the summary in force has them."""
    for message in reversed(memory.messages()):
        for reply in reversed(message.parts_of(ToolReply)):
            if reply.display and isinstance(reply.display.body, Todos):
                return reply.display.body.items
    compaction = memory.transcript.compaction
    # The last one in the summary: what it takes along stands after the model's own words.
    _, heading, rest = compaction.summary.rpartition(f"{_HEADING}\n") if compaction else ("", "", "")
    steps = (_STEP.fullmatch(line) for line in rest.partition("\n\n")[0].splitlines())
    return tuple(Todo(step[2], _STATES[step[1]]) for step in steps if step) if heading else ()


async def update_plan_when_loaded(plan: Plan, memory: MemoryManager, emit: Emit) -> None:
    """Put right what was found in the part that a screen waits for, as soon as all that is sent is read."""
    await memory.pager.loaded()
    found = find_plan(memory)
    if found != plan.items:
        plan.items = found
        emit(TodosChanged(found))
