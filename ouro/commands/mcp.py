"""Commands on MCP servers: list, test, switch, approve, add, import, log in."""

from __future__ import annotations

import asyncio
import webbrowser
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ouro import mcp
from ouro.commands.action import ActionContext, Answer, confirm
from ouro.commands.render import CodeSpan, CommandText, Quote, Title, View, line, table
from ouro.display import Choice
from ouro.errors import ToolError, UsageError
from ouro.settings import McpServerSettings
from ouro.utils.git import find_root
from ouro.utils.text import one_line, plural

if TYPE_CHECKING:
    from ouro.commands.shell_context import ShellContext

ADD_HINT = "Add one: `ouro mcp add NAME -- COMMAND`; `ouro help mcp` says more."
_MAX_DESCRIPTION = 100
_LIST_SECONDS = 15.0
"""The maximum wait of `ouro mcp list` for its servers, which start side by side."""


async def list_servers(context: ActionContext) -> Answer:
    """List the servers with their states and tools. On the command line it waits for those that
    start, at most _LIST_SECONDS.
    """
    async with context.servers() as servers:
        if context.session is None:
            with suppress(TimeoutError):  # a slow one is `starting`
                async with asyncio.timeout(_LIST_SECONDS):
                    await servers.wait_until_started()
        listed = list(servers.by_name.values())
        if not listed:
            return Answer(value=[], view=[line(f"There are no MCP servers. {ADD_HINT}")])
        problems = [line(f"{server.name}: {server.problem}") for server in listed if server.problem]
        value = [_server_data(server) for server in listed]
        return Answer(value, [*table(map(_server_row, listed)), *problems])


def _server_row(server: mcp.McpServer) -> tuple[CodeSpan | str, ...]:
    """A server as a row of the list: name, state, place, tools and latency."""
    tools = server.known_tools
    tool_words = f"{plural(len(tools), 'tool')}, about {plural(_tokens_of_tools(server), 'token')}"
    return (
        CodeSpan(server.name),
        _state(server),
        _command_or_url(server.settings),
        tool_words if tools else "",
        f"{server.listing.latency * 1000:.0f} ms" if server.state == "ready" else "",
    )


def _server_data(server: mcp.McpServer) -> dict[str, Any]:
    """A server as `--json` prints it."""
    return {
        "name": server.name,
        "state": _state(server),
        "problem": server.problem,
        "where": _command_or_url(server.settings),
        "tools": len(server.known_tools),
        "tokens": _tokens_of_tools(server),
        "latency_ms": round(server.listing.latency * 1000),
    }


def _tokens_of_tools(server: mcp.McpServer) -> int:
    """About how many tokens the descriptions of its tools take in a request."""
    return sum(mcp.tokens_of(tool.spec(server.name)) for tool in server.known_tools)


async def show(context: ActionContext, server: str) -> Answer:
    """Show a server with its tools. The tools are known if they were approved once, or if the server
    is connected. Otherwise connect to it first, as `test` does.
    """
    async with context.servers() as servers:
        mcp_server = _find_server(servers, server)
        if mcp_server.approved is not None or mcp_server.state not in ("waiting", "starting"):
            return _describe_server(mcp_server)
    return await test(context, server)


async def test(context: ActionContext, server: str) -> Answer:
    """Connect to a server, even if that failed before, and show it. If it fails, show the error with
    the end of its log; the exit code is then 1.
    """
    async with context.servers() as servers:
        mcp_server = _find_server(servers, server)
        if mcp_server.state in ("failed", "login"):  # `connect` may not try these again
            mcp_server.failures, mcp_server.state = 0, "waiting"
        try:
            await servers.connect(server)
        except ToolError as error:
            log = list(mcp_server.log)[-10:]
            return Answer({"problem": str(error), "log": log}, [line(str(error)), *_quote(log)], 1)
        return _describe_server(mcp_server)


