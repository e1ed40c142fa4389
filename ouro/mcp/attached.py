"""Resources of MCP servers that the user names in a message: `@github:repo://ouro/README`."""

from __future__ import annotations

import re

from ouro.errors import OuroError
from ouro.mcp.servers import McpServers
from ouro.tools.truncate import shorten
from ouro.utils.text import clean, one_line

MAX_ATTACHED = 5
_NAMED = re.compile(r"(?:^|(?<=[\s(\"'`]))@([A-Za-z0-9][\w-]*):([^\s\"'`)]+)")
_TRAILING = ".,;!?"


def resource_names(servers: McpServers) -> list[str]:
    """The resources of connected servers, for completion: `github:repo://ouro/README`."""
    return [
        f"{server.name}:{one_line(resource.uri, 200)}"
        for server in servers.servers.values()
        if server.state == "ready"
        for resource in server.listing.resources
        if not resource.is_template
    ]


async def attached_resources(servers: McpServers, text: str) -> str:
    """The content of the resources that a message names, for the model; a line for each that cannot be read."""
    named = dict.fromkeys(
        (name, uri.rstrip(_TRAILING)) for name, uri in _NAMED.findall(text) if name in servers.servers
    )
    return "\n\n".join([await _attached(servers, name, uri) for name, uri in list(named)[:MAX_ATTACHED]])


async def _attached(servers: McpServers, name: str, uri: str) -> str:
    try:
        found = (await servers.read(await servers.ready(name), uri)).text
    except OuroError as error:
        found = f"It cannot be read: {error.message}"
    # The opening is known to `trust/provenance.py`: the text is not the user's.
    return f'<resource name="{name}:{uri}">\n{shorten(clean(found))}\n</resource>'
