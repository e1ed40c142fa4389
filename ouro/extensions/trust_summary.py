"""What the files of a project would do, as lines, for the question whether the user trusts them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ouro.errors import ConfigError
from ouro.safety import (
    CONFIG_FILE,
    EXTENSION_FOLDERS,
    MCP_FILE,
    describe_devcontainer,
    devcontainer_files,
    programs_of,
    scripted_values,
)
from ouro.utils.files import read_start
from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import dictionary
from ouro.utils.text import clean, cut, escape_invisible

MAX_WIDTH = 400
"""Maximum characters of a line that names files; a program is shown with up to `MAX_PROGRAM`
characters.
"""
MAX_PROGRAM = 2_000
_MAX_READ = 1_000_000
_PROGRAMS = "programs that these run"
_VARIABLE = late_pattern(r"\$\{?(\w+)")


def describe_files(root: Path, files: Sequence[Path]) -> list[str]:
    """A line for each kind of files, and one for each program or address that they name. Blocks."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    programs: list[str] = []
    programs_named = programs_of(root)
    of_container = devcontainer_files(root)
    if any(path in of_container for path in files):
        programs += [_cut_program(line) for line in describe_devcontainer(root)]
    hidden: list[str] = []
    for path in files:
        name = str(path.relative_to(root.resolve()))
        is_program = path in programs_named
        kind, shown = (_PROGRAMS, escape_invisible(name)) if is_program else _kind_and_name(name)
        if path in of_container:
            kind = "devcontainer"
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
        for section, values in scripted_values(text, name).items():
            yield from _programs(values, section)
    except (ConfigError, ValueError, RecursionError):
        yield "something that cannot be read"


def _programs(value: Any, place: str) -> Iterator[str]:
    """A line for each program, address or prompt in the settings of hooks and MCP servers, however
    deep; `place` is the dotted key.
    """
    if isinstance(value, list):
        for item in value:
            yield from _programs(item, place)
    if not isinstance(value, dict):
        return
    if program := value.get("command") or value.get("url"):
        command_line = _command_line(program, value)
        yield f"{escape_invisible(place)}: {_cut_program(command_line)}"
        yield from _details(value, place)
    elif (asked := value.get("prompt")) and place.startswith("hooks"):
        yield f"{escape_invisible(place)}: a model is asked: {_cut_program(str(asked))}"
    # Also below a program: a group of hooks may have a `command` that nothing runs.
    for key, item in value.items():
        yield from _programs(item, place if key == "hooks" else f"{place}.{key}")


def _command_line(program: Any, value: Mapping[str, Any]) -> str:
    """A program with its arguments and variables; each may be a list or a word."""
    words: list[Any] = []
    for part in (program, value.get("args", [])):
        words += part if isinstance(part, list) else [part]
    words += [f"{name}={text}" for name, text in dictionary(value.get("env")).items()]
    return " ".join(map(str, words))


def _details(value: dict[str, Any], place: str) -> Iterator[str]:
    """What else decides what a program gets: its folder, headers and each variable, however long."""
    if folder := value.get("cwd"):
        yield f"{escape_invisible(place)}: in the folder {_cut_program(str(folder))}"
    for name, text in dictionary(value.get("headers")).items():
        yield f"{escape_invisible(place)}: with the header {_cut_program(f'{name}: {text}')}"
    names = dict.fromkeys(_VARIABLE.findall(json.dumps(value, ensure_ascii=False)))
    if names:
        yield f"{escape_invisible(place)}: with the variables {', '.join(names)}"


def _cut_program(text: str) -> str:
    left_out = len(text) - MAX_PROGRAM
    rest = f" (and {left_out:,} characters more)" if left_out > 0 else ""
    return escape_invisible(text[:MAX_PROGRAM]) + rest


def _kind_and_name(path: str) -> tuple[str, str]:
    """The kind of a file, and its name as it is shown: `/review` for a command."""
    for kind, folders in EXTENSION_FOLDERS.items():
        for folder in folders:
            if path.startswith(f"{folder}/"):
                return kind, escape_invisible(
                    _extension_name(path.removeprefix(f"{folder}/"), kind)
                )
    own = path in {str(CONFIG_FILE), str(MCP_FILE)} or path.endswith(".json")
    return "settings" if own else "instructions", escape_invisible(path)


def _extension_name(below: str, kind: str) -> str:
    """How the user calls an extension: a command with a slash, others by their name."""
    if kind == "skills":
        return below.rpartition("/")[0].partition("/")[0] or below
    if kind == "tools":
        return below
    name = below.removesuffix(".md").replace("/", ":")
    return f"/{name}" if kind == "commands" else name


def _line(kind: str, names: Iterable[str]) -> str:
    return cut(f"{kind}: {', '.join(names)}", MAX_WIDTH)
