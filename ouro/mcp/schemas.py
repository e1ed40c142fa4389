"""Limits for the schemas of servers, and the check of structured content, both in bounded time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

MAX_DEPTH = 64
"""Maximum depth of a schema in objects and lists; those of public servers have less than 20."""
MAX_VALUES = 20_000
"""Maximum values in a schema: numbers, texts, lists and objects."""
MAX_CHARACTERS = 500_000
"""Maximum characters of all texts in a schema."""
TOO_DEEP, TOO_LARGE = "it is nested too deeply", "it is too large"
_MAX_CHECKED = 2_000
"""Maximum values of a schema that is compared with the rules of JSON Schema, at 0.1 to 1 ms each."""
_MAX_STEPS = 10_000
"""Maximum references that are followed in one check: their number may double at each step."""
_SLOW_KEYWORDS = {"pattern", "patternProperties"}
"""Keywords with regular expressions, which may take forever."""


class _TooManySteps(Exception):
    """A check followed more references than _MAX_STEPS."""


def size_problem(value: Any) -> str:
    """Why a value is too deep or too large to work with; empty if it is neither."""
    level, depth, values, characters = [value], 0, 0, 0
    while level:
        depth += 1
        values += len(level)
        characters += sum(len(item) for item in level if isinstance(item, str))
        if depth > MAX_DEPTH:
            return TOO_DEEP
        if values > MAX_VALUES or characters > MAX_CHARACTERS:
            return TOO_LARGE
        level = list(chain.from_iterable(map(_inside, level)))
    return ""


def complete_schemas(tools: Sequence[Any]) -> None:
    """Complete the input schemas of tools, as a server lists them, with `type: object`. The protocol
    requires it, and many servers leave it out, for instance if a tool has no arguments.
    """
    for tool in tools:
        schema = tool.get("inputSchema", {}) if isinstance(tool, dict) else None
        if not isinstance(schema, dict):
            continue
        completed = {"type": "object", **schema}
        if completed.get("properties", {}) is None:  # an empty map, as PHP and Go write it
            del completed["properties"]
        tool["inputSchema"] = completed


def schema_problem(schema: Any) -> str:
    """Why a schema cannot be used in requests; empty if it can.

    Args:
        schema: one that has no `size_problem`.
    """
    from jsonschema import SchemaError
    from jsonschema.validators import Draft202012Validator

    if sum(1 for _ in _values_of(schema)) > _MAX_CHECKED:
        return "its schema is too large to be checked"
    try:
        Draft202012Validator.check_schema(schema)
    except (SchemaError, RecursionError) as error:
        return f"its schema is not valid: {getattr(error, 'message', error)}"[:300]
    return ""


def content_problem(schema: Any, content: Any) -> str:
    """Why structured content does not match its schema, and at which place. Empty if it matches, or
    if a check would take too long.
    """
    if content is None:
        return "it is missing, although the tool promises it"
    if size_problem(content) or schema_problem(schema):
        return ""
    may_be_slow = any(
        isinstance(value, dict) and not _SLOW_KEYWORDS.isdisjoint(value)
        for value in _values_of(schema)
    )
    return "" if may_be_slow else _first_error(schema, content)


def _first_error(schema: Any, content: Any) -> str:
    """The first place where the content does not match the schema, and why. Empty if it matches, or
    if a reference of the schema leads nowhere or too far.
    """
    from jsonschema.validators import Draft202012Validator, extend
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    steps_left = iter(range(_MAX_STEPS))
    follow = Draft202012Validator.VALIDATORS["$ref"]

    def follow_in_bounds(validator: Any, place: Any, instance: Any, inside: Any) -> Iterator[Any]:
        """Follow a reference as usual. Raises _TooManySteps after _MAX_STEPS of them."""
        if next(steps_left, None) is None:
            raise _TooManySteps
        yield from follow(validator, place, instance, inside) or ()

    bounded_validator = extend(Draft202012Validator, {"$ref": follow_in_bounds})  # type: ignore[no-untyped-call]
    validator = bounded_validator(schema, registry=Registry())
    try:
        error = next(validator.iter_errors(content), None)
    except (Unresolvable, RecursionError, _TooManySteps, ValueError):
        return ""  # a reference leads nowhere, in circles, or too far
    return f"{error.json_path}: {error.message}"[:300] if error else ""


def _values_of(value: Any) -> Iterator[Any]:
    """Yields a value and all values in it, however deep, with the keys of objects."""
    pending = [value]
    while pending:
        item = pending.pop()
        yield item
        pending += _inside(item)


def _inside(value: Any) -> list[Any]:
    """The keys and values of an object, or the items of a list; empty for other values."""
    if isinstance(value, dict):
        return [*value, *value.values()]
    return value if isinstance(value, list) else []
