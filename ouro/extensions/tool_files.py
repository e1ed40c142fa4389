"""Tool files: Python functions in `tools/` of the user and of a trusted project, as tools.

A file never runs in this process. A worker describes its tools, once for each content, and each
call is a process of its own in the sandbox.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from ouro import __version__
from ouro.display import Display, Plain
from ouro.errors import ToolError
from ouro.extensions.discovery import read_extension
from ouro.extensions.hook_process import HookAnswer, run_command
from ouro.extensions.tool_answers import ToolAnswer, ToolDescription, ToolOutcome, ToolRequest
from ouro.llm import ToolSpec
from ouro.safety import Effect, Limits, extension_files, files_below
from ouro.tools.tool import Tool, ToolContext, ToolResult
from ouro.utils.decoding import decode_json
from ouro.utils.files import write_private
from ouro.utils.ouro_paths import ensure_private_dir, get_home, tilde
from ouro.utils.text import clean, cut, escape_invisible, one_line

MAX_ANSWER = 32 * 1024 * 1024
"""Maximum bytes of a worker's answer; images are in it."""
MAX_PREVIEW = 4_000
MAX_CACHED = 200
"""Maximum files whose descriptions are saved."""
DESCRIBE_SECONDS = 20.0
"""The time limit for a worker that describes its tools."""
Confine: TypeAlias = Callable[[Sequence[str], Limits], Sequence[str]]
"""Returns the command that runs another one in the sandbox. Blocks."""
_TOOL_NAME = re.compile(r"[a-zA-Z][\w-]{0,63}", re.ASCII)
"""A name that models accept for a tool: letters, digits, `_` and `-`."""
_WORKER_ARGUMENTS = ("-P", "-B", "-m", "ouro.extensions.tool_worker")
"""How Python runs the worker. With -P it does not import from the working folder, which may contain
a file with the name of a module.
"""


class ToolFile(msgspec.Struct, frozen=True):
    """A file of tools, as it was read."""

    path: Path
    source: Literal["user", "project"]
    text: str


class ToolFileHost(msgspec.Struct, frozen=True):
    """What the workers of tool files run with."""

    cwd: Path
    environment: Mapping[str, str]
    """The variables of a project's tools."""
    user_environment: Mapping[str, str]
    """The variables of the user's tools."""
    confine: Confine
    """The command that starts another one in the sandbox. Blocks."""
    seconds: float
    """The time limit of a call."""

    async def run(
        self,
        file: ToolFile,
        request: ToolRequest,
        limits: Limits,
        seconds: float,
        report: Callable[[str], None] = lambda _text: None,
    ) -> ToolAnswer:
        """Run a worker for a request about a file. Returns its answer; if it gives none, an answer
        with an error that says how it ended.

        Args:
            limits: what the worker may change.
            seconds: its time limit.
            report: gets what it prints.
        """
        argv = await asyncio.to_thread(self.confine, [sys.executable, *_WORKER_ARGUMENTS], limits)
        environment = self.user_environment if file.source == "user" else self.environment
        data = msgspec.json.encode(request)
        output = await run_command(argv, data, self.cwd, environment, seconds, MAX_ANSWER, report)
        try:
            return decode_json(output.out.encode(), ToolAnswer)
        except (msgspec.MsgspecError, ValueError):
            return ToolAnswer(error=_describe_end(output))


def _describe_end(output: HookAnswer) -> str:
    """How a worker without an answer has ended."""
    if output.exit_code is None:
        return output.error
    last_line = output.error.rpartition("\n")[2]
    cause = f": {last_line}" if last_line else ""
    return f"it ended with exit code {output.exit_code}{cause}"


def load_file_tools(
    files: Sequence[ToolFile], host: ToolFileHost
) -> tuple[list[OwnTool], list[str]]:
    """The tools in the files, and a line for each file or tool that is not used. If two tools have
    the same name, the first is used. Blocks: files that are new are described by workers.

    Args:
        files: those of the user come before those of the project.
    """
    if not files:
        return [], []
    tools: dict[str, OwnTool] = {}
    problems: list[str] = []
    answers = _describe_all(files, host)
    for file, answer in zip(files, answers, strict=True):
        if answer.error:
            problem = one_line(clean(answer.error), 300).rstrip(".")
            problems.append(f"{tilde(file.path)} is not used: {problem}.")
        for description in answer.tools:
            tool = OwnTool(description, file, host)
            problem = _find_name_problem(tool, tools)
            if problem:
                problems.append(problem)
            else:
                tools[tool.name] = tool
    return list(tools.values()), problems


