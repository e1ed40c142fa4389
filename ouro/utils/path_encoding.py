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


def path_text(path: str | os.PathLike[str]) -> str:
    """`path` as text: `\\xff` for each byte that is not UTF-8; any other path is unchanged."""
    return readable_bytes(os.fspath(path))


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
