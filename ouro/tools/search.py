"""Search in files for grep: the plan, the matches, and the search by ripgrep or, without it, in Python."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

import msgspec

from ouro.errors import ToolError
from ouro.safety import Workspace
from ouro.utils.project_files import walk

MAX_BYTES = 50_000_000
"""Bytes; larger files in a folder are skipped."""


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
    for name, path in _files(plan):
        text = _text(workspace, path, whatever_size=path == plan.place)
        if text is not None and (found := _found(expression, text, multiline=plan.multiline)):
            yield FileMatches(name, _with_context(text.split("\n"), found, plan.context))


def in_path_order(path: str) -> list[bytes]:
    """The sort key of both searches: folder by folder, by bytes."""
    return path.encode("utf-8", "surrogateescape").split(b"/")


def _files(plan: SearchPlan) -> list[tuple[str, Path]]:
    if plan.place.is_file():
        return [(plan.place.name, plan.place)]
    names = (name for name in walk(plan.place) if plan.fits(name))
    paths = ((name, plan.place / name) for name in sorted(names, key=in_path_order))
    return [(name, path) for name, path in paths if not any(path.is_relative_to(area) for area in plan.closed)]


def _text(workspace: Workspace, path: Path, *, whatever_size: bool) -> str | None:
    """The text of a file, with `\\n` line endings; None where it is binary, too large, or cannot be read."""
    try:
        if path.is_symlink():
            return None
        with workspace.open(str(path)) as file:
            data = file.read() if whatever_size else file.read(MAX_BYTES + 1)
    except (OSError, ToolError):
        return None
    if not whatever_size and len(data) > MAX_BYTES:
        return None
    for mark, encoding in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"), (b"\xef\xbb\xbf", "utf-8")):
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace").replace("\r\n", "\n")
    return None if b"\0" in data else data.decode("utf-8", "replace").replace("\r\n", "\n")


def _found(expression: re.Pattern[str], text: str, *, multiline: bool) -> set[int]:
    """The matching lines, counted from 0."""
    if not multiline:
        lines = text.removesuffix("\n").split("\n") if text else []
        return {at for at, line in enumerate(lines) if expression.search(line)}
    found: set[int] = set()
    for match in expression.finditer(text):
        if match.start() == len(text) and text.endswith("\n"):
            continue
        first = text.count("\n", 0, match.start())
        last = first + match[0].removesuffix("\n").count("\n")
        found.update(range(first, last + 1))
    return found


def _with_context(lines: list[str], found: set[int], context: int) -> tuple[FoundLine, ...]:
    count = len(lines) - (lines[-1] == "")
    near = {at for middle in found for at in range(middle - context, middle + context + 1) if 0 <= at < count}
    return tuple(FoundLine(at + 1, lines[at], at in found) for at in sorted(near))


_OPTIONS = (
    # No configuration of the user or the project may change the result or run a program.
    "--no-config", "--json", "--crlf", "--hidden", "--sort=path", "--engine=auto", "--no-require-git",
    "--no-ignore-dot", "--no-ignore-global", "--no-ignore-exclude", "--no-messages",
)  # fmt: skip
_REPOSITORIES = (".git", ".hg", ".svn", ".jj")
_TIMEOUT = 60.0
_LIMITED = ("/bin/sh", "-c", 'ulimit -v 4194304 2>/dev/null; ulimit -t "$0"; exec "$@"', str(int(_TIMEOUT)))
"""Limits a search to 4 GB of address space (one has taken 23 GB), and in time if it outlives ouro."""


def search_by_ripgrep(program: str, plan: SearchPlan, workspace: Workspace) -> Iterator[FileMatches]:
    """The files with matches, in the order of their paths.

    Raises:
        ToolError: the pattern is not a regular expression.
    """
    with ExitStack() as stack:
        errors = stack.enter_context(tempfile.TemporaryFile())
        process = _start(program, plan, workspace, stack, errors)
        stack.callback(_end, process)
        assert process.stdout is not None
        timer = threading.Timer(_TIMEOUT, process.kill)
        timer.daemon = True
        timer.start()
        stack.callback(timer.cancel)
        yield from _hits(process.stdout, plan)
        if process.wait() < 0:
            raise ToolError(f"The search used more than {_TIMEOUT:.0f} s. Narrow the pattern, path or glob.")
        errors.seek(0)
        # Exit code 2 also means that a single file could not be read.
        if message := errors.read(2000).decode("utf-8", "replace").strip().removeprefix("rg: "):
            raise ToolError(f"{plan.pattern} is not a regular expression: {message}")


def _start(
    program: str, plan: SearchPlan, workspace: Workspace, stack: ExitStack, errors: IO[bytes]
) -> subprocess.Popen[bytes]:
    command = [*_LIMITED, program, *_OPTIONS, f"--context={plan.context}"]
    command += ["--ignore-case"] * plan.ignore_case + ["--multiline", "--multiline-dotall"] * plan.multiline
    if plan.place.is_file():
        # Opened here and passed as stdin, so that it is the file that was checked.
        file = stack.enter_context(workspace.open(str(plan.place)))
        return subprocess.Popen(
            [*command, "--regexp", plan.pattern, "-"], stdin=file, stdout=subprocess.PIPE, stderr=errors, cwd="/"
        )
    folder, descriptor = stack.enter_context(workspace.folder(str(plan.place)))
    command += [f"--max-filesize={MAX_BYTES}"]
    command += [f"--glob=!**/{name}/" for name in _REPOSITORIES]
    command += [f"--glob=!/{area.relative_to(folder)}" for area in plan.closed]
    where = f"/proc/self/fd/{descriptor}" if sys.platform == "linux" else str(folder)
    return subprocess.Popen(
        [*command, "--regexp", plan.pattern, "./"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, cwd=where,
    )  # fmt: skip


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    if process.stdout is not None:
        process.stdout.close()
    process.wait()


def _hits(output: IO[bytes], plan: SearchPlan) -> Iterator[FileMatches]:
    lines: list[FoundLine] = []
    decoder = msgspec.json.Decoder()
    alone = plan.place.is_file()
    for raw in output:
        event: dict[str, Any] = decoder.decode(raw)
        data = event["data"]
        match event["type"]:
            case "begin":
                lines = []
            case "match" | "context":
                lines += _lines(data, found=event["type"] == "match")
            case "end":
                path = plan.place.name if alone else _ripgrep_text(data["path"]).removeprefix("./")
                # A file with a zero byte is binary, whatever matched before it.
                if data["binary_offset"] is None and any(line.found for line in lines) and (alone or plan.fits(path)):
                    yield FileMatches(path, tuple(lines))


def _lines(data: dict[str, Any], *, found: bool) -> Iterator[FoundLine]:
    first = data["line_number"]
    for at, text in enumerate(_ripgrep_text(data["lines"]).removesuffix("\n").split("\n")):
        yield FoundLine(first + at, text.removesuffix("\r"), found)


def _ripgrep_text(value: dict[str, str]) -> str:
    return value["text"] if "text" in value else base64.b64decode(value["bytes"]).decode("utf-8", "replace")
