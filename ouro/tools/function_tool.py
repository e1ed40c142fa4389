"""FunctionTool: a Python function as a tool; the decorator `tool` makes one."""

from __future__ import annotations

import asyncio
import copy
import inspect
import os
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, overload

import msgspec

from ouro.display import Display, Plain
from ouro.errors import ToolError, UsageError
from ouro.safety import Effect
from ouro.tools.tool import Tool, ToolContext, ToolResult
from ouro.tools.truncate import shorten
from ouro.utils.log import log
from ouro.utils.ouro_paths import expand_home
from ouro.utils.text import one_line


class FunctionTool(Tool[msgspec.Struct]):
    """A Python function as a tool: its docstring is the description, its type hints are the schema.

    Args:
        name: what the model calls it; by default the name of the function.
        asks: the user is asked before each call.
        reads, writes: the argument that names the file that is read or changed: the rules on files apply to it.

    Raises:
        UsageError: a parameter has no type hint, or one that has no JSON schema.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str = "",
        *,
        asks: bool = False,
        reads: str = "",
        writes: str = "",
    ) -> None:
        name = name or function.__name__
        self.name = name
        description = inspect.getdoc(function)
        if not description:
            raise UsageError(
                f"The tool `{name}` has no docstring.",
                "The model reads it: say what it does, and when.",
            )
        if reads and writes:
            raise UsageError(
                f"The tool `{name}` has both `reads` and `writes`.", "`writes` allows reading, too."
            )
        self.__doc__ = description
        self.Args = _arguments_struct(name, function)
        self.effect = Effect.NONE
        if reads or writes:
            self.effect = Effect.WRITE if writes else Effect.READ
        self.asks = asks
        self.function = function
        self.path_argument = writes or reads
        if self.path_argument and self.path_argument not in self.Args.__struct_fields__:
            raise UsageError(f"The tool `{name}` has no argument `{self.path_argument}`.")
        self._cwd = Path.cwd()
        """The folder that a relative path starts from, even if the program changes to another."""

    def in_folder(self, cwd: Path) -> FunctionTool:
        """A copy of this tool for a session in the folder `cwd`, to which its paths are relative."""
        tool = copy.copy(self)
        tool._cwd = cwd
        return tool

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the function itself."""
        return self.function(*args, **options)

    def title(self, args: msgspec.Struct) -> str:
        arguments = ", ".join(
            f"{name}={value!r}" for name, value in msgspec.structs.asdict(args).items()
        )
        return one_line(f"{self.name}({arguments})")

    def targets(self, args: msgspec.Struct) -> tuple[str, ...]:
        return (str(getattr(args, self.path_argument)),) if self.path_argument else ()

    async def run(self, args: msgspec.Struct, ctx: ToolContext) -> ToolResult:
        """Call the program's function, in a thread if it is not async. Its exceptions are logged,
        and raised as ToolError.
        """
        arguments = msgspec.structs.asdict(args)
        # The function gets the file that permissions have judged, also if the program has changed
        # its working folder.
        if name := self.path_argument:
            arguments[name] = os.path.realpath(self._cwd / expand_home(arguments[name]))
        try:
            if inspect.iscoroutinefunction(self.function):
                value = await self.function(**arguments)
            else:
                value = await asyncio.to_thread(self.function, **arguments)
        except ToolError:
            raise
        except Exception as error:
            log.exception("the function of the tool %s failed", self.name)
            raise ToolError(f"{self.name} failed: {type(error).__name__}: {error}") from error
        return value if isinstance(value, ToolResult) else _value_as_result(value)


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    *, name: str = "", asks: bool = False, reads: str = "", writes: str = ""
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    asks: bool = False,
    reads: str = "",
    writes: str = "",
) -> Any:
    """A decorator that makes a tool of a function, for `tools=` of a program and for files in
    `tools/`. It is used with or without arguments: `@tool` or `@tool(asks=True)`.

    Args:
        name: what the model calls it; by default the name of the function.
        asks: the user, or `on_permission`, decides on each call.
        reads, writes: the argument that names the file that is read or changed: the rules on files apply to it.

    Raises:
        UsageError: there is no docstring, or a parameter has no type hint or one that has no JSON schema.
    """

    def make_tool(function: Callable[..., Any]) -> FunctionTool:
        return FunctionTool(function, name, asks=asks, reads=reads, writes=writes)

    return make_tool if function is None else make_tool(function)


def _arguments_struct(name: str, function: Callable[..., Any]) -> type[msgspec.Struct]:
    """A struct with a field for each parameter of the function. The model gets the schema of this
    struct. Raises UsageError: a parameter has no type hint or no JSON schema, or stands for any
    number of arguments.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
            parameter.POSITIONAL_ONLY,
        ):
            raise UsageError(
                f"The tool `{name}` has the parameter `{parameter}`.",
                "Name each argument by itself.",
            )
        if parameter.name not in hints:
            raise UsageError(
                f"The parameter `{parameter.name}` of the tool `{name}` has no type hint."
            )
        hint = _with_description(hints[parameter.name])
        if parameter.default is parameter.empty:
            fields.append((parameter.name, hint))
        else:
            fields.append((parameter.name, hint, parameter.default))
    struct = msgspec.defstruct(f"{name}_arguments_struct", fields, frozen=True, kw_only=True)
    try:
        msgspec.json.schema(struct)
    except TypeError as error:
        problem = str(error).splitlines()[-1]  # the text before it is for callers of msgspec
        raise UsageError(
            f"The parameters of the tool `{name}` have no JSON schema: {problem}."
        ) from error
    return struct


def _with_description(hint: Any) -> Any:
    """The type hint of a parameter, in which `Annotated[str, "words"]` has become a description for
    the schema. Any other hint stays as it is.
    """
    if typing.get_origin(hint) is not typing.Annotated:
        return hint
    kind, *notes = typing.get_args(hint)
    metadata = [msgspec.Meta(description=note) if isinstance(note, str) else note for note in notes]
    return typing.Annotated[(kind, *metadata)]


def _value_as_result(value: Any) -> ToolResult:
    """The returned value as a result. A text stays as it is, None becomes `Done.`, anything else
    becomes JSON. A long text is shortened.
    """
    if value is None:
        return ToolResult("Done.", Display("done"))
    if not isinstance(value, str):
        value = msgspec.json.encode(value, enc_hook=str).decode()
    text = shorten(value)
    summary = one_line(text.partition("\n")[0], 80)
    return ToolResult(text, Display(summary, Plain(text) if summary != text else None))
