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
from urllib.parse import urlsplit

import msgspec

from ouro.errors import ConfigError
from ouro.settings import McpServerSettings
from ouro.utils.agent_homes import agent_path, claude_config_file
from ouro.utils.decoding import from_plain
from ouro.utils.files import write_private
from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import dictionary, read_json
from ouro.utils.ouro_paths import get_config_path, get_home, tilde
from ouro.utils.sections import replace_fields, section_fields

PROJECT_FILE = ".mcp.json"
_SERVER_NAME = late_pattern(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?!_)){0,31}")
"""Matches a name of a server: letters, digits, `-` and single `_`."""
_FIELDS_WITH_VARIABLES = (
    "command",
    "args",
    "env",
    "url",
    "headers",
    "cwd",
    "client_id",
    "client_secret",
)
"""The fields in which `${NAME}` is filled in."""
_VARIABLE_PLACE = late_pattern(r"\$\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}")
"""Matches `${NAME}` and `${NAME:-default}`."""
_HEADERS_HELPER = "headersHelper"
"""The key for `headers_helper` in files of Claude Code."""
FoundServer = tuple[McpServerSettings, str]
"""A server, and the file that defines it."""
_CODEX_NAMES = {"http_headers": "headers", "enabled_tools": "tools", "disabled_tools": "without"}
"""The name of a field in Codex -> in `mcp.json`."""
_PASSED_VARIABLES = late_pattern(
    r"HOME|LOGNAME|PATH|SHELL|TERM|USER|LANG|LC_\w+|TZ|TMPDIR|XDG_\w+|(?:HTTPS?|NO|ALL)_PROXY|SSL_CERT_\w+|NODE_EXTRA_CA_CERTS|(?:REQUESTS|CURL)_CA_BUNDLE",
    re.IGNORECASE,
)
"""Matches the names of the variables that are passed to a server: those of the SDK, and those for
locale, folders, proxies and certificates.
"""


class Registry(msgspec.Struct, frozen=True):
    """The servers of a session by name, and which servers and tools are switched off."""

    servers: Mapping[str, McpServerSettings]
    off: frozenset[str] = frozenset()
    """What is switched off: `github`, `github.delete_repo`."""
    projects: frozenset[str] = frozenset()
    """The names of the servers that a file of the project defines: they get no variable that looks
    secret.
    """
    project_root: Path | None = None
    """The folder in which the servers of the project run, because its files name programs from
    there; None if there are none.
    """
    notices: tuple[str, ...] = ()
    """A line for each entry that is not used."""


def registry_path() -> Path:
    """The file with the servers from `ouro mcp add` and `import`, and the switches."""
    return get_home() / "mcp.json"


def find_servers(
    settings: Mapping[str, McpServerSettings],
    trusted_root: Path | None,
    plugins: Mapping[str, Any] | None = None,
    from_project: Mapping[str, McpServerSettings] | None = None,
) -> Registry:
    """All servers, and what is switched off. If several have the same name, the first one counts,
    in this order: the settings, `ouro mcp add`, the plugins, the project's file. Entries that
    cannot be used become notices; the others are used.

    Args:
        settings: the servers of the settings.
        trusted_root: the root of the project; None if the user does not trust its files.
        plugins: `mcpServers` of each plugin.
        from_project: the servers among `settings` that the settings of the project define.

    Raises:
        ConfigError: ~/.ouro/mcp.json, which has the switches, cannot be read.
    """
    own_entries, off = read_registry()
    notices: list[str] = []
    sources: list[tuple[str, Any]] = [
        (tilde(get_config_path()), settings),
        (tilde(registry_path()), own_entries),
        *((f"the plugin {plugin}", entries) for plugin, entries in (plugins or {}).items()),
    ]
    if trusted_root is not None:
        sources.append((tilde(trusted_root / PROJECT_FILE), trusted_root / PROJECT_FILE))
    servers: dict[str, McpServerSettings] = {}
    projects: set[str] = set()
    for place, source in sources:
        try:
            usable, problems = usable_servers(_entries_of(source), place)
        except ConfigError as error:
            notices.append(f"{error.message} None of its MCP servers is used.")
            continue
        notices += problems
        if isinstance(source, Path):
            projects |= usable.keys() - servers.keys()
        for name, server in usable.items():
            if servers.setdefault(name, server) != server:
                notices.append(
                    f"MCP server {name}: another definition is used, not that in {place}."
                )
    project_settings = (from_project or {}).items()
    projects |= {
        short_name(name)
        for name, server in project_settings
        if servers.get(short_name(name)) == _in_own_words(server)
    }
    return Registry(servers, off, frozenset(projects), trusted_root, tuple(notices))