def _find_name_problem(tool: OwnTool, others: Mapping[str, OwnTool]) -> str:
    """Why a tool cannot be used because of its name: the name is not valid, or a tool before it has
    the same name. Empty if it can be used.

    Args:
        others: the tools before it, by their names.
    """
    if not _TOOL_NAME.fullmatch(tool.name):
        name = one_line(escape_invisible(tool.name), 60)
        problem = f"`{name}` is not a name: use letters, digits, `-` and `_`."
        return f"{tilde(tool.file.path)}: {problem}"
    if tool.name not in others:
        return ""
    first = tilde(others[tool.name].file.path)
    second = tilde(tool.file.path)
    return f"Two tools are named {tool.name}: that of {first} is used, that of {second} is not."


class ToolFileArguments(msgspec.Struct, frozen=True):
    """The arguments of a call, by name."""

    values: dict[str, Any]


class OwnTool(Tool[ToolFileArguments]):
    """One tool of a file. Each call runs the file in a worker."""

    Args = ToolFileArguments

    def __init__(self, description: ToolDescription, file: ToolFile, host: ToolFileHost) -> None:
        self.name = description.spec.name
        self.file = file
        self.asks = description.asks
        self._description = description
        self._host = host
        # A tool that declares neither is judged by its name, not by paths: it may change any file.
        if description.writes:
            self.effect = Effect.WRITE
        else:
            self.effect = Effect.READ if description.reads else Effect.TOOL

    def in_folder(self, cwd: Path, confine: Confine) -> OwnTool:
        """The same tool for a subagent that works in `cwd`."""
        host = msgspec.structs.replace(self._host, cwd=cwd, confine=confine)
        return OwnTool(self._description, self.file, host)

    def spec(self) -> ToolSpec:
        return self._description.spec

    def parse(self, arguments: Mapping[str, Any]) -> ToolFileArguments:
        """The arguments of a call; the worker checks all but the argument for a path. Raises
        ToolError if that one is missing, or not a text.
        """
        values = dict(arguments)
        name = self._description.path_argument
        if name:
            default = self._description.default_path
            # The default is filled in here, so that it is judged like any other path.
            if name not in values and default is not None:
                values[name] = default
            if not isinstance(values.get(name), str):
                raise ToolError(f"Wrong arguments for {self.name}: `{name}` must be a path.")
        return ToolFileArguments(values)

    def plain_arguments(self, args: ToolFileArguments) -> dict[str, Any]:
        return args.values

    def title(self, args: ToolFileArguments) -> str:
        values = ", ".join(f"{name}: {value}" for name, value in args.values.items())
        return one_line(f"{self.name} {values}", 160)

    def targets(self, args: ToolFileArguments) -> tuple[str, ...]:
        name = self._description.path_argument
        return (args.values[name],) if name else (self.name,)

    async def preview(self, args: ToolFileArguments) -> Display:
        values = escape_invisible(json.dumps(args.values, indent=2, ensure_ascii=False))
        text = f"{values}\n\nfrom {tilde(self.file.path)}"
        return Display(self.title(args), Plain(cut(text, MAX_PREVIEW)))

    async def run(self, args: ToolFileArguments, ctx: ToolContext) -> ToolResult:
        """Call the tool in a worker. Raises ToolError if it fails."""
        host, file = self._host, self.file
        request = ToolRequest(
            str(file.path),
            source=file.text,
            tool=self.name,
            arguments=args.values,
            cwd=str(host.cwd),
        )
        limits: Limits = "read" if self.effect is Effect.READ else "workspace"
        answer = await host.run(file, request, limits, host.seconds, ctx.report)
        outcome = answer.outcome
        if outcome is None:
            error = answer.error or "it has no result"
            # A message that the tool itself has written may begin with its name.
            prefix = "" if error.startswith(f"{self.name} ") else f"{self.name}: "
            raise ToolError(f"{prefix}{clean(error)}")
        return _to_result(outcome)


def _to_result(outcome: ToolOutcome) -> ToolResult:
    body = Plain(clean(outcome.body)) if outcome.body is not None else None
    display = Display(one_line(clean(outcome.summary), 80), body)
    return ToolResult(clean(outcome.text), display, outcome.failed, outcome.images)


