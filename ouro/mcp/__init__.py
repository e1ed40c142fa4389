"""MCP: tools, resources and prompts of other programs."""

from typing import TYPE_CHECKING

from ouro.utils.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from ouro.mcp.configuration import (
        Registry,
        as_entry,
        change_registry,
        check_server,
        find_servers,
        foreign_servers,
        read_registry,
    )
    from ouro.mcp.definition import ServerPrompt, difference
    from ouro.mcp.questions import elicitation, prompt_arguments
    from ouro.mcp.servers import Host, McpServer, McpServers
    from ouro.mcp.tokens import Tokens
    from ouro.mcp.tools import Outputs, attached_resources, mcp_tools, resource_names, tokens_of

__getattr__ = lazy_exports(__name__)
