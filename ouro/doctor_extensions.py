"""The check `extensions` of `ouro doctor`: extension files, and files that ouro does not read."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from ouro.commands.all_actions import COMMAND_NAMES
from ouro.errors import ConfigError
from ouro.safety import CLAUDE_SETTINGS, MCP_FILE, TrustStore
from ouro.settings import Settings
from ouro.utils.agent_homes import agent_path
from ouro.utils.lenient_json import read_json
from ouro.utils.ouro_paths import get_home, get_trust_path, tilde
from ouro.utils.text import plural

_FILES_OF_OTHER_AGENTS = (
    ".claude/workflows",
    ".cursorrules",
    ".cursor/mcp.json",
    ".cursor/commands",
    ".windsurfrules",
    ".github/copilot-instructions.md",
    ".github/prompts",
    ".gemini/commands",
    ".opencode",
    "opencode.json",
    "CLAUDE.local.md",
)
"""Files that other agents read, and ouro does not: it has no equivalent, or another format."""
_HELP_HINT = "`ouro help extensions` says where ouro has the same."


class CheckFinding(NamedTuple):
    """What a check of `ouro doctor` has found."""

    state: Literal["good", "note", "bad"]
    text: str
    remedy: str = ""
    """What the user can do; empty if there is nothing."""


class ExtensionCounts(NamedTuple):
    """How many extensions a folder has."""

    texts: list[str]
    """A text for each kind, such as `2 hooks`."""
    server_names: Container[str]
    """The names of the MCP servers."""
    problems: Iterable[str]
    """A line for each problem, each once."""


class _FileCounts(NamedTuple):
    """How many files of commands, skills and agents there are."""

    by_kind: dict[str, int]
    hooks: int
    """The hooks that these files define."""
    problems: list[str]


def count_extensions(
    folder: Path, root: Path, settings: Settings, *, is_trusted: bool
) -> ExtensionCounts:
    """Count the extensions of a folder and of its project."""
    from ouro.agent.project_instructions import ProjectInstructions
    from ouro.assemble_extensions import find_hooks
    from ouro.extensions import Checks, plugin_tables
    from ouro.mcp import find_servers

    store = TrustStore(get_trust_path())

    def trusts(path: Path) -> bool:
        return is_trusted and store.is_trusted(root, [path])

    instructions = ProjectInstructions(folder, trusts)
    hooks, hook_problems = find_hooks(settings, root, trusts, trusted=is_trusted)
    counts, hooks_of_files, problems = _count_files(root, is_trusted)
    plugins, plugin_problems = plugin_tables("mcpServers")
    tool_count, tool_problems = _count_tools(folder, root, trusts, settings)
    problems += [*plugin_problems, *tool_problems]
    servers = find_servers(settings.mcp.servers, root if is_trusted else None, plugins)
    counts["hook"] = len(hooks) + hooks_of_files
    if tool_count:
        counts["own tool"] = tool_count
    if checks := len(Checks(root).list_here()):
        counts["check"] = checks
    counts["MCP server"] = len(servers.servers)
    files = len([*instructions.user_texts(), *instructions.project_texts()])
    texts = [plural(count, noun) for noun, count in counts.items()]
    texts.append(f"{plural(files, 'file')} of instructions")
    problems = [*instructions.problems, *problems, *hook_problems, *servers.notices]
    return ExtensionCounts(texts, servers.servers, dict.fromkeys(problems))


def _count_files(root: Path, is_trusted: bool) -> _FileCounts:
    """Count the files of commands, skills and agents, and the hooks in them."""
    from ouro.extensions import (
        CommandRegistry,
        FileKind,
        command_of,
        find_files,
        load_agents,
        unused_keys,
    )

    counts: dict[str, int] = {}
    hooks, problems = 0, list[str]()
    kinds: tuple[FileKind, ...] = ("commands", "skills", "agents")
    for kind in kinds:
        files, file_problems = find_files(kind, root, is_trusted)
        counts[kind.removesuffix("s")] = len(files)
        hooks += sum(len(file.hooks) for file in files)
        problems += file_problems
        for file in files:
            if unused := unused_keys(kind, file.meta):
                problems.append(f"{tilde(file.path)}: ouro does not use {', '.join(unused)}.")
        if kind == "agents":
            _, agent_problems = load_agents(files)
            problems += agent_problems
        if kind == "commands":
            registry = CommandRegistry(
                [partial(list, map(command_of, files))], lambda: COMMAND_NAMES
            )
            problems += registry.problems()
    return _FileCounts(counts, hooks, problems)


def _count_tools(
    folder: Path, root: Path, trusts: Callable[[Path], bool], settings: Settings
) -> tuple[int, list[str]]:
    """Returns how many tools the files in `tools/` define, and a line for each problem."""
    from ouro.extensions import ToolFileHost, find_tool_files, load_file_tools
    from ouro.safety import Confinement, child_environment

    files, problems = find_tool_files(root, trusts)
    if not files:
        return 0, problems
    environment = child_environment(os.environ)
    confinement = Confinement(folder, get_home() / "sandbox", settings.sandbox)
    seconds = settings.shell.timeout_seconds
    host = ToolFileHost(folder, environment, environment, confine=confinement.wrap, seconds=seconds)
    tools, tool_problems = load_file_tools(files, host)
    return len(tools), [*problems, *tool_problems]


def find_unread_settings(root: Path, *, hooks_run: bool) -> Iterator[CheckFinding]:
    """The settings of Claude Code that have no effect here. `hooks_run`: whether ouro runs the hooks of
    the user's file.
    """
    user_file = agent_path(str(CLAUDE_SETTINGS[0]))
    for path in (*(root / name for name in CLAUDE_SETTINGS), user_file):
        with suppress(ConfigError):  # untrusted files of the project are reported already
            keys = read_json(path).keys()
            if "hooks" in keys and path == user_file and not hooks_run:
                remedy = "`claude_hooks: true` of your config.yaml runs them."
                yield CheckFinding("note", f"hooks of {tilde(path)} do not run.", remedy)
            if unread := sorted(keys - {"hooks", "$schema"}):
                yield CheckFinding(
                    "note", f"{', '.join(unread)} of {tilde(path)} is not read.", _HELP_HINT
                )


def find_foreign_servers(root: Path, known: Container[str]) -> Iterator[CheckFinding]:
    """The MCP servers of other programs that ouro does not know yet."""
    from ouro.mcp import foreign_servers

    servers, _problems = foreign_servers(root)
    own_file = tilde(root / MCP_FILE)
    others = [name for name, (_server, file) in servers.items() if file != own_file]
    if new := [name for name in others if name not in known]:
        text = f"MCP servers of other programs: {', '.join(new)}."
        yield CheckFinding("note", text, "`ouro mcp import` takes them over.")


def find_files_of_other_agents(root: Path) -> Iterator[CheckFinding]:
    """The files of other agents in a project that ouro does not read."""
    if unread := [name for name in _FILES_OF_OTHER_AGENTS if (root / name).exists()]:
        yield CheckFinding("note", f"{', '.join(unread)} is not read.", _HELP_HINT)
