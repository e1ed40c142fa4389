"""Glob: find files by name."""

from __future__ import annotations

import asyncio
import heapq
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from ouro.display import Display, Plain
from ouro.errors import ToolError
from ouro.safety import Effect, Workspace
from ouro.tools.name_pattern import name_pattern
from ouro.tools.tool import Tool, ToolContext, ToolResult
from ouro.utils.project_files import list_project_files, walk

_MAX_SHOWN = 100


class GlobArgs(msgspec.Struct, frozen=True):
    """The arguments of glob."""

    pattern: Annotated[
        str, msgspec.Meta(description="Such as *.py (in every folder), src/**/*.ts, docs/*.{md,rst}, **/test_*.")
    ]
    path: Annotated[str, msgspec.Meta(description="The folder to search, by default the working folder.")] = "."
    ignored: Annotated[bool, msgspec.Meta(description="Include files that .gitignore excludes.")] = False


class Glob(Tool[GlobArgs]):
    """Find files by their name, the most recently changed first.

    - A pattern without a slash matches in every folder; ** matches any folders, {a,b} either word.
    - Use it to learn what is in a project or folder (pattern **), and to find files of which you know a part of the
      name. To find files by what is in them, use grep.
    - Files that .gitignore excludes are left out unless you set ignored. At most 100 files are shown, with the total.
    """

    name: ClassVar[str] = "glob"
    effect: ClassVar[Effect] = Effect.READ
    Args = GlobArgs

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def title(self, args: GlobArgs) -> str:
        shown = self._workspace.shown(self._workspace.resolve(args.path))
        return f"glob {args.pattern}" + (f" in {shown}" if shown != "." else "")

    def targets(self, args: GlobArgs) -> tuple[str, ...]:
        return (args.path,)

    async def run(self, args: GlobArgs, ctx: ToolContext) -> ToolResult:
        return await asyncio.to_thread(self._find, args)

    def _find(self, args: GlobArgs) -> ToolResult:
        folder = self._workspace.resolve(args.path)
        self._workspace.check(folder, "read")
        if not folder.is_dir():
            kind = "is a file, not a folder" if folder.exists() else "does not exist"
            raise ToolError(f"{self._workspace.shown(folder)} {kind}.")
        fits = name_pattern(args.pattern.removeprefix(f"{folder}/").removeprefix("./"))
        names = walk(folder, ignored=True) if args.ignored else list_project_files(folder)
        closed = tuple(f"{area.relative_to(folder)}/" for area in self._workspace.closed_below(folder))
        dated = [
            (changed, name)
            for name in names
            if fits(name) and not f"{name}/".startswith(closed) and (changed := _changed(folder / name))
        ]
        if not dated:
            more = "" if args.ignored else " Files that .gitignore excludes were not searched."
            return ToolResult(f"No file matches {args.pattern}.{more}", Display("no files"))
        newest = heapq.nlargest(_MAX_SHOWN, dated)
        text = "\n".join(self._workspace.shown(folder / name) for _, name in newest)
        if len(dated) > _MAX_SHOWN:
            text += f"\n[{_MAX_SHOWN} of {len(dated)}, the newest. Narrow the pattern or the path to see others.]"
        return ToolResult(text, Display(f"{len(dated)} file{'s' * (len(dated) != 1)}", Plain(text)))


def _changed(path: Path) -> float:
    """Its modification time; 0 if it does not exist, though git still lists it."""
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0
