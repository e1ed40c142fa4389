"""Paths that are not UTF-8, as text: Unix allows any bytes in a name, but JSON, YAML, SQLite and a
model's messages hold only text.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from ouro.utils.late_pattern import late_pattern
from ouro.utils.text import readable_bytes

_ESCAPED = late_pattern(r"\\(?:x([89a-fA-F][0-9a-fA-F])|([23][0-7]{2}))")
"""A byte as `path_text` writes it, and as git does: `\\xff`, `\\377`."""


def path_text(path: str | os.PathLike[str]) -> str:
    """`path` as text: `\\xff` for each byte that is not UTF-8; any other path is unchanged."""
    return readable_bytes(os.fspath(path))


def text_path(text: str) -> Path:
    """The path that a text of `path_text` names: as it is written if it exists, or has no escaped
    byte.
    """
    if "\\" not in text or os.path.lexists(text):
        return Path(text)
    return Path(unescape_bytes(text))


def unescape_bytes(text: str) -> str:
    """`text` with the bytes that `\\xff` or `\\377` stand for, as Python writes them in a path."""
    pieces = _ESCAPED.sub(_byte, text)
    return os.fsdecode(os.fsencode(pieces))


def _byte(match: re.Match[str]) -> str:
    number = int(match[1], 16) if match[1] else int(match[2], 8)
    return chr(0xDC00 + number)
