"""Records to plain data and back."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import msgspec

from ouro.memory.sessions.record_reader import BadRecordError, Fetch, HeaderFields, MessageFields, RecordReader
from ouro.memory.sessions.record_writer import KeepImage, KeepText, Mask, RecordWriter
from ouro.memory.sessions.records import CHANGES, ChangeRecord, CompactionRecord, MessageRecord, Record, SessionHeader

__all__ = [
    "BYTES_BACK",
    "BadRecordError",
    "Mask",
    "UnknownRecordError",
    "bytes_back_in",
    "header_data",
    "header_from",
    "record_data",
    "record_from",
]

BYTES_BACK = "bytes_back"
"""Of a compaction in a file: how far before it the messages that it keeps begin. A hint; only the store knows it."""
_GREATEST = 1 << 53
S = TypeVar("S", bound=msgspec.Struct)


class UnknownRecordError(ValueError):
    """A record of a kind that this ouro does not know."""


def header_data(header: SessionHeader) -> dict[str, Any]:
    """The first record of a session."""
    first = {"format": header.format, "id": header.id, "created_at": header.created_at}
    data = {"session": first, "project": header.project, "model": header.model}
    more = {"memory": dict(header.memory), "origin": dict(header.origin)}
    return {**data, **{name: value for name, value in more.items() if value}}


def record_data(record: Record, mask: Mask, keep_image: KeepImage, keep_text: KeepText | None = None) -> dict[str, Any]:
    """A record as it stands in the file: secrets masked, pictures kept beside it, and long outputs by `keep_text`."""
    if isinstance(record, MessageRecord):
        return RecordWriter(mask, keep_image, keep_text).message(record)
    data: dict[str, Any] = _masked(msgspec.to_builtins(record), mask)
    return data


def header_from(data: Any) -> SessionHeader:
    """The header in the first record.

    Raises:
        BadRecordError: it is not a header.
    """
    if not isinstance(data, dict) or "session" not in data:
        raise BadRecordError("the first record is not a `session:` header")
    header = _converted(data, HeaderFields)
    return SessionHeader(
        header.session.id,
        header.project,
        header.model,
        header.session.created_at,
        header.session.format,
        header.memory,
        header.origin,
    )


def record_from(data: Any, fetch: Fetch) -> tuple[Record, tuple[str, ...]]:
    """A record, and the fields of it that this ouro does not know.

    Raises:
        UnknownRecordError: of a kind that this ouro does not know.
        BadRecordError: of a known kind, but not as it should be.
    """
    if not isinstance(data, dict) or not data:
        raise BadRecordError("not a record")
    if kind := CHANGES.get(next(iter(data))):
        _check_numbers({name: value for name, value in data.items() if name != BYTES_BACK})
        change = _converted({"at": "", **data}, kind)
        _check_change(change)
        return change, _unknown_fields(data, kind)
    if "message" in data or "role" in data:
        _check_numbers({key: data.get(key) for key in ("message", "usage")})
        return RecordReader(fetch).message(_converted(data, MessageFields)), _unknown_fields(data, MessageFields)
    if "session" in data:
        raise BadRecordError("a second header")
    raise UnknownRecordError(next(iter(data)))


def bytes_back_in(data: Any) -> tuple[int, ...]:
    """How far before a compaction the messages that it keeps begin, as far as it says so."""
    found = data.get(BYTES_BACK, ()) if isinstance(data, dict) else ()
    return tuple(each for each in found if isinstance(each, int)) if isinstance(found, list) else ()


def _masked(value: Any, mask: Mask) -> Any:
    if isinstance(value, dict):
        return {key: _masked(item, mask) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(item, mask) for item in value]
    return mask(value) if isinstance(value, str) else value


def _check_change(change: ChangeRecord) -> None:
    if isinstance(change, CompactionRecord) and change.covers[0] > change.covers[1]:
        raise BadRecordError("it covers what there cannot be")


def _check_numbers(value: Any) -> None:
    """Neither endless nor below zero: the index, and every sum, could not hold them."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            _check_numbers(each)
    elif isinstance(value, int | float) and not (math.isfinite(value) and 0 <= value < _GREATEST):
        raise BadRecordError(f"a number that there cannot be: {value}"[:80])


def _converted(data: Any, kind: type[S]) -> S:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise BadRecordError(str(error)) from error


def _unknown_fields(data: dict[str, Any], kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(sorted(data.keys() - {*kind.__struct_encode_fields__, BYTES_BACK}))
