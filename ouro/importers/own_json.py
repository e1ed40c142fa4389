"""ouro's own export: one JSON object, header and records, with the pictures in it; read back as it was."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ouro.errors import SessionError
from ouro.importers.json_values import ForeignSession, instant, open_regular, session_id_for
from ouro.memory.backend import FORMAT, Record
from ouro.memory.serialization import BadRecordError, UnknownRecordError, header_from, record_from

DAMAGED_RECORDS = "records that cannot be read"
_LARGEST = 1 << 30


def read_own_json(path: Path) -> ForeignSession:
    """The session in an export.

    Raises:
        SessionError: the file cannot be read, is no export, or one of a newer ouro.
    """
    with open_regular(path) as file:
        text = file.read(_LARGEST + 1)
    try:
        if len(text) > _LARGEST:
            raise BadRecordError(f"it has over {_LARGEST >> 20} MB")
        document = json.loads(text)
        header = header_from(document)
    except (ValueError, RecursionError) as error:
        raise SessionError(f"{path} is no export of ouro: {str(error)[:200]}.") from error
    if header.format > FORMAT:
        raise SessionError(f"{path} was exported by a newer ouro (format {header.format}).", "Update ouro.")
    if header.id != session_id_for("json", header.id) or not instant(header.created_at):
        raise SessionError(f"{path} is no export of ouro: its id or date is none.")
    left_out: Counter[str] = Counter()
    records = tuple(_records(document.get("records"), left_out))
    return ForeignSession(header, records, +left_out)


def _records(data: Any, left_out: Counter[str]) -> Iterable[Record]:
    for each in data if isinstance(data, list) else []:
        pictures: dict[str, bytes] = {}

        def fetch(name: str, pictures: dict[str, bytes] = pictures) -> bytes:
            if name not in pictures:
                raise FileNotFoundError(name)
            return pictures[name]

        try:
            _take_pictures(each, pictures)
            yield record_from(each, fetch)[0]
        except (UnknownRecordError, BadRecordError, RecursionError):
            left_out[DAMAGED_RECORDS] += 1


def _take_pictures(value: Any, pictures: dict[str, bytes]) -> None:
    """The bytes of the pictures in a record, by the names that they have there."""
    if isinstance(value, dict):
        if isinstance(data := value.get("data"), str) and isinstance(name := value.get("file"), str):
            try:
                pictures[name] = base64.b64decode(data, validate=True)
            except ValueError:
                return  # said in the picture's place when it is looked for
        for each in value.values():
            _take_pictures(each, pictures)
    elif isinstance(value, list):
        for each in value:
            _take_pictures(each, pictures)
