"""The programs of a project that its hooks and MCP servers name: they run, so trust covers them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ouro.errors import ConfigError
from ouro.utils.files import read_start
from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import dictionary, parse_json
from ouro.utils.text import clean
from ouro.utils.yaml import parse_table, plain_values, split_front_matter

SCRIPTED = ("hooks", "mcp", "mcpServers")
"""The sections of settings that name programs."""
MAX_PROGRAMS = 200
"""Programs that are listed; further ones are neither asked about nor covered by trust."""
_MAX_READ = 1_000_000
"""Bytes of a settings file that are read."""
_PROJECT_VARIABLE = late_pattern(r"\$\{?(?:CLAUDE_PROJECT_DIR|OURO_PROJECT_DIR|PWD)(?::-[^}]*)?\}?")
"""`$PWD`, `${CLAUDE_PROJECT_DIR:-.}`."""
_SHELL_WORD = late_pattern(r"(?:\\.|[^\s\"'`;|&<>(){}=,])+")
_QUOTED_TEXT = late_pattern(r"\"([^\"]*)\"|'([^']*)'")
_QUOTE_MARK = late_pattern(r"[\"']")
_OUTPUT_FILES = late_pattern(r">>?\s*[^\s;|&<>()]+|\b(?:touch|tee|mkdir|rm)\s[^;|&<>()\n]*")
"""What a line writes: `>> hooks.log`, `touch done`."""
_DATA_ENDINGS = (
    ".log",
    ".txt",
    ".out",
    ".tmp",
    ".lock",
    ".pid",
    ".jsonl",
    ".csv",
    ".db",
    ".sqlite",
)
_MAX_WORD = 1_000
"""Characters of a word up to which it may name a file."""
_MODULE_NAME = late_pattern(r"[A-Za-z_]\w*(?:\.\w+)*")
_PROGRAM_ENDINGS = ("", ".py", ".js", ".mjs", ".cjs", ".ts", ".sh", ".rb")
_MAIN_FILES = ("__main__.py", "__init__.py", "index.js", "index.mjs", "index.cjs", "index.ts")


def scripted_values(text: str, name: str) -> dict[str, Any]:
    """Returns the sections of a file that may name programs, by their names (`SCRIPTED`). In a
    Markdown file of an extension this is only `hooks` in its front matter. A section that is
    missing is None.

    Args:
        text: the content of the file.
        name: the name of the file, whose ending says how it is read.

    Raises:
        ConfigError, ValueError, RecursionError: it cannot be read.
    """
    if name.endswith(".md"):
        front_matter, _body = split_front_matter(clean(text))
        return {"hooks": front_matter.get("hooks")}
    is_yaml = name.endswith((".yaml", ".yml"))
    values = plain_values(parse_table(text, name)) if is_yaml else parse_json(text)
    return {section: dictionary(values).get(section) for section in SCRIPTED}


def named_programs(root: Path, folder: Path, files: Iterable[Path]) -> list[Path]:
    """Returns the files below `root` that hooks and servers run or get as an argument. If they run
    a folder or a Python module, it is the file in it that runs. At most `MAX_PROGRAMS`, each once.
    Blocks.

    Args:
        root: the resolved folder of the project.
        folder: where hooks and servers run.
        files: the settings that name them, and Markdown files of extensions.
    """
    programs: dict[Path, None] = {}
    for path in files:
        text = read_start(path, _MAX_READ).removeprefix("\ufeff")
        try:
            values = scripted_values(text, path.name)
        except (ConfigError, ValueError, RecursionError):
            continue  # nothing of it runs
        bases = [root, folder, *(root / name for name in _folders_in(values))]
        for word in dict.fromkeys(_words_in(values)):
            programs |= dict.fromkeys(_find_files(word, bases, root))
    return list(programs)[:MAX_PROGRAMS]


def _find_files(word: str, bases: Iterable[Path], root: Path) -> Iterator[Path]:
    """Yields the files below the project `root` that a word may name. If it names a folder, the
    files in it that run, such as `__main__.py` and `index.js`.

    Args:
        bases: the folders that the word may be relative to.
    """
    for base in dict.fromkeys(bases):
        for spelling in _spellings(word):
            path = Path(os.path.normpath(base / spelling))
            if _is_file_below(path, root):
                yield path
            elif path.is_dir():
                inner = (path / main for main in _MAIN_FILES)
                yield from (item for item in inner if _is_file_below(item, root))


def _spellings(word: str) -> Iterator[str]:
    """Yields the paths that a word may stand for: `tools/x` may mean `tools/x.js`, and `tools.x`
    may be a module of Python.
    """
    yield from (f"{word}{ending}" for ending in _PROGRAM_ENDINGS)
    if "." in word and _MODULE_NAME.fullmatch(word):
        module = word.replace(".", "/")
        yield from (module, f"{module}.py")


def _is_file_below(path: Path, root: Path) -> bool:
    """Whether a path is a file below the project, also with links followed, and its name does not
    end like the name of a data file.
    """
    is_program = path.suffix not in _DATA_ENDINGS and path.is_file()
    return is_program and path.is_relative_to(root) and path.resolve().is_relative_to(root)


def _words_in(values: Any) -> Iterator[str]:
    """Yields the words that may name a file, from all texts in the values: each whole text, what is
    in its quotes, and its words as a shell splits them.

    A variable for the project becomes `.`. Files that a line writes are left out: they change with
    each run.
    """
    for text in _texts_in(values):
        whole = _OUTPUT_FILES.sub(" ", _PROJECT_VARIABLE.sub(".", text))
        # A name between quotes may have spaces: `"my hooks/check.sh"`.
        quoted = (first or second for first, second in _QUOTED_TEXT.findall(whole))
        # A shell joins `"$DIR"/x` to one word, `./x`.
        joined = _QUOTE_MARK.sub("", whole)
        for word in (whole, *quoted, *_SHELL_WORD.findall(joined), *_SHELL_WORD.findall(whole)):
            names_something = bool(word.strip("./"))
            if len(word) < _MAX_WORD and names_something:
                yield word.replace("\\", "").lstrip("@")  # `curl -d @file`


def _folders_in(values: Any) -> Iterator[str]:
    """Yield the folders in which servers run: the texts of the keys `cwd`, at any depth."""
    for value in _values_in(values):
        if isinstance(value, dict) and isinstance(folder := value.get("cwd"), str):
            yield folder


def _texts_in(values: Any) -> Iterator[str]:
    return (value for value in _values_in(values) if isinstance(value, str))


def _values_in(value: Any) -> Iterator[Any]:
    """Yield the value and everything nested in it."""
    stack = [value]  # settings may be nested deeper than Python calls
    while stack:
        value = stack.pop()
        yield value
        if isinstance(value, dict):
            stack += value.values()
        elif isinstance(value, list):
            stack += value
