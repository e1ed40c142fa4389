"""Values in the session files of other programs: nothing in them is trusted to have the expected
type or size.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from ouro.errors import SessionError
from ouro.messages import Image, Text, ToolCall
from ouro.utils import files, lenient_json
from ouro.utils.lenient_json import arguments_object
from ouro.utils.text import clean, cut_middle

MAX_LINE = 64 << 20
"""Maximum bytes of a line; longer lines are left out."""
DAMAGED = "lines that cannot be read"
"""What `left_out` calls them."""
TOO_LONG = "lines that are too long"
MAX_TEXT = 4_000_000
"""Maximum characters of one text that are imported; longer texts are dumps that nobody reads."""
_MAX_IMAGE_BYTES = 20 << 20
_MAX_SECONDS = 1e11
"""A larger number is a time in milliseconds: as seconds it would be in the year 5138."""
_EARLIEST = "1970-01-01T00:00:00.000Z"
"""The time of a message if none is known."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading, never a pipe or a device, which could block. Raises
    SessionError.
    """
    try:
        return files.open_regular(path)
    except (OSError, ValueError) as error:
        raise SessionError(
            f"{path} cannot be opened: {getattr(error, 'strerror', None) or error}."
        ) from error


def json_lines(
    path: Path, left_out: Counter[str], max_bytes: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the objects in a file of JSON lines. Other lines are counted in `left_out`, by what is
    wrong with them; empty lines are not counted. Raises SessionError if the file cannot be opened.

    `max_bytes`: reading ends after the line in which this number is reached; None: at the end of the
    file.
    """
    with open_regular(path) as file:
        while line := file.readline(MAX_LINE):
            if len(line) == MAX_LINE and not line.endswith(b"\n"):
                left_out[TOO_LONG] += 1
                _skip_rest_of_line(file)
                continue
            value = None
            with suppress(ValueError, RecursionError):
                # Not strict UTF-8: because of half a character at the end of a cut line the rest
                # must not be lost.
                value = json.loads(line.decode("utf-8", "replace"))
            if isinstance(value, dict):
                yield value
            elif line.strip(b" \t\r\n\0"):
                left_out[DAMAGED] += 1
            if max_bytes is not None and file.tell() >= max_bytes:
                return


def _skip_rest_of_line(file: BinaryIO) -> None:
    """Read up to the end of the line, in pieces of `MAX_LINE` bytes."""
    while (piece := file.readline(MAX_LINE)) and not piece.endswith(b"\n"):
        pass


def parse_time(value: Any, otherwise: str = "") -> str:
    """A foreign time (ISO 8601, or seconds or milliseconds since 1970) in the format of records.
    `otherwise` if the value is not a time.
    """
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return otherwise
        if isinstance(value, str):
            time = datetime.fromisoformat(value.strip()[:40])
        else:
            time = datetime.fromtimestamp(value / 1000 if value > _MAX_SECONDS else value, UTC)
        time = time.astimezone(UTC)  # a time without a zone is local time
        return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return otherwise


def add_milliseconds(at: str, milliseconds: int) -> str:
    """The time `milliseconds` after `at`, for messages without a time of their own. Both times are
    in the format of records; an empty `at` is the start of 1970. Returns `at` if the new time would
    be outside of the years that records can have.
    """
    start = datetime.fromisoformat(at or _EARLIEST).timestamp()
    return parse_time(start + milliseconds / 1000, at)


def project_folder(value: Any) -> str:
    """A foreign project folder; empty if it is not an absolute path without `..`."""
    path = clean(value) if isinstance(value, str) else ""
    is_short_absolute = path.startswith("/") and len(path) < 4096
    if not is_short_absolute or "\n" in path or ".." in path.split("/"):
        return ""
    return path.rstrip("/") or "/"


def short_text(value: Any, max_characters: int = 200) -> str:
    """The first `max_characters` of a foreign text, in one line; empty if the value is not a text."""
    if not isinstance(value, str):
        return ""
    # Four times as much, because blanks and control characters are left out.
    return " ".join(clean(value[: max_characters * 4]).split())[:max_characters]


def cut_text(text: str) -> str:
    """A text without its middle if it is longer than MAX_TEXT."""
    return cut_middle(
        text, MAX_TEXT, f"\n[… {len(text) - MAX_TEXT:,} characters were not taken over …]\n"
    )


def count_of(value: Any) -> int:
    """The value if it is a count; otherwise 0."""
    return lenient_json.count(value) or 0


def decode_image(media_type: Any, data: Any) -> Image | Text:
    """An image from base64. If the data is too large, or not an image that models accept, a text that
    says so. The type comes from the data; `media_type` is only named in that text.
    """
    from ouro.images import image_type  # `ouro sessions list` does not need it

    named_type = short_text(media_type, 60) or "image/png"
    try:
        # Base64 has four characters for three bytes.
        if not isinstance(data, str) or len(data) > _MAX_IMAGE_BYTES * 4 // 3:
            raise ValueError
        raw = base64.b64decode(data, validate=True)
    except ValueError:
        raw = b""
    actual_type = image_type(raw)
    if actual_type:
        return Image(actual_type, raw)
    return Text(f"[a picture ({named_type}) that is not kept]")


def image_from_url(url: Any) -> Image | Text:
    """An image from a `data:` URL; other URLs become text and are never fetched."""
    if isinstance(url, str) and (head := re.match(r"data:([\w/+.-]{1,60});base64,", url)):
        return decode_image(head[1], url[head.end() :])
    return Text(f"[a picture at {short_text(url, 120) or 'an unknown place'}]")


def texts_and_images(content: Any) -> list[Text | Image]:
    """The texts and images in the content of a message of OpenAI's API: a text, or a list of blocks. Other
    blocks and empty texts are left out.
    """
    if isinstance(content, str):
        return [Text(cut_text(content))] if content.strip() else []
    if not isinstance(content, list):
        return []
    parts: list[Text | Image] = []
    for block in content:
        match block:
            case {"text": str(text)} if text.strip():
                parts.append(Text(cut_text(text)))
            case {"image_url": {"url": url}} | {"image_url": url}:
                parts.append(image_from_url(url))
            case _:
                pass
    return parts


def parse_call(call_id: str, name: str, raw_arguments: Any) -> ToolCall:
    """A tool call from its arguments, which are JSON text or an object; None means no arguments. If
    they cannot be read, the call has no arguments, and their text is in `malformed`.
    """
    try:
        is_text = isinstance(raw_arguments, str | None)
        decoded = json.loads(raw_arguments or "{}") if is_text else raw_arguments
        arguments = arguments_object(decoded)
    except (ValueError, RecursionError):
        arguments = None
    if arguments is not None:
        return ToolCall(call_id, name, arguments)
    return ToolCall(call_id, name, arguments={}, malformed=cut_text(str(raw_arguments)))