def find_tool_files(root: Path, trusts: Callable[[Path], bool]) -> tuple[list[ToolFile], list[str]]:
    """Read the tool files of the user, and those of a project that the user trusts. Returns them,
    and a line for each file that cannot be read. Blocks.

    Only files directly in the folder `tools` are tools, and not those whose name begins with `_`.
    Other files are for use by the tools.
    """
    files: list[ToolFile] = []
    problems: list[str] = []
    for path, source in _list_paths(root, trusts):
        if path.name.startswith("_"):
            continue
        try:
            files.append(ToolFile(path, source, read_extension(path)))
        except ValueError as error:
            problems.append(f"{tilde(path)} is not used: {error}")
    return files, problems


def _list_paths(
    root: Path, trusts: Callable[[Path], bool]
) -> Iterator[tuple[Path, Literal["user", "project"]]]:
    """Yields the files directly in the folder `tools` of the user, then the trusted ones directly
    in that of the project; each with its source.
    """
    user_folder = get_home() / "tools"
    for path in files_below(user_folder, "tools"):
        if path.parent == user_folder:
            yield path, "user"
    project_folder = root.resolve() / ".ouro" / "tools"
    for path in extension_files(root, "tools"):
        if path.parent == project_folder and trusts(path):
            yield path, "project"


def _describe_all(files: Sequence[ToolFile], host: ToolFileHost) -> list[ToolAnswer]:
    """The descriptions of the tools of each file, as one answer for each, in the same order. They
    are from the cache; files that it does not have are described by workers, side by side, and
    added to it. Blocks.
    """
    cache = _DescriptionCache()
    answers = {file.path: cache.get(file) for file in files}
    new_files = [file for file in files if answers[file.path] is None]
    if new_files:
        new_answers = asyncio.run(_describe_new(new_files, host))
        for file, answer in zip(new_files, new_answers, strict=True):
            answers[file.path] = answer
            if not answer.error:
                cache.add(file, answer)
        cache.save()
    return [answers[file.path] or ToolAnswer() for file in files]


async def _describe_new(files: Sequence[ToolFile], host: ToolFileHost) -> list[ToolAnswer]:
    """Let workers describe the tools of files, one worker for each file. Returns their answers, in
    the same order.
    """
    requests = [ToolRequest(str(file.path), file.text, cwd=str(host.cwd)) for file in files]
    runs = (
        host.run(file, request, "read", DESCRIBE_SECONDS)
        for file, request in zip(files, requests, strict=True)
    )
    return await asyncio.gather(*runs)


class _SavedDescriptions(msgspec.Struct):
    version: str
    tools: dict[str, tuple[ToolDescription, ...]]
    """The hash of a file -> its tools."""


class _DescriptionCache:
    """The descriptions of tools by the content of their file. They are saved in a file of the home
    folder that may be deleted.
    """

    def __init__(self) -> None:
        self._path = get_home() / "cache" / "tool_files.json"
        self._tools: dict[str, tuple[ToolDescription, ...]] = {}
        with suppress(OSError, msgspec.MsgspecError, ValueError):
            saved = decode_json(self._path.read_bytes(), _SavedDescriptions)
            if saved.version == __version__:
                self._tools = saved.tools

    def get(self, file: ToolFile) -> ToolAnswer | None:
        """The saved answer for a file; None if there is none."""
        tools = self._tools.get(_hash(file))
        return None if tools is None else ToolAnswer(tools=tools)

    def add(self, file: ToolFile, answer: ToolAnswer) -> None:
        self._tools[_hash(file)] = answer.tools

    def save(self) -> None:
        newest = dict([*self._tools.items()][-MAX_CACHED:])
        with suppress(OSError):
            ensure_private_dir(self._path.parent)
            write_private(self._path, msgspec.json.encode(_SavedDescriptions(__version__, newest)))


def _hash(file: ToolFile) -> str:
    return hashlib.sha256(file.text.encode()).hexdigest()


def variables_of_user(
    environment: Mapping[str, str],
    names: Sequence[str],
    keys: Sequence[str],
) -> Iterator[tuple[str, str]]:
    """Yields the variables that the settings name for the user's own tools, with their values. A
    variable whose value contains the key of a model is left out.

    Args:
        names: the names in the settings.
        keys: the keys of all models.
    """
    for name in names:
        value = environment.get(name)
        if value is not None and not any(secret in value for secret in keys):
            yield name, value
