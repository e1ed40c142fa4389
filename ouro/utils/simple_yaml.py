"""Read the YAML of most settings files without the YAML library: one key a line, nested by spaces,
with values of one line.

Loading the YAML library takes a twentieth of the CPU of a headless answer. What is not simple is left
to it, and so is what is wrong: it writes the error messages. `tests/utils/test_simple_yaml.py`
compares both.
"""

from __future__ import annotations

import string
from typing import NamedTuple

from ouro.utils.yaml_nodes import Node, Scalar, Sequence, YamlTable

_MAX_NESTING = 8
_MAX_KEY_LENGTH = 100
_FIRST_OF_WORD = frozenset(string.ascii_letters + string.digits + "_")
_IN_WORD = _FIRST_OF_WORD | set("./@+:-")
_SIGNS_OF_YAML = frozenset("-?:,[]{}#&*!|>'\"%@`")
"""A value without quotes that starts with one of these means something else."""


class _NotSimpleError(Exception):
    """The text is for the YAML library."""


class _Line(NamedTuple):
    number: int
    indent: int
    content: str
    """Without spaces around it."""


def read_simple_yaml(text: str) -> YamlTable | None:
    """The keys of a YAML text, the same as the YAML library reads. None if the text is empty or
    wrong, or not simple.
    """
    try:
        lines = _split_lines(text)
        if not lines or lines[0].indent:
            return None
        block, end = _read_block(lines, start=0, levels=_MAX_NESTING)
    except _NotSimpleError:
        return None
    is_complete = end == len(lines)
    return block if isinstance(block, YamlTable) and is_complete else None


def _split_lines(text: str) -> list[_Line]:
    """The lines that are not empty and not only a comment. Raises _NotSimpleError for tabs and other
    control characters.
    """
    lines = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.isprintable():
            raise _NotSimpleError
        content = line.strip(" ")
        if content and not content.startswith("#"):
            indent = len(line) - len(line.lstrip(" "))
            lines.append(_Line(number, indent, content))
    return lines


def _is_item(line: _Line) -> bool:
    """Whether the line is one of a list."""
    return line.content.startswith("- ")


def _read_block(lines: list[_Line], start: int, levels: int) -> tuple[Node, int]:
    """Read the table or list that starts at `lines[start]`. Returns it, and the index of the next
    line that does not belong to it, which is indented less. `levels` is how many levels of tables
    and lists may still follow, with this one.
    """
    if levels <= 0:
        raise _NotSimpleError
    if _is_item(lines[start]):
        return _read_list(lines, start, levels)
    return _read_table(lines, start, levels)


def _read_list(lines: list[_Line], start: int, levels: int) -> tuple[Sequence, int]:
    """Read a list with one item a line, from the line `start`. Returns it, and the index of the
    next line that does not belong to it: a line that is indented less, or has no dash. A table as
    an item has its first key in the line of the dash. `levels` is how many more levels of tables
    are allowed.
    """
    indent = lines[start].indent
    items: list[Node] = []
    index = start
    while index < len(lines) and lines[index].indent >= indent:
        line = lines[index]
        if line.indent == indent and not _is_item(line):
            break
        item = line.content[2:].strip(" ")
        if line.indent > indent or not item or item.startswith("#"):
            raise _NotSimpleError
        if _has_key(item):
            lines[index] = line._replace(indent=indent + line.content.index(item), content=item)
            table, index = _read_table(lines, index, levels - 1)
            items.append(table)
        else:
            items.append(_read_value(item, line.number))
            index += 1
    return Sequence(tuple(items), lines[start].number), index


