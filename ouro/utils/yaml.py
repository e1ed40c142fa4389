"""YAML for settings: a tree with line numbers, converted to sections; rarely used YAML features are
refused.

Also front matter: the YAML between two `---` lines at the beginning of a Markdown file.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import (
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from ouro.errors import ConfigError
from ouro.utils.files import open_regular
from ouro.utils.late_pattern import late_pattern
from ouro.utils.sections import is_section, section_fields
from ouro.utils.simple_yaml import read_simple_yaml
from ouro.utils.yaml_nodes import Node, Scalar, Sequence, YamlTable

MAX_BYTES = 1_000_000
MAX_DEPTH = 32


def read_yaml(path: Path, name: str = "") -> YamlTable:
    """The keys of a YAML file; empty if it is missing or empty. `name` is its name in messages.

    Raises ConfigError if it cannot be read, is not YAML, or uses an unsupported feature.
    """
    name_shown = name or str(path)
    try:
        with open_regular(path) as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ConfigError(
                f"{name_shown} is larger than {MAX_BYTES:,} bytes; a settings file is small."
            )
        text = data.decode().removeprefix("\ufeff")
    except FileNotFoundError:
        return YamlTable(entries={}, key_lines={})
    except OSError as error:
        raise ConfigError(f"{name_shown} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name_shown} is not UTF-8 text (byte {error.start}).") from error
    return parse_table(text, name_shown)


def parse_table(text: str, name: str) -> YamlTable:
    """The keys of a YAML text; empty if the text is empty. `name` is its name in messages.

    Raises ConfigError if it is not YAML, uses an unsupported feature, or is not a table.
    """
    node = parse_yaml(text, name)
    if isinstance(node, YamlTable):
        return node
    if isinstance(node, Scalar) and node.is_null:
        return YamlTable(entries={}, key_lines={})
    raise ConfigError(f"{name}:{node.line}: `key: value` lines are expected here.")


def parse_yaml(text: str, name: str) -> Node:
    """The only document in `text`. Raises ConfigError, which names the line, if it is not YAML, or
    has aliases, tags, repeated keys, several documents or deep nesting.
    """
    if not text.strip():
        return Scalar(text="")
    if simple := read_simple_yaml(text):
        return simple
    return read_any_yaml(text, name)


def read_any_yaml(text: str, name: str) -> Node:
    """Parse a text with the YAML library, which is slower than `read_simple_yaml` but knows all of
    YAML. Returns and raises the same as `parse_yaml`; a text without a document is an empty scalar.
    """
    reader = _NodeReader(name)
    try:
        root = read_events(text, reader.scalar, reader.sequence, reader.mapping, reader.refuse)
    except SyntaxError as error:
        # An error at the end of the text has the line after the last one.
        line = f":{min(error.lineno, len(text.splitlines()))}" if error.lineno else ""
        raise ConfigError(f"{name}{line}: not YAML: {error.msg}.") from error
    return root[0] if root else Scalar(text="")


def plain_values(node: Node) -> Any:
    """A str for each scalar (empty for null), or a list or a dict of these."""
    if isinstance(node, Scalar):
        return "" if node.is_null else node.text
    if isinstance(node, Sequence):
        return [plain_values(item) for item in node.items]
    return {key: plain_values(item) for key, item in node.entries.items()}


def json_values(node: Node) -> Any:
    """The values as in JSON: what has no quotes may be a number, a boolean or null."""
    if isinstance(node, Sequence):
        return [json_values(item) for item in node.items]
    if isinstance(node, YamlTable):
        return {key: json_values(item) for key, item in node.entries.items()}
    if node.is_null:
        return None
    if not node.plain:
        return node.text
    import json  # imported late: the first frame reads none of these values

    with suppress(ValueError):
        return json.loads(node.text.lower() if node.text in _JSON_WORDS else node.text)
    return node.text


_JSON_WORDS = {"True", "TRUE", "False", "FALSE"}
"""Booleans of YAML that JSON writes in lower case."""


def read_events(
    text: str | bytes,
    scalar: Callable[[Any], Any],
    sequence: Callable[[list[Any], Any], Any],
    mapping: Callable[[list[Any], Any], Any],
    refuse: Callable[[Any], Exception],
    max_depth: int = MAX_DEPTH,
) -> list[Any]:
    """Read the only document in `text`. Returns a list with its value, or an empty one if there is no
    document. What could grow without limit is refused before.

    Args:
        scalar: makes a value from its event.
        sequence: makes a value from its items and its first event.
        mapping: makes a value from its keys and values, in turn, and its first event.
        refuse: returns the error for an alias, an anchor, a tag, a level over `max_depth`, or a
            second document.

    Raises:
        SyntaxError: not YAML.
    """
    import yaml  # many sessions read none

    parser: Any = None
    makers: dict[type, Callable[[list[Any], Any], Any]] = {
        yaml.MappingEndEvent: mapping,
        yaml.SequenceEndEvent: sequence,
    }
    try:
        # This may already raise a YAMLError, for a character that YAML does not allow.
        parser = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
        parser.get_event()  # skips the start of the stream
        parser.get_event()  # and that of the document
        root = _read_document(parser.get_event, scalar, makers, refuse, max_depth)
        if root and type(event := parser.get_event()) is not yaml.StreamEndEvent:
            raise refuse(event)
    except yaml.YAMLError as error:
        raise _syntax_error(error) from error
    finally:
        if parser is not None:
            parser.dispose()
    return root


def _read_document(
    next_event: Callable[[], Any],
    scalar: Callable[[Any], Any],
    makers: Mapping[type, Callable[[list[Any], Any], Any]],
    refuse: Callable[[Any], Exception],
    max_depth: int,
) -> list[Any]:
    """Build the value of one document from its events, without recursion. Returns a list with the
    value, or an empty one if there is no document. Raises what `refuse` returns.

    Args:
        makers: the function that makes the value of a sequence or a mapping, by the type of its end
            event. It gets the items and the start event.
    """
    import yaml

    ends = (yaml.DocumentEndEvent, yaml.StreamEndEvent, type(None))
    root: list[Any] = []
    # The items up to now, and the start event, of each collection around the next event.
    open_collections: list[tuple[list[Any], Any]] = []
    items = root
    while True:
        event = next_event()
        kind = type(event)
        if kind is yaml.ScalarEvent and event.anchor is None and event.tag is None:
            items.append(scalar(event))
        elif kind in makers:
            finished, start = open_collections.pop()
            items = open_collections[-1][0] if open_collections else root
            items.append(makers[kind](finished, start))
        elif kind in ends:
            return root
        else:
            is_too_deep = len(open_collections) >= max_depth
            # An alias has an anchor, too, so it is refused here.
            if event.anchor is not None or event.tag is not None or is_too_deep:
                raise refuse(event)
            items = []
            open_collections.append((items, event))


def _syntax_error(error: Exception) -> SyntaxError:
    """The error of the YAML library as one that names the line; 0 if it is not known."""
    mark = getattr(error, "problem_mark", None)
    reason = getattr(error, "problem", None) or getattr(error, "reason", None)
    return SyntaxError(reason or "cannot be read", (None, mark.line + 1 if mark else 0, None, None))


class _NodeReader:
    """Makes nodes from events, for `read_events`. `name`: the name of the file in messages."""

    def __init__(self, name: str) -> None:
        self._name = name

    def scalar(self, event: Any) -> Node:
        return Scalar(event.value, event.start_mark.line + 1, plain=bool(event.implicit[0]))

    def sequence(self, items: list[Node], start: Any) -> Node:
        return Sequence(tuple(items), start.start_mark.line + 1)

    def mapping(self, items: list[Node], start: Any) -> Node:
        """A table of keys and values, which come in turn. Raises ConfigError for a repeated key."""
        entries: dict[str, Node] = {}
        key_lines: dict[str, int] = {}
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, Scalar):
                raise ConfigError(f"{self._name}:{key.line}: a key must be a word.")
            if key.text in entries:
                first = f"first on line {key_lines[key.text]}"
                raise ConfigError(
                    f"{self._name}:{key.line}: `{key.text}` is here a second time ({first})."
                )
            key_lines[key.text] = key.line
            entries[key.text] = value
        return YamlTable(entries, key_lines, start.start_mark.line + 1)

    def refuse(self, event: Any) -> ConfigError:
        """The error for an event that is not allowed, with its line."""
        what = f"nested more than {MAX_DEPTH} deep"
        if type(event).__name__ == "DocumentStartEvent":
            what = "a second document (`---`) is not read; use one"
        elif event.anchor is not None:
            what = "anchors and aliases (`&`, `*`) are not read here; quote the text if it is one"
        elif event.tag is not None:
            what = f"tags (`{event.tag}`) are not read here; quote the text if it is one"
        return ConfigError(f"{self._name}:{event.start_mark.line + 1}: {what}.")


T = TypeVar("T")
TRUE = {"true", "yes", "on"}
FALSE = {"false", "no", "off"}
MAX_SHOWN = 20
"""Characters of a wrong value that an error shows; a longer one may be a key."""


class _Field(NamedTuple):
    name: str
    type: Any
    is_required: bool


def read_section(table: YamlTable, section: type[T], name: str, path: str = "") -> T:
    """A settings section or a struct from the keys of `table`. A field without a key has its
    default. Messages show `name`, the name of the file, and `path`, that of the table in it (empty:
    it is the whole file).

    Raises ConfigError for an unknown key, a wrong type, or if a required key is missing.
    """
    values = read_fields(table, section, name, path)
    for key, field in _fields_by_key(cast("Any", section)).items():
        if field.is_required and field.name not in values:
            raise ConfigError(f"{name}:{table.line}: `{path}` needs `{key}`.")
    return section(**values)


def read_fields(table: YamlTable, section: type[Any], name: str, path: str = "") -> dict[str, Any]:
    """The values that `table` sets, by the names of the fields. Raises ConfigError for an unknown
    key or a wrong type. `name` and `path` as in `read_section`.
    """
    fields, values = _fields_by_key(cast("Any", section)), {}
    for key, node in table.entries.items():
        if key not in fields:
            raise unknown_key(f"{name}:{table.key_lines[key]}", key, known=fields, path=path)
        full_path = f"{path}.{key}" if path else key
        values[fields[key].name] = convert(node, to=fields[key].type, name=name, path=full_path)
    return values


@cache
def _fields_by_key(section: Any) -> dict[str, _Field]:
    """The fields of a section or of a struct, by their keys in a file. A field whose key is a word of
    Python has a `_` at its end: `if_` and `async_` of hooks.
    """
    if is_section(section):
        types = get_type_hints(section)
        return {
            item.name.removesuffix("_"): _Field(
                item.name,
                types[item.name],
                item.is_required,
            )
            for item in section_fields(section)
        }
    from msgspec.structs import fields as struct_fields

    return {
        item.encode_name: _Field(item.name, item.type, item.required)
        for item in struct_fields(section)
    }


_MAX_NAMED = 20
"""Keys that an error names: all settings would fill the screen."""


def unknown_key(where: str, key: str, known: Iterable[str], path: str = "") -> ConfigError:
    """The error for an unknown key, which names the nearest valid key, or all of them.

    Args:
        where: the file and the line.
        known: the valid keys.
        path: that of the table; empty for the whole file.
    """
    import difflib

    prefix, names = f"{path}." if path else "", list(known)
    # Without the path, which all of them have: else the nearest name may be a different word.
    if near := difflib.get_close_matches(key, names, n=1):
        return ConfigError(
            f"{where}: unknown key `{prefix}{key}`. Did you mean `{prefix}{near[0]}`?"
        )
    valid_keys = ", ".join(f"`{prefix}{name}`" for name in names[:_MAX_NAMED])
    left_out = len(names) - _MAX_NAMED
    rest = f" and {left_out} more" if left_out > 0 else ""
    return ConfigError(f"{where}: unknown key `{prefix}{key}`. Known here: {valid_keys}{rest}.")


def convert(node: Node, to: Any, name: str, path: str) -> Any:
    """Return the value of `node` as the type `to`. If `to` may be None, an empty node is None.
    Raises ConfigError, with the expected type, if the node holds something else.

    `name` is the name of the file, and `path` that of the key (`models.main`); messages show both.
    `msgspec.convert` is not used: see "YAML is read in two ways" in docs/architecture.md.
    """
    if to is Any:
        return json_values(node)
    if get_origin(to) in {types.UnionType, Union}:
        if is_empty(node):
            return None
        to = _without_none(to)
    if is_section(to) or hasattr(to, "__struct_fields__"):
        return read_section(table_of(node, name, path), section=to, name=name, path=path)
    origin, arguments = get_origin(to), get_args(to)
    # The origin of a Literal is not a class.
    if isinstance(origin, type) and issubclass(origin, Mapping):
        entries = table_of(node, name, path).entries
        return {
            key: convert(item, to=arguments[1], name=name, path=f"{path}.{key}")
            for key, item in entries.items()
        }
    if origin is tuple:
        items = items_of(node, name, path)
        return tuple(convert(item, to=arguments[0], name=name, path=path) for item in items)
    if origin is Literal:
        return _one_of(node, words=arguments, name=name, path=path)
    return _single_value(node, to, name, path)


def _without_none(to: Any) -> Any:
    """`X` of `X | None`."""
    (kind,) = (kind for kind in get_args(to) if kind is not type(None))
    return kind


def is_empty(node: Node) -> bool:
    """Whether nothing is written there, or `null`."""
    return isinstance(node, Scalar) and node.is_null


def table_of(node: Node, name: str, path: str) -> YamlTable:
    """The node as a table; an empty one if all lines below a heading are commented out. Raises
    ConfigError if it is something else.
    """
    if isinstance(node, YamlTable):
        return node
    if is_empty(node):
        return YamlTable(entries={}, key_lines={}, line=node.line)
    raise _wrong_value_error(node, what="keys and values", name=name, path=path)


def items_of(node: Node, name: str, path: str) -> tuple[Node, ...]:
    """The items of a list; none if all of them are commented out. Raises ConfigError if it is
    something else.
    """
    if isinstance(node, Sequence):
        return node.items
    if is_empty(node):
        return ()
    raise _wrong_value_error(node, what="a list", name=name, path=path)


def _one_of(node: Node, words: tuple[str, ...], name: str, path: str) -> str:
    """The text of a node. Raises ConfigError if it is none of `words`."""
    if isinstance(node, Scalar) and node.text in words:
        return node.text
    raise _wrong_value_error(node, what="one of " + ", ".join(words), name=name, path=path)


def _single_value(node: Node, to: Any, name: str, path: str) -> Any:
    """The value of a node as a text, a number or a boolean, also if it is in quotes. Raises
    ConfigError if it has another type.
    """
    if isinstance(node, Scalar):
        reader = _READERS.get(to)
        if reader is None and not node.is_null:
            return node.text
        if reader is not None:
            with suppress(ValueError):  # reported below, with file and line
                return reader(node.text)
    raise _wrong_value_error(node, what=_NAMES_OF_TYPES.get(to, "text"), name=name, path=path)


def _wrong_value_error(node: Node, what: str, name: str, path: str) -> ConfigError:
    """The error for a value of the wrong kind. A long text is not shown: it may be a key in the
    wrong place.
    """
    where = f"{name}:{node.line}" if node.line else name
    if not isinstance(node, Scalar):
        actual = "a list" if isinstance(node, Sequence) else "keys and values"
    elif len(node.text) > MAX_SHOWN:
        actual = "what is there"  # the key may be in the wrong place
    else:
        actual = f"`{node.text}`" if node.text else "empty"
    return ConfigError(f"{where}: `{path}` must be {what}, not {actual}.")


def _parse_bool(text: str) -> bool:
    """The boolean that a word in TRUE or FALSE means, in any case, or `1` or `0`. Raises ValueError for
    another text.
    """
    word = text.lower()
    if word in TRUE or word == "1":
        return True
    if word in FALSE or word == "0":
        return False
    raise ValueError(text)


def _parse_int(text: str) -> int:
    """A whole number with at most 18 characters. Raises ValueError."""
    if not text.replace("_", "").removeprefix("-").isdecimal() or len(text) > 18:
        raise ValueError(text)
    return int(text)


def _parse_float(text: str) -> float:
    """A finite number. Raises ValueError."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


