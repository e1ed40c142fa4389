"""A session as JSON: every record, one a line, with its pictures; `ouro sessions import` reads it back."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from ouro.commands.export.outline import Survey
from ouro.memory.serialization import header_data, record_data
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
    pictures: dict[str, Image] = {}

    def keep(image: Image) -> str:
        name = image_name(image)
        pictures[name] = image
        return name

    data = record_data(record, str, keep)
    if pictures:
        _put_in(data, pictures)
    if isinstance(record, MessageRecord) and record.number not in found.line:
        data["taken_back"] = True
    return data


def _put_in(value: Any, pictures: dict[str, Image]) -> None:
    """Put the bytes of pictures where they are named."""
    if isinstance(value, dict):
        if isinstance(name := value.get("file"), str) and name in pictures and "media_type" in value:
            value["data"] = base64.b64encode(pictures[name].data).decode()
        for each in value.values():
            _put_in(each, pictures)
    elif isinstance(value, list):
        for each in value:
            _put_in(each, pictures)


def _dumped(value: Any) -> str:
    # Half characters cannot be written as UTF-8, and JSON has no way to say them that everybody reads.
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()