def _read_table(lines: list[_Line], start: int, levels: int) -> tuple[YamlTable, int]:
    """Read a table with one key a line, from the line `start`. Returns it, and the index of the
    next line that does not belong to it. The value of a key may be on the lines below, with a
    deeper indent. `levels` is how many more levels are allowed.
    """
    indent = lines[start].indent
    entries: dict[str, Node] = {}
    key_lines: dict[str, int] = {}
    index = start
    while index < len(lines) and lines[index].indent >= indent:
        line = lines[index]
        if line.indent > indent:
            raise _NotSimpleError
        key, value = _split_key(line.content)
        if key in entries:
            raise _NotSimpleError
        index += 1
        key_lines[key] = line.number
        after = lines[index] if index < len(lines) else None
        has_deeper_block = after is not None and after.indent > indent
        has_list = after is not None and after.indent == indent and _is_item(after)
        if value and not value.startswith("#"):
            entries[key] = _read_value(value, line.number)
        elif has_deeper_block or has_list:
            entries[key], index = _read_block(lines, index, levels - 1)
        else:
            entries[key] = Scalar(text="", line=line.number)
    return YamlTable(entries, key_lines, lines[start].number), index


def _has_key(content: str) -> bool:
    """Whether a line is a key with its value. Texts in quotes or brackets may contain a colon, too."""
    return content[0] in _FIRST_OF_WORD and (": " in content or content.endswith(":"))


def _split_key(content: str) -> tuple[str, str]:
    """The key of a line, and what stands after its colon."""
    key, colon, value = content.partition(": ")
    if not colon and key.endswith(":"):
        key = key[:-1]
    elif not colon:
        raise _NotSimpleError
    if len(key) > _MAX_KEY_LENGTH or not _is_word(key):
        raise _NotSimpleError
    return key, value.strip(" ")


def _is_word(text: str) -> bool:
    """Whether the text has no sign that means something in YAML, as a key or within brackets."""
    return text[:1] in _FIRST_OF_WORD and _IN_WORD.issuperset(text) and not text.endswith(":")


def _read_value(text: str, line: int) -> Node:
    """A value of one line, without the comment after it."""
    first = text[0]
    if first in "\"'":
        return Scalar(_read_quoted(text), line, plain=False)
    value = text.partition(" #")[0].rstrip(" ")
    if first == "[":
        items = _split_brackets(value, "]")
        return Sequence(tuple(_read_inline_value(item, line) for item in items), line)
    if first == "{":
        return _read_inline_table(value, line)
    is_dash_of_word = first == "-" and value[1:2] not in {"", " "}
    if first in _SIGNS_OF_YAML and not is_dash_of_word:
        raise _NotSimpleError
    if ": " in value or value.endswith(":"):
        raise _NotSimpleError
    return Scalar(value, line)


def _read_quoted(text: str) -> str:
    """What is between the quotes at the beginning of a value. Raises _NotSimpleError if the closing
    quote is missing, or if there are escapes, or more than a comment after it.
    """
    quote = text[0]
    inside, closing, rest = text[1:].partition(quote)
    has_only_a_comment = not rest or (rest.lstrip(" ").startswith("#") and rest[0] == " ")
    has_escapes = quote == '"' and "\\" in inside
    if not closing or has_escapes or not has_only_a_comment:
        raise _NotSimpleError
    return inside


def _split_brackets(text: str, closing: str) -> list[str]:
    """What is between brackets, split at its commas; empty if nothing is. Raises _NotSimpleError if
    the text does not end with the closing bracket.
    """
    if not text.endswith(closing):
        raise _NotSimpleError
    inside = text[1:-1].strip(" ")
    return [item.strip(" ") for item in inside.split(",")] if inside else []


def _read_inline_table(text: str, line: int) -> YamlTable:
    """A table between braces: `{window: 8000, api_base: http://localhost:8080/v1}`."""
    entries: dict[str, Node] = {}
    for item in _split_brackets(text, "}"):
        key, value = _split_key(item)
        if key in entries:
            raise _NotSimpleError
        entries[key] = _read_inline_value(value, line)
    return YamlTable(entries, dict.fromkeys(entries, line), line)


def _read_inline_value(text: str, line: int) -> Scalar:
    """A value between brackets: words, or a text in quotes. Raises _NotSimpleError for anything
    else, also for a text with a comma in its quotes: it was split there, and lacks a quote.
    """
    if text[:1] in {"'", '"'}:
        return Scalar(_read_quoted(text), line, plain=False)
    if not text or not all(map(_is_word, text.split(" "))):
        raise _NotSimpleError
    return Scalar(text, line)