_READERS: Mapping[Any, Callable[[str], Any]] = {
    bool: _parse_bool,
    int: _parse_int,
    float: _parse_float,
}
_NAMES_OF_TYPES = {bool: "true or false", int: "a whole number", float: "a number"}


FRONT_MATTER = late_pattern(
    r"\A\ufeff?---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE
)
"""The front matter of a text with `\\n` line endings; its group is the YAML between the lines."""
_KEY_AND_VALUE = late_pattern(r"(?P<key>[A-Za-z][\w-]*):[ \t]*(?P<value>.*)")


def split_front_matter(text: str) -> tuple[dict[str, Any], str]:
    """Split a text into the values of its front matter and the text after it. Without front matter
    there are no values, and it is the whole text.

    A value is a str (also a number or `true`), or a list or a dict of these. Files of other
    programs often contain text that is not YAML (`description: Use when: …`, `argument-hint: [a]
    [b]`): these are read line by line.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    match = FRONT_MATTER.match(text)
    if match is None:
        return {}, text
    try:
        values = plain_values(parse_table(match[1], name=""))
    except ConfigError:
        values = _read_line_by_line(match[1])
    return values, text[match.end() :]


def words_in(value: Any) -> list[str]:
    """The words of a value that is a list, or a text with commas: `[Read, Grep]`, `Read, Grep`. Empty if
    it is neither.
    """
    if isinstance(value, str):
        # A comma within parentheses or braces belongs to the word: `Bash(git diff:*, --stat)`,
        # `*.{ts,tsx}`. Without the limit, 40 KB of commas took 4 s, also in a rule of a folder that
        # is not trusted.
        value = re.split(r",(?![^()]{0,500}\))(?![^{}]{0,500}\})", value)
    if not isinstance(value, list):
        return []
    return [word for item in value if (word := str(item).strip())]


def _read_line_by_line(text: str) -> dict[str, Any]:
    """The keys and values of a text that is not valid YAML, as far as they can be read: a line `key:
    value` sets a key, and any other line continues the value before it.
    """
    values: dict[str, Any] = {}
    key = ""
    for line in text.splitlines():
        if match := _KEY_AND_VALUE.fullmatch(line):
            key, value = match["key"], match["value"].strip()
            if value in {">", "|", ">-", "|-"}:  # the value is on the next lines
                value = ""
            elif len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
                value = value[1:-1]
            values[key] = value
        elif key and line.strip():
            values[key] = f"{values[key]} {line.strip().removeprefix('- ')}".strip()
    return values
