"""Kinds of subagents: those of ouro, and the files in `agents/` of the user, the project and
plugins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ouro.extensions.discovery import ExtensionFile
from ouro.extensions.tool_names import MODES, own_tools
from ouro.safety import Mode
from ouro.tools.subagent import AgentSpec
from ouro.utils.runtime import tilde
from ouro.utils.yaml import TRUE, split_front_matter, words_in

BUILT_IN = Path(__file__).with_name("builtin_agents")
_MODES: Mapping[str, Mode] = {
    "dontAsk": "auto",
    **{name: mode for mode, name in MODES.items()},
    **{mode: mode for mode in MODES},
}
"""The built-in kinds, by their names in ouro and in Claude Code."""
_NOT_USED = ("mcpServers", "memory")
"""Keys of Claude Code's agent files that ouro does not use."""


def load_agents(files: Iterable[ExtensionFile]) -> tuple[tuple[AgentSpec, ...], tuple[str, ...]]:
    """ouro's kinds and those in the files, and a line for each file or entry that is not used.
    Blocks.

    A file with the name of a built-in kind replaces it if it is the user's own; a project cannot.
    """
    own: dict[str, ExtensionFile] = {}
    for path in sorted(BUILT_IN.glob("*.md")):
        meta, body = split_front_matter(path.read_text(encoding="utf-8"))
        own[path.stem] = ExtensionFile(path.stem, path, meta, body.strip(), "built in")
    found: dict[str, AgentSpec] = {}
    problems: list[str] = []
    for file in (*own.values(), *files):
        if file.name in own and file.source in ("project", "plugin"):
            problems.append(
                f"{tilde(file.path)} is not used: `{file.name}` is a kind of ouro's own. Rename it."
            )
            continue
        try:
            found[file.name], ignored = _parse_spec(file)
        except ValueError as error:
            problems.append(f"{tilde(file.path)} is not used: {error}")
        else:
            problems += [f"{tilde(file.path)}: {what}" for what in ignored]
    return tuple(found.values()), tuple(problems)


def _parse_spec(file: ExtensionFile) -> tuple[AgentSpec, list[str]]:
    """The kind in a file, and the parts of it that ouro does not use. Raises ValueError if it
    cannot be used.
    """
    meta = file.meta
    ignored = [f"ouro does not use `{key}`." for key in _NOT_USED if meta.get(key)]
    if not file.body:
        raise ValueError("it has no text: the text behind the front matter is the system prompt.")
    tools, unknown = own_tools(words_in(meta.get("tools", "")))
    if unknown:
        ignored.append(f"ouro has no tool {', '.join(unknown)}: the agent works without.")
    if meta.get("tools") and not tools:
        raise ValueError("ouro has none of the tools that it names.")
    without, _ = own_tools(words_in(meta.get("disallowedTools", "")))
    model = str(meta.get("model", "")).strip()
    works_apart = str(meta.get("worktree", "")).lower() in TRUE
    spec = AgentSpec(
        file.name,
        file.description,
        file.body,
        tools,
        "" if model == "inherit" else model,
        _mode_of(meta),
        _max_turns_of(meta),
        works_apart or meta.get("isolation") == "worktree",
        file.source,
        "" if file.source == "built in" else str(file.path),
        without,
        tuple(words_in(meta.get("skills", ""))),
    )
    return spec, ignored


def _mode_of(meta: Mapping[str, Any]) -> Mode:
    named = str(meta.get("mode") or meta.get("permissionMode") or "")
    mode = _MODES.get(named or "auto")
    if mode is None:
        raise ValueError(f"`{named}` is not a mode. Write one of {', '.join(MODES)}.")
    return mode


def _max_turns_of(meta: Mapping[str, Any]) -> int | None:
    """The limit of turns in the front matter; None without one. Raises ValueError if it is not
    valid.
    """
    turns = str(meta.get("max_turns") or meta.get("maxTurns") or "")
    if not turns:
        return None
    if not turns.isdecimal() or not int(turns):
        raise ValueError(f"max_turns must be a number above 0, not `{turns}`.")
    return int(turns)