async def log(context: ActionContext, server: str) -> Answer:
    """Show what a server has printed and logged. Raises UsageError if there is no such server."""
    async with context.servers() as servers:
        lines = list(_find_server(servers, server).log)
        return Answer(lines, _quote(lines) or [line(f"{server} has logged nothing.")])


async def approve(context: ActionContext, server: str, yes: bool) -> Answer:
    """Show which tools of a server are new or changed since they were approved, and ask whether to use
    them; `yes` approves them without the question. Returns the names of the approved tools.
    """
    async with context.servers() as servers:
        mcp_server = await servers.connect(_find_server(servers, server).name)
        changed = mcp_server.unapproved_tools()
        if not changed:
            return Answer(
                value=[],
                view=[line(f"{server} has changed nothing since its tools were approved.")],
            )
        approved = mcp_server.approved or {}
        for tool in changed:
            change = "changed" if tool.name in approved else "new"
            diff = mcp.describe_change(approved.get(tool.name), tool)
            context.show([Title(f"{one_line(tool.name)} ({change})"), Quote(diff, "diff")])
        question = f"Use {plural(len(changed), 'tool')} of {server} as shown?"
        if not await confirm(context, question, "Yes, use them", assume_yes=yes):
            return Answer(value=[], view=[line("They are not used.")])
        mcp_server.approve(changed)
        return Answer(
            [tool.name for tool in changed],
            [line(f"Approved {plural(len(changed), 'tool')} of {server}.")],
        )


async def add(_context: ShellContext, name: str, command: list[str], **options: Any) -> Answer:
    """Save a server in the registry: a command, or the address of `--url`.

    Args:
        command: the words of the command; empty for an address.
        options: the other flags of `ouro mcp add`.

    Raises:
        UsageError: neither or both are named, a flag has no effect for what is named, or there is
            a server of this name and no `--force`.
    """
    server = _server_of_words(command, options)
    if bool(server.command) == bool(server.url):
        problem = "A server is a command behind `--`, or the address of --url."
        raise UsageError(problem, "Usage: ouro mcp add NAME -- COMMAND")
    mcp.check_server(name, server)
    _refuse_flags_without_effect(server, options)
    saved, _off = mcp.read_registry()
    if name in saved and not options["force"]:
        raise UsageError(f"There is an MCP server {name} already.", "Overwrite it with --force.")
    mcp.change_registry(
        lambda registry: registry["mcpServers"].update({name: mcp.to_entry(server)})
    )
    added = f"Added {name}: {_command_or_url(server)}. Try it: "
    return Answer(name, [line(added, CommandText(f"mcp test {name}"))])


def _server_of_words(command: list[str], options: Mapping[str, Any]) -> McpServerSettings:
    """The server that the words and flags of `ouro mcp add` describe. An address may be
    written instead of the command, as in other programs.
    """
    url = options["url"]
    is_address = len(command) == 1 and command[0].startswith(("http://", "https://"))
    if is_address and not url:
        url, command = command[0], []
    return McpServerSettings(
        command=command[0] if command else "",
        args=tuple(command[1:]),
        url=url,
        transport="sse" if options["sse"] or options["transport"] == "sse" else "http",
        env=_pairs(options["env"], "="),
        headers=_pairs(options["header"], ":"),
    )


def _refuse_flags_without_effect(server: McpServerSettings, options: Mapping[str, Any]) -> None:
    """Raises UsageError if a flag has no effect for a server of this kind."""
    kind, flags, transports = "a command", ["sse", "header"], ["stdio"]
    if server.url:
        kind, flags, transports = "an address", ["env"], ["http", "sse"]
    for flag in flags:
        if options[flag]:
            raise UsageError(f"--{flag} has no effect for {kind}.", "Leave it out.")
    transport = options["transport"]
    if transport and transport not in transports:
        raise UsageError(f"--transport {transport} does not fit {kind}.", "Leave it out.")


