"""The way to search by ripgrep."""

from __future__ import annotations

import base64
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import IO, Any

import msgspec

from ouro.errors import ToolError
from ouro.safety.workspace import Workspace
from ouro.tools.search_plan import LARGEST, Hit, Line, Plan

_OPTIONS = (
    # Nothing that the user or the project has set up may change what is found, or run a program.
    "--no-config", "--json", "--crlf", "--hidden", "--sort=path", "--engine=auto", "--no-require-git",
    "--no-ignore-dot", "--no-ignore-global", "--no-ignore-exclude", "--no-messages",
)  # fmt: skip
_REPOSITORIES = (".git", ".hg", ".svn", ".jj")
_TIMEOUT = 60.0
_LIMITED = ("/bin/sh", "-c", 'ulimit -v 4194304 2>/dev/null; ulimit -t "$0"; exec "$@"', str(int(_TIMEOUT)))
"""4 GB of address space (a search has taken 23 GB), and an end for one that outlives ouro."""


def search_by_ripgrep(program: str, plan: Plan, workspace: Workspace) -> Iterator[Hit]:
    """The files in which something is found, in the order of their paths.

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
        # Its code is 2 as well where a single file could not be read.
        if message := errors.read(2000).decode("utf-8", "replace").strip().removeprefix("rg: "):
            raise ToolError(f"{plan.pattern} is not a regular expression: {message}")


def _start(
    program: str, plan: Plan, workspace: Workspace, stack: ExitStack, errors: IO[bytes]
) -> subprocess.Popen[bytes]:
    command = [*_LIMITED, program, *_OPTIONS, f"--context={plan.context}"]
    command += ["--ignore-case"] * plan.ignore_case + ["--multiline", "--multiline-dotall"] * plan.multiline
    if plan.place.is_file():
        # Opened here and handed over, so that it is the file that was checked.
        file = stack.enter_context(workspace.open(str(plan.place)))
        return subprocess.Popen(
            [*command, "--regexp", plan.pattern, "-"], stdin=file, stdout=subprocess.PIPE, stderr=errors, cwd="/"
        )
    folder, descriptor = stack.enter_context(workspace.folder(str(plan.place)))
    command += [f"--max-filesize={LARGEST}"]
    command += [f"--glob=!**/{name}/" for name in _REPOSITORIES]
    command += [f"--glob=!/{each.relative_to(folder)}" for each in plan.closed]
    where = f"/proc/self/fd/{descriptor}" if sys.platform == "linux" else str(folder)
    return subprocess.Popen(
        [*command, "--regexp", plan.pattern, "./"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, cwd=where,
    )  # fmt: skip


def _end(process: subprocess.Popen[bytes]) -> None:
    """Enough was found: it need not search on."""
    with suppress(ProcessLookupError):
        process.kill()
    if process.stdout is not None:
        process.stdout.close()
    process.wait()


def _hits(output: IO[bytes], plan: Plan) -> Iterator[Hit]:
    lines: list[Line] = []
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
                path = plan.place.name if alone else _text(data["path"]).removeprefix("./")
                # Where a zero byte was met, the file is no text, whatever was found before it.
                if data["binary_offset"] is None and any(line.found for line in lines) and (alone or plan.fits(path)):
                    yield Hit(path, tuple(lines))


def _lines(data: dict[str, Any], *, found: bool) -> Iterator[Line]:
    first = data["line_number"]
    for at, text in enumerate(_text(data["lines"]).removesuffix("\n").split("\n")):
        yield Line(first + at, text.removesuffix("\r"), found)


def _text(value: dict[str, str]) -> str:
    return value["text"] if "text" in value else base64.b64decode(value["bytes"]).decode("utf-8", "replace")
