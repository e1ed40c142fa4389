"""Paths that are not UTF-8, as text: Unix allows any bytes in a name, but JSON, YAML, SQLite and a
model's messages hold only text.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from ouro.utils.late_pattern import late_pattern
from ouro.utils.text import readable_bytes

_ESCAPED_BYTE = late_pattern(r"\\(?:x(?P<hex>[89a-fA-F][0-9a-fA-F])|(?P<octal>[23][0-7]{2}))")
"""A byte as `path_text` writes it, and as git does: `\\xff`, `\\377`."""
_ENDS_LINE = late_pattern("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""A character with which a name does not stay on one line."""


def path_text(path: str | os.PathLike[str]) -> str:
    """`path` as text: `\\xff` for each byte that is not UTF-8; any other path is unchanged."""
    return readable_bytes(os.fspath(path))


def listed_name(path: str) -> str:
    """`path` as text on one line, for a list of names: a line end in a name is `\\u000a` there, and
    bytes that are not UTF-8 are written as `path_text` does.
    """
    escaped = _ENDS_LINE.sub(lambda match: f"\\u{ord(match[0]):04x}", path)
    return readable_bytes(escaped)


def text_path(text: str) -> Path:
    """The path that `path_text` wrote as `text`. If a file exists whose name is exactly `text`, that
    file is meant, although its name looks like an escaped byte.
    """
    if "\\" not in text or os.path.lexists(text):
        return Path(text)
    return Path(unescape_bytes(text))


def unescape_bytes(text: str) -> str:
    """`text` with the bytes that `\\xff` or `\\377` stand for, as Python writes them in a path."""
    unescaped = _ESCAPED_BYTE.sub(_raw_byte, text)
    # Bytes beside each other may be a character of UTF-8.
    return os.fsdecode(os.fsencode(unescaped))


def _raw_byte(match: re.Match[str]) -> str:
    """The surrogate that stands for an escaped byte in a path of Python."""
    number = int(match["hex"], 16) if match["hex"] else int(match["octal"], 8)
    return chr(0xDC00 + number)
