"""The process of one tool file: it describes the tools of the file, or calls one of them.

A request is on standard input, the answer goes to standard output, both JSON. What the file prints
goes to standard error.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import traceback
import types
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ouro.display import Plain
from ouro.errors import OuroError, ToolError
from ouro.extensions.tool_answers import ToolAnswer, ToolDescription, ToolOutcome, ToolRequest
from ouro.tools.function_tool import FunctionTool
from ouro.tools.tool import ToolContext, parse_arguments
from ouro.utils.decoding import decode_json
from ouro.utils.standard_output import take_stdout

MODULE = "ouro_tool_file"
"""The name under which a tool file is imported."""


def main() -> None:
    """Answer one request from standard input."""
    answer_fd = take_stdout()
    logging.disable()  # the answer says what is wrong
    request = decode_json(sys.stdin.buffer.read(), ToolRequest)
    try:
        answer = _answer(request)
    except OuroError as error:
        answer = ToolAnswer(error=str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the file does is its error
        answer = ToolAnswer(error=_describe_error(error, request.path))
    with os.fdopen(answer_fd, "wb") as file:
        file.write(msgspec.json.encode(answer))


def _answer(request: ToolRequest) -> ToolAnswer:
    """Answer a request: describe the tools of the file, or call one. Raises what the file or the
    function of the tool raises.
    """
    tools = _load(request)
    if not request.tool:
        return ToolAnswer(tools=tuple(map(_describe, tools.values())))
    tool = tools[request.tool].in_folder(Path(request.cwd))
    args = parse_arguments(tool, request.arguments)
    try:
        result = asyncio.run(tool.run(args, ToolContext(print, _ask_nobody)))
    except ToolError as error:
        if error.__cause__ is None:
            raise
        # The error of the function itself: its traceback has the line in the file.
        raise error.__cause__ from None
    body = result.display.body
    text = body.text if isinstance(body, Plain) else None
    return ToolAnswer(
        outcome=ToolOutcome(
            result.text,
            result.display.summary,
            body=text,
            failed=result.failed,
            images=result.images,
        )
    )


def _load(request: ToolRequest) -> dict[str, FunctionTool]:
    """Run the file as a module, and return its tools by name. Raises what the file raises, and
    ValueError if it has no tools or two with the same name.
    """
    module = types.ModuleType(MODULE)
    module.__file__ = request.path
    sys.modules[MODULE] = module  # type hints and dataclasses look their module up
    code = compile(request.source, request.path, "exec", dont_inherit=True)
    exec(code, module.__dict__)  # noqa: S102 - it was trusted
    tools: dict[str, FunctionTool] = {}
    for tool in dict.fromkeys(_tools_in(module)):  # a tool may have two names in the module
        if tools.setdefault(tool.name, tool) is not tool:
            raise ValueError(f"two of its tools have the name `{tool.name}`")
    if not tools:
        raise ValueError("it has no function with @tool")
    return tools


def _tools_in(module: types.ModuleType) -> Iterator[FunctionTool]:
    """Yields the tools among the values of a module."""
    for value in vars(module).values():
        if isinstance(value, FunctionTool):
            yield value


def _describe(tool: FunctionTool) -> ToolDescription:
    """A tool as a value that can be sent to the session."""
    is_writing = tool.effect == "write"
    argument = tool.path_argument
    return ToolDescription(
        tool.spec(),
        tool.asks,
        reads="" if is_writing else argument,
        writes=argument if is_writing else "",
        default_path=_default_path(tool) if argument else None,
    )


def _default_path(tool: FunctionTool) -> str | None:
    """The default of the argument that names a path; None if it has none."""
    defaults = {item.name: item.default for item in msgspec.structs.fields(tool.Args)}
    value = defaults[tool.path_argument]
    return None if value is msgspec.NODEFAULT else str(value)


async def _ask_nobody(_question: object) -> tuple[str, ...]:
    """Answer no question: a worker has no user."""
    return ()


def _describe_error(error: BaseException, path: str) -> str:
    """An error in one line: the number of the line in the tool file where it happened, if it did
    there, its type and its message.

    Args:
        path: the tool file.
    """
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == path]
    place = f"line {lines[-1]}: " if lines else ""
    is_of_worker = isinstance(error, ValueError) and not lines  # its message says it all
    name = "" if is_of_worker else f"{type(error).__name__}: "
    return f"{place}{name}{error}"


if __name__ == "__main__":
    main()