async def remove(_context: ShellContext, name: str) -> Answer:
    """Remove a server that `ouro mcp add` has saved. Raises UsageError if it saved none of this
    name.
    """
    saved, _off = mcp.read_registry()
    if name not in saved:
        hint = "Servers in config.yaml and .mcp.json are removed there."
        raise UsageError(f"`ouro mcp add` has added no server `{name}`.", hint)
    mcp.change_registry(lambda registry: registry["mcpServers"].pop(name))
    return Answer(name, [line(f"Removed {name}.")])


async def import_servers(context: ShellContext, every: bool) -> Answer:
    """Save servers that other programs define and the registry does not have. The user chooses them,
    unless `every`. Returns the names of those that were saved.
    """
    found, problems = await asyncio.to_thread(mcp.foreign_servers, find_root(context.cwd))
    for problem in problems:
        context.say(problem, "warning")
    saved, _off = mcp.read_registry()
    new_servers: dict[str, McpServerSettings] = {}
    choices: list[Choice] = []
    for name, (server, source) in found.items():
        if name not in saved:
            new_servers[name] = server
            choices.append(Choice(name, f"{name}: {_command_or_url(server)}", source))
    if not new_servers:
        return Answer(
            value=[],
            view=[line(f"Nothing to import: {plural(len(found), 'server')} found, all known.")],
        )
    chosen = list(new_servers)
    if not every:
        chosen = list(await context.choose_many("Which servers?", choices))
    entries = {name: mcp.to_entry(new_servers[name]) for name in chosen}
    mcp.change_registry(lambda registry: registry["mcpServers"].update(entries))
    names = ", ".join(chosen) or "none"
    return Answer(chosen, [line(f"Imported {plural(len(chosen), 'server')}: {names}.")])


async def login(context: ShellContext, server: str) -> Answer:
    """Log in to a server in the browser; returns when that is done. Raises UsageError if the server is
    a program.
    """

    def show_address(url: str) -> None:
        context.say(f"Open this address to log in, if your browser did not:\n{url}")
        webbrowser.open(url)

    async with context.servers() as servers:
        mcp_server = _find_server(servers, server)
        if not mcp_server.settings.url:
            raise UsageError(f"{server} is a program, not an address: it needs no login.")
        await mcp_server.login(show_address)
        place = await asyncio.to_thread(mcp.Tokens(mcp_server.settings.url).place)
        tools = plural(len(mcp_server.listing.tools), "tool")
        return Answer(server, [line(f"Logged in to {server}: {tools}. The tokens are in {place}.")])


async def logout(context: ShellContext, server: str) -> Answer:
    """Delete the saved login to a server; the value is whether there was one."""
    async with context.servers() as servers:
        mcp_server = _find_server(servers, server)
        was_logged_in = await asyncio.to_thread(mcp.Tokens(mcp_server.settings.url).delete)
        text = f"Logged out of {server}." if was_logged_in else f"There was no login to {server}."
        return Answer(was_logged_in, [line(text)])


async def _switch(on: bool, context: ActionContext, what: str) -> Answer:
    """Switch a server or a tool on or off: in the registry, and in the session if one is open.

    Args:
        what: `SERVER` or `SERVER.TOOL`. Raises UsageError if there is none.
    """
    name, _, tool = what.partition(".")

    def change_off_list(registry: dict[str, Any]) -> None:
        others = [item for item in registry.get("off", []) if item != what]
        registry["off"] = others if on else [*others, what]

    async with context.servers() as servers:
        mcp_server = _find_server(servers, name)
        if tool and tool not in {known_tool.name for known_tool in mcp_server.known_tools}:
            raise UsageError(
                f"{name} has no tool `{one_line(tool, 60)}`.", commands=(f"mcp show {name}",)
            )
        mcp.change_registry(change_off_list)
        if context.session is not None:
            await servers.switch(what, on=on)
    if on and not mcp_server.settings.enabled:
        text = f"The definition of {name} disables it: it is on at most in this session."
    else:
        word = "on" if on else "off"
        text = f"{what} is {word}. The list of tools in requests changes with the next session."
    return Answer(what, [line(text)])


