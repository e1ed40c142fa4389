"""The built-in tools, in one list. Those that an answer without calls does not need are imported
by their first call.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ouro.safety import Effect
from ouro.tools.files_seen import FilesSeen
from ouro.tools.late_tool import LateTool, SchemaCache
from ouro.tools.shell import Shell
from ouro.tools.shell_jobs import ShellJobs, ShellKill, ShellOutput
from ouro.tools.todo import TodoPlan, TodoWrite
from ouro.tools.tool import AnyTool
from ouro.utils.files import near_endings

if TYPE_CHECKING:
    from ouro.tools.memory_search import SearchMemory


def builtin_tools(
    shell: Shell,
    jobs: ShellJobs,
    plan: TodoPlan,
    seen: FilesSeen,
    search: SearchMemory | None = None,
    restricts_reading: Callable[[Path], bool] = lambda _path: False,
) -> tuple[AnyTool, ...]:
    """Every built-in tool. The order is fixed, so that the provider's cache stays valid. Blocks: it
    looks at names of files, and reads and writes the cache of schemas.

    Args:
        search: what memory_search calls; None: there is no such tool.
        restricts_reading: whether a rule of the user denies to read a file or asks about it: grep skips it.
    """
    schemas = SchemaCache()
    has_notebook = ".ipynb" in near_endings(seen.workspace.root)

    def late(name: str, effect: Effect, load: Callable[[], AnyTool]) -> LateTool:
        return LateTool(name, effect, load, schemas)

    tools: tuple[AnyTool, ...] = (
        late("read", Effect.READ, lambda: _make_read(seen)),
        late("write", Effect.WRITE, lambda: _make_write(seen)),
        late("edit", Effect.WRITE, lambda: _make_edit(seen)),
        late("apply_patch", Effect.WRITE, lambda: _make_apply_patch(seen)),
        late("glob", Effect.READ, lambda: _make_glob(seen)),
        late("grep", Effect.READ, lambda: _make_grep(seen, restricts_reading)),
        late("web_fetch", Effect.NET, _make_web_fetch),
        shell,
        ShellOutput(jobs),
        ShellKill(jobs),
        TodoWrite(plan),
        late("ask_user", Effect.NONE, _make_ask_user),
        *(
            [late("memory_search", Effect.READ, lambda: _make_memory_search(search))]
            if search
            else ()
        ),
        *(
            [late("notebook_edit", Effect.WRITE, lambda: _make_notebook_edit(seen))]
            if has_notebook
            else ()
        ),
    )
    for tool in tools:
        tool.spec()  # adds it to the cache
    schemas.save()
    return tools


def _make_read(seen: FilesSeen) -> AnyTool:
    from ouro.tools.read import Read

    return Read(seen)


def _make_write(seen: FilesSeen) -> AnyTool:
    from ouro.tools.edit import Write

    return Write(seen)


def _make_edit(seen: FilesSeen) -> AnyTool:
    from ouro.tools.edit import Edit

    return Edit(seen)


def _make_apply_patch(seen: FilesSeen) -> AnyTool:
    from ouro.tools.apply_patch import ApplyPatch

    return ApplyPatch(seen)


def _make_glob(seen: FilesSeen) -> AnyTool:
    from ouro.tools.glob import Glob

    return Glob(seen.workspace)


def _make_grep(seen: FilesSeen, restricts_reading: Callable[[Path], bool]) -> AnyTool:
    from ouro.tools.grep import Grep

    return Grep(seen.workspace, restricts_reading)


def _make_web_fetch() -> AnyTool:
    from ouro.tools.web_fetch import WebFetch

    return WebFetch()


def _make_ask_user() -> AnyTool:
    from ouro.tools.ask_user import AskUser

    return AskUser()


def _make_memory_search(search: SearchMemory) -> AnyTool:
    from ouro.tools.memory_search import MemorySearch

    return MemorySearch(search)


def _make_notebook_edit(seen: FilesSeen) -> AnyTool:
    from ouro.tools.notebook_edit import NotebookEdit

    return NotebookEdit(seen)
