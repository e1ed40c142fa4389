"""Grep: find text in files, by ripgrep or, without it, in Python."""

from __future__ import annotations

import asyncio
import base64
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from contextvars import copy_context
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Annotated, Any, ClassVar, Literal

import msgspec
from msgspec.structs import replace

from ouro.display import Display, Plain
from ouro.errors import ToolError
from ouro.safety import Effect, Workspace
from ouro.tools import line_matcher
from ouro.tools.glob import name_pattern, plain_name
from ouro.tools.tool import Tool, ToolContext, ToolResult
from ouro.utils.project_files import walk
from ouro.utils.text import plural

MAX_BYTES = 50_000_000
"""Bytes; larger files in a folder are skipped."""
_MAX_NAMES = 5


class LeftOut(msgspec.Struct):
    """What was not searched."""

    large: list[str] = msgspec.field(default_factory=list)
    """Files, by their paths below the folder."""
    binary: int = 0
    """Binary files that match: their lines are not shown."""
    unreadable: int = 0
    is_stopped: bool = False
    """The search took too long, and some files were not reached."""

    def words(self) -> str:
        """For the end of a result; empty where everything was searched."""
        names = ", ".join(self.large[:_MAX_NAMES]) + (", …" if len(self.large) > _MAX_NAMES else "")
        large = f"{plural(len(self.large), 'file')} over {MAX_BYTES // 1_000_000} MB ({names})" if self.large else ""
        binary = f"the lines of {plural(self.binary, 'binary file')} that match" if self.binary else ""
        unreadable = f"{plural(self.unreadable, 'file')} that cannot be read" if self.unreadable else ""
        named = "; ".join(filter(None, (large, unreadable, binary)))
        lines = [f"[Left out: {named}.{' Name one in path to search it.' if large else ''}]"] if named else []
        if self.is_stopped:
            lines.append(f"[Stopped after {_TIMEOUT:.0f} s: more may match. Narrow the pattern, path or glob.]")
        return "\n".join(lines)


class SearchPlan(msgspec.Struct, frozen=True):
    """What to search for, and where."""

    pattern: str
    place: Path
    """A file or folder, with links resolved."""
    fits: Callable[[str], bool]
    """Whether a file, by its path below the folder, is searched."""
    ignore_case: bool = False
    multiline: bool = False
    context: int = 0
    closed: tuple[Path, ...] = ()
    """Folders that are left out."""
    names: str = ""
    """A glob that the name of every file that fits matches; empty: none is known."""
    left_out: LeftOut = msgspec.field(default_factory=LeftOut)
    """Is filled during the search."""


class FoundLine(msgspec.Struct, frozen=True):
    """A matching line, or a context line."""

    number: int
    text: str
    found: bool


class FileMatches(msgspec.Struct, frozen=True):
    """A file with matches; its path is relative to the searched folder."""

    path: str
    lines: tuple[FoundLine, ...]


def search_by_python(plan: SearchPlan, workspace: Workspace) -> Iterator[FileMatches]:
    """The files with matches, in the order of their paths.

    Raises:
        ToolError: the pattern is not a regular expression.
    """
    flags = re.MULTILINE | (re.IGNORECASE if plan.ignore_case else 0) | (re.DOTALL if plan.multiline else 0)
    try:
        expression = re.compile(plan.pattern, flags)
    except re.error as error:
        raise ToolError(f"{plan.pattern} is not a regular expression: {error}.") from error
    with _matcher(expression, multiline=plan.multiline) as matcher:
        for name, path in _files(plan):
            text = _text(workspace, name, path, plan)
            found = [] if text is None else _matching(matcher, text)
            if found is None:
                plan.left_out.is_stopped = True
                return
            if text is None or not found:
                continue
            if "\0" in text:
                plan.left_out.binary += 1
            else:
                yield FileMatches(name, _with_context(text.split("\n"), found, plan.context))


@contextmanager
def _matcher(expression: re.Pattern[str], *, multiline: bool) -> Iterator[subprocess.Popen[bytes]]:
    """The program that matches, limited in time and memory."""
    span = "multiline" if multiline else "lines"
    command = [*_WATCHED, *_LIMITED, sys.executable, "-I", "-S", line_matcher.__file__]
    process = subprocess.Popen(
        [*command, str(int(expression.flags & ~re.UNICODE)), expression.pattern, span],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/",
    )  # fmt: skip
    timer = threading.Timer(_TIMEOUT, process.kill)
    timer.daemon = True
    timer.start()
    try:
        yield process
    finally:
        timer.cancel()
        _end(process)


def _matching(matcher: subprocess.Popen[bytes], text: str) -> list[int] | None:
    """The matching lines of a text, counted from 0; None where the program was ended."""
    assert matcher.stdin is not None
    assert matcher.stdout is not None
    data = text.encode("utf-8", "surrogatepass")
    try:
        matcher.stdin.write(b"%d\n%s" % (len(data), data))
        matcher.stdin.flush()
    except BrokenPipeError:
        return None
    line = matcher.stdout.readline()
    return msgspec.json.decode(line, type=list[int]) if line else None


