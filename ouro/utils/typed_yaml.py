"""YAML nodes as typed values; what does not fit is an error that names file, line and what would."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ouro.errors import ConfigError
from ouro.utils.yaml_tree import Node, Scalar, Sequence, Table

T = TypeVar("T")
TRUE = {"true", "yes", "on"}
FALSE = {"false", "no", "off"}
LONGEST_SHOWN = 20


def read_section(table: Table, section: type[T], name: str, path: str = "") -> T:
    """A frozen dataclass from the keys of `table`; what is not there keeps its default.

    Raises:
        ConfigError: an unknown key, a wrong type, or a key that is missing.
    """
    hints = field_types(section)
    values = {}
    for key, node in table.entries.items():
        full = f"{path}.{key}" if path else key
        if key not in hints:
            raise unknown_key(f"{name}:{table.key_lines[key]}", key, hints, path)
        values[key] = convert(node, hints[key], name, full)
    for each in fields(section):  # type: ignore[arg-type]
        if each.name not in values and each.default is MISSING and each.default_factory is MISSING:
            raise ConfigError(f"{name}:{table.line}: `{path}` needs `{each.name}`.")
    return section(**values)


def field_types(section: type) -> dict[str, Any]:
    """The names and types of a dataclass' fields."""
    return get_type_hints(section)


def unknown_key(where: str, key: str, known: Iterable[str], path: str = "") -> ConfigError:
    """The error for a key that nothing reads; `known` are the keys that could have been meant."""
    full, names = (f"{path}.{key}", [f"{path}.{name}" for name in known]) if path else (key, list(known))
    import difflib

    near = difflib.get_close_matches(full, names, n=1)
    if near:
        return ConfigError(f"{where}: unknown key `{full}`. Did you mean `{near[0]}`?")
    shown = ", ".join(f"`{name}`" for name in names)
    return ConfigError(f"{where}: unknown key `{full}`. Known here: {shown}.")


def convert(node: Node, to: Any, name: str, path: str) -> Any:
    """The value of `node` as the type `to`.

    Raises:
        ConfigError: it is something else; says what is expected.
    """
    origin = get_origin(to)
    if origin in {types.UnionType, Union}:
        if isinstance(node, Scalar) and node.is_null:
            return None
        (to,) = (each for each in get_args(to) if each is not type(None))
        origin = get_origin(to)
    if isinstance(node, Scalar) and node.is_null:  # a heading whose lines are all commented out
        node = (
            Sequence((), node.line)
            if origin is tuple
            else Table({}, {}, node.line)
            if is_dataclass(to) or _is_mapping(to)
            else node
        )
    if is_dataclass(to):
        table = _expect(node, Table, "keys and values", name, path)
        return read_section(table, to, name, path)  # type: ignore[arg-type]
    if origin is tuple:
        items = _expect(node, Sequence, "a list", name, path).items
        return tuple(convert(item, get_args(to)[0], name, path) for item in items)
    if _is_mapping(to):
        table = _expect(node, Table, "keys and values", name, path)
        inner = get_args(to)[1]
        return {key: convert(item, inner, name, f"{path}.{key}") for key, item in table.entries.items()}
    return _scalar(_expect(node, Scalar, _expected(to), name, path), to, name, path)


def _is_mapping(to: Any) -> bool:
    origin = get_origin(to)  # that of a Literal is no class
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _expect(node: Node, kind: type[T], what: str, name: str, path: str) -> T:
    if isinstance(node, kind):
        return node
    raise _wrong(node, what, name, path)


def _wrong(node: Node, what: str, name: str, path: str) -> ConfigError:
    where = f"{name}:{node.line}" if node.line else name
    return ConfigError(f"{where}: `{path}` must be {what}, not {_shown(node)}.")


def _shown(node: Node) -> str:
    if not isinstance(node, Scalar):
        return "a list" if isinstance(node, Sequence) else "keys and values"
    if len(node.text) > LONGEST_SHOWN:
        return "what is there"  # it may be a key that stands in the wrong place
    return f"`{node.text}`" if node.text else "empty"


def _expected(to: Any) -> str:
    if get_origin(to) is Literal:
        return "one of " + ", ".join(get_args(to))
    return {bool: "true or false", int: "a whole number", float: "a number"}.get(to, "text")


def _scalar(node: Scalar, to: Any, name: str, path: str) -> Any:
    if get_origin(to) is Literal:
        if node.text in get_args(to):
            return node.text
        raise _wrong(node, _expected(to), name, path)
    reader: Callable[[str], Any] = {bool: _bool, int: _int, float: _float}.get(to, str)
    if reader is str and not node.is_null:
        return node.text
    try:
        if node.plain and reader is not str:
            return reader(node.text)
    except ValueError:
        pass  # said by the line below, with file and line
    raise _wrong(node, _expected(to), name, path)


def _bool(text: str) -> bool:
    if text.lower() in TRUE | FALSE:
        return text.lower() in TRUE
    raise ValueError(text)


def _int(text: str) -> int:
    if not text.replace("_", "").removeprefix("-").isdecimal() or len(text) > 18:
        raise ValueError(text)
    return int(text)


def _float(text: str) -> float:
    number = float(text)
    if number != number or number in {float("inf"), float("-inf")}:
        raise ValueError(text)
    return number
