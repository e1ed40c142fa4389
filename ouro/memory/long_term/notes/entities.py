"""Entities: the files, commands, packages, symbols, tools and settings that a text names, in one
spelling each.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator

from ouro.utils.late_pattern import late_pattern

_SIGNIFICANT_SIGNS = late_pattern(r"-?\d+|\w[+#]+|[<>]=?")
_KINDS = {"file", "cmd", "pkg", "symbol", "tool", "config"}
"""An entity is `kind:name`: `file:api.py`, `cmd:pytest tests`, `pkg:flask`, `symbol:parse_line`,
`tool:ruff`, `config:line-length`.
"""

_KIND_SYNONYMS = {
    "command": "cmd",
    "package": "pkg",
    "class": "symbol",
    "function": "symbol",
    "path": "file",
    "setting": "config",
    "option": "config",
    "env": "config",
    "configuration": "config",
}
_MAX_NAME = 120
_CODE_BLOCK = late_pattern(r"```[^\n]*\n(.*?)```|`([^`\n]+)`", re.DOTALL)
_CODE_FENCE = late_pattern(r"```\w*")
_FILE_PATH = late_pattern(
    r"(?<![\w/.@:-])/?(?:[\w.@+-]+/)*[\w@+-][\w.@+-]*\.[A-Za-z][A-Za-z0-9]{0,7}(?![\w/(]|\.\w)"
)
_FOLDER_PATH = late_pattern(r"(?<![\w/.@:-])(?:\.{0,2}/)?(?:[\w@+.-]+/)+(?=[\s,;:.!?)\"']|$)")
_NOT_FILES = late_pattern(r"\d+\.\w+|[ei]\.[ge]|[\w-]+\.(?:com|org|net|io|dev|ai)", re.IGNORECASE)
"""What looks like a file name: `3.x`, `e.g`, `example.com`."""
_SYMBOL = late_pattern(
    r"\b(?:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\(\)|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+|[a-z][a-z0-9]*(?:_[a-z0-9]+)+)"
)
"""A name in code: `open_file()`, `NoteFile`, `read_note`."""
_SETTING = late_pattern(r"\s*([A-Za-z_][\w.-]*)\s*[=:]\s*[^\s=({][^=({]*")
"""A setting in code, as `line-length = 100`."""
_ENVIRONMENT = late_pattern(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
_INSTALLED_PACKAGE = late_pattern(
    r"(?:pip3? install|uv add|uv pip install|poetry add|npm (?:i|install)|yarn add|pnpm add|cargo"
    r" add|go get)"
    r"\s+([A-Za-z][\w.@/-]*)"
)
_IMPORTED_PACKAGE = late_pattern(
    r"(?:^|`)\s*(?:import|from)\s+([A-Za-z_]\w*)[\w.]*(?=`|$|\s+import|\s+as)", re.MULTILINE
)
_PLAIN_WORDS = frozenset(
    "bash black bundle composer go helm just make node perl rake sh swift".split()
)
"""Programs whose names are ordinary words: recognized in code only."""
_LOWER_WORD = late_pattern(r"[a-z][\w-]+")
_PROGRAMS = frozenset(
    """
    alembic ansible bandit bash bazel black bun bundle cargo celery clang cmake composer curl deno django-admin
    docker dotnet eslint flake8 flask gcc gdb gh git go gofmt gradle gunicorn hatch helm isort java javac jest
    just kubectl make mkdocs mvn mypy mysql ninja node nox npm npx pdm perl php pip pnpm podman poetry pre-
    commit prettier psql pylint pyright pytest python python3 rails rake redis-cli rspec ruby ruff rustc sh
    sphinx-build sqlite3 swift terraform tox tsc uv uvicorn valgrind vite vitest webpack xcodebuild yarn zsh
    """.split()
)


def entities_in(text: str) -> tuple[str, ...]:
    """The entities that a text names, in order, each once. No file is read.

    `./src/../api.py` and `api.py` are both `file:api.py`.
    """
    return normalize_entities((*_find_in_code(text), *_find_in_plain_text(text)))


def has_names_of(text: str, other: str) -> bool:
    """Whether a text has all names of entities and all numbers of another text, with the signs that
    belong to them: `C++`, `< 30`.
    """
    signs_of_other = set(_SIGNIFICANT_SIGNS.findall(other))
    if not signs_of_other.issubset(_SIGNIFICANT_SIGNS.findall(text)):
        return False
    names = [entity.partition(":")[2].casefold() for entity in entities_in(other)]
    return all(name in text.casefold() for name in names)


def normalize_entity(entity: str, root: str = "") -> str:
    """The one spelling of an entity: `file:api.py` for `File: ./src/../api.py`. Empty if it is no
    entity: it has no known kind or no name, or the name is too long.

    Absolute paths in `root`, the folder of the repository, become relative.
    """
    kind, colon, name = entity.strip().partition(":")
    kind, name = kind.strip().casefold(), " ".join(name.split())
    kind = _KIND_SYNONYMS.get(kind, kind)
    if not colon or kind not in _KINDS or not name or len(name) > _MAX_NAME:
        return ""
    match kind:
        case "file":
            name = _relative_path(name, root)
        case "cmd":
            name = name.removeprefix("$ ")
        case "pkg":
            name = name.casefold().replace("_", "-")
        case "symbol":
            name = name.removesuffix("()")
        case _:
            name = name.casefold()
    return f"{kind}:{name}" if name else ""


def normalize_entities(entities: Iterable[str], root: str = "") -> tuple[str, ...]:
    """The entities in their one spelling, each once, in order, without those that are none."""
    normalized = dict.fromkeys(normalize_entity(entity, root) for entity in entities)
    return tuple(filter(None, normalized))


def _relative_path(name: str, root: str) -> str:
    """A path in its shortest form, relative to `root` if it is in it. Empty for the folder itself,
    for `/`, and for a path that leads above the folder.
    """
    path = posixpath.normpath(name.replace("\\", "/"))
    if root:
        path = "." if path == posixpath.normpath(root) else path
        path = path.removeprefix(f"{root.rstrip('/')}/")
    return "" if path in (".", "..", "/") or path.startswith("../") else path


def _find_in_code(text: str) -> Iterator[str]:
    """Yield the commands, programs and settings that a text names in code marks: code that begins
    with a program is a command, `NAME = VALUE` a setting.
    """
    for block, inline in _CODE_BLOCK.findall(text):
        for line in (block or inline).splitlines():
            words = line.strip().removeprefix("$ ").split()
            if setting := _SETTING.fullmatch(line):
                yield f"config:{setting[1]}"
            elif words and words[0] in _PROGRAMS:
                yield f"tool:{words[0]}"
                if len(words) > 1:
                    yield f"cmd:{' '.join(words)}"


def _find_in_plain_text(text: str) -> Iterator[str]:
    """Yield the packages, files, folders, settings, symbols and programs that a text names. Packages
    and files are removed before the others are searched, so that no part of them is found again.
    """
    yield from (
        f"pkg:{package}"
        for package in (*_INSTALLED_PACKAGE.findall(text), *_IMPORTED_PACKAGE.findall(text))
    )
    for pattern in (_INSTALLED_PACKAGE, _IMPORTED_PACKAGE, _CODE_FENCE):
        text = pattern.sub(" ", text)
    yield from (
        f"file:{path}" for path in _FILE_PATH.findall(text) if not _NOT_FILES.fullmatch(path)
    )
    text = _FILE_PATH.sub(" ", text)
    yield from (f"file:{folder}" for folder in _FOLDER_PATH.findall(text))
    yield from (f"config:{name}" for name in _ENVIRONMENT.findall(text))
    yield from (f"symbol:{name}" for name in _SYMBOL.findall(text))
    yield from (
        f"tool:{word}"
        for word in _LOWER_WORD.findall(text)
        if word in _PROGRAMS and word not in _PLAIN_WORDS
    )