def in_path_order(path: str) -> list[bytes]:
    """The sort key of both searches: folder by folder, by bytes."""
    return path.encode("utf-8", "surrogateescape").split(b"/")


def _files(plan: SearchPlan) -> list[tuple[str, Path]]:
    if plan.place.is_file():
        return [(plan.place.name, plan.place)]
    names = (name for name in walk(plan.place) if plan.fits(name))
    paths = ((name, plan.place / name) for name in sorted(names, key=in_path_order))
    return [(name, path) for name, path in paths if not any(path.is_relative_to(area) for area in plan.closed)]


def _text(workspace: Workspace, name: str, path: Path, plan: SearchPlan) -> str | None:
    """The text of a file, with `\\n` line endings; None where it is too large, or cannot be read."""
    whatever_size = path == plan.place
    try:
        if path.is_symlink():
            return None
        with workspace.open(str(path)) as file:
            data = file.read() if whatever_size else file.read(MAX_BYTES + 1)
    except (OSError, ToolError):
        plan.left_out.unreadable += 1
        return None
    if not whatever_size and len(data) > MAX_BYTES:
        plan.left_out.large.append(name)
        return None
    for mark, encoding in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"), (b"\xef\xbb\xbf", "utf-8")):
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace").replace("\r\n", "\n")
    return data.decode("utf-8", "replace").replace("\r\n", "\n")


def _with_context(lines: list[str], matching: list[int], context: int) -> tuple[FoundLine, ...]:
    count, found = len(lines) - (lines[-1] == ""), set(matching)
    near = {at for middle in found for at in range(middle - context, middle + context + 1) if 0 <= at < count}
    return tuple(FoundLine(at + 1, lines[at], at in found) for at in sorted(near))


_WHICH_FILES = (
    # No configuration of the user or the project may change the result or run a program.
    "--no-config", "--hidden", "--no-require-git", "--no-ignore-dot", "--no-ignore-global", "--no-ignore-exclude",
    "--no-messages",
)  # fmt: skip
_OPTIONS = (*_WHICH_FILES, "--json", "--crlf", "--engine=auto", "--binary")
_MAX_UNSORTED = 8_000_000
"""Bytes of results up to which ripgrep may search in any order, on all cores; it sorts on one."""
_REPOSITORIES = (".git", ".hg", ".svn", ".jj")
_TIMEOUT = 60.0
_WATCHED = ("setpriv", "--pdeathsig=KILL", "--") if shutil.which("setpriv") else ()
"""Ends a search if ouro is killed."""
_LIMITED = ("/bin/sh", "-c", 'ulimit -v 4194304 2>/dev/null; ulimit -t "$0"; exec "$@"', str(int(_TIMEOUT)))
"""Limits a search to 4 GB of address space (one has taken 23 GB), and in time if it outlives ouro."""


def search_by_ripgrep(program: str, plan: SearchPlan, workspace: Workspace) -> Iterator[FileMatches]:
    """The files with matches, in the order of their paths.

    Raises:
        ToolError: the pattern is not a regular expression.
    """
    if plan.place.is_dir():
        with suppress(_TooMany):
            found = list(_search(program, plan, workspace, max_bytes=_MAX_UNSORTED))
            yield from sorted(found, key=lambda hit: in_path_order(hit.path))
            return
        plan.left_out.binary = 0
    yield from _search(program, plan, workspace, "--sort=path")


class _TooMany(Exception):
    """Too many results to keep and sort; in the order of their paths the first ones are found soon."""


def _search(
    program: str, plan: SearchPlan, workspace: Workspace, *options: str, max_bytes: float = math.inf
) -> Iterator[FileMatches]:
    with ExitStack() as stack:
        errors = stack.enter_context(tempfile.TemporaryFile())
        process = _start(program, plan, workspace, stack, errors, options)
        stack.callback(_end, process)
        assert process.stdout is not None
        timer = threading.Timer(_TIMEOUT, process.kill)
        timer.daemon = True
        timer.start()
        stack.callback(timer.cancel)
        yield from _hits(process.stdout, plan, max_bytes)
        plan.left_out.is_stopped = process.wait() < 0
        errors.seek(0)
        # Exit code 2 also means that a single file could not be read.
        if message := errors.read(2000).decode("utf-8", "replace").strip().removeprefix("rg: "):
            raise ToolError(f"{plan.pattern} is not a regular expression: {message}")


