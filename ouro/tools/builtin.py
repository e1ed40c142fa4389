"""The built-in tools, in one list."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ouro.display import Todo
from ouro.safety import Workspace
from ouro.tools.apply_patch import ApplyPatch
from ouro.tools.ask_user import AskUser
from ouro.tools.edit import Edit
from ouro.tools.files_seen import FilesSeen
from ouro.tools.glob import Glob
from ouro.tools.grep import Grep
from ouro.tools.memory_search import MemorySearch, SearchMemory
from ouro.tools.read import Read
from ouro.tools.shell import Shell, ShellJobs, ShellKill, ShellOutput
from ouro.tools.todo import TodoWrite
from ouro.tools.tool import AnyTool
from ouro.tools.write import Write


class ToolParts(msgspec.Struct, frozen=True):
    """The objects that the built-in tools need."""

    workspace: Workspace
    shell: Shell
    jobs: ShellJobs
    on_todos: Callable[[tuple[Todo, ...]], None]
    seen: FilesSeen
    search: SearchMemory | None = None
    """None where memory is off."""


def builtin_tools(parts: ToolParts) -> tuple[AnyTool, ...]:
    """Every built-in tool. The order is fixed, so that the provider's cache stays valid."""
    workspace, seen = parts.workspace, parts.seen
    return (
        Read(workspace, seen),
        Write(workspace, seen),
        Edit(workspace, seen),
        ApplyPatch(workspace, seen),
        Glob(workspace),
        Grep(workspace),
        parts.shell,
        ShellOutput(parts.jobs),
        ShellKill(parts.jobs),
        TodoWrite(parts.on_todos),
        AskUser(),
        *([MemorySearch(parts.search)] if parts.search else ()),
    )
