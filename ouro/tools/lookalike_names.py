"""Find the file that a model means although its name has other bytes: é in one or two characters, a
no-break space, a curly quote, bytes that are not UTF-8.

A model copies a name from output that shows such characters as ordinary ones: the name of each
macOS screenshot has a narrow no-break space before "PM".
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable
from pathlib import Path

from ouro.errors import ToolError
from ouro.safety import Workspace, reserved_area
from ouro.tools.text_match import PUNCTUATION
from ouro.utils.late_pattern import late_pattern
from ouro.utils.path_encoding import path_text, unescape_bytes

_INVISIBLE_CHARACTER = late_pattern("[\u00ad\u200b-\u200f\u2060\ufe00-\ufe0f\ufeff]")
_UNREADABLE_BYTES = late_pattern("[\ufffd\udc80-\udcff]+")
_CODE_POINT = late_pattern(r"\\u([0-9a-fA-F]{4})")
_MAX_SHOWN = 5


def find_existing(
    workspace: Workspace, text: str, is_meant: Callable[[Path], bool] = lambda _path: True
) -> str:
    """The path of the file or folder that the path `text` means. That is `text` itself if something
    exists there.

    Otherwise each name in the path is replaced by the only name in its folder that looks like it.
    If no name looks like it, this and all further names are new: they stay as they were written.

    Args:
        is_meant: whether a file that only looks alike may be taken; if not, `text` is returned.

    Raises:
        ToolError: several names look like it; the message names their characters.
    """
    literal = workspace.root / os.path.expanduser(text)  # noqa: PTH111 - Path's raises for ~nobody
    if os.path.lexists(literal):
        return text
    existing = Path(literal.anchor)
    parts = literal.parts[1:]
    for index, part in enumerate(parts):
        name = _find_name(existing, part)
        if not name:
            new = Path(existing, *parts[index:])
            return text if new == literal else str(new)
        existing /= name
    return str(existing) if is_meant(workspace.resolve(str(existing))) else text


def _find_name(folder: Path, wanted: str) -> str:
    """The name in `folder` that `wanted` means: itself, what its escapes stand for, or the only
    name that looks like it. Empty if there is none. Raises ToolError if several names look like it.
    """
    if os.path.lexists(folder / wanted):
        return wanted
    if reserved_area(folder) is not None:  # an error must not list a place of keys
        return ""
    unescaped = _unescape(wanted)
    try:
        names = os.listdir(folder)  # noqa: PTH208 (strings)
    except OSError:
        return ""
    if unescaped in names:
        return unescaped
    wanted_appearance = _appearance(unescaped)
    similar = sorted(name for name in names if _appearance(name) == wanted_appearance)
    if len(similar) > 1:
        descriptions = "; ".join(map(_describe_name, similar[:_MAX_SHOWN]))
        raise ToolError(
            f"`{path_text(wanted)}` is not in {path_text(folder)}, and {len(similar)} names look"
            f" like it: {descriptions}. Write one of them as it is here."
        )
    return similar[0] if similar else ""


def _unescape(name: str) -> str:
    """The name with the bytes and characters that its escapes stand for: `\\xff`, git's `\\377`, and
    `\\u202f`.
    """
    if "\\" not in name:
        return name
    name = _CODE_POINT.sub(lambda match: chr(int(match[1], 16)), name)
    try:
        return unescape_bytes(name)
    except UnicodeEncodeError:  # `\\ud83d` is half of a character
        return name


def _appearance(name: str) -> str:
    """What a name looks like: a text that is the same for all names that look alike."""
    visible = _INVISIBLE_CHARACTER.sub("", unicodedata.normalize("NFC", name))
    return _UNREADABLE_BYTES.sub("\ufffd", visible.translate(PUNCTUATION))


def _describe_name(name: str) -> str:
    """The name for an error message. A character that looks like an ordinary one is written as an
    escape, and explained behind the name.
    """
    odd_chars = [char for char in dict.fromkeys(name) if _is_odd(char)]
    escaped = "".join(f"\\u{ord(char):04x}" if _is_odd(char) else char for char in name)
    about = ", ".join(
        f"U+{ord(char):04X} {unicodedata.name(char, 'unknown')}" for char in odd_chars
    )
    return f"`{path_text(escaped)}`" + (f" ({about})" if about else "")


def _is_odd(char: str) -> bool:
    """Whether a character is not visible, changes the one before it (as an accent does), or looks
    like an ordinary punctuation mark.
    """
    is_mark = bool(unicodedata.combining(char)) or bool(_INVISIBLE_CHARACTER.match(char))
    return is_mark or ord(char) in PUNCTUATION
