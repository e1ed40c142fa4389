"""JSON schemas for answers: added to the prompt, checked against the answer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ouro.errors import OuroError, UsageError
from ouro.utils.decoding import from_plain
from ouro.utils.late_pattern import late_pattern

MAX_CORRECTIONS = 2
"""Times that the model is asked to correct an answer."""
_MAX_REASON = 500
"""Characters of the reason why an answer does not match: the model reads it."""
_CODE_BLOCK = late_pattern(r"```[\w-]*\n(.*?)```", re.DOTALL)


class AnswerMisfit(OuroError):
    """The answer does not match the schema; the message names the value."""


class AnswerSchema:
    """A JSON schema, and the function that converts a valid JSON value to the wanted type.

    Raises:
        UsageError: the schema is not a JSON schema.
    """

    def __init__(self, schema: Any, convert: Callable[[Any], Any] = lambda value: value) -> None:
        from referencing import Registry  # late: few answers have a schema

        from ouro.utils.json_schema import validator_of

        validator_class = validator_of(schema)

        self._schema = schema
        self._convert = convert
        # Empty, because by default a $ref is fetched from the network.
        registry: Registry[Any] = Registry()
        self._validator = validator_class(schema, registry=registry)

    @classmethod
    def load(cls, source: str) -> AnswerSchema:
        """Read a schema. `source` is the path of a file, or the schema itself if it begins with
        `{`.

        Raises:
            UsageError: the file cannot be read, or it has no JSON schema.
        """
        is_text = source.lstrip().startswith("{")
        name = "in --schema" if is_text else source
        try:
            schema = json.loads(source if is_text else Path(source).read_text(encoding="utf-8"))
        except OSError as error:
            hint = 'Name a file, or write the schema itself: --schema \'{"type": "object"}\'.'
            raise UsageError(
                f"The schema {source} cannot be read: {error.strerror}.", hint
            ) from error
        except ValueError as error:
            raise UsageError(f"The schema {name} is not JSON: {error}.") from error
        return cls(schema)

    @classmethod
    def for_type(cls, kind: Any) -> AnswerSchema:
        """The schema of a Python type: a type of msgspec or pydantic, a dataclass, a TypedDict, or
        such as `list[str]`. A mapping is taken as the JSON schema itself.

        Raises:
            UsageError: the type has no JSON schema.
        """
        if isinstance(kind, Mapping):
            return cls(kind)
        if hasattr(kind, "model_json_schema"):  # pydantic
            return cls(kind.model_json_schema(), kind.model_validate)
        try:
            return cls(msgspec.json.schema(kind), lambda value: from_plain(value, kind))
        except TypeError as error:
            raise UsageError(f"{kind!r} cannot be the type of an answer: {error}") from error

    def add_to(self, prompt: str) -> str:
        """The prompt, followed by the schema and the request for JSON alone."""
        return (
            f"{prompt}\n\nWhen the work is done, answer with one JSON value and nothing else: no"
            " words around it, no code fence. It has to fit this JSON"
            f" schema:\n{json.dumps(self._schema)}"
        )

    def parse(self, answer: str) -> Any:
        """The value of an answer. Raises AnswerMisfit if it is not JSON, or does not match the
        schema.
        """
        value = _find_json(answer)
        self._check(value)
        try:
            return self._convert(value)
        except (msgspec.ValidationError, ValueError) as misfit:  # the type has its own check
            raise AnswerMisfit(str(misfit)[:_MAX_REASON]) from misfit

    def _check(self, value: Any) -> None:
        """Check a value. Raises AnswerMisfit if it does not match the schema, and UsageError if the
        schema refers to a schema that it does not contain.
        """
        from jsonschema.exceptions import best_match
        from referencing.exceptions import Unresolvable

        try:
            error = best_match(self._validator.iter_errors(value))
        except Unresolvable as unresolvable:
            raise UsageError(
                f"The schema refers to what it does not hold: {unresolvable}"
            ) from unresolvable
        except RecursionError as deep:
            raise AnswerMisfit("the answer is nested too deeply") from deep
        if error is not None:
            raise AnswerMisfit(f"{error.json_path}: {error.message[:_MAX_REASON]}")


def _find_json(answer: str) -> Any:
    """The JSON value in an answer: the whole answer, or else the last of its code blocks that is
    JSON. Raises AnswerMisfit if none of them is.
    """
    for text in (answer, *reversed(_CODE_BLOCK.findall(answer))):
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    raise AnswerMisfit("the answer is not JSON")


def correction_request(misfit: AnswerMisfit) -> str:
    """The message that asks the model to correct an answer which does not match the schema."""
    return (
        f"Your answer does not fit the JSON schema ({misfit.message}). "
        "Answer again: only the JSON value, corrected, without words around it."
    )
