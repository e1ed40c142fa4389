"""The programs of a project that its hooks and MCP servers name: they run, so trust covers them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ouro.errors import ConfigError
from ouro.utils.files import read_start
from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import dictionary
from ouro.utils.text import clean
from ouro.utils.yaml import parse_table, plain_values, split_front_matter

SCRIPTED = ("hooks", "mcp", "mcpServers")
"""The sections of settings that name programs."""
MAX_PROGRAMS = 200
_MAX_READ = 1_000_000
_PROJECT = late_pattern(r"\$\{?(?:CLAUDE_PROJECT_DIR|OURO_PROJECT_DIR|PWD)(?::-[^}]*)?\}?")
_WORD = late_pattern(r"(?:\\.|[^\s\"'`;|&<>(){}=,])+")
_QUOTED = late_pattern(r"\"([^\"]*)\"|'([^']*)'")
_QUOTES = late_pattern(r"[\"']")
_WRITTEN = late_pattern(r">>?\s*[^\s;|&<>()]+|\b(?:touch|tee|mkdir|rm)\s[^;|&<>()\n]*")
"""What a line writes, such as its log: it changes with each run."""
_DATA = (".log", ".txt", ".out", ".tmp", ".lock", ".pid", ".jsonl", ".csv", ".db", ".sqlite")
_MAX_WORD = 1_000
_MODULE = late_pattern(r"[A-Za-z_]\w*(?:\.\w+)*")
_ENDINGS = ("", ".py", ".js", ".mjs", ".cjs", ".ts", ".sh", ".rb")
_IN_FOLDER = ("__main__.py", "__init__.py", "index.js", "index.mjs", "index.cjs", "index.ts")


def scripted_values(text: str, name: str) -> dict[str, Any]:
    """The sections with programs in a file of settings or, from front matter, of an extension.

    Raises:
        ConfigError, ValueError, RecursionError: it cannot be read.
    """
    if name.endswith(".md"):
        return {"hooks": split_front_matter(clean(text))[0].get("hooks")}
    is_yaml = name.endswith((".yaml", ".yml"))
    values = plain_values(parse_table(text, name)) if is_yaml else json.loads(text)
    return {section: dictionary(values).get(section) for section in SCRIPTED}


def named_programs(root: Path, folder: Path, files: Iterable[Path]) -> list[Path]:
    """The files below `root` that programs in these settings are, or get as an argument; of a
    folder or a Python module the file that runs. At most `MAX_PROGRAMS`. Blocks.

    Args:
        folder: where hooks and servers run.
    """
    found: dict[Path, None] = {}
    for path in files:
        text = read_start(path, _MAX_READ).removeprefix("\ufeff")
        try:
            values = scripted_values(text, path.name)
        except (ConfigError, ValueError, RecursionError):
            continue  # nothing of it runs
        bases = [root, folder, *(root / name for name in _folders_in(values))]
        for word in dict.fromkeys(_words_in(values)):
            found |= dict.fromkeys(_find_files(word, bases, root))
    return list(found)[:MAX_PROGRAMS]


def _find_files(word: str, bases: Iterable[Path], root: Path) -> Iterator[Path]:
    """The files below the project that a word may name: itself, or known files in a folder of that
    name.
    """
    for base in dict.fromkeys(bases):
        for place in _spellings(word):
            path = Path(os.path.normpath(base / place))
            if _is_file_below(path, root):
                yield path
            elif path.is_dir():
                inner = (path / name for name in _IN_FOLDER)
                yield from (item for item in inner if _is_file_below(item, root))


def _spellings(word: str) -> Iterator[str]:
    """The paths that a word may stand for: `tools/x` also for `tools/x.js`, `tools.x` for a module."""
    yield from (f"{word}{ending}" for ending in _ENDINGS)
    if "." in word and _MODULE.fullmatch(word):
        module = word.replace(".", "/")
        yield from (module, f"{module}.py")


def _is_file_below(path: Path, root: Path) -> bool:
    is_program = path.suffix not in _DATA and path.is_file()
    return is_program and path.is_relative_to(root) and path.resolve().is_relative_to(root)


def _words_in(values: Any) -> Iterator[str]:
    """The words of all texts in the values that may name a file, each in every form that a shell
    could make of it.
    """
    for text in _texts_in(values):
        whole = _WRITTEN.sub(" ", _PROJECT.sub(".", text))
        quoted = (first or second for first, second in _QUOTED.findall(whole))
        # A shell joins `"$DIR"/x`; between quotes a name may have spaces.
        joined = _QUOTES.sub("", whole)
        for word in (whole, *quoted, *_WORD.findall(joined), *_WORD.findall(whole)):
            if len(word) < _MAX_WORD and word.strip("./"):
                yield word.replace("\\", "").lstrip("@")


def _folders_in(values: Any) -> Iterator[str]:
    for value in _values_in(values):
        if isinstance(value, dict) and isinstance(folder := value.get("cwd"), str):
            yield folder


def _texts_in(values: Any) -> Iterator[str]:
    return (value for value in _values_in(values) if isinstance(value, str))


def _values_in(value: Any) -> Iterator[Any]:
    """The value and everything nested in it."""
    waiting = [value]  # a stack: settings may be nested deeper than Python calls
    while waiting:
        value = waiting.pop()
        yield value
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