def _entries_of(source: Any) -> Any:
    """The entries of a source of servers. A path is a file that has them as `mcpServers`; anything
    else is the entries itself. Raises ConfigError if the file cannot be read, or has no
    `mcpServers`.
    """
    if not isinstance(source, Path):
        return source
    table = read_json(source)
    if table and "mcpServers" not in table:
        # Other programs read a key `servers`, or the entries without a key.
        raise ConfigError(
            f'{tilde(source)} has no `mcpServers`. Write its servers as {{"mcpServers":'
            ' {"NAME": {"command": "…"}}}.'
        )
    return table.get("mcpServers", {})


def read_registry() -> tuple[dict[str, Any], frozenset[str]]:
    """The entries of servers in ~/.ouro/mcp.json, and the names of what is switched off. Raises
    ConfigError.
    """
    table = read_json(registry_path())
    return dictionary(table.get("mcpServers")), frozenset(map(str, table.get("off", ())))


def change_registry(change: Callable[[dict[str, Any]], None]) -> None:
    """Read ~/.ouro/mcp.json, call `change` with its object, and write the object back. Keys that
    ouro does not know stay. Raises ConfigError.
    """
    path = registry_path()
    table = read_json(path, is_plain=True)
    table.setdefault("mcpServers", {})
    change(table)
    write_private(path, json.dumps(table, indent=2, ensure_ascii=False) + "\n")


def usable_servers(entries: Any, where: str) -> tuple[dict[str, McpServerSettings], list[str]]:
    """The servers of an `mcpServers` object that can be used, and a line for each that cannot.

    Raises:
        ConfigError: `entries` is not an object.
    """
    if not isinstance(entries, Mapping):
        raise ConfigError(f"{where}: `mcpServers` must be an object.")
    servers: dict[str, McpServerSettings] = {}
    problems: list[str] = []
    for full_name, entry in entries.items():
        name = short_name(full_name)
        try:
            server = _parse_server(entry, f"`{full_name}`")
            check_server(name, server)
        except ConfigError as error:
            problems.append(f"An MCP server in {where} is left out. {error.message}")
            continue
        if name in servers:
            problems.append(f"An MCP server in {where} is left out. Two are named {name}.")
            continue
        servers[name] = server
    return servers, problems


def short_name(name: str) -> str:
    """The name of a server in ouro for its name in a file. It is the same, unless that has signs
    that the names of tools cannot have, or is too long: `aws.docs` becomes `aws_docs`.
    """
    if _SERVER_NAME.fullmatch(name):
        return name
    plain = re.sub(r"[^A-Za-z0-9-]+", "_", name).strip("_-")
    if _SERVER_NAME.fullmatch(plain):
        return plain
    digest = hashlib.sha256(name.encode()).hexdigest()[:6]  # other names may begin in the same way
    return f"{plain[:25].rstrip('_-') or 'server'}_{digest}"


def _parse_server(entry: Any, where: str) -> McpServerSettings:
    """The settings of a server from an entry of any file. Keys that ouro does not know are ignored.
    Raises ConfigError if the entry is not valid.

    Args:
        where: the entry, as the message names it.
    """
    if isinstance(entry, McpServerSettings):
        return _in_own_words(entry)
    if not isinstance(entry, dict):
        raise ConfigError(f"{where} must be an object with `command` or `url`.")
    try:
        checked = from_plain(_fields_of(entry), _entry_struct())
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}.") from error
    return McpServerSettings(**msgspec.structs.asdict(checked))


