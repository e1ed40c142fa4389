"""Tools as the files of Claude Code name them, as permission rules of ouro: `Bash(git diff:*)`, `shell(git diff *)`."""

from __future__ import annotations

import re

_RULE = re.compile(r"(\w[\w.*-]*)(?:\((.*)\))?", re.DOTALL)
_OURS = {
    "Bash": "shell",
    "Read": "read",
    "NotebookRead": "read",
    "LS": "glob",
    "Glob": "glob",
    "Grep": "grep",
    "Edit": "write",
    "MultiEdit": "write",
    "Write": "write",
    "NotebookEdit": "write",
    "WebFetch": "web_fetch",
    "WebSearch": "web_search",
    "Task": "subagent",
    "Agent": "subagent",
    "TodoWrite": "todo",
    "AskUserQuestion": "ask_user",
    "Skill": "skill",
}
"""`write` stands for every tool that changes files."""


def own_rule(name: str) -> str:
    """The permission rule of ouro for one tool of a list; a name that is ouro's already stays. Empty: not a rule."""
    found = _RULE.fullmatch(name.strip())
    if found is None:
        return ""
    head, pattern = found[1], (found[2] or "").strip()
    if head.startswith("mcp__"):
        server, _, tool = head.removeprefix("mcp__").partition("__")
        return f"mcp({server}.{tool or '*'})"
    pattern = re.sub(r":\*$", " *", pattern).removeprefix("domain:")
    head = _OURS.get(head, head)
    return f"{head}({pattern})" if pattern and pattern != "*" else head
