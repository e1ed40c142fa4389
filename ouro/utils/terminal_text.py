"""Text from outside, made harmless for a terminal."""

from __future__ import annotations

import re

_STRING_SEQUENCES = re.compile(r"(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f]).*?(?:\x07|\x1b\\|\x9c|\Z)", re.DOTALL)
_CONTROL_SEQUENCES = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?|\x1b[ -/]*[0-~]?")
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff\ud800-\udfff]"
)


def clean(text: str) -> str:
    """`text` without terminal control: no escape sequences, control or invisible direction characters.

    Newlines and tabs stay; a carriage return before a newline goes; other characters are left as they are.
    The zero-width joiner is kept between emoji, where it makes one picture of several.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _STRING_SEQUENCES.sub("", text)
    text = _CONTROL_SEQUENCES.sub("", text)
    return _INVISIBLE.sub(_replacement, text)


def one_line(text: str, width: int = 160) -> str:
    """The beginning of `text` on one line: cleaned, and cut to `width` characters with an ellipsis."""
    line = " ".join(clean(text).split())
    return line if len(line) <= width else f"{line[: max(0, width - 1)]}…"


def escaped(text: str) -> str:
    """`text` with every control or invisible character written out (`\\x1b`, `\\u202e`), for approvals."""
    return _INVISIBLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def _replacement(match: re.Match[str]) -> str:
    if match[0] == "\u200d":
        around = match.string[max(0, match.start() - 1) : match.end() + 1]
        if len(around) == 3 and ord(around[0]) > 0x2000 and ord(around[2]) > 0x2000:
            return match[0]
    return ""
