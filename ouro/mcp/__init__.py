"""MCP: tools, resources and prompts of other programs."""

from typing import TYPE_CHECKING

from ouro.utils.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from ouro.mcp.configuration import (
        Registry,
        change_registry,
        check_server,
        find_servers,
        foreign_servers,
        public_url,
        read_registry,
        to_entry,
    )
    from ouro.mcp.definition import ServerPrompt, describe_change
    from ouro.mcp.questions import answer_elicitation, parse_prompt_arguments
    from ouro.mcp.servers import Host, McpServer, McpServers
    from ouro.mcp.tokens import Tokens
    from ouro.mcp.tools import Outputs, mcp_tools, read_named_resources, resource_names, tokens_of

__getattr__ = lazy_exports(__name__)