turn_on, turn_off = partial(_switch, True), partial(_switch, False)


def _describe_server(server: mcp.McpServer) -> Answer:
    """A server with its state and version, its tools, and the names of its resources and prompts. Each
    tool is shown with its size in tokens and with marks, such as `off` or `read-only`.
    """
    listing = server.listing
    unapproved = {tool.name for tool in server.unapproved_tools()}
    rows, value = [], []
    for tool in server.known_tools:
        tokens = mcp.tokens_of(tool.spec(server.name))
        applies = {
            "off": server.is_off(tool.name),
            "changed": tool.name in unapproved,
            "read-only": tool.read_only,
            "destructive": tool.destructive,
            "wrong schema": tool.problem,
        }
        marks = [word for word, is_true in applies.items() if is_true]
        rows.append(
            (
                CodeSpan(one_line(tool.name, 60)),
                f"{tokens:,} tokens",
                ", ".join(marks),
                one_line(tool.text, _MAX_DESCRIPTION),
            )
        )
        value.append(
            {"name": tool.name, "tokens": tokens, "marks": marks, "description": tool.text}
        )
    view: View = [*_server_head(server), *table(rows)]
    named_lists = {
        "Resources": [item.uri for item in listing.resources],
        "Prompts": [item.name for item in listing.prompts],
    }
    for title, names in named_lists.items():
        if names:
            view.append(line(f"{title}: {one_line(', '.join(names), 400)}"))
    state = {
        "name": server.name,
        "state": server.state,
        "version": listing.version,
        "protocol": listing.protocol,
    }
    return Answer({**state, "problem": server.problem, "tools": value}, view)


def _server_head(server: mcp.McpServer) -> View:
    """The state of a server, and what it says about itself."""
    listing = server.listing
    protocol = f"protocol {listing.protocol}" if listing.protocol else ""
    version_note = ", ".join(filter(None, (one_line(listing.version, 60), protocol)))
    instructions = f"It says: {one_line(listing.instructions, 400)}" if listing.instructions else ""
    details = [text for text in (version_note, server.problem, instructions) if text]
    title = f"{server.name}: {_state(server)}, {_command_or_url(server.settings)}"
    return [Title(title), *map(line, details)]


def _find_server(servers: mcp.McpServers, name: str) -> mcp.McpServer:
    """The server of that name. Raises UsageError if there is none."""
    mcp_server = servers.by_name.get(name)
    if mcp_server is None:
        hint = f"There are: {', '.join(servers.by_name)}." if servers.by_name else ADD_HINT
        raise UsageError(f"There is no MCP server `{name[:40]}`.", hint)
    return mcp_server


def _state(server: mcp.McpServer) -> str:
    names = {"login": "needs a login", "waiting": "not started"}
    return names.get(server.state, server.state)


def _command_or_url(settings: McpServerSettings) -> str:
    """The command or the address of a server, cut to one line. Its environment and headers, which may
    hold keys, are never shown.
    """
    if settings.url:
        return one_line(mcp.public_url(settings.url), 80)
    return one_line(" ".join((settings.command, *settings.args)), 80)


def _quote(lines: list[str]) -> View:
    return [Quote("\n".join(lines))] if lines else []


def _pairs(words: list[str], sign: str) -> dict[str, str]:
    """The names and values of words such as `NAME=value`, where `sign` is the `=`. Raises UsageError
    for a word without it or without a name.
    """
    pairs = {}
    for word in words:
        name, separator, value = word.partition(sign)
        if not separator or not name.strip():
            raise UsageError(f"`{word[:40]}` is not NAME{sign}VALUE.")
        pairs[name.strip()] = value.strip()
    return pairs
