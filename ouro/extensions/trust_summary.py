"""What the files of a project would do, as lines, for the question whether the user trusts them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ouro.errors import ConfigError
from ouro.safety import CONFIG_FILE, EXTENSION_FOLDERS, MCP_FILE
from ouro.utils.files import read_start
from ouro.utils.json_types import dictionary
from ouro.utils.text import clean, cut, escaped
from ouro.utils.yaml import parse_table, plain_values, split_front_matter

MAX_WIDTH = 400
"""Maximum characters of a line that names files; a program is shown with up to `MAX_PROGRAM`
characters.
"""
MAX_PROGRAM = 2_000
_MAX_READ = 1_000_000
_SCRIPTED = ("hooks", "mcp", "mcpServers")


def describe_files(root: Path, files: Sequence[Path]) -> list[str]:
    """A line for each kind of files, and one for each program or address that they name. Blocks."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    programs: list[str] = []
    hidden: list[str] = []
    for path in files:
        name = str(path.relative_to(root.resolve()))
        kind, shown = _kind_and_name(name)
        groups[kind].append(shown)
        text = read_start(path, _MAX_READ).removeprefix("\ufeff").replace("\r\n", "\n")
        if clean(text) != text:
            hidden.append(name)
        if kind == "settings" or (kind in EXTENSION_FOLDERS and name.endswith(".md")):
            programs += [f"{shown} runs or reaches {line}" for line in programs_in(text, name)]
    lines = [_line(kind, dict.fromkeys(names)) for kind, names in groups.items()]
    if hidden:
        lines.append(_line("with invisible characters, which are left out", hidden))
    return [*lines, *programs]


def programs_in(text: str, name: str) -> Iterator[str]:
    """`hooks.PreToolUse: ./check.sh` for each hook and MCP server in a file of settings, or in
    front matter.
    """
    try:
        if name.endswith(".md"):
            values: Any = {"hooks": split_front_matter(clean(text))[0].get("hooks")}
        else:
            values = (
                plain_values(parse_table(text, name))
                if name.endswith(".yaml")
                else json.loads(text)
            )
        yield from [
            line
            for section in _SCRIPTED
            for line in _programs(dictionary(values).get(section), section)
        ]
    except (ConfigError, ValueError, RecursionError):
        yield "something that cannot be read"


def _programs(value: Any, place: str) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _programs(item, place)
    if not isinstance(value, dict):
        return
    if program := value.get("command") or value.get("url"):
        parts = (
            program,
            value.get("args", []),
            [f"{name}={text}" for name, text in dictionary(value.get("env")).items()],
        )
        words = [
            str(word) for part in parts for word in (part if isinstance(part, list) else [part])
        ]
        yield f"{escaped(place)}: {cut(escaped(' '.join(words)), MAX_PROGRAM)}"
    # Also below a program: a group of hooks may have a `command` that nothing runs.
    for (
        key,
        item,
    ) in value.items():
        yield from _programs(item, place if key == "hooks" else f"{place}.{key}")


def _kind_and_name(path: str) -> tuple[str, str]:
    """The kind of a file, and its name as it is shown: `/review` for a command."""
    for kind, folders in EXTENSION_FOLDERS.items():
        for folder in folders:
            if path.startswith(f"{folder}/"):
                return kind, escaped(_extension_name(path.removeprefix(f"{folder}/"), kind))
    own = path in {str(CONFIG_FILE), str(MCP_FILE)} or path.endswith(".json")
    return "settings" if own else "instructions", escaped(path)


def _extension_name(below: str, kind: str) -> str:
    if kind == "skills":
        return below.rpartition("/")[0].partition("/")[0] or below
    name = below.removesuffix(".md").replace("/", ":")
    return f"/{name}" if kind == "commands" else name


def _line(kind: str, names: Iterable[str]) -> str:
    return cut(f"{kind}: {', '.join(names)}", MAX_WIDTH)
