"""Values of known types from JSON and from plain values, also in threads.

msgspec builds what it knows of a class when the class is read for the first time. While one thread
builds, it can be interrupted, and another thread that reads the same class crashes the process (seen
with msgspec 0.22). So the first use of each type is alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar, overload

import msgspec

_Value = TypeVar("_Value")
_Hook = Callable[[type, Any], Any]
_first_use = threading.RLock()
_prepared_types: set[Any] = set()


@overload
def from_plain(value: Any, kind: type[_Value], *, strict: bool = True) -> _Value: ...
@overload
def from_plain(value: Any, kind: Any, *, strict: bool = True) -> Any: ...
def from_plain(value: Any, kind: Any, *, strict: bool = True) -> Any:
    """Convert dictionaries, lists and scalars to a value of type `kind`. Raises msgspec.ValidationError
    if `value` does not fit.

    `strict`: if it is False, a text may stand for a number, a boolean or None.
    """
    _prepare_type(kind)
    return msgspec.convert(value, kind, strict=strict)


def decode_json(data: bytes | str, kind: type[_Value], dec_hook: _Hook | None = None) -> _Value:
    """Convert JSON to a value of type `kind`. Raises msgspec.DecodeError: it is not JSON, or does
    not fit. `dec_hook`: converts types that msgspec does not know; None: there are none.
    """
    _prepare_type(kind)
    return msgspec.json.decode(data, type=kind, dec_hook=dec_hook)


@overload
def json_decoder(kind: type[_Value]) -> msgspec.json.Decoder[_Value]: ...
@overload
def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]: ...
def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """A decoder for many texts of one `kind`."""
    _prepare_type(kind)
    return msgspec.json.Decoder(kind)


def _prepare_type(kind: Any) -> None:
    """Let msgspec build what it knows of a type, while no other thread does so: two that do it at
    once crash the process. Later calls for this type do nothing.
    """
    if kind in _prepared_types:
        return
    with _first_use:
        msgspec.json.Decoder(kind)
        _prepared_types.add(kind)
