"""Tool: the protocol of a tool, its context and its result."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from ouro.display import Display, Question
from ouro.errors import ToolError
from ouro.events import Emit
from ouro.llm import ToolSpec
from ouro.messages import Image
from ouro.safety import Effect, Limits
from ouro.utils.decoding import from_plain
from ouro.utils.late_pattern import late_pattern


class ToolContext(msgspec.Struct, frozen=True):
    """The callbacks that a tool may use during one call."""

    report: Callable[[str], None]
    """Show output of the running tool."""
    ask: Callable[[Question], Awaitable[tuple[str, ...]]]
    """Ask the user; returns the answers, none if the user dismissed the question."""
    limits: Limits = "off"
    """What a command may change."""
    call_id: str = ""
    emit: Emit = lambda _event: None
    """Emit an event of the turn; for a tool whose work is more than lines of output."""


class ToolResult(msgspec.Struct, frozen=True):
    """The result of a call: `text` for the model, `display` for the user."""

    text: str
    display: Display
    failed: bool = False
    images: tuple[Image, ...] = ()
    is_cut: bool = False
    """Whether `text` ends before the end of what was read."""


Verdict = Literal["", "allow", "ask", "deny"]


class HookOutcome(msgspec.Struct, frozen=True):
    """The combined result of the hooks of one event."""

    verdict: Verdict = ""
    reason: str = ""
    """The reason of a refusal or question."""
    input: Mapping[str, Any] | None = None
    """The changed arguments of a tool: a hook uses the names of Claude Code; otherwise the tool's
    own names.
    """
    context: str = ""
    """Text for the model."""
    message: str = ""
    """Text for the user."""


A = TypeVar("A", bound=msgspec.Struct)
_JSON_IN_QUOTES = late_pattern(
    r"Expected `(?:array|object)`, got `str` - at `\$\.(?P<argument>\w+)`"
)
"""The error about a list or an object that a model has written as a text: `"[{…}]"`."""


class Tool(Protocol, Generic[A]):
    """One thing ouro can do. The class docstring is its description for the model; `Args` is its
    schema.
    """

    name: str
    effect: Effect
    Args: type[A]

    def title(self, args: A) -> str:
        """The call in one line, for the user."""
        ...

    def targets(self, args: A) -> tuple[str, ...]:
        """The paths, command or address that permissions judge: by default the argument `path`, if
        there is one.
        """
        return (args.path,) if hasattr(args, "path") else ()

    def runs_outside(self, args: A) -> bool:
        """Whether a command should run outside of the sandbox."""
        return False

    def spec(self) -> ToolSpec:
        """The tool for the model: name, description, JSON schema of the arguments."""
        return ToolSpec(
            self.name,
            inspect.getdoc(self) or inspect.getdoc(type(self)) or "",
            _schema_of(self.Args),
        )

    def parse(self, arguments: Mapping[str, Any]) -> A:
        """The arguments of a call as a struct, checked. A list or an object that was written as a
        text is decoded.

        Raises:
            msgspec.ValidationError: they do not match `Args`. If they still do not after a text was
                decoded, it is the error from before.
            ToolError: a tool that checks arguments in another way, such as one from a file, refuses
                them.
        """
        try:
            return from_plain(dict(arguments), self.Args, strict=False)
        except msgspec.ValidationError as error:
            match = _JSON_IN_QUOTES.match(str(error))
            if match is None:
                raise
            name = match["argument"]
            try:
                # Once for each such text.
                return self.parse({**arguments, name: msgspec.json.decode(arguments[name])})
            except msgspec.DecodeError:  # the text is not JSON; or a ValidationError, as above
                raise error from None

    def resolve(self, args: A) -> tuple[AnyTool, Any]:
        """The tool that does the work, and its arguments. This is another tool if this one only
        forwards a call.
        """
        return self, args

    def plain_arguments(self, args: A) -> dict[str, Any]:
        """The arguments as hooks and questions show them."""
        arguments: dict[str, Any] = msgspec.to_builtins(args)
        return arguments

    async def prepare(self, args: A) -> A:
        """The arguments of a call, completed with what `targets` and `preview` need and what must
        be looked up for it. Raises ToolError.
        """
        return args

    async def preview(self, args: A) -> Display:
        """What the call would do, for the question whether it may run. Raises ToolError."""
        return Display(self.title(args))

    async def run(self, args: A, ctx: ToolContext) -> ToolResult:
        """Run the tool. Raises ToolError if it cannot be done; the message says what the model can
        do instead.
        """
        ...


AnyTool = Tool[Any]


_MAX_FOLDERS = 200
"""Maximum slashes in one path: with 900 the checks of a path took minutes."""


def parse_arguments(tool: AnyTool, arguments: Mapping[str, Any]) -> Any:
    """The arguments of a call as the struct of its tool, checked. Numbers and booleans in quotes
    are understood.

    Raises:
        ToolError: they do not match the schema, or a path is not possible; the message names the
            argument.
    """
    try:
        args = tool.parse(arguments)
    except msgspec.ValidationError as error:
        raise ToolError(f"Wrong arguments for {tool.name}: {error}.") from error
    if any("\0" in target for target in tool.targets(args)):
        raise ToolError(
            f"Wrong arguments for {tool.name}: a path or command contains a NUL character."
        )
    if tool.effect in (Effect.READ, Effect.WRITE) and any(
        path.count("/") > _MAX_FOLDERS for path in tool.targets(args)
    ):
        raise ToolError(
            f"Wrong arguments for {tool.name}: a path has more than {_MAX_FOLDERS} folders."
        )
    return args


@cache  # cached, because it is the same for each request
def _schema_of(args: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema of the arguments `args` for the model. It has no references, because not
    every provider follows them. The docstring of `args` is left out: it is for readers of the code.
    """
    _, definitions = msgspec.json.schema_components([args], ref_template="{name}")
    schema: dict[str, Any] = _inline_references(definitions[args.__name__], definitions)
    schema.pop("title", None)
    schema.pop("description", None)
    schema.setdefault("required", [])
    return schema


def _inline_references(node: Any, definitions: Mapping[str, Any]) -> Any:
    """Returns a node of a schema with each reference replaced by its definition. What a model does
    not need is left out, because each request contains the schema.

    Args:
        definitions: the schemas that references refer to, by name.
    """
    if isinstance(node, list):
        return [_inline_references(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inline_references(
            _without(definitions[node["$ref"]], "title", "description"), definitions
        )
    alternatives = [kind for kind in node.get("anyOf", ()) if kind != {"type": "null"}]
    if len(alternatives) == 1:  # None is the default: the argument is left out
        node = {**alternatives[0], **_without(node, "anyOf")}
    schema = {}
    for key, value in node.items():
        if not _is_obvious(key, value):
            schema[key] = _inline_references(value, definitions)
    return schema


def _without(node: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """A copy of a schema without these keys."""
    return {key: value for key, value in node.items() if key not in keys}


def _is_obvious(key: str, value: Any) -> bool:
    """Whether a model does not need a key of the schema. It does not need an empty default, a lower
    bound of 0 or 1, an upper bound, and that there are no other fields.

    All of these are still checked in calls, and the error names the bound.
    """
    if key == "default":
        return not value
    if key in ("minLength", "minimum", "minItems"):
        return value in (0, 1)
    return key in ("maxLength", "maximum", "maxItems", "additionalProperties")
