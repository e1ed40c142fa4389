"""What a reader sees of another program's tools: their edits as diffs, their shell lines as such, their plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ouro.display import CommandOutput, Diff, Display, FileChange, Plain, Todo, Todos, TodoState
from ouro.messages import ToolCall

_STATES: Mapping[str, TodoState] = {"completed": "done", "done": "done", "in_progress": "in_progress"}


def foreign_display(call: ToolCall, text: str, exit_code: int | None = None) -> Display | None:
    """How the reply to a call of another program's tool is shown; None: as its text."""
    arguments = call.arguments
    first = text.strip().partition("\n")[0][:120]
    if changes := _changes(arguments):
        return Display(first or "changed", Diff(changes))
    if todos := _todos(arguments):
        return Display(f"{len(todos)} todos", Todos(todos))
    if patch := _patch(arguments):
        return Display(first or "patched", Plain(patch, "diff"))
    if command := _command(arguments):
        return Display(first or "no output", CommandOutput(command, text, exit_code))
    return None


def _changes(arguments: Mapping[str, Any]) -> tuple[FileChange, ...]:
    path = arguments.get("file_path")
    if not isinstance(path, str):
        return ()
    edits = arguments.get("edits")
    pairs = [each for each in edits if isinstance(each, dict)] if isinstance(edits, list) else [arguments]
    found = [(each.get("old_string"), each.get("new_string")) for each in pairs]
    changes = [FileChange(path, old, new) for old, new in found if isinstance(old, str) and isinstance(new, str)]
    if not changes and isinstance(content := arguments.get("content"), str):
        changes = [FileChange(path, None, content)]
    return tuple(changes)


def _todos(arguments: Mapping[str, Any]) -> tuple[Todo, ...]:
    items = arguments.get("todos") or arguments.get("plan")
    if not isinstance(items, list):
        return ()
    found = [(each.get("content") or each.get("step"), each.get("status")) for each in items if isinstance(each, dict)]
    return tuple(Todo(text, _STATES.get(str(state), "pending")) for text, state in found if isinstance(text, str))


def _patch(arguments: Mapping[str, Any]) -> str:
    given = arguments.get("input")
    return given if isinstance(given, str) and given.lstrip().startswith("*** Begin Patch") else ""


def _command(arguments: Mapping[str, Any]) -> str:
    command = arguments.get("command") or arguments.get("cmd")
    if isinstance(command, list) and all(isinstance(each, str) for each in command):
        is_shell = len(command) == 3 and command[1] in ("-lc", "-c")
        return str(command[2]) if is_shell else " ".join(command)
    return command if isinstance(command, str) else ""
