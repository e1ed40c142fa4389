"""Write models.yaml: add or change an entry in place; everything else in the file stays as it is."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

from ouro.errors import ConfigError
from ouro.llm.models_file import KEY_WAYS, ModelEntry, ModelsFile, read_models_file
from ouro.utils.files import write_private
from ouro.utils.runtime import get_models_path, tilde
from ouro.utils.yaml import Node, Sequence, YamlTable, parse_table, read_section

HEADER = "# Models and keys of ouro; models.yaml.example in its repository shows all keys.\n\n"
WRITTEN = (*KEY_WAYS, "api_base", "window")
PLAIN = re.compile(r"[A-Za-z][\w./*-]*")


def write_models_file(name: str, entry: ModelEntry, default: str = "", path: Path | None = None) -> Path:
    """Put a model (or `provider/*`) into models.yaml: 0600, whole or not at all, comments and other entries kept.

    Args:
        name: the litellm name, or `anthropic/*` for all models of a provider; empty: only the default is set.
        entry: its key, `api_base` and window; other fields of an entry that is there stay as they are.
        default: the model that new sessions start with; empty: as it is.
        path: the file; ~/.ouro/models.yaml where it is not given.

    Raises:
        ConfigError: the file is broken, cannot be written, or is laid out so that it has to be edited by hand.
    """
    path = path or get_models_path()
    old = read_models_file(path)
    shown = tilde(path)
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        text = text or HEADER
        new = _with_default(_with_entry(text, name, entry, shown) if name else text, default, shown)
        _check(new, _wanted(old, name, entry, default), shown)
        write_private(path, new)
    except OSError as error:
        raise ConfigError(f"{shown} cannot be written: {error.strerror}.") from error
    return path


def _wanted(old: ModelsFile, name: str, entry: ModelEntry, default: str) -> ModelsFile:
    changed = {key: getattr(entry, key) for key in WRITTEN}
    models = dict(old.models)
    if name:
        models[name] = replace(old.models.get(name, ModelEntry()), **changed)
    return replace(old, models=models, default=default or old.default)


def _check(text: str, wanted: ModelsFile, shown: str) -> None:
    """Parse the new text before it is written, so that an unusual layout loses no entry."""
    try:
        if read_section(parse_table(text, shown), ModelsFile, shown) == wanted:
            return
    except ConfigError:
        pass  # reported below: the line numbers of the new text mean nothing to the user
    raise _by_hand(shown)


def _by_hand(shown: str) -> ConfigError:
    return ConfigError(f"{shown} is laid out so that it cannot be changed by itself.", "Add the model with an editor.")


def _with_entry(text: str, name: str, entry: ModelEntry, shown: str) -> str:
    table = parse_table(text, shown)
    lines = _lines(text)
    models = table.entries.get("models")
    if models is None:
        return "".join([*lines, "models:\n", *_entry_lines(name, entry, "  ")])
    heading = table.key_lines["models"]
    if not isinstance(models, YamlTable) or not models.entries:  # `models:` or `models: {}`
        return "".join([*lines[: heading - 1], "models:\n", *_entry_lines(name, entry, "  "), *lines[heading:]])
    first = min(models.key_lines.values())
    if first == heading:
        raise _by_hand(shown)
    indent = _indent(lines[first - 1])
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
    if not default:
        return text
    table = parse_table(text, shown)
    lines = _lines(text)
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
    inner: list[Node] = []
    if isinstance(node, YamlTable):
        inner = list(node.entries.values())
    elif isinstance(node, Sequence):
        inner = list(node.items)
    return max([node.line, *(_last_line(child) for child in inner)])
