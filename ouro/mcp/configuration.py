"""Which MCP servers there are: in the settings, ~/.ouro/mcp.json, plugins, a trusted folder, other
programs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from ouro.errors import ConfigError
from ouro.settings import McpServerSettings
from ouro.utils.decoding import from_plain
from ouro.utils.files import write_private
from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import dictionary, read_json
from ouro.utils.runtime import get_config_path, get_home, tilde
from ouro.utils.sections import replace_fields, section_fields

PROJECT_FILE = ".mcp.json"
_NAME = late_pattern(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?!_)){0,31}")
_WITH_VARIABLES = ("command", "args", "env", "url", "headers", "cwd", "client_id", "client_secret")
_VARIABLE = late_pattern(r"\$\{(\w+)(?::-([^}]*))?\}")
FoundServer = tuple[McpServerSettings, str]
"""A server, and the file that defines it."""
_CODEX_NAMES = {"http_headers": "headers", "enabled_tools": "tools", "disabled_tools": "without"}
_ENVIRONMENT = late_pattern(
    r"HOME|LOGNAME|PATH|SHELL|TERM|USER|LANG|LC_\w+|TZ|TMPDIR|XDG_\w+|(?:HTTPS?|NO|ALL)_PROXY|SSL_CERT_\w+|NODE_EXTRA_CA_CERTS",
    re.IGNORECASE,
)
"""The variables that are passed to a server: those of the SDK, and those for locale, folders and
proxies.
"""


class Registry(msgspec.Struct, frozen=True):
    """The servers of a session by name, and what is switched off: `github`, `github.delete_repo`."""

    servers: Mapping[str, McpServerSettings]
    off: frozenset[str] = frozenset()
    projects: frozenset[str] = frozenset()
    """Those that a file of the project defines: they get no variable that looks secret."""
    notices: tuple[str, ...] = ()


def registry_path() -> Path:
    """The file with the servers from `ouro mcp add` and `import`, and the switches."""
    return get_home() / "mcp.json"


def find_servers(
    settings: Mapping[str, McpServerSettings],
    trusted_root: Path | None,
    plugins: Mapping[str, Any] | None = None,
    from_project: Mapping[str, McpServerSettings] | None = None,
) -> Registry:
    """All servers. If several have the same name, the settings win, then `ouro mcp add`, plugins,
    the project.

    Entries that cannot be used become notices; the others are used.

    Args:
        from_project: those of `settings` that the settings of the project define.

    Raises:
        ConfigError: ~/.ouro/mcp.json, which has the switches, cannot be read.
    """
    own, off = read_registry()
    notices: list[str] = []
    sources: list[tuple[str, Any]] = [
        (tilde(get_config_path()), settings),
        (tilde(registry_path()), own),
        *((f"the plugin {plugin}", entries) for plugin, entries in (plugins or {}).items()),
    ]
    if trusted_root is not None:
        sources.append((tilde(trusted_root / PROJECT_FILE), trusted_root / PROJECT_FILE))
    servers: dict[str, McpServerSettings] = {}
    projects: set[str] = set()
    for place, source in sources:
        try:
            found, problems = usable_servers(_entries_of(source), place)
        except ConfigError as error:
            notices.append(f"{error.message} None of its MCP servers is used.")
            continue
        notices += problems
        if isinstance(source, Path):
            projects |= found.keys() - servers.keys()
        for name, server in found.items():
            if servers.setdefault(name, server) != server:
                notices.append(
                    f"MCP server {name}: another definition is used, not that in {place}."
                )
    own_of_project = (from_project or {}).items()
    projects |= {name for name, server in own_of_project if servers.get(name) == server}
    return Registry(servers, off, frozenset(projects), tuple(notices))


def _entries_of(source: Any) -> Any:
    """The definitions of servers in a file, or those that are given. Raises ConfigError."""
    return read_json(source).get("mcpServers", {}) if isinstance(source, Path) else source


def read_registry() -> tuple[dict[str, Any], frozenset[str]]:
    """The user's `mcpServers` and switches in ~/.ouro/mcp.json. Raises ConfigError."""
    table = read_json(registry_path())
    return dictionary(table.get("mcpServers")), frozenset(map(str, table.get("off", ())))


