"""JSON as it goes over a wire: the same value always gives the same bytes, and what comes is an object or an error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from ouro.errors import StreamCut
from ouro.llm.surrogates import healed


def encoded(value: Any) -> bytes:
    """`value` as JSON; the same bytes each time, so that the provider's cache knows them again."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_healed_all(value))


def decoded(data: str) -> dict[str, Any]:
    """The object in an event.

    Raises:
        StreamCut: there is none.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StreamCut("The answer broke off: the server sent a line that cannot be read.") from error
    if not isinstance(value, dict):
        raise StreamCut("The answer broke off: the server sent something that is no event.")
    return value


def parse_object(text: str) -> dict[str, Any] | None:
    """The object that a model wrote, with line ends in strings allowed; {} for nothing, None where it is no object."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text, strict=False)
        # What cannot be written again (NaN, infinity) could not be sent again either.
        json.dumps(value, allow_nan=False)
        value = _healed_all(value)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _healed_all(value: Any) -> Any:
    if isinstance(value, str):
        return healed(value)
    if isinstance(value, Mapping):
        return {_healed_all(key): _healed_all(item) for key, item in value.items()}
    return [_healed_all(item) for item in value] if isinstance(value, list | tuple) else value
