"""What a project declares about the text of a file: `.editorconfig` and git's attributes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path

from ouro.utils.files import read_start

_MAX_CONFIG = 1 << 16
_GIT_TIMEOUT = 5
MAX_CHOICES = 1_000
"""Maximum choices of the braces in a pattern: their number doubles with each pair."""
_LINE_ENDINGS = {"crlf": "\r\n", "lf": "\n", "cr": "\r"}


def declared_newline(path: Path) -> str:
    """The line ending that the project declares for a file: `end_of_line` in `.editorconfig`, else
    the attribute `eol` of git. Empty if it declares none.
    """
    if newline := _LINE_ENDINGS.get(editorconfig_value(path, "end_of_line")):
        return newline
    # Without such a file git is not started: 5 ms for each new file.
    if not any((folder / ".gitattributes").exists() for folder in path.parents):
        return ""
    return _LINE_ENDINGS.get(git_attribute(path, "eol"), "")


def editorconfig_value(path: Path, setting: str) -> str:
    """The value of a setting for a file in the nearest .editorconfig that has one, in lower case; empty
    if there is none.
    """
    for folder in path.parents:
        text = read_start(folder / ".editorconfig", _MAX_CONFIG)
        value, is_root = _value_in(text, os.path.relpath(path, folder), setting)
        if value or is_root:
            return value
    return ""


def _value_in(text: str, name: str, setting: str) -> tuple[str, bool]:
    """Read the text of an `.editorconfig` for the file `name`. Returns the value of the setting in the
    last section that matches the file (empty if none sets it), and whether the text says that no
    `.editorconfig` above it counts (`root = true`).
    """
    value, is_root, applies = "", False, False
    for line in map(str.strip, text.splitlines()):
        key, _, given = (part.strip().lower() for part in line.partition("="))
        if line.startswith("[") and line.endswith("]"):
            applies = _section_matches(line[1:-1], name)
        elif key == setting and applies:
            value = given
        elif key == "root":
            is_root = given == "true"
    return value, is_root


def _section_matches(pattern: str, name: str) -> bool:
    """Whether the pattern of a section in `.editorconfig` matches a file: `*.{c,h}`, `docs/**`. Of
    a pattern with more choices only the first MAX_CHOICES count.
    """
    for choice in islice(_expand_braces(pattern), MAX_CHOICES):
        target = name if "/" in choice.strip("/") else name.rpartition("/")[2]
        if fnmatchcase(target, choice.lstrip("/")):
            return True
    return False


def _expand_braces(pattern: str) -> Iterator[str]:
    """Yields the patterns without braces that a pattern stands for: `*.c` and `*.h` for `*.{c,h}`."""
    braces = re.search(r"\{([^{}]*,[^{}]*)\}", pattern)
    if braces is None:
        yield pattern
        return
    before, after = pattern[: braces.start()], pattern[braces.end() :]
    for choice in braces[1].split(","):
        yield from _expand_braces(before + choice + after)


def git_attribute(path: Path, attribute: str) -> str:
    """The value of an attribute of a file in .gitattributes; empty if it has none, or is only set
    or unset, without a value. The file and its folder need not exist.
    """
    from ouro.utils.git import Git, GitError  # imported late: few files are asked about

    folder = next((folder for folder in path.parents if folder.is_dir()), path.parent)
    try:
        answer = Git(folder, _GIT_TIMEOUT).ask(
            "check-attr", attribute, "--", os.path.relpath(path, folder)
        )
    except GitError:
        return ""
    value = answer.rpartition(": ")[2].strip()
    return "" if value in ("unspecified", "set", "unset") else value