def find_large_files(program: str, plan: SearchPlan, workspace: Workspace) -> None:
    """Note the files that are too large for a search of their folder: ripgrep does not tell."""
    if plan.place.is_file():
        return
    with ExitStack() as stack:
        folder, descriptor = stack.enter_context(workspace.folder(str(plan.place)))
        command = [*_WATCHED, *_LIMITED, program, "--files", "--null", *_WHICH_FILES, *_globs(plan, folder)]
        process = subprocess.Popen(
            [*command, "./"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            cwd=_place_of(folder, descriptor),
        )  # fmt: skip
        stack.callback(_end, process)
        output, _ = process.communicate()
        large: list[str] = []
        for name in output.split(b"\0")[:-1]:
            try:
                if os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_size > MAX_BYTES:
                    large.append(os.fsdecode(name).removeprefix("./"))
            except OSError:
                continue
    plan.left_out.large = sorted(filter(plan.fits, large))


def _globs(plan: SearchPlan, folder: Path) -> list[str]:
    closed = [f"--glob=!/{area.relative_to(folder)}" for area in plan.closed]
    # As a type: a --glob would include ignored files.
    named = [f"--type-add=ouro:{plan.names}", "--type=ouro"] * bool(plan.names)
    return [*named, *(f"--glob=!**/{name}/" for name in _REPOSITORIES), *closed]


def _place_of(folder: Path, descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}" if sys.platform == "linux" else str(folder)


def _start(
    program: str, plan: SearchPlan, workspace: Workspace, stack: ExitStack, errors: IO[bytes], options: Sequence[str]
) -> subprocess.Popen[bytes]:
    command = [*_WATCHED, *_LIMITED, program, *_OPTIONS, *options, f"--context={plan.context}"]
    command += ["--ignore-case"] * plan.ignore_case + ["--multiline", "--multiline-dotall"] * plan.multiline
    if plan.place.is_file():
        # Opened here and passed as stdin, so that it is the file that was checked.
        file = stack.enter_context(workspace.open(str(plan.place)))
        return subprocess.Popen(
            [*command, "--regexp", plan.pattern, "-"], stdin=file, stdout=subprocess.PIPE, stderr=errors, cwd="/"
        )
    folder, descriptor = stack.enter_context(workspace.folder(str(plan.place)))
    command += [f"--max-filesize={MAX_BYTES}", *_globs(plan, folder)]
    return subprocess.Popen(
        [*command, "--regexp", plan.pattern, "./"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
        cwd=_place_of(folder, descriptor),
    )  # fmt: skip


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    if process.stdout is not None:
        process.stdout.close()
    process.wait()


def _hits(output: IO[bytes], plan: SearchPlan, max_bytes: float) -> Iterator[FileMatches]:
    lines: list[FoundLine] = []
    decoder = msgspec.json.Decoder()
    alone = plan.place.is_file()
    for raw in output:
        if (max_bytes := max_bytes - len(raw)) < 0:
            raise _TooMany
        event: dict[str, Any] = decoder.decode(raw)
        data = event["data"]
        match event["type"]:
            case "begin":
                lines = []
            case "match" | "context":
                lines += _lines(data, found=event["type"] == "match")
            case "end":
                path = plan.place.name if alone else _ripgrep_text(data["path"]).removeprefix("./")
                is_match = any(line.found for line in lines) and (alone or plan.fits(path))
                # A file with a zero byte is binary, whatever matched before it.
                plan.left_out.binary += is_match and data["binary_offset"] is not None
                if is_match and data["binary_offset"] is None:
                    yield FileMatches(path, tuple(lines))


def _lines(data: dict[str, Any], *, found: bool) -> Iterator[FoundLine]:
    first = data["line_number"]
    for at, text in enumerate(_ripgrep_text(data["lines"]).removesuffix("\n").split("\n")):
        yield FoundLine(first + at, text.removesuffix("\r"), found)


def _ripgrep_text(value: dict[str, str]) -> str:
    return value["text"] if "text" in value else base64.b64decode(value["bytes"]).decode("utf-8", "replace")


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

    def __init__(self, workspace: Workspace, *, ripgrep: str | None = None) -> None:
        """`ripgrep`: path of the program; empty to search in Python, None to find it."""
        self._workspace = workspace
        self._ripgrep = (shutil.which("rg") or "") if ripgrep is None else ripgrep

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
        folder = place if place.is_dir() else place.parent
        patterns = _patterns(args)
        tests = [name_pattern(pattern) for pattern in patterns]
        plan = SearchPlan(
            args.pattern, place, lambda path: all(fits(path) for fits in tests), args.ignore_case, args.multiline,
            args.context if args.mode == "content" else 0, tuple(self._workspace.closed_below(folder)),
            next(filter(None, map(plain_name, patterns)), ""),
        )  # fmt: skip
        search = partial(search_by_ripgrep, self._ripgrep) if self._ripgrep else search_by_python
        named = (
            FileMatches(self._workspace.shown(folder / hit.path), hit.lines) for hit in search(plan, self._workspace)
        )
        with ThreadPoolExecutor(1) as pool:
            listed = (
                pool.submit(copy_context().run, find_large_files, self._ripgrep, plan, self._workspace)
                if self._ripgrep
                else None
            )
            result = _content(named, args) if args.mode == "content" else _grep_files(named, args)
            if listed:
                listed.result()
        note = plan.left_out.words()
        return replace(result, text=f"{result.text}\n{note}") if note else result


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
    for line in hit.lines:
        if (line.found and found == most) or room < 0:
            return shown, found, True
        if before is not None and line.number > before.number + 1 and _has_context(hit):
            shown.append("--")
        shown.append(f"{line.number}{':' if line.found else '-'}{_cut(line.text)}")
        room -= len(shown[-1])
        found += line.found
        before = line
    return shown, found, False


def _has_context(hit: FileMatches) -> bool:
    return not all(line.found for line in hit.lines)


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
