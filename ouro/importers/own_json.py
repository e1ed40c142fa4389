"""ouro's own export: one JSON object, header and records, with images in it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ouro.errors import SessionError
from ouro.importers.json_values import ForeignSession, instant, open_regular, session_id_for
from ouro.memory.backend import FORMAT, Record
from ouro.memory.serialization import BadRecordError, UnknownRecordError, header_from, record_with_images

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


def _records(items: Any, left_out: Counter[str]) -> Iterable[Record]:
    for data in items if isinstance(items, list) else []:
        try:
            yield record_with_images(data)
        except (UnknownRecordError, BadRecordError, RecursionError):
            left_out[DAMAGED_RECORDS] += 1
