"""Limits for the schemas of servers, and the check of structured content, both in follow_in_bounds time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

MAX_DEPTH = 64
"""Maximum depth of a schema in objects and lists; those of public servers have less than 20."""
MAX_VALUES = 20_000
"""Maximum values in a schema: numbers, texts, lists and objects."""
MAX_CHARACTERS = 500_000
TOO_DEEP, TOO_LARGE = "it is nested too deeply", "it is too large"
_MAX_CHECKED = 2_000
"""Maximum values of a schema that is compared with the rules of JSON Schema, at 0.1 to 1 ms each."""
_MAX_STEPS = 10_000
"""Maximum references that are followed in one check: their number may double at each step."""
_ENDLESS = {"pattern", "patternProperties"}
"""Keywords with regular expressions, which may take forever."""


class _TooManySteps(Exception):
    pass


def size_problem(value: Any) -> str:
    """Why a value is too deep or too large to work with; empty if it is not."""
    waiting, depth, values, characters = [value], 0, 0, 0
    while waiting:
        depth += 1
        values += len(waiting)
        characters += sum(len(item) for item in waiting if isinstance(item, str))
        if depth > MAX_DEPTH:
            return TOO_DEEP
        if values > MAX_VALUES or characters > MAX_CHARACTERS:
            return TOO_LARGE
        waiting = list(chain.from_iterable(map(_inside, waiting)))
    return ""


def schema_problem(schema: Any) -> str:
    """Why a schema cannot be used in requests; empty if it can. `size_problem` was asked before."""
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
    """What of structured content does not match its schema; empty if it matches, or if that cannot
    be found in a short time.
    """
    if content is None:
        return "it is missing, although the tool promises it"
    if size_problem(content) or schema_problem(schema):
        return ""
    is_endless = any(
        isinstance(value, dict) and not _ENDLESS.isdisjoint(value) for value in _values_of(schema)
    )
    return "" if is_endless else _first_error(schema, content)


def _first_error(schema: Any, content: Any) -> str:
    """Where the content does not match the schema; empty if it does, or if references of the schema
    lead too far.
    """
    from jsonschema.validators import Draft202012Validator, extend
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    steps = iter(range(_MAX_STEPS))
    follow = Draft202012Validator.VALIDATORS["$ref"]

    def follow_in_bounds(validator: Any, place: Any, instance: Any, inside: Any) -> Iterator[Any]:
        if next(steps, None) is None:
            raise _TooManySteps
        yield from follow(validator, place, instance, inside) or ()

    made = extend(Draft202012Validator, {"$ref": follow_in_bounds})  # type: ignore[no-untyped-call]
    validator = made(schema, registry=Registry())
    try:
        error = next(validator.iter_errors(content), None)
    except (
        Unresolvable,
        RecursionError,
        _TooManySteps,
        ValueError,
    ):  # a reference that leads nowhere, in circles, or too far
        return ""
    return f"{error.json_path}: {error.message}"[:300] if error else ""


def _values_of(value: Any) -> Iterator[Any]:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        yield item
        waiting += _inside(item)


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value, *value.values()]
    return value if isinstance(value, list) else []