def change_registry(change: Callable[[dict[str, Any]], None]) -> None:
    """Change ~/.ouro/mcp.json; keys that ouro does not know stay. Raises ConfigError."""
    path = registry_path()
    table = read_json(path)
    table.setdefault("mcpServers", {})
    change(table)
    write_private(path, json.dumps(table, indent=2, ensure_ascii=False) + "\n")


def usable_servers(entries: Any, where: str) -> tuple[dict[str, McpServerSettings], list[str]]:
    """The servers of an `mcpServers` object that can be used, and a line for each that cannot.

    Raises:
        ConfigError: it is not an object.
    """
    if not isinstance(entries, Mapping):
        raise ConfigError(f"{where}: `mcpServers` must be an object.")
    found: dict[str, McpServerSettings] = {}
    problems: list[str] = []
    for name, entry in entries.items():
        try:
            server = _parse_server(entry, f"`{name}`")
            check_server(name, server)
        except ConfigError as error:
            problems.append(f"An MCP server in {where} is left out. {error.message}")
        else:
            found[name] = server
    return found, problems


def _parse_server(entry: Any, where: str) -> McpServerSettings:
    """A server as settings, from an entry of any file. Raises ConfigError if it is not valid."""
    if isinstance(entry, McpServerSettings):
        return entry
    if not isinstance(entry, dict):
        raise ConfigError(f"{where} must be an object with `command` or `url`.")
    kind = entry.get("type", "http" if "url" in entry else "stdio")
    names = {item.name for item in section_fields(McpServerSettings)}
    known = {key: value for key, value in entry.items() if key in names}
    if kind == "sse":
        known["transport"] = "sse"
    try:
        checked = from_plain(known, _entry_struct())
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}.") from error
    return McpServerSettings(**msgspec.structs.asdict(checked))


@cache
def _entry_struct() -> type[msgspec.Struct]:
    """The fields of McpServerSettings as a struct, against which msgspec checks an entry."""
    types = get_type_hints(McpServerSettings)
    fields: list[tuple[str, Any, Any]] = []
    for item in section_fields(McpServerSettings):
        default = item.default
        if item.make_default is not None:
            default = msgspec.field(default_factory=item.make_default)
        fields.append((item.name, types[item.name], default))
    return msgspec.defstruct("ServerEntry", fields)


