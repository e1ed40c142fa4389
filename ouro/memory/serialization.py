"""Records and messages to plain data and back."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from ouro.memory.sessions.record_reader import BadRecordError, Fetch, HeaderFields, MessageFields, RecordReader
from ouro.memory.sessions.record_writer import KeepImage, KeepText, Mask, RecordWriter
from ouro.memory.sessions.records import CHANGES, ChangeRecord, CompactionRecord, MessageRecord, Record, SessionHeader
from ouro.messages import Image, Message

__all__ = [
    "BYTES_BACK",
    "BadRecordError",
    "Mask",
    "UnknownRecordError",
    "bytes_back_in",
    "deserialize_message",
    "embed_images",
    "extract_images",
    "header_data",
    "header_from",
    "record_data",
    "record_from",
    "serialize_message",
]

BYTES_BACK = "bytes_back"
"""In a compaction: how far before it each message begins that it keeps. A hint for the reader, made by the store."""
_MAX_NUMBER = 1 << 53
S = TypeVar("S", bound=msgspec.Struct)


class UnknownRecordError(ValueError):
    """A record of an unknown kind, from a newer ouro."""


def header_data(header: SessionHeader) -> dict[str, Any]:
    first = {"format": header.format, "id": header.id, "created_at": header.created_at}
    data = {"session": first, "project": header.project, "model": header.model}
    more = {"memory": dict(header.memory), "origin": dict(header.origin)}
    return {**data, **{name: value for name, value in more.items() if value}}


def record_data(record: Record, mask: Mask, keep_image: KeepImage, keep_text: KeepText | None = None) -> dict[str, Any]:
    """A record as in a session file: secrets masked, images saved by `keep_image`, long outputs by `keep_text`."""
    if isinstance(record, MessageRecord):
        return RecordWriter(mask, keep_image, keep_text).message(record)
    data: dict[str, Any] = _masked(msgspec.to_builtins(record), mask)
    return data


def header_from(data: Any) -> SessionHeader:
    """The header from the first record.

    Raises:
        BadRecordError: the data is not a header.
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
    """A record, and the names of its unknown fields. `fetch` returns the bytes of a saved image or output.

    Raises:
        UnknownRecordError: the record has an unknown kind.
        BadRecordError: the record has a known kind and wrong fields.
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


def serialize_message(message: Message, number: int = 0, at: str = "") -> dict[str, Any]:
    """A message as plain data for JSON or YAML, in the form of a session record with its images as base64."""
    images: dict[str, bytes] = {}

    def keep(image: Image) -> str:
        name = f"{len(images)}"
        images[name] = image.data
        return name

    data = RecordWriter(str, keep).message(MessageRecord(number, at, message))
    embed_images(data, images)
    return data


def deserialize_message(data: dict[str, Any]) -> Message:
    """The message that `serialize_message` made plain data from.

    Raises:
        BadRecordError: the data is not a message.
    """
    images: dict[str, bytes] = {}
    extract_images(data, images)
    record, _ = record_from(data, lambda name: _image_bytes(images, name))
    if not isinstance(record, MessageRecord):
        raise BadRecordError("not a message")
    return record.message


def embed_images(value: Any, images: Mapping[str, bytes]) -> None:
    """Add the bytes of images, as base64, where a record names them."""
    if isinstance(value, dict):
        if isinstance(name := value.get("file"), str) and name in images and "media_type" in value:
            value["data"] = base64.b64encode(images[name]).decode()
        for item in value.values():
            embed_images(item, images)
    elif isinstance(value, list):
        for item in value:
            embed_images(item, images)


def extract_images(value: Any, images: dict[str, bytes]) -> None:
    """Collect what `embed_images` added, by the names in the record. Damaged base64 is skipped."""
    if isinstance(value, dict):
        if isinstance(data := value.get("data"), str) and isinstance(name := value.get("file"), str):
            try:
                images[name] = base64.b64decode(data, validate=True)
            except ValueError:
                return  # reading the image reports it
        for item in value.values():
            extract_images(item, images)
    elif isinstance(value, list):
        for item in value:
            extract_images(item, images)


def _image_bytes(images: Mapping[str, bytes], name: str) -> bytes:
    if name not in images:
        raise FileNotFoundError(name)
    return images[name]


def bytes_back_in(data: Any) -> tuple[int, ...]:
    """How far before a compaction each message begins that it keeps; empty where that is not recorded."""
    found = data.get(BYTES_BACK, ()) if isinstance(data, dict) else ()
    return tuple(item for item in found if isinstance(item, int)) if isinstance(found, list) else ()


def _masked(value: Any, mask: Mask) -> Any:
    if isinstance(value, dict):
        return {key: _masked(item, mask) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(item, mask) for item in value]
    return mask(value) if isinstance(value, str) else value


def _check_change(change: ChangeRecord) -> None:
    if isinstance(change, CompactionRecord) and change.covers[0] > change.covers[1]:
        raise BadRecordError("it covers an impossible range")


def _check_numbers(value: Any) -> None:
    """Refuse infinite and negative numbers: the index and sums cannot hold them."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _check_numbers(item)
    elif isinstance(value, int | float) and not (math.isfinite(value) and 0 <= value < _MAX_NUMBER):
        raise BadRecordError(f"an impossible number: {value}"[:80])


def _converted(data: Any, kind: type[S]) -> S:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise BadRecordError(str(error)) from error


def _unknown_fields(data: dict[str, Any], kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(sorted(data.keys() - {*kind.__struct_encode_fields__, BYTES_BACK}))
