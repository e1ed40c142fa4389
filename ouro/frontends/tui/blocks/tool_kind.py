"""ToolKind: the sign, the colour and the verb of a tool call, by what the tool does."""

from __future__ import annotations

from typing import NamedTuple


class ToolKind(NamedTuple):
    """How the cards of tools of one kind look."""

    sign: str
    color: str
    """The name of a style of the Palette."""
    is_grouped: bool = False
    """Whether calls that follow one another become one line."""


READ = ToolKind("→", "info", is_grouped=True)
CHANGE = ToolKind("±", "accent")
COMMAND = ToolKind("$", "success")
WEB = ToolKind("↓", "info")
MEMORY = ToolKind("◆", "accent")
SUBAGENT = ToolKind("»", "success")
MCP = ToolKind("◇", "info")
OTHER = ToolKind("✓", "success")
_TOOL_KINDS = {
    "read": READ,
    "grep": READ,
    "glob": READ,
    "lsp": READ,
    "edit": CHANGE,
    "write": CHANGE,
    "notebook_edit": CHANGE,
    "apply_patch": CHANGE,
    "rename": CHANGE,
    "shell": COMMAND,
    "shell_input": COMMAND,
    "shell_output": COMMAND,
    "shell_kill": COMMAND,
    "web_fetch": WEB,
    "web_search": WEB,
    "memory_search": MEMORY,
    "subagent": SUBAGENT,
    "mcp_call": MCP,
    "mcp_read": MCP,
    "tool_search": MCP,
}
_MCP_PREFIX = "mcp__"
_MEMORY_FOLDER = ".ouro/memory/"
_TITLE_VERBS = {
    "shell": ("shell ", "run "),
    "shell_output": ("shell_output ", "look at "),
    "shell_kill": ("shell_kill ", "end "),
    "grep": ("grep ", "search "),
    "glob": ("glob ", "find "),
    "apply_patch": ("patch ", "edit "),
    "memory_search": ("memory ", "recall "),
    "tool_search": ("tools ", "find tools "),
    "web_fetch": ("", "fetch "),
    "web_search": ("", "search the web for "),
    "skill": ("", "use the skill "),
    "mcp_call": ("", "call "),
    "mcp_read": ("", "read "),
}
"""The beginning of the title of a tool, and the words that the card shows instead."""


def kind_of(tool: str, title: str = "") -> ToolKind:
    """The kind of a tool. A tool that changes a file of memory is of the kind MEMORY."""
    if tool.startswith(_MCP_PREFIX):
        return MCP
    kind = _TOOL_KINDS.get(tool, OTHER)
    return MEMORY if kind is CHANGE and _MEMORY_FOLDER in title else kind


def title_with_verb(tool: str, title: str) -> str:
    """The title of a call with a verb that users know instead of the name of the tool. A title without
    the name, such as a shell line of the user, and a title that is only the name are not changed.
    """
    default_verb = "call " if tool.startswith(_MCP_PREFIX) else ""
    name_in_title, verb = _TITLE_VERBS.get(tool, ("", default_verb))
    if title == tool or not title.startswith(name_in_title):
        return title
    return verb + title.removeprefix(name_in_title)
