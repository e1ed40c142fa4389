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
"""Bytes of a file that are searched."""
HEADERS_HELPER_KEYS = ("headersHelper", "headers_helper")
"""The keys for the program of an MCP server that prints headers."""
_PROGRAM_FILES = "programs that these run"
"""The kind of files that settings run."""
_VARIABLE_NAME = late_pattern(r"\$\{?(\w+)")
"""Matches a variable of a shell line: `$HOME`, `${HOME}`."""


def describe_files(root: Path, files: Sequence[Path]) -> list[str]:
    """What files of a project would do, as lines: one for each kind of files with their names, one
    for files with invisible characters, and one for each program or address that they name. Blocks.
    """
    names_by_kind: defaultdict[str, list[str]] = defaultdict(list)
    programs: list[str] = []
    run_by_settings = programs_of(root)
    container_files = devcontainer_files(root)
    if any(path in container_files for path in files):
        programs += [_cut_program(line) for line in describe_devcontainer(root)]
    with_invisible: list[str] = []
    for path in files:
        name = str(path.relative_to(root.resolve()))
        kind, shown_name = _kind_and_name(name)
        if path in run_by_settings:
            kind, shown_name = _PROGRAM_FILES, escape_invisible(name)
        if path in container_files:
            kind = "devcontainer"
        names_by_kind[kind].append(shown_name)
        text = read_start(path, _MAX_READ).removeprefix("\ufeff").replace("\r\n", "\n")
        if clean(text) != text:
            with_invisible.append(name)
        if kind == "settings" or (kind in EXTENSION_FOLDERS and name.endswith(".md")):
            programs += [f"{shown_name} runs or reaches {line}" for line in programs_in(text, name)]
    lines = [_line(kind, dict.fromkeys(names)) for kind, names in names_by_kind.items()]
    if with_invisible:
        lines.append(_line("with invisible characters, which are left out", with_invisible))
    return [*lines, *programs]


def programs_in(text: str, name: str) -> Iterator[str]:
    """Yields a line such as `hooks.PreToolUse: ./check.sh` for each hook and MCP server in the text
    of a file: of settings, or of an extension with front matter. A line says so if it cannot be
    read.
    """
    try:
        for section, values in scripted_values(text, name).items():
            yield from _programs(values, section)
    except (ConfigError, ValueError, RecursionError):
        yield "something that cannot be read"


def _programs(value: Any, key_path: str) -> Iterator[str]:
    """Yields a line for each program, address or prompt in the settings of hooks and MCP servers,
    however deep it is, and lines with details about it.

    Args:
        value: a part of the settings.
        key_path: its dotted key.
    """
    if isinstance(value, list):
        for item in value:
            yield from _programs(item, key_path)
    if not isinstance(value, dict):
        return
    if program := value.get("command") or value.get("url"):
        command_line = _command_line(program, value)
        yield f"{escape_invisible(key_path)}: {_cut_program(command_line)}"
        yield from _details(value, key_path)
    elif (prompt := value.get("prompt")) and key_path.startswith("hooks"):
        yield f"{escape_invisible(key_path)}: a model is asked: {_cut_program(str(prompt))}"
    # Also below a program: a group of hooks may have a `command` that nothing runs.
    for key, item in value.items():
        yield from _programs(item, key_path if key == "hooks" else f"{key_path}.{key}")


def _command_line(program: Any, value: Mapping[str, Any]) -> str:
    """A program with its arguments and variables, as one line. The program and the arguments may
    each be a list or one word.

    Args:
        value: the settings of the program.
    """
    words: list[Any] = []
    for word_or_list in (program, value.get("args", [])):
        words += word_or_list if isinstance(word_or_list, list) else [word_or_list]
    words += [f"{name}={text}" for name, text in dictionary(value.get("env")).items()]
    return " ".join(map(str, words))


def _details(value: dict[str, Any], key_path: str) -> Iterator[str]:
    """Yields lines about what else a program or server gets: its working folder, headers and the
    program that prints some, and the names of all variables in its settings.
    """
    if folder := value.get("cwd"):
        yield f"{escape_invisible(key_path)}: in the folder {_cut_program(str(folder))}"
    for key in HEADERS_HELPER_KEYS:
        if line := value.get(key):
            shown_line = _cut_program(str(line))
            yield f"{escape_invisible(key_path)}: runs for its headers: {shown_line}"
    for name, text in dictionary(value.get("headers")).items():
        yield f"{escape_invisible(key_path)}: with the header {_cut_program(f'{name}: {text}')}"
    names = dict.fromkeys(_VARIABLE_NAME.findall(json.dumps(value, ensure_ascii=False)))
    if names:
        yield f"{escape_invisible(key_path)}: with the variables {', '.join(names)}"


def _cut_program(text: str) -> str:
    """A program as it is shown: invisible characters are escaped, and it is cut to MAX_PROGRAM
    characters, with the number of those that are left out.
    """
    left_out = len(text) - MAX_PROGRAM
    rest = f" (and {left_out:,} characters more)" if left_out > 0 else ""
    return escape_invisible(text[:MAX_PROGRAM]) + rest


def _kind_and_name(path: str) -> tuple[str, str]:
    """The kind of a file of a project, and its name as it is shown: `/review` for a command.

    Args:
        path: relative to the root of the project.
    """
    for kind, folders in EXTENSION_FOLDERS.items():
        for folder in folders:
            if path.startswith(f"{folder}/"):
                name = _extension_name(path.removeprefix(f"{folder}/"), kind)
                return kind, escape_invisible(name)
    is_settings = path in {str(CONFIG_FILE), str(MCP_FILE)} or path.endswith(".json")
    return "settings" if is_settings else "instructions", escape_invisible(path)


def _extension_name(path: str, kind: str) -> str:
    """How the user calls an extension with this path in the folder of its kind: a command with a
    slash, others by their name.
    """
    if kind == "skills":
        folder, slash, _ = path.partition("/")
        return folder if slash else path  # the folder with the skill's SKILL.md
    if kind == "tools":
        return path
    name = path.removesuffix(".md").replace("/", ":")
    return f"/{name}" if kind == "commands" else name


def _line(kind: str, names: Iterable[str]) -> str:
    """A line with a kind and the names of its files, cut to MAX_WIDTH."""
    return cut(f"{kind}: {', '.join(names)}", MAX_WIDTH)