def check_server(name: str, server: McpServerSettings) -> None:
    """Check the name and the definition of a server. Raises ConfigError."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"`{name[:40]}` is not a name: use up to 32 letters, digits, `-` and single `_`."
        )
    if bool(server.command) == bool(server.url):
        raise ConfigError(f"{name} needs `command` or `url`, and not both.")
    if server.timeout_seconds <= 0:
        raise ConfigError(
            f"The `timeout_seconds` of {name} must be more than 0, not {server.timeout_seconds}."
        )
    if server.url and not server.url.startswith(("http://", "https://", "${")):
        raise ConfigError(
            f"The `url` of {name} begins with http:// or https://, not `{server.url[:40]}`."
        )


def to_entry(server: McpServerSettings) -> dict[str, Any]:
    """The server as an entry of `mcpServers`."""
    default = McpServerSettings()
    entry: dict[str, Any] = vars(server)
    changed = {key: value for key, value in entry.items() if value != getattr(default, key)}
    if changed.pop("transport", "") == "sse":
        changed["type"] = "sse"
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in changed.items()
    }


def expand_variables(
    server: McpServerSettings,
    environ: Mapping[str, str],
    secrets: Iterable[str],
    withheld: Container[str] = (),
) -> McpServerSettings:
    """The server with `${NAME}` and `${NAME:-default}` fill in.

    Keys of model providers are never fill in: a project could send them to its own server (F2).

    Args:
        withheld: the variables that look secret, for the server of a project's file.

    Raises:
        ConfigError: a variable is not set, or holds a key of a model provider.
    """
    keys = [secret for secret in secrets if secret]

    def value_of(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        found = environ.get(name, default)
        if name in withheld:
            raise ConfigError(
                f"The variable {name} looks secret, and a file of the project asks for it.",
                "If you trust the server with it, add the server yourself: ouro mcp add.",
            )
        if found is None:
            raise ConfigError(f"The variable {name} is not set.", "Set it before you start ouro.")
        if any(key in found for key in keys):
            raise ConfigError(
                f"The variable {name} holds the key of a model provider, which no server gets."
            )
        return found

    def fill_variables(given: Any) -> Any:
        """A text, or the texts of a mapping or a sequence, with the values of their variables."""
        if isinstance(given, str):
            return _VARIABLE.sub(value_of, given)
        if isinstance(given, Mapping):
            return {name: fill_variables(text) for name, text in given.items()}
        return tuple(map(fill_variables, given))

    return replace_fields(
        server, **{field: fill_variables(getattr(server, field)) for field in _WITH_VARIABLES}
    )


def server_environment(child: Mapping[str, str], server: McpServerSettings) -> dict[str, str]:
    """The environment of a server: a few variables of `child`, which has no keys, and those of its
    settings.
    """
    return {name: text for name, text in child.items() if _ENVIRONMENT.fullmatch(name)} | dict(
        server.env
    )


def approval_key(name: str, server: McpServerSettings, cwd: Path) -> str:
    """The name of the file with its approvals. With another program or address it is another
    server.
    """
    words = (server.command, *server.args)
    local = (
        [str(cwd)]
        if any((cwd / word).exists() for word in words if word and not os.path.isabs(word))  # noqa: PTH117
        else []
    )
    about = json.dumps([*words, server.url, server.cwd, *local])
    return f"{name}-{hashlib.sha256(about.encode()).hexdigest()[:12]}"


def foreign_servers(root: Path, home: Path) -> tuple[dict[str, FoundServer], list[str]]:
    """The servers in `~/.claude.json` (of the user and of this project), `.mcp.json` and Codex's
    `config.toml`.

    Returns:
        The servers by name (the first of each name), and problems as lines.
    """
    found: dict[str, FoundServer] = {}
    problems: list[str] = []
    project = root / PROJECT_FILE
    for read, path in (
        (_read_claude, home / ".claude.json"),
        (_read_claude, project),
        (_read_codex, home / ".codex" / "config.toml"),
    ):
        try:
            for entries in read(path, root):
                servers, wrong = usable_servers(entries or {}, tilde(path))
                problems += wrong
                for name, server in servers.items():
                    found.setdefault(name, (server, tilde(path)))
        except ConfigError as error:
            problems.append(error.message)
    return found, problems


def _read_claude(path: Path, root: Path) -> Iterator[Any]:
    table = read_json(path)
    yield table.get("mcpServers")
    yield dictionary(dictionary(table.get("projects")).get(str(root))).get("mcpServers")


def _read_codex(path: Path, _root: Path) -> Iterator[Any]:
    """The servers in the TOML file of Codex; nothing without the file. Raises ConfigError if it is
    broken.
    """
    try:
        import tomllib  # imported late: few plugins and editors write TOML

        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise ConfigError(f"{tilde(path)} cannot be read: {error}.") from error
    yield {
        name: _convert_codex_entry(entry)
        for name, entry in dictionary(table.get("mcp_servers")).items()
    }


def _convert_codex_entry(entry: Any) -> Any:
    """An entry of Codex with the names of `mcp.json`; its variables become `${NAME}`."""
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
