"""Known names: the keys of front matter, the events and the tools that a file may name, here and in
other programs. A misspelt one would be ignored without a word.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from ouro.extensions.tool_names import NAMES_ELSEWHERE

_COMMAND_KEYS = frozenset(
    (
        "agent",
        "allowed-tools",
        "argument-hint",
        "arguments",
        "context",
        "description",
        "disable-model-invocation",
        "hooks",
        "mode",
        "model",
        "name",
        "user-invocable",
        "when_to_use",
    )
)
"""The keys of commands and skills."""
USED_KEYS: Mapping[str, frozenset[str]] = {
    "commands": _COMMAND_KEYS,
    "skills": _COMMAND_KEYS | {"paths"},
    "agents": frozenset(
        (
            "description",
            "disallowedTools",
            "hooks",
            "isolation",
            "max_turns",
            "maxTurns",
            "mode",
            "model",
            "name",
            "permissionMode",
            "skills",
            "tools",
            "when_to_use",
            "worktree",
        )
    ),
    "output-styles": frozenset(("description", "name", "when_to_use")),
}
"""The keys that have an effect, by the kind of the file."""
_STANDARD_KEYS = frozenset(("compatibility", "license", "metadata"))
"""Keys of the open standard for skills that have an effect in no program."""
_KEYS_ELSEWHERE = frozenset(
    (
        "background",
        "color",
        "disable-slash-command-tool",
        "disallowed-tools",
        "effort",
        "force-for-plugin",
        "globs",
        "initialPrompt",
        "is_background",
        "keep-coding-instructions",
        "mcpServers",
        "memory",
        "paths",
        "readonly",
        "shell",
        "temperature",
    )
)
"""Keys that have an effect in Claude Code, Codex, Cursor or similar programs, but not here."""
_TOOLS_ELSEWHERE = frozenset(
    (
        "Artifact",
        "CronCreate",
        "CronDelete",
        "CronList",
        "EnterPlanMode",
        "EnterWorktree",
        "ExitPlanMode",
        "ExitWorktree",
        "ListMcpResourcesTool",
        "LSP",
        "Monitor",
        "PowerShell",
        "ReadMcpResourceTool",
        "SendMessage",
        "SlashCommand",
        "TaskCreate",
        "TaskGet",
        "TaskList",
        "TaskUpdate",
        "TeamCreate",
        "TeamDelete",
        "ToolSearch",
    )
)
"""Tools of Claude Code that ouro does not have."""
EVENTS_ELSEWHERE = frozenset(
    (
        "ConfigChange",
        "CwdChanged",
        "Elicitation",
        "ElicitationResult",
        "FileChanged",
        "InstructionsLoaded",
        "PermissionDenied",
        "PermissionRequest",
        "PostToolUseFailure",
        "Setup",
        "StopFailure",
        "SubagentStart",
        "TaskCompleted",
        "TaskCreated",
        "TeammateIdle",
        "WorktreeCreate",
        "WorktreeRemove",
    )
)
"""Events of hooks in Claude Code that ouro does not have."""
_MIN_LIKENESS = 0.8
"""`discription` is near `description` (0.9), `version` is near nothing, `tags` is not near `tools`."""
_NAME_LIST = re.compile(r"[\w ,|-]+")
"""Matches a matcher that lists names, as `Edit|Write`."""


def misspelt_keys(kind: str, meta: Mapping[str, Any]) -> Iterator[str]:
    """Yields a line for each key of front matter that has no effect, but is near one that has.

    Args:
        kind: the kind of the file, such as `skills`.
    """
    known = USED_KEYS[kind] | _STANDARD_KEYS | _KEYS_ELSEWHERE
    for key in meta:
        near = nearest_name(key, known) if key not in known else ""
        if near in USED_KEYS[kind] and near not in meta:
            yield f"`{key}` has no effect. Did you mean `{near}`?"


def unused_keys(kind: str, meta: Mapping[str, Any]) -> list[str]:
    """The keys of front matter that have an effect in other programs, but not here."""
    return sorted((_KEYS_ELSEWHERE & meta.keys()) - USED_KEYS[kind])


def describe_unknown_tools(matcher: str, *, is_complete: bool) -> Iterator[str]:
    """Yields a line for each name in the matcher of a hook that no tool has, and for a regular
    expression that matches no tool. Tools of MCP servers are not known here.

    Args:
        is_complete: whether there are no tools beside those of ouro and of MCP servers.
    """
    known = _tool_names()
    if not matcher or matcher == "*" or "mcp" in matcher.casefold():
        return
    if not _NAME_LIST.fullmatch(matcher):
        if is_complete and not _matches_any(matcher, known):
            yield f"the matcher `{matcher}` fits no tool."
        return
    for name in filter(None, re.split(r" *[,|] *", matcher.strip())):
        if name in known:
            continue
        if near := nearest_name(name, known):
            yield f"the matcher `{matcher}` names no tool `{name}`. Did you mean `{near}`?"
        elif is_complete:
            yield f"the matcher `{matcher}` names no tool `{name}`. It runs for none of this name."


def nearest_tool(name: str) -> str:
    """The tool that a misspelt name means; empty if none is near, or the name is one of a tool that
    only other programs have.
    """
    known = _tool_names()
    return "" if name in known else nearest_name(name, known)


def _tool_names() -> frozenset[str]:
    """All names of tools, here and in other programs."""
    names = {"lsp", "rename", *NAMES_ELSEWHERE, *_TOOLS_ELSEWHERE}
    for others in NAMES_ELSEWHERE.values():
        names.update(others)
    return frozenset(names)


def _matches_any(pattern: str, names: Iterable[str]) -> bool:
    """Whether the pattern matches a part of one of the names, or is not valid: it then fits all."""
    try:
        return any(re.search(pattern, name) for name in names)
    except re.error:
        return True


def nearest_name(name: str, known: Collection[str]) -> str:
    """The known name that a misspelt one means: the same without case, `-` and `_`, or a similar
    one. Empty if there is none.
    """
    from difflib import get_close_matches  # imported late: few names are misspelt

    # Of two names with the same letters, `Write` and `write`, the last one is taken.
    in_order = sorted(known, reverse=name[:1].isupper())
    by_letters = {_letters(other): other for other in in_order}
    near = get_close_matches(_letters(name), by_letters, n=1, cutoff=_MIN_LIKENESS)
    return by_letters[near[0]] if near else ""


def _letters(name: str) -> str:
    return re.sub(r"[-_ ]", "", name.casefold())
