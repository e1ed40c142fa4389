"""A session as JSON: every record, one a line, with its pictures; `ouro sessions import` reads it back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ouro.commands.export.outline import Survey
from ouro.memory.serialization import embed_images, header_data, record_data
from ouro.memory.sessions.outputs import image_name
from ouro.memory.sessions.records import MessageRecord, Record
from ouro.memory.sessions.session_reader import WholeSession
from ouro.messages import Image


def as_json(whole: WholeSession, found: Survey) -> Iterator[str]:
    """The document, record by record."""
    head = {**header_data(whole.header), "title": found.title, "messages": found.messages}
    yield "{\n" + "".join(f"{_dumped(key)}: {_dumped(value)},\n" for key, value in head.items()) + '"records": ['
    before = "\n"
    for record in whole.records():
        yield before + _dumped(_data(record, found))
        before = ",\n"
    yield "\n]\n}\n"


def _data(record: Record, found: Survey) -> dict[str, Any]:
    images: dict[str, bytes] = {}

    def keep(image: Image) -> str:
        name = image_name(image)
        images[name] = image.data
        return name

    data = record_data(record, str, keep)
    if images:
        embed_images(data, images)
    if isinstance(record, MessageRecord) and record.number not in found.line:
        data["taken_back"] = True
    return data


def _dumped(value: Any) -> str:
    # Half characters cannot be written as UTF-8, and JSON has no way to say them that everybody reads.
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()
