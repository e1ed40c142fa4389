"""Entities: the files, commands, packages, symbols, tools and settings that a text names, in one spelling each."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import Literal, get_args

Kind = Literal["file", "cmd", "pkg", "symbol", "tool", "config"]
KINDS: frozenset[str] = frozenset(get_args(Kind))
"""An entity is `kind:name`: `file:api.py`, `cmd:pytest tests`, `pkg:flask`, `symbol:parse_line`, `tool:ruff`,
`config:line-length`."""

_MAX_NAME = 120
_CODE = re.compile(r"```[^\n]*\n(.*?)```|`([^`\n]+)`", re.DOTALL)
_FENCE = re.compile(r"```\w*")
_PATH = re.compile(r"(?<![\w/.@:-])/?(?:[\w.@+-]+/)*[\w@+-][\w.@+-]*\.[A-Za-z][A-Za-z0-9]{0,7}(?![\w/(]|\.\w)")
_FOLDER = re.compile(r"(?<![\w/.@:-])(?:\.{0,2}/)?(?:[\w@+.-]+/)+(?=[\s,;:.!?)\"']|$)")
_NOT_FILES = re.compile(r"\d+\.\w+|[ei]\.[ge]|[\w-]+\.(?:com|org|net|io|dev|ai)", re.IGNORECASE)
_SYMBOL = re.compile(
    r"\b(?:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\(\)|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+|[a-z][a-z0-9]*(?:_[a-z0-9]+)+)"
)
_SETTING = re.compile(r"\s*([A-Za-z_][\w.-]*)\s*[=:]\s*[^\s=({][^=({]*")
_ENVIRONMENT = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
_INSTALLED = re.compile(
    r"(?:pip3? install|uv add|uv pip install|poetry add|npm (?:i|install)|yarn add|pnpm add|cargo add|go get)"
    r"\s+([A-Za-z][\w.@/-]*)"
)
_IMPORTED = re.compile(r"(?:^|`)\s*(?:import|from)\s+([A-Za-z_]\w*)[\w.]*(?=`|$|\s+import|\s+as)", re.MULTILINE)
_PLAIN_WORDS = frozenset(
    ["bash", "black", "bundle", "composer", "go", "helm", "just", "make", "node", "perl", "rake", "sh", "swift"]
)
"""Programs whose names are plain words: recognized in code only."""
_WORD = re.compile(r"[a-z][\w-]+")
_PROGRAMS = frozenset(
    """
    alembic ansible bandit bash bazel black bun bundle cargo celery clang cmake composer curl deno django-admin
    docker dotnet eslint flake8 flask gcc gdb gh git go gofmt gradle gunicorn hatch helm isort java javac jest
    just kubectl make mkdocs mvn mypy mysql ninja node nox npm npx pdm perl php pip pnpm podman poetry pre-
    commit prettier psql pylint pyright pytest python python3 rails rake redis-cli rspec ruby ruff rustc sh
    sphinx-build sqlite3 swift terraform tox tsc uv uvicorn valgrind vite vitest webpack xcodebuild yarn zsh
    """.split()  # noqa: SIM905 (a list of this length reads better as words)
)


def entities_in(text: str) -> tuple[str, ...]:
    """The entities that a text names, in order, each once.

    By form only, no file is read: `./src/../api.py` and `api.py` are both `file:api.py`.
    """
    found = [*_in_code(text), *_named(text)]
    return tuple(dict.fromkeys(entity for entity in found if entity))


def normalized(entity: str, root: str = "") -> str:
    """An entity in its one spelling; empty when it is not an entity.

    Args:
        entity: as a user or a model wrote it, `File: ./src/../api.py`.
        root: the repository's folder: absolute paths in it become relative.
    """
    kind, colon, name = entity.strip().partition(":")
    kind, name = kind.strip().casefold(), " ".join(name.split())
    kind = {
        "command": "cmd",
        "package": "pkg",
        "class": "symbol",
        "function": "symbol",
        "path": "file",
        "setting": "config",
        "option": "config",
        "env": "config",
        "configuration": "config",
    }.get(kind, kind)
    if not colon or kind not in KINDS or not name or len(name) > _MAX_NAME:
        return ""
    match kind:
        case "file":
            name = _path(name, root)
        case "cmd":
            name = name.removeprefix("$ ")
        case "pkg":
            name = name.casefold().replace("_", "-")
        case "symbol":
            name = name.removesuffix("()")
        case _:
            name = name.casefold()
    return f"{kind}:{name}" if name else ""


def normalized_all(entities: Iterable[str], root: str = "") -> tuple[str, ...]:
    """The entities in one spelling, each once; what is not an entity is left out."""
    return tuple(dict.fromkeys(name for entity in entities if (name := normalized(entity, root))))


def _path(name: str, root: str) -> str:
    name = name.replace("\\", "/")
    if root and name.startswith(root.rstrip("/") + "/"):
        name = name[len(root.rstrip("/")) + 1 :]
    whole = posixpath.normpath(name)
    return "" if whole in (".", "/") or whole.startswith("../") else whole


def _in_code(text: str) -> Iterator[str]:
    """Code that begins with a program is a command; `NAME = VALUE` in code is a setting."""
    for block, inline in _CODE.findall(text):
        for line in (block or inline).splitlines():
            if setting := _SETTING.fullmatch(line):
                yield normalized(f"config:{setting[1]}")
                continue
            words = line.strip().removeprefix("$ ").split()
            if words and words[0] in _PROGRAMS:
                yield normalized(f"tool:{words[0]}")
                if len(words) > 1:
                    yield normalized(f"cmd:{' '.join(words)}")


def _named(text: str) -> Iterator[str]:
    for match in (*_INSTALLED.finditer(text), *_IMPORTED.finditer(text)):
        yield normalized(f"pkg:{match[1]}")
    text = _FENCE.sub(" ", _IMPORTED.sub(" ", _INSTALLED.sub(" ", text)))
    for match in _PATH.finditer(text):
        if not _NOT_FILES.fullmatch(match[0]):
            yield normalized(f"file:{match[0]}")
    text = _PATH.sub(" ", text)
    for match in _FOLDER.finditer(text):
        yield normalized(f"file:{match[0]}")
    for match in _ENVIRONMENT.finditer(text):
        yield normalized(f"config:{match[0]}")
    for match in _SYMBOL.finditer(text):
        yield normalized(f"symbol:{match[0]}")
    for match in _WORD.finditer(text):
        if match[0] in _PROGRAMS and match[0] not in _PLAIN_WORDS:
            yield normalized(f"tool:{match[0]}")