def _fields_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of McpServerSettings in an entry, also those that other programs name differently."""
    names = {field.name for field in section_fields(McpServerSettings)} - {"type", "disabled"}
    fields = {key: value for key, value in entry.items() if key in names}
    if entry.get("type") == "sse":
        fields["transport"] = "sse"
    if _HEADERS_HELPER in entry:
        fields["headers_helper"] = entry[_HEADERS_HELPER]
    if entry.get("disabled") is True:  # as Cline, Roo and Cursor write it
        fields["enabled"] = False
    for field in ("env", "headers"):
        if isinstance(texts := entry.get(field), dict):
            fields[field] = {name: _as_text(value) for name, value in texts.items()}
    return fields


def _as_text(value: Any) -> Any:
    """A number or truth value of an entry as text: `PORT: 3000` needs no quotes in YAML either.
    Other values stay.
    """
    return json.dumps(value) if isinstance(value, int | float) else value


def _in_own_words(server: McpServerSettings) -> McpServerSettings:
    """The server of a settings file without the keys of other programs, `type` and `disabled`."""
    transport = "sse" if server.type == "sse" else server.transport
    is_enabled = server.enabled and not server.disabled
    return replace_fields(server, transport=transport, type="", enabled=is_enabled, disabled=False)


@cache
def _entry_struct() -> type[msgspec.Struct]:
    """A struct with the fields of McpServerSettings, against which msgspec checks an entry."""
    types = get_type_hints(McpServerSettings)
    fields: list[tuple[str, Any, Any]] = []
    for item in section_fields(McpServerSettings):
        default = item.default
        if item.make_default is not None:
            default = msgspec.field(default_factory=item.make_default)
        fields.append((item.name, types[item.name], default))
    return msgspec.defstruct("ServerEntry", fields)


def check_server(name: str, server: McpServerSettings) -> None:
    """Raises ConfigError if the name of a server is not valid, or its definition cannot work."""
    if not _SERVER_NAME.fullmatch(name):
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
    try:
        urlsplit(server.url)
    except ValueError as error:
        raise ConfigError(f"The `url` of {name} is not valid: {error}.") from error


def public_url(url: str) -> str:
    """The address of a server as it may be shown and logged: without its user and password, and
    without the values of its query, which is often a key.
    """
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    place = f"***@{host}" if "@" in parts.netloc else host
    query = "&".join(f"{item.partition('=')[0]}=***" for item in parts.query.split("&") if item)
    return parts._replace(netloc=place, query=query).geturl()


def to_entry(server: McpServerSettings) -> dict[str, Any]:
    """The server as an entry of `mcpServers`, with the fields that are not the default."""
    default = McpServerSettings()
    fields: dict[str, Any] = vars(server)
    entry: dict[str, Any] = {}
    for key, value in fields.items():
        if value != getattr(default, key):
            entry[key] = list(value) if isinstance(value, tuple) else value
    # As other programs write them.
    if entry.pop("transport", "") == "sse":
        entry["type"] = "sse"
    if line := entry.pop("headers_helper", ""):
        entry[_HEADERS_HELPER] = line
    return entry


def expand_variables(
    server: McpServerSettings,
    environ: Mapping[str, str],
    secrets: Iterable[str],
    withheld: Container[str] = (),
) -> McpServerSettings:
    """The server with `${NAME}` and `${NAME:-default}` filled in.

    Keys of model providers are never filled in: a project could send them to its own server (F2).

    Args:
        secrets: the keys of model providers.
        withheld: the variables that look secret, for the server of a project's file.

    Raises:
        ConfigError: a variable is not set, or has a key of a model provider in it.
    """
    keys = [secret for secret in secrets if secret]

    def value_of(match: re.Match[str]) -> str:
        """The value of a variable, or its default. Raises ConfigError if it has neither, or must
        not be sent.
        """
        name, default = match["name"], match["default"]
        value = environ.get(name, default)
        if name in withheld:
            raise ConfigError(
                f"The variable {name} looks secret, and a file of the project asks for it.",
                "If you trust the server with it, add the server yourself: ouro mcp add.",
            )
        if value is None:
            raise ConfigError(f"The variable {name} is not set.", "Set it before you start ouro.")
        if any(key in value for key in keys):
            raise ConfigError(
                f"The variable {name} holds the key of a model provider, which no server gets."
            )
        return value

    def fill_variables(field: Any) -> Any:
        """Returns a field with the values of its variables filled in. It is a text, or a mapping or
        a sequence of texts.
        """
        if isinstance(field, str):
            return _VARIABLE_PLACE.sub(value_of, field)
        if isinstance(field, Mapping):
            return {name: fill_variables(text) for name, text in field.items()}
        return tuple(map(fill_variables, field))

    expanded = {name: fill_variables(getattr(server, name)) for name in _FIELDS_WITH_VARIABLES}
    return replace_fields(server, **expanded)


def server_environment(child: Mapping[str, str], server: McpServerSettings) -> dict[str, str]:
    """The environment of a server: the variables of `child` that every server gets, and the
    variables in its settings.

    Args:
        child: the environment of child processes, without keys.
    """
    passed = {name: text for name, text in child.items() if _PASSED_VARIABLES.fullmatch(name)}
    return {**passed, **server.env}


def approval_key(name: str, server: McpServerSettings, cwd: Path) -> str:
    """The name of the file with the approvals of a server. It depends on its program or address,
    because with another one it is another server.

    Args:
        cwd: the folder in which the server runs.
    """
    words = (server.command, *server.args)
    relative_words = [word for word in words if word and not os.path.isabs(word)]  # noqa: PTH117
    # A program or script below the folder is another one in each folder.
    # Unlike Path.exists, os.path.exists does not raise for a word that is too long for a path.
    has_file_in_folder = any(os.path.exists(cwd / word) for word in relative_words)  # noqa: PTH110
    folders = [str(cwd)] if has_file_in_folder else []
    identity = json.dumps([*words, server.url, server.cwd, *folders])
    return f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


def foreign_servers(root: Path) -> tuple[dict[str, FoundServer], list[str]]:
    """The servers that other programs have. They are read from `.claude.json` (of the user and of
    this project), `.mcp.json` of the project, and `config.toml` of Codex.

    Returns:
        Each server by its name, with the file that defines it (of several with the same name, the
        first); and a line for each problem.
    """
    by_name: dict[str, FoundServer] = {}
    problems: list[str] = []
    project = root / PROJECT_FILE
    for read, path in (
        (_read_claude, claude_config_file()),
        (_read_project, project),
        (_read_codex, agent_path(".codex/config.toml")),
    ):
        try:
            for entries in read(path, root):
                servers, file_problems = usable_servers(entries or {}, tilde(path))
                problems += file_problems
                for name, server in servers.items():
                    by_name.setdefault(name, (server, tilde(path)))
        except ConfigError as error:
            problems.append(error.message)
    return by_name, problems


def _read_claude(path: Path, root: Path) -> Iterator[Any]:
    """Yields the two objects `mcpServers` in a file of Claude Code: first the one for all projects,
    then the one for the project `root`. None for one that is not there. Raises ConfigError.
    """
    table = read_json(path)
    yield table.get("mcpServers")
    yield dictionary(dictionary(table.get("projects")).get(str(root))).get("mcpServers")


def _read_project(path: Path, _root: Path) -> Iterator[Any]:
    """Yields the object `mcpServers` of the project's file. Raises ConfigError."""
    yield _entries_of(path)


def _read_codex(path: Path, _root: Path) -> Iterator[Any]:
    """Yields an object with the servers in the TOML file of Codex, as entries of `mcpServers`;
    nothing without the file. Raises ConfigError if it is broken.
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
    """An entry of Codex as an entry of `mcpServers`. Some keys have other names. Where an entry
    names a variable for a header, the header becomes `${NAME}`.
    """
    if not isinstance(entry, dict):
        return entry
    converted = {_CODEX_NAMES.get(key, key): value for key, value in entry.items()}
    headers = dict(dictionary(converted.get("headers")))
    if variable := entry.get("bearer_token_env_var"):
        headers["Authorization"] = f"Bearer ${{{variable}}}"
    for header, variable in dictionary(entry.get("env_http_headers")).items():
        headers[header] = f"${{{variable}}}"
    if headers:
        converted["headers"] = headers
    if seconds := entry.get("tool_timeout_sec"):
        converted["timeout_seconds"] = int(seconds) if isinstance(seconds, float) else seconds
    return converted
