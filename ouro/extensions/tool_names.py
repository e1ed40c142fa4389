"""Tools, rules and modes as the files of Claude Code name them: `Bash(git diff:*)` is `shell(git
diff *)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import chain

from ouro.errors import UsageError
from ouro.safety import Mode, parse_rule
from ouro.settings_sources import ADD_UP, SettingsByPlace
from ouro.utils.late_pattern import late_pattern

MODES: Mapping[Mode, str] = {
    "plan": "plan",
    "ask": "default",
    "edit": "acceptEdits",
    "auto": "bypassPermissions",
}
"""ouro's mode -> Claude Code's mode."""
_TOOL_RULE = late_pattern(r"(?P<tool>\w[\w.*-]*)(?:\((?P<pattern>.*)\))?", re.DOTALL)
"""Matches a tool with or without a pattern: `Bash`, `Bash(git diff:*)`."""
NAMES_ELSEWHERE: dict[str, tuple[str, ...]] = {
    "read": ("Read", "read_file", "NotebookRead"),
    "write": ("Write", "write_file"),
    "edit": ("Edit", "MultiEdit", "NotebookEdit"),
    "notebook_edit": ("NotebookEdit",),
    "apply_patch": ("Edit", "MultiEdit", "Write"),
    "glob": ("Glob", "LS", "list_dir"),
    "grep": ("Grep",),
    "shell": ("Bash", "run_shell_command"),
    "shell_output": ("BashOutput", "TaskOutput"),
    "shell_input": ("BashInput",),
    "shell_kill": ("KillShell", "KillBash", "TaskStop"),
    "todo": ("TodoWrite", "TodoRead"),
    "ask_user": ("AskUserQuestion",),
    "subagent": ("Task", "Agent"),
    "skill": ("Skill",),
    "web_fetch": ("WebFetch",),
    "web_search": ("WebSearch",),
    **{name: (name,) for name in ("memory_search", "tool_search", "mcp_call", "mcp_read")},
}
"""ouro's name -> names in other programs, Claude Code's first. Tools of MCP servers have the same
name everywhere.
"""
_NAMES_FOR_HOOKS = {"shell_input": ("Bash",)}
"""A hook that watches commands watches what is typed into them, too."""
_EFFECT_HEADS = ("run", "net", "mcp", "tool")
"""Effects that a permission rule can name instead of a tool."""
_CHANGING_TOOLS = ("write", "edit", "notebook_edit", "apply_patch")
_HEAD_IN_OURO = {
    other: "write" if tool in _CHANGING_TOOLS else tool
    for tool, others in NAMES_ELSEWHERE.items()
    for other in others
}
"""Name in another program -> name in a rule of ouro; `write` means every tool that changes files.
"""

_PATH_HEADS_ELSEWHERE = frozenset(
    chain(*map(NAMES_ELSEWHERE.__getitem__, ("read", "glob", "grep", *_CHANGING_TOOLS)))
)
"""The names in other programs whose rules have paths as patterns."""


def own_rule(name: str) -> str:
    """The permission rule of ouro for one in the words of Claude Code: `Bash(git diff:*)` becomes
    `shell(git diff *)`, `Read` becomes `read`. A rule of ouro stays unchanged. Empty if the text is
    not a rule.
    """
    match = _TOOL_RULE.fullmatch(name.strip())
    if match is None:
        return ""
    head, pattern = match["tool"], (match["pattern"] or "").strip()
    if head.startswith("mcp__"):
        server, _, tool = head.removeprefix("mcp__").partition("__")
        return f"mcp({server}.{tool or '*'})"
    pattern = re.sub(r":\*$", " *", pattern).removeprefix("domain:")
    if head in _PATH_HEADS_ELSEWHERE:
        pattern = _own_path(pattern)
    head = _HEAD_IN_OURO.get(head, head)
    if pattern in ("", "*"):  # every call of the tool
        return head
    return f"{head}({pattern})"


def _own_path(pattern: str) -> str:
    """The pattern of a path in a rule of Claude Code as ouro writes it: there `//etc` is `/etc`, and
    `/src` is below the root of the project.
    """
    if pattern.startswith("//"):
        return pattern[1:]
    return f".{pattern}" if pattern.startswith("/") else pattern


def names_elsewhere(tool: str) -> tuple[str, ...]:
    """The names of one of ouro's tools in other programs, Claude Code's first. If they have no such
    tool, its own name.
    """
    return (*NAMES_ELSEWHERE.get(tool, (tool,)), *_NAMES_FOR_HOOKS.get(tool, ()))


def own_names(name: str) -> tuple[str, ...]:
    """The tools of ouro that a name means. The name is from ouro, or from another program, in which
    one name may mean several tools. Empty if it means none. The name of a tool of an MCP server,
    `mcp__…`, is returned as it is.
    """
    if name in NAMES_ELSEWHERE or name.startswith("mcp__"):
        return (name,)
    lower_name = name.casefold()
    return tuple(
        tool
        for tool, names in NAMES_ELSEWHERE.items()
        if lower_name in {other.casefold() for other in (tool, *names)}
    )


def demand_rules(places: SettingsByPlace, other_tools: Iterable[str] = ()) -> None:
    """Raises OuroError if a permission rule in the settings names neither a tool (of ouro or
    `other_tools`) nor an effect. The message names the file and the line.
    """
    for place, settings in places.items():
        for name in sorted(ADD_UP & settings.keys()):  # the settings that are lists of rules
            where = "" if place == "flags" else f"{settings[name].source}: "
            demand_tools(settings[name].value, other_tools, where)


def demand_tools(rules: Iterable[str], other_tools: Iterable[str] = (), where: str = "") -> None:
    """Raises OuroError if a permission rule names neither a tool (of ouro or `other_tools`) nor an
    effect, because it would never apply. The message proposes a name.

    Args:
        where: the beginning of the message: the place of the rules.
    """
    heads = (*NAMES_ELSEWHERE, *_EFFECT_HEADS, *other_tools)
    for rule in rules:
        head = parse_rule(rule, where).head
        if "*" in head or head in heads:
            continue
        from difflib import get_close_matches  # imported late: few names are misspelt

        # A name of another program has one in ouro; others may be misspelt.
        names = [f"`{own_rule(rule)}`"] if own_names(head) else get_close_matches(head, heads, n=3)
        hint = f"There are: {', '.join((*NAMES_ELSEWHERE, 'mcp'))}."
        if names:
            hint = f"Did you mean {' or '.join(names)}?"
        raise UsageError(f"{where}`{head}` in the rule `{rule}` is not a tool of ouro.", hint)


def own_tools(names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Translate a list of tools, by their names in ouro or in another program. Returns the tools of
    ouro, each once, and the names that mean none. `Bash(git *)` counts as `Bash`.
    """
    tools: dict[str, None] = {}
    unknown: list[str] = []
    for name in names:
        names_here = own_names(name.partition("(")[0].strip())
        tools.update(dict.fromkeys(names_here))
        if not names_here:
            unknown.append(name)
    return tuple(tools), tuple(unknown)
