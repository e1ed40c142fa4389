"""Tools, rules and modes as the files of Claude Code name them: `Bash(git diff:*)` is `shell(git
diff *)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

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
_RULE = late_pattern(r"(\w[\w.*-]*)(?:\((.*)\))?", re.DOTALL)
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
_ALSO_MATCHED = {"shell_input": ("Bash",)}
"""A hook that watches commands watches what is typed into them, too."""
_OTHER_HEADS = ("run", "net", "mcp", "tool")
"""Effects that a permission rule can name instead of a tool."""
_CHANGING = ("write", "edit", "notebook_edit", "apply_patch")
_RULES = {
    other: "write" if tool in _CHANGING else tool
    for tool, others in NAMES_ELSEWHERE.items()
    for other in others
}
"""Name in another program -> name in a rule of ouro; `write` means every tool that changes files.
"""


def own_rule(name: str) -> str:
    """ouro's permission rule for one tool of a list; a name of ouro's stays unchanged. Empty: it is
    not a rule.
    """
    found = _RULE.fullmatch(name.strip())
    if found is None:
        return ""
    head, pattern = found[1], (found[2] or "").strip()
    if head.startswith("mcp__"):
        server, _, tool = head.removeprefix("mcp__").partition("__")
        return f"mcp({server}.{tool or '*'})"
    pattern = re.sub(r":\*$", " *", pattern).removeprefix("domain:")
    head = _RULES.get(head, head)
    return f"{head}({pattern})" if pattern and pattern != "*" else head


def names_elsewhere(tool: str) -> tuple[str, ...]:
    """The names of one of ouro's tools in other programs, Claude Code's first; its own name if they
    have none.
    """
    return (*NAMES_ELSEWHERE.get(tool, (tool,)), *_ALSO_MATCHED.get(tool, ()))


def own_names(name: str) -> tuple[str, ...]:
    """ouro's tools for a name, also one of another program's; empty if there are none. `mcp__…`
    stays.
    """
    if name in NAMES_ELSEWHERE or name.startswith("mcp__"):
        return (name,)
    wanted = name.casefold()
    return tuple(
        tool
        for tool, names in NAMES_ELSEWHERE.items()
        if wanted in {known.casefold() for known in (tool, *names)}
    )


def demand_rules(places: SettingsByPlace, more: Iterable[str] = ()) -> None:
    """As `demand_tools`, for the rules in the settings, by place; the message names file and line."""
    for place, found in places.items():
        for name in sorted(ADD_UP & found.keys()):
            demand_tools(
                found[name].value, more, "" if place == "flags" else f"{found[name].source}: "
            )


def demand_tools(rules: Iterable[str], more: Iterable[str] = (), where: str = "") -> None:
    """Raises OuroError if a rule names neither a tool (of ouro or `more`) nor an effect: it would
    have no effect.

    `where` is the beginning of the message.
    """
    known = (*NAMES_ELSEWHERE, *_OTHER_HEADS, *more)
    for rule in rules:
        head = parse_rule(rule, where).head
        if "*" in head or head in known:
            continue
        from difflib import get_close_matches  # imported late: few names are misspelt

        names = [f"`{own_rule(rule)}`"] if own_names(head) else get_close_matches(head, known, 3)
        hint = (
            f"Did you mean {' or '.join(names)}?"
            if names
            else f"There are: {', '.join((*NAMES_ELSEWHERE, 'mcp'))}."
        )
        raise UsageError(f"{where}`{head}` in the rule `{rule}` is not a tool of ouro.", hint)


def own_tools(names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """ouro's tools for these names, each once, and the names without one. `Bash(git *)` counts as
    `Bash`.
    """
    found: dict[str, None] = {}
    unknown: list[str] = []
    for name in names:
        own = own_names(name.partition("(")[0].strip())
        found.update(dict.fromkeys(own))
        unknown += [] if own else [name]
    return tuple(found), tuple(unknown)
