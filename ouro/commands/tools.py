"""The tools of the agent: what each costs in a request, and where it comes from."""

from __future__ import annotations

import json

from ouro.commands.action import ActionContext, Answer
from ouro.commands.render import CodeSpan, table
from ouro.extensions import OwnTool
from ouro.memory.tokens import estimate
from ouro.tools.tool import AnyTool
from ouro.utils.ouro_paths import tilde
from ouro.utils.text import one_line, plural

_MCP_PREFIX = "mcp__"
"""The names of MCP tools are `mcp__SERVER__TOOL`."""
_OURO = "ouro"


async def list_tools(context: ActionContext) -> Answer:
    """List the tools in a request of the main model: the tokens of each, the first sentence of its
    description, and its source if that is not ouro.
    """
    async with context.open_session() as session:
        runner = session.turn.commands.tools
        specs = runner.specs(session.model_source.main.spec)
    rows, value = [], []
    for spec in specs:
        tool = runner.tools[spec.name]
        tokens = estimate(f"{spec.name}{spec.description}{json.dumps(dict(spec.parameters))}")
        source, description = _source(tool), one_line(spec.description.partition(". ")[0], 100)
        origin = "" if source == _OURO else f" ({source})"
        rows.append((CodeSpan(spec.name), plural(tokens, "token"), f"{description}{origin}"))
        effect = tool.effect.value
        value.append({"name": spec.name, "source": source, "effect": effect, "tokens": tokens})
    return Answer(value, table(rows))


def _source(tool: AnyTool) -> str:
    """Where a tool comes from: a file of the user, an MCP server, or ouro."""
    if isinstance(tool, OwnTool):
        return tilde(tool.file.path)
    if tool.name.startswith(_MCP_PREFIX):
        server, _, _tool = tool.name.removeprefix(_MCP_PREFIX).partition("__")
        return f"MCP server {server}"
    return _OURO
