"""Grep: find text in files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec.structs import replace

from ouro.display import Display, Plain
from ouro.errors import ToolError
from ouro.safety import Effect, Workspace
from ouro.tools.file_search import FileMatches, FoundLine, SearchPlan, find_ripgrep, search_files
from ouro.tools.glob import name_pattern, plain_name
from ouro.tools.tool import Tool, ToolContext, ToolResult
from ouro.utils.text import plural

_MAX_LINE = 400
_MAX_CHARACTERS = 40_000
_TYPES = {
    "c": "*.{c,h}", "cpp": "*.{cpp,cc,cxx,hpp,hh,hxx,h}", "css": "*.{css,scss,sass,less}", "go": "*.go",
    "html": "*.{html,htm}", "java": "*.java", "js": "*.{js,jsx,mjs,cjs}", "json": "*.{json,jsonl}",
    "kotlin": "*.{kt,kts}", "make": "{Makefile,makefile,GNUmakefile,*.mk}", "md": "*.{md,markdown,mdx}",
    "php": "*.php", "py": "*.{py,pyi}", "python": "*.{py,pyi}", "ruby": "*.{rb,rake,gemspec}", "rust": "*.rs",
    "sh": "*.{sh,bash,zsh,fish}", "sql": "*.sql", "swift": "*.swift", "toml": "*.toml", "ts": "*.{ts,tsx,mts,cts}",
    "txt": "*.txt", "xml": "*.{xml,xsd,xsl,svg}", "yaml": "*.{yaml,yml}",
}  # fmt: skip


class GrepArgs(msgspec.Struct, frozen=True):
    pattern: Annotated[str, msgspec.Meta(min_length=1)]
    path: Annotated[str, msgspec.Meta(description="A folder or file.")] = "."
    mode: Annotated[
        Literal["content", "files", "count"],
        msgspec.Meta(description="count: the number of lines in each file."),
    ] = "content"
    glob: Annotated[str, msgspec.Meta(description="Such as *.py, src/**/*.{js,ts}, !*.min.js.")] = ""
    type: Annotated[str, msgspec.Meta(description="py, js, ts, go, md, …")] = ""
    context: Annotated[int, msgspec.Meta(ge=0, le=50, description="Lines before and after each match.")] = 0
    ignore_case: bool = False
    multiline: Annotated[bool, msgspec.Meta(description="Matches may span lines.")] = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=2000, description="Maximum of lines, or files.")] = 100


class Grep(Tool[GrepArgs]):
    """Find text in files by a regular expression.

    Lines are shown as `12:text` below the name of their file, context as `11-text`. Mode files lists only the files.
    Binary files, files over 50 MB and files that .gitignore excludes are left out, unless path names one.
    """

    name: ClassVar[str] = "grep"
    effect: ClassVar[Effect] = Effect.READ
    Args = GrepArgs

    def __init__(self, workspace: Workspace, keeps_back: Callable[[Path], bool] = lambda _path: False) -> None:
        """`keeps_back`: whether a file in a folder that may be searched is left out."""
        self._workspace = workspace
        self._keeps_back = keeps_back

    def title(self, args: GrepArgs) -> str:
        shown = self._workspace.shown(self._workspace.resolve(args.path))
        where = [shown] * (shown != ".") + [part for part in (args.glob, args.type) if part]
        return f'grep "{args.pattern}"' + (f" in {', '.join(where)}" if where else "")

    def targets(self, args: GrepArgs) -> tuple[str, ...]:
        return (args.path,)

    async def run(self, args: GrepArgs, ctx: ToolContext) -> ToolResult:
        return await asyncio.to_thread(self._search, args)

    def _search(self, args: GrepArgs) -> ToolResult:
        place = self._workspace.resolve(args.path)
        self._workspace.check(place, "read")
        if not place.exists():
            raise ToolError(f"{self._workspace.shown(place)} does not exist.")
        if (program := find_ripgrep()) is None:
            raise ToolError("ripgrep is missing. Use shell, and tell the user to install ripgrep or ouro again.")
        folder = place if place.is_dir() else place.parent
        patterns = _patterns(args)
        tests, kept_back = [name_pattern(pattern) for pattern in patterns], set[str]()

        def fits(name: str) -> bool:
            if not all(test(name) for test in tests):
                return False
            if self._keeps_back(folder / name):
                kept_back.add(name)
            return name not in kept_back

        plan = SearchPlan(
            args.pattern, place, fits, args.ignore_case, args.multiline,
            args.context if args.mode == "content" else 0, tuple(self._workspace.closed_below(folder)),
            next(filter(None, map(plain_name, patterns)), ""),
        )  # fmt: skip
        hits = search_files(program, plan, self._workspace)
        named = (FileMatches(self._workspace.shown(folder / hit.path), hit.lines) for hit in hits)
        result = _content(named, args) if args.mode == "content" else _grep_files(named, args)
        notes = [plan.left_out.words()]
        if kept_back:
            notes.append(f"[Left out: {plural(len(kept_back), 'file')} that a rule of the user keeps from being read.]")
        return replace(result, text="\n".join(filter(None, (result.text, *notes))))


def _patterns(args: GrepArgs) -> list[str]:
    kind = args.type.lower().removeprefix(".")
    return [_TYPES.get(kind, f"*.{kind}")] * bool(kind) + [args.glob] * bool(args.glob)


def _grep_files(hits: Iterator[FileMatches], args: GrepArgs) -> ToolResult:
    taken = list(islice(hits, args.limit + 1))
    more = len(taken) > args.limit
    taken = taken[: args.limit]
    counts = [sum(line.found for line in hit.lines) for hit in taken]
    if args.mode == "count":
        lines = [f"{hit.path}: {count}" for hit, count in zip(taken, counts, strict=True)]
    else:
        lines = [hit.path for hit in taken]
    return _result(lines, sum(counts), len(taken), args, more=more)


def _content(hits: Iterator[FileMatches], args: GrepArgs) -> ToolResult:
    lines: list[str] = []
    found = files = 0
    room = _MAX_CHARACTERS
    more = False
    for hit in hits:
        shown, count, cut = _lines_of(hit, args.limit - found, room)
        if not count:
            more = True
            break
        lines += ["", hit.path, *shown] if lines else [hit.path, *shown]
        room -= sum(len(line) + 1 for line in shown)
        found, files = found + count, files + 1
        if more := cut:
            break
    return _result(lines, found, files, args, more=more)


def _lines_of(hit: FileMatches, most: int, room: int) -> tuple[list[str], int, bool]:
    """The lines to show, the number of matches, and whether some were left out."""
    shown: list[str] = []
    found = 0
    before: FoundLine | None = None
    has_context = not all(line.found for line in hit.lines)
    for line in hit.lines:
        if (line.found and found == most) or room < 0:
            return shown, found, True
        if before is not None and line.number > before.number + 1 and has_context:
            shown.append("--")
        shown.append(f"{line.number}{':' if line.found else '-'}{_cut(line.text)}")
        room -= len(shown[-1])
        found += line.found
        before = line
    return shown, found, False


def _result(lines: list[str], found: int, files: int, args: GrepArgs, *, more: bool) -> ToolResult:
    if not files:
        advice = " Check path, glob and type." if args.glob or args.type or args.path != "." else ""
        return ToolResult(f"No matches for {args.pattern}.{advice}", Display("no matches"))
    text = "\n".join(lines)
    if more:
        text += "\n[More matches exist. Narrow the pattern, path or glob, or raise limit.]"
    at_least = "+" if more else ""
    summary = f"{found}{at_least} match{'es' * (found != 1)} in {files}{at_least} file{'s' * (files != 1)}"
    return ToolResult(text, Display(summary, Plain(text)))


def _cut(line: str) -> str:
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]} [cut]"
