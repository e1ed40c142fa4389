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
from ouro.utils.ouro_paths import tilde
from ouro.utils.text import whole_number
from ouro.utils.yaml import TRUE, split_front_matter, words_in

BUILT_IN = Path(__file__).with_name("builtin_agents")
"""The folder with a file for each of ouro's own kinds."""
_MODE_BY_NAME: Mapping[str, Mode] = {
    "dontAsk": "auto",
    **{name: mode for mode, name in MODES.items()},
    **{mode: mode for mode in MODES},
}
"""The permission modes by their names in ouro and in Claude Code."""


def load_agents(files: Iterable[ExtensionFile]) -> tuple[tuple[AgentSpec, ...], tuple[str, ...]]:
    """Returns the kinds of subagents, those of ouro and those in the files; and a line for each
    file that is not used, or not wholly. Blocks.

    A file with the name of a built-in kind replaces it if it is the user's own. One of a project or
    a plugin is not used then.
    """
    built_in = _read_built_in()
    specs: dict[str, AgentSpec] = {}
    problems: list[str] = []
    for file in (*built_in.values(), *files):
        if file.name in built_in and file.source in ("project", "plugin"):
            problems.append(
                f"{tilde(file.path)} is not used: `{file.name}` is a kind of ouro's own. Rename it."
            )
            continue
        try:
            specs[file.name], ignored = _parse_spec(file)
        except ValueError as error:
            problems.append(f"{tilde(file.path)} is not used: {error}")
        else:
            problems += [f"{tilde(file.path)}: {note}" for note in ignored]
    return tuple(specs.values()), tuple(problems)


def _read_built_in() -> dict[str, ExtensionFile]:
    """Read the files of ouro's own kinds; returns them by name."""
    files: dict[str, ExtensionFile] = {}
    for path in sorted(BUILT_IN.glob("*.md")):
        meta, body = split_front_matter(path.read_text(encoding="utf-8"))
        files[path.stem] = ExtensionFile(
            path.stem, path, meta, body=body.strip(), source="built in"
        )
    return files


def _parse_spec(file: ExtensionFile) -> tuple[AgentSpec, list[str]]:
    """The kind of subagent that a file describes, and a note on each part of the file that has no
    effect. Raises ValueError with the reason if the file cannot be used.
    """
    meta = file.meta
    ignored: list[str] = []
    if not file.body:
        raise ValueError("it has no text: the text behind the front matter is the system prompt.")
    tools, unknown = own_tools(words_in(meta.get("tools", "")))
    if unknown:
        near = _near_tools(unknown)
        ignored.append(f"ouro has no tool {', '.join(unknown)}: the agent works without.{near}")
    if meta.get("tools") and not tools:
        raise ValueError("ouro has none of the tools that it names.")
    excluded_tools, not_excluded = own_tools(words_in(meta.get("disallowedTools", "")))
    near = _near_tools(not_excluded) if not_excluded else ""
    if near:
        names = ", ".join(not_excluded)
        ignored.append(f"ouro has no tool {names}: `disallowedTools` takes none away.{near}")
    model = str(meta.get("model", "")).strip()
    works_apart = str(meta.get("worktree", "")).lower() in TRUE
    spec = AgentSpec(
        name=file.name,
        description=file.description,
        prompt=file.body,
        tools=tools,
        model="" if model == "inherit" else model,
        mode=_mode_of(meta),
        max_turns=_max_turns_of(meta),
        worktree=works_apart or meta.get("isolation") == "worktree",
        source=file.source,
        path="" if file.source == "built in" else str(file.path),
        without=excluded_tools,
        skills=tuple(words_in(meta.get("skills", ""))),
    )
    return spec, ignored


def _near_tools(names: Iterable[str]) -> str:
    """A sentence with the tools that misspelt names mean, after a space; empty if none is near."""
    from ouro.extensions.known_names import nearest_tool  # imported late: few are misspelt

    near_names = [f"`{near}`" for near in map(nearest_tool, names) if near]
    return f" Did you mean {' and '.join(near_names)}?" if near_names else ""


def _mode_of(meta: Mapping[str, Any]) -> Mode:
    """The permission mode that the front matter names, by its name in ouro or in Claude Code;
    `auto` if it names none. Raises ValueError if there is no such mode.
    """
    name = str(meta.get("mode") or meta.get("permissionMode") or "")
    mode = _MODE_BY_NAME.get(name or "auto")
    if mode is None:
        raise ValueError(f"`{name}` is not a mode. Write one of {', '.join(MODES)}.")
    return mode


def _max_turns_of(meta: Mapping[str, Any]) -> int | None:
    """The maximum number of model calls that the front matter sets; None if it sets none. Raises
    ValueError if it is not a number above 0.
    """
    turns = str(meta.get("max_turns") or meta.get("maxTurns") or "")
    if not turns:
        return None
    number = whole_number(turns)
    if not number:
        raise ValueError(f"max_turns must be a number above 0, not `{turns[:40]}`.")
    return number
