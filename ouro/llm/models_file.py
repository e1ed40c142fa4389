"""models.yaml: the models, keys and prices of the user; read, and changed in place."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import astuple, replace

from ouro.errors import ConfigError
from ouro.llm.model import ModelSpec, Prices
from ouro.utils.files import write_private
from ouro.utils.late_pattern import late_pattern
from ouro.utils.runtime import get_models_path, tilde
from ouro.utils.yaml import Node, Sequence, YamlTable, parse_table, read_section, read_yaml

KEY_WAYS = ("api_key", "api_key_env", "api_key_command")
HEADER = "# Models and keys of ouro; models.yaml.example in its repository shows all keys.\n\n"
WRITTEN = (*KEY_WAYS, "api_base", "window")
PLAIN = late_pattern(r"[A-Za-z][\w./*-]*")


class ModelEntry(msgspec.Struct, frozen=True):
    """The entry of one model; None and empty mean "not set"."""

    api_key: str = ""
    api_key_env: str = ""
    """The variable that holds the key."""
    api_key_command: str = ""
    """A command that prints the key; run when the model is first used, without a shell."""
    api_base: str = ""
    via: Literal["direct", "litellm"] | None = None
    window: int | None = None
    max_output: int | None = None
    prices: Prices | None = None
    images: bool | None = None
    tools: bool | None = None
    thinking: bool | None = None
    patches: bool | None = None
    text_tools: Literal["auto", "on", "off"] | None = None
    fallbacks: tuple[str, ...] = ()
    """Asked in this order if the model does not answer."""

    __repr__ = object.__repr__  # a traceback may be logged: it shows no key

    def over(self, common: ModelEntry) -> ModelEntry:
        """This entry, completed from `common`. A key of `common` never goes to an `api_base` of this entry."""
        said = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) not in (None, "", ())}
        if any(way in said for way in KEY_WAYS) or self.api_base not in ("", common.api_base):
            common = replace(common, api_key="", api_key_env="", api_key_command="")
        return replace(common, **said)

    def applied(self, spec: ModelSpec) -> ModelSpec:
        """`spec` with the values of this entry."""
        names = ("window", "max_output", "prices", "images", "tools", "thinking", "patches", "text_tools")
        said = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return msgspec.structs.replace(spec, **said)


class ModelsFile(msgspec.Struct, frozen=True):
    default: str = ""
    """The model of a new session."""
    compact: str = ""
    """The model that writes summaries and titles; empty: the one of the session."""
    classify: str = ""
    """The model that decides what becomes a note; empty: the one that compacts."""
    retrieve: str = ""
    """The model that writes a hypothetical note for recall (HyDE); empty: none, recall then needs no model."""
    embed: str = ""
    """The model that turns texts into vectors; empty: the one on this machine, where it is installed."""
    fallbacks: tuple[str, ...] = ()
    """For models without their own."""
    models: Mapping[str, ModelEntry] = msgspec.field(default_factory=dict)
    """By name; `anthropic/*` is the entry of all models of a provider."""


def read_models_file(path: Path) -> ModelsFile:
    """Read models.yaml; empty if the file does not exist.

    Raises:
        ConfigError: it is not valid; names file and line.
    """
    name = tilde(path)
    table = read_yaml(path, name)
    found = read_section(table, ModelsFile, name)
    models = table.entries.get("models")
    if isinstance(models, YamlTable):
        for model, entry in found.models.items():
            _check(entry, f"{name}:{models.key_lines[model]}: `{model}`")
    return found


def close_to_others(path: Path) -> str:
    """Make models.yaml private (0600), since it holds keys; returns a notice if other users could read it."""
    try:
        if not path.stat().st_mode & 0o077:
            return ""
    except OSError:
        return ""
    try:
        path.chmod(0o600)
    except OSError:
        return f"{tilde(path)} can be read by others on this machine. It holds keys: run `chmod 600 {tilde(path)}`."
    return f"{tilde(path)} could be read by others on this machine; its permissions are now 0600."


def _check(entry: ModelEntry, where: str) -> None:
    ways = [way for way in KEY_WAYS if getattr(entry, way)]
    if len(ways) > 1:
        raise ConfigError(f"{where} has {' and '.join(f'`{way}`' for way in ways)}: keep one.")
    if entry.api_base and not entry.api_base.startswith(("http://", "https://")):
        raise ConfigError(
            f"{where}: `api_base` must be a URL that begins with http:// or https://, not `{entry.api_base}`."
        )
    for name in ("window", "max_output"):
        size = getattr(entry, name)
        if size is not None and size <= 0:
            raise ConfigError(f"{where}: `{name}` must be more than 0, not `{size}`.")
    if entry.prices and any(price is not None and price < 0 for price in astuple(entry.prices)):
        raise ConfigError(f"{where}: `prices` cannot be below 0.")


def write_models_file(name: str, entry: ModelEntry, default: str = "") -> Path:
    """Put a model (or `provider/*`) into models.yaml: 0600, whole or not at all, comments and other entries kept.

    Args:
        name: the litellm name, or `anthropic/*` for all models of a provider; empty: only the default is set.
        entry: its key, `api_base` and window; other fields of an entry that is there stay as they are.
        default: the model that new sessions start with; empty: as it is.

    Raises:
        ConfigError: the file is broken, cannot be written, or is laid out so that it has to be edited by hand.
    """
    path = get_models_path()
    wanted = read_models_file(path)
    shown = tilde(path)
    try:
        text = (path.read_text(encoding="utf-8") if path.exists() else "") or HEADER
        if name:
            changed = {key: getattr(entry, key) for key in WRITTEN}
            models = {**wanted.models, name: replace(wanted.models.get(name, ModelEntry()), **changed)}
            text, wanted = _with_entry(text, name, entry, shown), replace(wanted, models=models)
        if default:
            text, wanted = _with_default(text, default, shown), replace(wanted, default=default)
        # Parsed before it is written, so that an unusual layout loses no entry.
        with suppress(ConfigError):  # the line numbers of the new text mean nothing to the user
            if read_section(parse_table(text, shown), ModelsFile, shown) == wanted:
                write_private(path, text)
                return path
    except OSError as error:
        raise ConfigError(f"{shown} cannot be written: {error.strerror}.") from error
    raise ConfigError(f"{shown} is laid out so that it cannot be changed by itself.", "Add the model with an editor.")


def _with_entry(text: str, name: str, entry: ModelEntry, shown: str) -> str:
    table, lines = parse_table(text, shown), _lines(text)
    models = table.entries.get("models")
    if not isinstance(models, YamlTable) or not models.entries:  # `models:`, `models: {}`, or not there
        heading = table.key_lines.get("models", len(lines) + 1)
        return "".join([*lines[: heading - 1], "models:\n", *_entry_lines(name, entry, "  "), *lines[heading:]])
    indent = _indent(lines[min(models.key_lines.values()) - 1])
    if name not in models.entries:
        last = _last_line(models)
        return "".join([*lines[:last], *_entry_lines(name, entry, indent), *lines[last:]])
    return _changed(lines, models, name, entry, indent)


def _changed(lines: list[str], models: YamlTable, name: str, entry: ModelEntry, indent: str) -> str:
    """The lines of an entry that is there: the keys we write are replaced, the others and comments stay."""
    here, old = models.key_lines[name], models.entries[name]
    gone = {old.key_lines[key] for key in WRITTEN if key in old.entries} if isinstance(old, YamlTable) else set()
    inner = (
        _indent(lines[min(old.key_lines.values()) - 1]) if isinstance(old, YamlTable) and old.entries else indent * 2
    )
    kept = [line for number, line in enumerate(lines[here:], here + 1) if number not in gone]
    return "".join([*lines[: here - 1], f"{indent}{_yaml(name)}:\n", *_value_lines(entry, inner), *kept])


def _with_default(text: str, default: str, shown: str) -> str:
    table, lines = parse_table(text, shown), _lines(text)
    line = f"default: {_yaml(default)}\n"
    if "default" in table.entries:
        lines[table.key_lines["default"] - 1] = line
    else:
        lines.insert(min(table.key_lines.values(), default=len(lines) + 1) - 1, line)
    return "".join(lines)


def _entry_lines(name: str, entry: ModelEntry, indent: str) -> list[str]:
    values = _value_lines(entry, indent * 2)
    return [f"{indent}{_yaml(name)}:{'' if values else ' {}'}\n", *values]


def _value_lines(entry: ModelEntry, indent: str) -> list[str]:
    return [f"{indent}{key}: {_yaml(value)}\n" for key in WRITTEN if (value := getattr(entry, key))]


def _yaml(value: object) -> str:
    text = str(value)
    return text if isinstance(value, int) or PLAIN.fullmatch(text) else json.dumps(text)


def _lines(text: str) -> list[str]:
    return (text if text.endswith("\n") else text + "\n").splitlines(keepends=True)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _last_line(node: Node) -> int:
    """The last line that holds something of `node`; comments after it are not its own."""
    inner: Iterable[Node] = ()
    if isinstance(node, YamlTable | Sequence):
        inner = node.entries.values() if isinstance(node, YamlTable) else node.items
    return max([node.line, *map(_last_line, inner)])
