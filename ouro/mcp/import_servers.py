"""MCP servers in the files of other programs: Claude Code and Codex."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ouro.errors import ConfigError
from ouro.mcp.configuration import PROJECT_FILE, usable_servers
from ouro.settings import McpServerSettings
from ouro.utils.json_types import read_json
from ouro.utils.runtime import tilde

Found = tuple[str, McpServerSettings, str]
"""Name, server, file."""


def foreign_servers(root: Path, home: Path) -> tuple[list[Found], list[str]]:
    """The servers in `~/.claude.json` (of the user and of this project), `.mcp.json` and Codex's `config.toml`.

    Returns:
        The servers, the first of each name, and problems as lines.
    """
    found: dict[str, Found] = {}
    problems: list[str] = []
    project = root / PROJECT_FILE
    for read, path in ((_claude, home / ".claude.json"), (_claude, project), (_codex, home / ".codex" / "config.toml")):
        try:
            for name, server, source in read(path, root, problems):
                found.setdefault(name, (name, server, source))
        except ConfigError as error:
            problems.append(error.message)
    return list(found.values()), problems


def _claude(path: Path, root: Path, problems: list[str]) -> Iterator[Found]:
    table = read_json(path)
    projects = table.get("projects")
    project = projects.get(str(root)) if isinstance(projects, dict) else None
    yield from _table(path, table.get("mcpServers"), problems)
    yield from _table(path, project.get("mcpServers") if isinstance(project, dict) else None, problems)


def _table(path: Path, entries: Any, problems: list[str]) -> Iterator[Found]:
    found, wrong = usable_servers(entries or {}, tilde(path))
    problems += wrong
    for name, server in found.items():
        yield name, server, tilde(path)


def _codex(path: Path, _root: Path, problems: list[str]) -> Iterator[Found]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise ConfigError(f"{tilde(path)} cannot be read: {error}.") from error
    entries = table.get("mcp_servers", {})
    if isinstance(entries, dict):
        yield from _table(path, {name: _from_codex(entry) for name, entry in entries.items()}, problems)


_CODEX_NAMES = {"http_headers": "headers", "enabled_tools": "tools", "disabled_tools": "without"}


def _from_codex(entry: Any) -> Any:
    """A Codex entry with the names of `mcpServers`."""
    if not isinstance(entry, Mapping):
        return entry
    found = {_CODEX_NAMES.get(key, key): value for key, value in entry.items()}
    headers = _mapping(found.get("headers"))
    if variable := entry.get("bearer_token_env_var"):
        headers["Authorization"] = f"Bearer ${{{variable}}}"
    for header, variable in _mapping(entry.get("env_http_headers")).items():
        headers[header] = f"${{{variable}}}"
    if headers:
        found["headers"] = headers
    if seconds := entry.get("tool_timeout_sec"):
        found["timeout_seconds"] = int(seconds) if isinstance(seconds, float) else seconds
    return found


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}
