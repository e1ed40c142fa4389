"""Glob: find files by name."""

from __future__ import annotations

import asyncio
import heapq
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from ouro.display import Display, Plain
from ouro.errors import ToolError
from ouro.safety import Effect, Workspace
from ouro.tools.tool import Tool, ToolContext, ToolResult
from ouro.utils.project_files import list_project_files, walk

_PIECE = re.compile(r"\*\*/|\*\*|\*|\?|\[[!^]?\]?[^\]]*\]|[^*?\[]+|\[")
_BRACES = re.compile(r"\{([^{}]*)\}")
_MAX_FORMS = 256
_MAX_STARS = 3
"""Regular expressions are exponential in stars: `*a*a*a*a*b` froze ouro. Above this, a state machine is used."""


def name_pattern(pattern: str) -> Callable[[str], bool]:
    """A matcher of paths: `*` stays in a folder, `**` crosses folders, `{a,b}` is either, `!` negates.

    A pattern without a slash matches the file name alone.

    Raises:
        ToolError: the pattern is not valid.
    """
    if pattern.startswith("!"):
        fits = name_pattern(pattern[1:])
        return lambda path: not fits(path)
    forms = [_in_every_folder(form) for form in expand_braces(pattern)]
    if any(sum("*" in piece for piece in _PIECE.findall(form)) > _MAX_STARS for form in forms):
        matchers = [_steps(form) for form in forms]
        return lambda path: any(_matches(steps, path) for steps in matchers)
    try:
        expression = re.compile("|".join(f"(?:{_expression(form)})" for form in forms), re.DOTALL)
    except re.error as error:
        raise ToolError(f"{pattern} is not a pattern for names: {error}.") from error
    return lambda path: expression.fullmatch(path) is not None


def expand_braces(pattern: str) -> list[str]:
    """Expand the braces of `pattern`.

    Raises:
        ToolError: there are too many.
    """
    found = _BRACES.search(pattern)
    if found is None:
        return [pattern]
    before, after = pattern[: found.start()], pattern[found.end() :]
    forms: list[str] = []
    for choice in found[1].split(","):
        forms += expand_braces(f"{before}{choice}{after}")
        if len(forms) > _MAX_FORMS:
            raise ToolError("The pattern has too many {…}: give fewer.")
    return forms


def _in_every_folder(pattern: str) -> str:
    if pattern.endswith("/"):
        pattern += "**"
    return pattern.removeprefix("/") if "/" in pattern else f"**/{pattern}"


def _expression(pattern: str) -> str:
    return "".join(_piece(piece) for piece in _PIECE.findall(pattern))


def _piece(piece: str) -> str:
    if piece == "**/":
        return "(?:.*/)?"
    if piece in ("**", "*", "?"):
        return {"**": ".*", "*": "[^/]*", "?": "[^/]"}[piece]
    if piece.startswith("[") and piece.endswith("]") and len(piece) > 2:
        inside = piece[1:-1].replace("\\", "\\\\").replace("[", "\\[")
        return f"[^/{inside[1:]}]" if inside[0] in "!^" else f"[{inside}]"
    return re.escape(piece)


def _steps(pattern: str) -> list[str | re.Pattern[str]]:
    """The pattern as stars (`*`, `**`, `**/`) and expressions for single characters."""
    steps: list[str | re.Pattern[str]] = []
    for piece in _PIECE.findall(pattern):
        if piece in ("*", "**", "**/"):
            steps.append(piece)
        elif piece == "?" or (piece.startswith("[") and piece.endswith("]") and len(piece) > 2):
            steps.append(re.compile(_piece(piece), re.DOTALL))
        else:
            steps += [re.compile(re.escape(char)) for char in piece]
    return steps


def _matches(steps: list[str | re.Pattern[str]], path: str) -> bool:
    """Follow all states at once, in time proportional to path length times pattern length."""
    states = _closed(steps, {0})
    for char in path:
        following: set[int] = set()
        for at in states:
            step = steps[at] if at < len(steps) else None
            if isinstance(step, re.Pattern):
                if step.fullmatch(char):
                    following |= _closed(steps, {at + 1})
            elif step is not None and (char != "/" or step != "*"):
                following.add(at)
                if step != "**/" or char == "/":
                    following |= _closed(steps, {at + 1})
        states = following
    return len(steps) in states


def _closed(steps: list[str | re.Pattern[str]], states: set[int]) -> set[int]:
    """The states, plus those behind stars that match the empty string."""
    found = set(states)
    for at in states:
        while at < len(steps) and isinstance(steps[at], str):
            at += 1  # noqa: PLW2901 - the next step
            found.add(at)
    return found


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
