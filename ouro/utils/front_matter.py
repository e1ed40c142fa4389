"""Front matter: the YAML between two `---` lines at the begin of a Markdown file."""

from __future__ import annotations

import re
from typing import Any

from ouro.errors import ConfigError
from ouro.utils.late_pattern import late_pattern
from ouro.utils.yaml import parse_table, plain_values

FRONT_MATTER = late_pattern(r"\A\ufeff?---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
"""The text between the lines, of a file with `\\n` at the ends of its lines."""
_KEY = late_pattern(r"([A-Za-z][\w-]*):[ \t]*(.*)")


def split_front_matter(text: str) -> tuple[dict[str, Any], str]:
    """The values of the front matter, and the text behind it. Without front matter: none, and all of the text.

    A value is a str (also a number or `true`), a list or a dict of such. Files of other programs often hold what is
    not YAML (`description: Use when: …`, `argument-hint: [a] [b]`): those are read line by line.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    match = FRONT_MATTER.match(text)
    if match is None:
        return {}, text
    try:
        values = plain_values(parse_table(match[1], ""))
    except ConfigError:
        values = _by_line(match[1])
    return values, text[match.end() :]


def words_in(value: Any) -> list[str]:
    """A list that is written as a list, or as text with commas: `Read, Grep`, `[Read, Grep]`."""
    if isinstance(value, str):
        # A comma within parentheses belongs to the word: `Bash(git diff:*, --stat)`.
        value = re.split(r",(?![^()]*\))", value)
    return [word for item in value if (word := str(item).strip())] if isinstance(value, list) else []


def _by_line(text: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    last = ""
    for line in text.splitlines():
        if match := _KEY.fullmatch(line):
            last, value = match[1], match[2].strip()
            values[last] = "" if value in {">", "|", ">-", "|-"} else _unquoted(value)
        elif last and line.strip():
            values[last] = f"{values[last]} {line.strip().removeprefix('- ')}".strip()
    return values


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value
