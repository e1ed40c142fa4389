"""A session as a document: the formats, and JSON, which `ouro sessions import` reads back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from ouro.commands.export.as_html import as_html
from ouro.commands.export.as_markdown import as_markdown
from ouro.commands.export.session_document import Survey, survey
from ouro.errors import UsageError
from ouro.memory.backend import MessageRecord, Record, WholeSession
from ouro.memory.serialization import embed_images, header_data, record_data
from ouro.memory.sessions.session_folders import image_name
from ouro.messages import Image

Format = Literal["markdown", "html", "json"]


_FORMATS: Mapping[str, Format] = {
    **dict.fromkeys(("", ".md", ".markdown", ".txt"), "markdown"), ".html": "html", ".htm": "html", ".json": "json"
}  # fmt: skip


def format_of(path: Path) -> Format:
    """The format of a file's ending; Markdown without one. Raises UsageError: there is no such format."""
    if found := _FORMATS.get(path.suffix.lower()):
        return found
    raise UsageError(f"A session cannot be written as `{path.suffix}`.", "End the file in .md, .html or .json.")


def document(whole: WholeSession, to: Format) -> Iterator[str]:
    """A session in a format, piece by piece. Blocks on the disk; memory use does not grow with the session.

    Raises:
        SessionError: the session cannot be read.
    """
    write = {"markdown": as_markdown, "html": as_html, "json": as_json}[to]
    return write(whole, survey(whole))


def as_json(whole: WholeSession, found: Survey) -> Iterator[str]:
    """Every record, one a line, with its images."""
    head = {**header_data(whole.header), "title": found.title, "messages": found.messages}
    yield "{\n" + "".join(f"{_to_json(key)}: {_to_json(value)},\n" for key, value in head.items()) + '"records": ['
    before = "\n"
    for record in whole.records():
        yield before + _to_json(_record_data(record, found))
        before = ",\n"
    yield "\n]\n}\n"


def _record_data(record: Record, found: Survey) -> dict[str, Any]:
    images: dict[str, bytes] = {}

    def add_image(image: Image) -> str:
        name = image_name(image)
        images[name] = image.data
        return name

    data = record_data(record, str, add_image)
    if images:
        embed_images(data, images)
    if isinstance(record, MessageRecord) and record.number not in found.branch:
        data["taken_back"] = True
    return data


def _to_json(value: Any) -> str:
    # A lone surrogate cannot be written as UTF-8, and not every JSON reader accepts its escape.
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()
