"""MCP servers in the files of other programs: Claude Code and Codex."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ouro.errors import ConfigError
from ouro.mcp.configuration import PROJECT_FILE, usable_servers
from ouro.settings import McpServerSettings
from ouro.utils.json_types import dictionary, read_json
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
            for entries in read(path, root):
                servers, wrong = usable_servers(entries or {}, tilde(path))
                problems += wrong
                for name, server in servers.items():
                    found.setdefault(name, (name, server, tilde(path)))
        except ConfigError as error:
            problems.append(error.message)
    return list(found.values()), problems


def _claude(path: Path, root: Path) -> Iterator[Any]:
    table = read_json(path)
    yield table.get("mcpServers")
    yield dictionary(dictionary(table.get("projects")).get(str(root))).get("mcpServers")


def _codex(path: Path, _root: Path) -> Iterator[Any]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise ConfigError(f"{tilde(path)} cannot be read: {error}.") from error
    yield {name: _from_codex(entry) for name, entry in dictionary(table.get("mcp_servers")).items()}


_CODEX_NAMES = {"http_headers": "headers", "enabled_tools": "tools", "disabled_tools": "without"}


def _from_codex(entry: Any) -> Any:
    """A Codex entry with the names of `mcpServers`."""
    if not isinstance(entry, dict):
        return entry
    found = {_CODEX_NAMES.get(key, key): value for key, value in entry.items()}
    headers = dict(dictionary(found.get("headers")))
    if variable := entry.get("bearer_token_env_var"):
        headers["Authorization"] = f"Bearer ${{{variable}}}"
    for header, variable in dictionary(entry.get("env_http_headers")).items():
        headers[header] = f"${{{variable}}}"
    if headers:
        found["headers"] = headers
    if seconds := entry.get("tool_timeout_sec"):
        found["timeout_seconds"] = int(seconds) if isinstance(seconds, float) else seconds
    return found
