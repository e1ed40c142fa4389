"""Untrusted JSON lines and values for importers: reading, ids, times, texts, images."""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec

from ouro.errors import SessionError
from ouro.memory.backend import Record, SessionHeader
from ouro.messages import Image, Text
from ouro.utils import files, json_types
from ouro.utils.text import clean, cut_middle

MAX_LINE = 64 << 20
DAMAGED = "lines that cannot be read"
TOO_LONG = "lines that are too long"


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading, never a pipe or a device, which could block. Raises SessionError."""
    try:
        return files.open_regular(path)
    except (OSError, ValueError) as error:
        raise SessionError(f"{path} cannot be opened: {getattr(error, 'strerror', None) or error}.") from error


def json_lines(path: Path, left_out: Counter[str], most: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the objects in a file of JSON lines; other lines are counted in `left_out`. Raises as `open_regular`.

    `most`: bytes after which to stop; None: read all.
    """
    with open_regular(path) as file:
        for line in _lines(file, left_out, most):
            value = None
            with suppress(ValueError, RecursionError):
                # Not strict UTF-8: half a character at the end of a cut line must not lose the rest.
                value = json.loads(line.decode("utf-8", "replace"))
            if isinstance(value, dict):
                yield value
            elif line.strip(b" \t\r\n\0"):
                left_out[DAMAGED] += 1


def _lines(file: BinaryIO, left_out: Counter[str], most: int | None) -> Iterator[bytes]:
    while line := file.readline(MAX_LINE):
        if len(line) == MAX_LINE and not line.endswith(b"\n"):
            left_out[TOO_LONG] += 1
            while (rest := file.readline(MAX_LINE)) and not rest.endswith(b"\n"):
                pass
            continue
        yield line
        if most is not None and file.tell() >= most:
            return


Program = Literal["claude-code", "codex", "ouro-old", "json"]
PROGRAM_NAMES: Mapping[str, str] = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "ouro-old": "an older ouro",
    "json": "an export",
}
MAX_TEXT = 4_000_000
"""Characters of one text that are taken over; what a log holds beyond is a dump that nobody reads."""
_MAX_PICTURE = 20 << 20
_EARLIEST = "1970-01-01T00:00:00.000Z"
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_OURS = uuid.UUID("6f75726f-0000-5000-8000-696d706f7274")


class ForeignSession(msgspec.Struct, frozen=True):
    """A session of another program as records of ouro."""

    header: SessionHeader
    records: tuple[Record, ...]
    left_out: Mapping[str, int] = msgspec.field(default_factory=dict)
    """What was not taken over, and how often: `lines that cannot be read`, `messages of sub-agents`."""


def session_id_for(program: Program, original: str) -> str:
    """The id in ouro: its own if it is valid, else one derived from it."""
    if _UUID.fullmatch(original.lower()):
        return original.lower()
    return str(uuid.uuid5(_OURS, f"{program}:{original}".encode("utf-8", "replace").decode()))


def instant(value: Any, otherwise: str = "") -> str:
    """A foreign time (ISO 8601, or seconds or milliseconds since 1970) in the format of records."""
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return otherwise
        if isinstance(value, str):
            found = datetime.fromisoformat(value.strip()[:40])
        else:
            found = datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
        found = found.astimezone(UTC)  # a time without a zone is local
        return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return otherwise


def shifted(at: str, milliseconds: int) -> str:
    """A slightly later time, for messages without their own."""
    start = datetime.fromisoformat(at or _EARLIEST).timestamp()
    return instant(start + milliseconds / 1000, at)


def folder(value: Any) -> str:
    """A foreign project folder; empty if it is not valid."""
    text = clean(value) if isinstance(value, str) else ""
    is_one = text.startswith("/") and "\n" not in text and ".." not in text.split("/") and len(text) < 4096
    return (text.rstrip("/") or "/") if is_one else ""


def word(value: Any, most: int = 200) -> str:
    return " ".join(clean(value[: most * 4]).split())[:most] if isinstance(value, str) else ""


def shortened(text: str) -> str:
    """A text cut to the length that is imported."""
    return cut_middle(text, MAX_TEXT, f"\n[… {len(text) - MAX_TEXT:,} characters were not taken over …]\n")


def count(value: Any) -> int:
    """A number of things; 0 where it is none."""
    return json_types.count(value) or 0


def picture(media_type: Any, data: Any) -> Image | Text:
    """An image from base64; a text in its place if it is not valid."""
    kind = word(media_type, 60) or "image/png"
    try:
        if not isinstance(data, str) or len(data) > _MAX_PICTURE * 4 // 3:
            raise ValueError
        raw = base64.b64decode(data, validate=True)
    except ValueError:
        raw = b""
    return Image(kind, raw) if raw and kind.startswith("image/") else Text(f"[a picture ({kind}) that is not kept]")


def picture_from_url(url: Any) -> Image | Text:
    """An image from a `data:` URL; other URLs become text and are never fetched."""
    if isinstance(url, str) and (found := re.match(r"data:([\w/+.-]{1,60});base64,", url)):
        return picture(found[1], url[found.end() :])
    return Text(f"[a picture at {word(url, 120) or 'an unknown place'}]")
