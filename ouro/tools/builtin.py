"""The built-in tools, in one list."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ouro.tools.apply_patch import ApplyPatch
from ouro.tools.ask_user import AskUser
from ouro.tools.edit import Edit, Write
from ouro.tools.files_seen import FilesSeen
from ouro.tools.glob import Glob
from ouro.tools.grep import Grep
from ouro.tools.memory_search import MemorySearch, SearchMemory
from ouro.tools.read import Read
from ouro.tools.shell import Shell, ShellJobs, ShellKill, ShellOutput
from ouro.tools.todo import TodoPlan, TodoWrite
from ouro.tools.tool import AnyTool
from ouro.tools.web_fetch import WebFetch


def builtin_tools(
    shell: Shell,
    jobs: ShellJobs,
    plan: TodoPlan,
    seen: FilesSeen,
    search: SearchMemory | None = None,
    keeps_back: Callable[[Path], bool] = lambda _path: False,
) -> tuple[AnyTool, ...]:
    """Every built-in tool; memory_search only with a `search`. Searches skip files that rules keep
    back.

    The order is fixed, so that the provider's cache stays valid.
    """
    return (
        Read(seen),
        Write(seen),
        Edit(seen),
        ApplyPatch(seen),
        Glob(seen.workspace),
        Grep(seen.workspace, keeps_back),
        WebFetch(),
        shell,
        ShellOutput(jobs),
        ShellKill(jobs),
        TodoWrite(plan),
        AskUser(),
        *([MemorySearch(search)] if search else ()),
    )
