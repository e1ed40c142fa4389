"""Change one value in a YAML file; the other lines stay, and so do comments."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from ouro.errors import ConfigError
from ouro.utils.late_pattern import late_pattern
from ouro.utils.yaml import parse_table, plain_values
from ouro.utils.yaml_nodes import Node, Sequence, YamlTable

_PLAIN_WORD = late_pattern(r"[A-Za-z][\w./*-]*")
_COMMENT_START = late_pattern(r"\s+#")


def as_scalar(value: object) -> str:
    """A number or a text as YAML; quoted unless it is a plain word."""
    text = str(value)
    return text if isinstance(value, int) or _PLAIN_WORD.fullmatch(text) else json.dumps(text)


def with_value(text: str, path: Iterable[str], value: str, name: str) -> str:
    """Return `text` with a new value at the keys of `path`. The value is given as YAML; an empty
    one removes the key. Other lines stay, and so does the comment behind the value.

    A new value is inserted at the beginning of its table, a new table at the end. Only tables with
    one key on each line can be changed. With other layouts the result may have another meaning, so
    the caller must compare it.

    Raises:
        ConfigError: `text` is not YAML, or uses an unsupported feature.
    """
    table = parse_table(text, name)
    if text and not text.endswith("\n"):
        text += "\n"
    lines = text.splitlines(keepends=True)
    place = _descend(table, list(path), lines)
    first, last = _span_of(place, line_count=len(lines))
    comment = _comment_of(lines[first - 1 : last], name)
    step = place.indent or "  "
    # A line for each key that is not there yet; the last one has the value.
    new_lines = [
        f"{place.indent}{step * depth}{as_scalar(key)}:" for depth, key in enumerate(place.keys)
    ]
    new_lines[-1] += f" {value}{comment}"
    lines[first - 1 : last] = [f"{line}\n" for line in new_lines] if value else []
    return "".join(lines)


class _Place(NamedTuple):
    """Where the value is, or where it is to be inserted."""

    table: YamlTable
    """The innermost table on the way to it that exists."""
    heading: int
    """The line of the key of this table; 0: the table is the document."""
    indent: str
    """The indentation of the keys of this table."""
    keys: list[str]
    """The key in this table, then the keys in the tables below it that are still missing."""


def _descend(table: YamlTable, words: list[str], lines: list[str]) -> _Place:
    """Follow the keys of `words`, all but the last, to the innermost table that exists. If that is an
    empty one (`models: {}`), its line is changed in `lines`, so that keys can follow.
    """
    heading, indent = 0, ""
    while len(words) > 1 and words[0] in table.entries:
        word, *words = words
        node, heading = table.entries[word], table.key_lines[word]
        if isinstance(node, YamlTable) and node.entries:
            table, first = node, lines[min(node.key_lines.values()) - 1]
            indent = first[: len(first) - len(first.lstrip())]
            continue
        if isinstance(node, YamlTable):  # `models: {}`
            lines[heading - 1] = f"{indent}{as_scalar(word)}:\n"
        table, indent = YamlTable(entries={}, key_lines={}, line=heading), indent + (indent or "  ")
    return _Place(table, heading, indent, words)


def _span_of(place: _Place, line_count: int) -> tuple[int, int]:
    """The first and the last line, from 1, of the value at the first of `place.keys`. If the table
    has no such key, the first is the line at which to insert it, and the last is the line before
    that: a single key is inserted at the beginning of the table, a key of a new table at the end.

    Args:
        line_count: the number of lines of the document.
    """
    table, heading, key = place.table, place.heading, place.keys[0]
    old = table.entries.get(key)
    if old is not None:
        begin = table.key_lines[key]
        return begin, max(begin, _last_line(old))
    if len(place.keys) > 1:
        last = _last_line(table) if heading else line_count
        return last + 1, last
    begin = heading + 1 if heading else min(table.key_lines.values(), default=line_count + 1)
    return begin, begin - 1


def _comment_of(lines: list[str], name: str) -> str:
    """The comment behind the value of a single line, with the blanks before it; empty if there is
    none.
    """
    text = lines[0].strip() if len(lines) == 1 else ""
    # A `#` may be inside of the value: it begins a comment if the value is the same without it.
    for comment in _COMMENT_START.finditer(text):
        head = text[: comment.start()]
        try:
            with_rest, without_rest = (parse_table(part, name) for part in (text, head))
            is_comment = plain_values(without_rest) == plain_values(with_rest)
        except ConfigError:  # it is inside of a quoted value
            continue
        if is_comment:
            return text[comment.start() :]
    return ""


def _last_line(node: Node) -> int:
    """The last line of `node`; comments after it do not belong to it."""
    inner: Iterable[Node] = ()
    if isinstance(node, YamlTable | Sequence):
        inner = node.entries.values() if isinstance(node, YamlTable) else node.items
    return max([node.line, *map(_last_line, inner)])
