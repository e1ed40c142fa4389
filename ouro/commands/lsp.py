"""Commands on language servers: which are used, what state they are in, what they have logged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ouro.commands.action import Answer
from ouro.commands.render import CodeSpan, Quote, line, table
from ouro.errors import UsageError
from ouro.utils.text import one_line, plural

if TYPE_CHECKING:
    from ouro.commands.slash import SessionContext
    from ouro.lsp import LanguageServer

NO_SERVERS = (
    "There are no language servers: none that ouro knows is installed, the project is not trusted,"
    " or `lsp.enabled` is off. `ouro help lsp` says more."
)


async def list_servers(context: SessionContext) -> Answer:
    """List the language servers that run or have run, with their states."""
    servers = await _servers(context)
    if not servers:
        return Answer(value=[], view=[line(NO_SERVERS)])
    rows = [
        (
            CodeSpan(server.name),
            _state_words(server),
            " ".join(server.spec.languages),
            plural(server.reported, "new error") if server.reported else "",
            f"{server.seconds * 1000:.0f} ms" if server.seconds else "",
        )
        for server in servers
    ]
    value = [
        {
            "name": server.name,
            "state": server.state,
            "version": server.version,
            "problem": server.problem,
            "files": list(server.spec.languages),
            "reported": server.reported,
        }
        for server in servers
    ]
    problems = [line(f"{server.name}: {server.problem}") for server in servers if server.problem]
    return Answer(value, [*table(rows), *problems])


async def log(context: SessionContext, server: str) -> Answer:
    """Show the log of the server of that name. Raises UsageError if there is none."""
    servers = await _servers(context)
    servers_by_name = {item.name: item for item in servers}
    if server not in servers_by_name:
        names = ", ".join(servers_by_name) or "none"
        raise UsageError(
            f"There is no language server `{one_line(server, 60)}`.", f"There are: {names}."
        )
    lines = list(servers_by_name[server].log)
    if not lines:
        return Answer(value=[], view=[line(f"{server} has logged nothing.")])
    return Answer(lines, [Quote("\n".join(lines))])


def _state_words(server: LanguageServer) -> str:
    """The state in words for users; a server that is ready has its version."""
    if server.state == "waiting":
        return "not started yet"
    if server.state == "ready" and server.version:
        return f"ready {server.version}"
    return server.state


async def _servers(context: SessionContext) -> Sequence[LanguageServer]:
    """The language servers of the session, also those that have not started."""
    language_servers = context.session.extensions.language_servers
    # In a thread: at the first time it looks for installed servers.
    return await asyncio.to_thread(lambda: language_servers.servers)
