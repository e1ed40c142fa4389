"""The tools of MCP servers for the model: those in the request, and three tools that give access to
all others.

The list of tools must stay the same for a whole session, so that providers cache it. So a request
has the tools whose definitions were approved earlier and fit the budget, and `tool_search`,
`mcp_call` and `mcp_read`, even if servers start, stop or change meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from ouro.display import Display, Plain, Question
from ouro.errors import OuroError, ToolError
from ouro.llm import ToolSpec
from ouro.mcp.servers import McpResult, McpServer, McpServers
from ouro.memory.tokens import estimate
from ouro.messages import Image
from ouro.safety import Effect
from ouro.tools.tool import AnyTool, Tool, ToolContext, ToolResult
from ouro.utils.late_pattern import late_pattern
from ouro.utils.log import log
from ouro.utils.text import clean, code_block, cut, escape_invisible, one_line, plural

if TYPE_CHECKING:
    from ouro.mcp.definition import ToolDefinition

MAX_PREVIEW = 4_000
"""Maximum characters of a preview, and of the instructions of a server."""
MAX_NAMES = 40
"""The number of names of further tools below the hits of a search."""
MAX_SEARCH_WAIT = 15.0
"""Seconds that a search waits for servers that are starting: one that never answers would delay the
tools of all others by its whole time limit.
"""
SPOOL_SECONDS = 2.0
"""Seconds to wait until a long result is written to its file."""
_SEARCH_WORD = late_pattern(r"[a-z0-9]+")
"""Matches a word of a query or a description."""
_STEM_LENGTH = 4
"""Words that begin with this number of equal letters count as forms of one word: `issue`, `issues`.
"""
MAX_ATTACHED = 5
"""The maximum number of resources that are read for one message."""
_NAMED_RESOURCE = late_pattern(r"(?:^|(?<=[\s(\"'`]))@([A-Za-z0-9][\w-]*):([^\s\"'`)]+)")
"""Matches a resource in a message: `@github:repo://ouro/README`."""
_SENTENCE_ENDS = ".,;!?"


class McpArguments(msgspec.Struct, frozen=True):
    """The arguments of a call, by name."""

    values: dict[str, Any]


class McpTool(Tool[McpArguments]):
    """One tool of a server.

    Args:
        tool: its name in the server.
        spec: its description and schema for the model, as they were approved.
        outputs: the folder for results that are too long to show.
    """

    effect = Effect.MCP
    Args = McpArguments

    def __init__(self, server: McpServer, tool: str, spec: ToolSpec, outputs: Outputs) -> None:
        self.name = spec.name
        self._server = server
        self._tool = tool
        self._spec = spec
        self._outputs = outputs

    def spec(self) -> ToolSpec:
        return self._spec

    def parse(self, arguments: Mapping[str, Any]) -> McpArguments:
        return McpArguments(dict(arguments))

    def plain_arguments(self, args: McpArguments) -> dict[str, Any]:
        return args.values

    def title(self, args: McpArguments) -> str:
        values = ", ".join(f"{name}: {value}" for name, value in args.values.items())
        return one_line(f"{self._server.name}.{self._tool} {values}", 160)

    def targets(self, args: McpArguments) -> tuple[str, ...]:
        return (f"{self._server.name}.{self._tool}",)

    async def preview(self, args: McpArguments) -> Display:
        """The arguments of a call, and how the server describes its tool, if that is known."""
        paragraphs = [escape_invisible(json.dumps(args.values, indent=2, ensure_ascii=False))]
        for definition in self._server.known_tools:
            if definition.name != self._tool:
                continue
            claims = {"read-only": definition.read_only, "destructive": definition.destructive}
            hints = [word for word, is_claimed in claims.items() if is_claimed]
            claim = f" (the server says: {', '.join(hints)})" if hints else ""
            description = escape_invisible(definition.text)
            paragraphs.append(f"{self._server.name} describes {self._tool}{claim}:\n{description}")
        return Display(self.title(args), Plain(cut("\n\n".join(paragraphs), MAX_PREVIEW)))

    async def run(self, args: McpArguments, ctx: ToolContext) -> ToolResult:
        """Call the tool. If its definition has changed since it was approved, the user is asked
        first. Raises ToolError if they do not approve it, or the call fails.
        """
        server = self._server
        await server.wait_until_ready()
        await server.wait_for_lists()
        definition = _find_definition(server, self._tool)
        needs_approval = definition in server.unapproved_tools()
        if needs_approval and not await ask_approval(server, definition, ctx):
            raise ToolError(
                f"{server.name} has added or changed {self._tool} since the user approved its tools."
                " Do not use it. The user can approve it: /mcp approve"
                f" {server.name}, or ouro mcp approve {server.name}."
            )
        result = await server.call(self._tool, args.values, ctx.report)
        return await self._outputs.to_tool_result(result)


class Outputs(msgspec.Struct, frozen=True):
    """Turns the results of servers into tool results, which are cleaned and shortened like those of other
    tools.
    """

    folder: Path
    """Where long results are saved."""
    mask: Callable[[str], str]
    """Hides secrets in a text."""

    async def to_tool_result(self, result: McpResult) -> ToolResult:
        """The result of a server as the result of a tool. If its text is long, the text is
        shortened, and saved as a file without secrets. Images that cannot be read are left out.
        """
        from ouro.tools.output_capture import OutputCapture
        from ouro.tools.truncate import MAX_SHOWN

        text = clean(result.text)
        if len(text) > MAX_SHOWN:
            capture = OutputCapture(self.folder, self.mask)
            capture.add(text.encode())
            capture.close()
            await asyncio.to_thread(capture.wait_for_file, SPOOL_SECONDS)
            text = capture.text()
        images = await asyncio.to_thread(_readable_images, result.images)
        if left_out := len(result.images) - len(images):
            text += f"\n[{plural(left_out, 'image')} could not be read]"
        summary = "no output"
        if result.text or images:
            summary = one_line(result.text, 80) or plural(len(images), "image")
        display = Display(summary, Plain(text) if text else None)
        return ToolResult(text or "(no text)", display, result.failed, images)


def _readable_images(images: Sequence[Image]) -> tuple[Image, ...]:
    """The images that can be read, in a form that models accept. Blocks."""
    from ouro.images import make_image  # imported late: few results have pictures

    readable: list[Image] = []
    for image in images:
        with suppress(ToolError):
            made_image, _size = make_image(image.name, image.data)
            readable.append(made_image)
    return tuple(readable)


PREFIX = "mcp__"


class McpCallArgs(msgspec.Struct, frozen=True):
    tool: Annotated[
        str, msgspec.Meta(min_length=3, description="`server.tool`, as tool_search names it.")
    ]
    arguments: Annotated[
        dict[str, Any], msgspec.Meta(description="As the schema of the tool says.")
    ] = {}


class McpCall(Tool[McpCallArgs]):
    """Call a tool that tool_search has found."""

    name = "mcp_call"
    effect = Effect.MCP
    Args = McpCallArgs

    def __init__(self, servers: McpServers, outputs: Outputs) -> None:
        self._servers = servers
        self._outputs = outputs

    def title(self, args: McpCallArgs) -> str:
        return args.tool

    def targets(self, args: McpCallArgs) -> tuple[str, ...]:
        return (args.tool,)

    def resolve(self, args: McpCallArgs) -> tuple[AnyTool, Any]:
        """The tool that is called, and its arguments: permissions judge that tool. Raises ToolError
        if there is no such server; of a connected one also if it has no such tool.
        """
        from ouro.mcp.definition import ToolDefinition

        if args.tool.startswith(PREFIX):  # as tools of MCP servers are named in a request
            name, _, tool = args.tool.removeprefix(PREFIX).partition("__")
        else:
            name, _, tool = args.tool.partition(".")
        server = self._servers.by_name.get(name)
        if server is None or not tool:
            names = ", ".join(self._servers.by_name)
            raise ToolError(
                f"There is no MCP tool `{args.tool}`. Find tools with tool_search. The servers:"
                f" {names}."
            )
        if server.state == "ready" and server.has_new_lists:
            _find_definition(server, tool)  # for its error
        spec = ToolDefinition(tool, description="", schema={}).spec(name)  # only its name is used
        return McpTool(server, tool, spec, self._outputs), McpArguments(args.arguments)

    async def run(self, args: McpCallArgs, ctx: ToolContext) -> ToolResult:
        tool, arguments = self.resolve(args)
        return await tool.run(arguments, ctx)


def _find_definition(server: McpServer, tool: str) -> ToolDefinition:
    """The definition of a tool of a connected server. Raises ToolError if there is none, or it is
    off.
    """
    if server.is_off(tool):
        raise ToolError(f"The user has switched {server.name}.{tool} off.")
    definition = next((offer for offer in server.tools if offer.name == tool), None)
    if definition is None:
        from difflib import get_close_matches  # imported late: few names are misspelt

        similar = get_close_matches(tool, [offer.name for offer in server.tools], n=3)
        hint = (
            f" Did you mean {' or '.join(similar)}?" if similar else " Find tools with tool_search."
        )
        raise ToolError(f"The MCP server {server.name} has no tool `{tool}`.{hint}")
    return definition


class ToolSearchArgs(msgspec.Struct, frozen=True):
    query: Annotated[
        str,
        msgspec.Meta(min_length=1, description="What the tool should do, or the name of a server."),
    ]
    max_results: Annotated[int, msgspec.Meta(ge=1, le=20)] = 5


class ToolSearch(Tool[ToolSearchArgs]):
    """Find tools of MCP servers."""

    name = "tool_search"
    effect = Effect.NONE
    Args = ToolSearchArgs

    def __init__(self, servers: McpServers) -> None:
        self._servers = servers
        names = ", ".join(name for name, server in servers.by_name.items() if server.state != "off")
        self._description = (
            "Find tools of MCP servers that are not in your list of tools, with their schemas."
            f" Call them by mcp_call.\n\nThe servers: {names}."
        )

    def spec(self) -> ToolSpec:
        return msgspec.structs.replace(super().spec(), description=self._description)

    def title(self, args: ToolSearchArgs) -> str:
        return f'tools "{one_line(args.query, 80)}"'

    async def run(self, args: ToolSearchArgs, ctx: ToolContext) -> ToolResult:
        """Find tools that match the query. The result has the definitions of the best ones, the
        names of others, why servers have failed, and the instructions of the servers. Servers that
        are starting are waited for, at most MAX_SEARCH_WAIT seconds.
        """
        servers = self._servers.by_name.values()
        starting = [server.name for server in servers if server.state in ("waiting", "starting")]
        if starting:
            ctx.report(f"waiting for {', '.join(starting)} …")
            with suppress(TimeoutError):
                async with asyncio.timeout(MAX_SEARCH_WAIT):
                    await self._servers.wait_until_started()
        for server in servers:
            await server.wait_for_lists()
        scored = sorted(self._score_tools(args.query), key=lambda pair: -pair[0])
        ranked = [tool for _score, tool in scored]
        hits, others = ranked[: args.max_results], ranked[args.max_results :]
        texts = [] if ranked else ["No tool fits. Try other words, or the name of a server."]
        for server, tool in hits:
            texts.append(await self._describe_approved(server, tool, ctx))
        if others:
            texts.append(_name_others(others))
        texts += self._problems()
        texts += _quote_instructions(
            {server.name: server.listing.instructions for server, _tool in hits}
        )
        names = "\n".join(f"{server.name}.{tool.name}" for server, tool in hits)
        return ToolResult(
            clean("\n\n".join(filter(None, texts))),
            Display(f"{plural(len(hits), 'tool')} found", Plain(clean(names))),
        )

    def _problems(self) -> list[str]:
        """A line for each server that has failed, or is still starting."""
        problems: list[str] = []
        for server in self._servers.by_name.values():
            if server.state == "failed":
                problems.append(f"{server.name}: {server.problem}")
            elif server.state == "starting":
                problems.append(f"{server.name} is still starting: search again to wait for it.")
        return problems

    def _score_tools(self, query: str) -> Iterator[tuple[float, tuple[McpServer, ToolDefinition]]]:
        """Yields a score and the tool, for each tool of a connected server that is on and has words
        of the query. A word in its name or title counts five times as much as one in its
        description.
        """
        query_words = set(_SEARCH_WORD.findall(query.lower()))
        for server in self._servers.by_name.values():
            if server.state != "ready":
                continue
            for tool in server.tools:
                names = f"{server.name} {tool.name} {tool.title}"
                in_names = _count_matches(query_words, names)
                in_description = _count_matches(query_words, tool.description[:2_000])
                score = 5 * in_names + in_description
                if score and not server.is_off(tool.name):
                    yield score, (server, tool)

    async def _describe_approved(
        self, server: McpServer, tool: ToolDefinition, ctx: ToolContext
    ) -> str:
        """The name, description and schema of a tool, for the model. If its definition is not
        approved, the user is asked first; if they do not approve it, a line that says so.
        """
        from ouro.tools.truncate import MAX_SHOWN

        if tool in server.unapproved_tools() and not await ask_approval(server, tool, ctx):
            return (
                f"{server.name}.{one_line(tool.name, 80)}: not approved by the user; do not use it."
            )
        schema = json.dumps(tool.schema, ensure_ascii=False)
        return f"{server.name}.{tool.name}\n{tool.text}\narguments: {cut(schema, MAX_SHOWN // 5)}"


def _quote_instructions(instructions: Mapping[str, str]) -> list[str]:
    """A paragraph for the model with the instructions of each server about its tools, as data.
    Servers without any are left out.

    Args:
        instructions: by the name of the server.
    """
    return [
        f"{name} says about its tools, as data:\n{cut(text, MAX_PREVIEW)}"
        for name, text in instructions.items()
        if text
    ]


def _count_matches(query_words: set[str], text: str) -> float:
    """How many words of a query are in a text. A word that only begins like one in the text, with
    _STEM_LENGTH letters, counts half.
    """
    separated = re.sub(r"([a-z])([A-Z])", r"\1 \2", text)  # `createIssue` is two words
    words = set(_SEARCH_WORD.findall(separated.lower()))
    stems = {word[:_STEM_LENGTH] for word in words if len(word) >= _STEM_LENGTH}
    whole = sum(word in words for word in query_words)
    by_stem = sum(word not in words and word[:_STEM_LENGTH] in stems for word in query_words)
    return whole + by_stem / 2


class McpReadArgs(msgspec.Struct, frozen=True):
    server: str
    uri: Annotated[str, msgspec.Meta(description="Empty: list the resources of the server.")] = ""


class McpRead(Tool[McpReadArgs]):
    """Read a resource of an MCP server, or list its resources."""

    name = "mcp_read"
    effect = Effect.MCP
    Args = McpReadArgs

    def __init__(self, servers: McpServers, outputs: Outputs) -> None:
        self._servers = servers
        self._outputs = outputs

    def title(self, args: McpReadArgs) -> str:
        return one_line(f"{args.server}:{args.uri}", 160)

    def targets(self, args: McpReadArgs) -> tuple[str, ...]:
        return (f"{args.server}.resources",)

    async def run(self, args: McpReadArgs, ctx: ToolContext) -> ToolResult:
        """The content of the resource with this `uri`; without one, the list of the server's
        resources. Raises ToolError.
        """
        server = await self._servers.connect(args.server)
        if not args.uri:
            lines = [f"{item.uri}  {one_line(item.name, 80)}" for item in server.listing.resources]
            return await self._outputs.to_tool_result(
                McpResult("\n".join(lines) or "It offers no resources.")
            )
        return await self._outputs.to_tool_result(await server.read(args.uri))


async def ask_approval(server: McpServer, tool: ToolDefinition, ctx: ToolContext) -> bool:
    """Ask the user whether a tool that the server has added or changed may be used as it is now
    (E1). Returns whether they agree; then its definition is approved, for this session only if that
    cannot be saved.
    """
    from ouro.mcp.definition import describe_change

    before = (server.approved or {}).get(tool.name)
    question = Question(
        f"The MCP server {server.name} has {'changed' if before else 'added'}"
        f" {one_line(tool.name, 60)} since you approved its tools. Use it as it is now?",
        ("yes", "no"),
        details=code_block(cut(describe_change(before, tool), MAX_PREVIEW), "diff"),
    )
    if await ctx.ask(question) != ("yes",):
        return False
    try:
        server.approve([tool])
    except OSError as error:
        log.warning("the approval of %s.%s is not saved: %s", server.name, tool.name, error)
    return True


def _name_others(tools: Sequence[tuple[McpServer, ToolDefinition]]) -> str:
    """A line for the model with the names of further tools that match a query, at most MAX_NAMES."""
    names = [f"{server.name}.{one_line(tool.name, 80)}" for server, tool in tools]
    more = " …" if len(names) > MAX_NAMES else ""
    return f"Others that fit: {', '.join(names[:MAX_NAMES])}{more}"


def mcp_tools(servers: McpServers, outputs: Outputs, budget: int) -> tuple[AnyTool, ...]:
    """The tools of servers for the requests of a session: the three tools of this module, and
    approved tools of servers. The tools of a server are left out if they do not fit into the rest
    of the budget; these are found by search. No tools at all if no server is on.

    Args:
        budget: tokens for the tools of servers in a request.
    """
    if all(server.state == "off" for server in servers.by_name.values()):
        return ()
    tools: list[AnyTool] = [
        ToolSearch(servers),
        McpCall(servers, outputs),
        McpRead(servers, outputs),
    ]
    names = {tool.name for tool in tools}
    tokens_left = budget
    for name, server in servers.by_name.items():
        if server.state == "off":
            continue
        offered = {tool.name: tool.spec(name) for tool in _tools_for_requests(server)}
        cost = sum(map(tokens_of, offered.values()))
        new_names = {spec.name for spec in offered.values()}
        has_used_name = bool(names & new_names)  # a provider would refuse the request
        if cost > tokens_left or has_used_name:
            continue
        tokens_left -= cost
        names |= new_names
        tools += [McpTool(server, tool, spec, outputs) for tool, spec in offered.items()]
    return tuple(tools)


def _tools_for_requests(server: McpServer) -> Iterator[ToolDefinition]:
    """Yields the approved tools of a server that are on, and that every provider accepts in a
    request.
    """
    for tool in (server.approved or {}).values():
        is_on = server.offers(tool.name) and not server.is_off(tool.name)
        if is_on and tool.fits_request():
            yield tool


def tokens_of(spec: ToolSpec) -> int:
    """About how many tokens a tool takes in each request."""
    return estimate(f"{spec.name}{spec.description}{json.dumps(dict(spec.parameters))}")


def resource_names(servers: McpServers) -> list[str]:
    """The resources of connected servers, for completion: `github:repo://ouro/README`."""
    names: list[str] = []
    for server in servers.by_name.values():
        if server.state == "ready":
            uris = [item.uri for item in server.listing.resources if not item.is_template]
            names += [f"{server.name}:{one_line(uri, 200)}" for uri in uris]
    return names


async def read_named_resources(servers: McpServers, text: str) -> str:
    """The content of the resources that a message names, as text for the model. At most
    MAX_ATTACHED are read. For a resource that cannot be read, the text is the reason. Empty if the
    message names none.
    """
    resources = dict.fromkeys(
        (name, uri.rstrip(_SENTENCE_ENDS))
        for name, uri in _NAMED_RESOURCE.findall(text)
        if name in servers.by_name
    )
    if not resources:
        return ""
    from ouro.tools.truncate import shorten

    texts = []
    for name, uri in list(resources)[:MAX_ATTACHED]:
        try:
            server = await servers.connect(name)
            resource = await server.read(uri)
            content = resource.text
        except OuroError as error:
            content = f"It cannot be read: {error.message}"
        # `trust/provenance.py` recognizes this tag: the text does not count as the user's.
        texts.append(f'<resource name="{name}:{uri}">\n{shorten(clean(content))}\n</resource>')
    return "\n\n".join(texts)
