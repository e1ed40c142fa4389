"""A session of another program, told in our records; and what is common to all who tell one."""

from __future__ import annotations

import base64
import binascii
import re
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from ouro.memory.backend import Record, SessionHeader
from ouro.messages import Image, Text
from ouro.utils.terminal_text import clean

Program = Literal["claude-code", "codex", "ouro-old", "json"]
PROGRAM_NAMES: Mapping[str, str] = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "ouro-old": "an older ouro",
    "json": "an export",
}
LONGEST_TEXT = 4_000_000
"""Characters of one text that are taken over; what a log holds beyond is a dump that nobody reads."""
_LARGEST_PICTURE = 20 << 20
_EARLIEST = "1970-01-01T00:00:00.000Z"
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_OURS = uuid.UUID("6f75726f-0000-5000-8000-696d706f7274")


class Foreign(msgspec.Struct, frozen=True):
    """A session of another program, told in our records."""

    header: SessionHeader
    records: tuple[Record, ...]
    left_out: Mapping[str, int] = msgspec.field(default_factory=dict)
    """What was not taken over, and how often: `lines that cannot be read`, `messages of sub-agents`."""


def session_id_for(program: Program, original: str) -> str:
    """The id that the session gets here: its own where that is one, else one made of it, the same each time."""
    if _UUID.fullmatch(original.lower()):
        return original.lower()
    return str(uuid.uuid5(_OURS, f"{program}:{original}".encode("utf-8", "replace").decode()))


def instant(value: Any, otherwise: str = "") -> str:
    """A time from outside (ISO 8601, or seconds or milliseconds since 1970) as our records have it."""
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return otherwise
        if isinstance(value, str):
            found = datetime.fromisoformat(value.strip()[:40])
        else:
            found = datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
        found = found.astimezone(UTC)  # a time without a zone is the local one
        return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return otherwise


def shifted(at: str, milliseconds: int) -> str:
    """A time a little later, for messages whose own nobody has kept."""
    start = datetime.fromisoformat(at or _EARLIEST).timestamp()
    return instant(start + milliseconds / 1000, at)


def folder(value: Any) -> str:
    """A project folder from outside; nothing where it can be none."""
    text = clean(value) if isinstance(value, str) else ""
    is_one = text.startswith("/") and "\n" not in text and ".." not in text.split("/") and len(text) < 4096
    return (text.rstrip("/") or "/") if is_one else ""


def word(value: Any, most: int = 200) -> str:
    """A name from outside, on one line."""
    return " ".join(clean(value[: most * 4]).split())[:most] if isinstance(value, str) else ""


def shortened(text: str) -> str:
    """A text without what nobody can read any more."""
    if len(text) <= LONGEST_TEXT:
        return text
    half = LONGEST_TEXT // 2
    return f"{text[:half]}\n[… {len(text) - LONGEST_TEXT:,} characters were not taken over …]\n{text[-half:]}"


def count(value: Any) -> int:
    """A number of tokens from outside."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 50 else 0


def picture(media_type: Any, data: Any, name: str = "") -> Image | Text:
    """A picture from base64; a word in its place where it is none."""
    kind = word(media_type, 60) or "image/png"
    try:
        if not isinstance(data, str) or len(data) > _LARGEST_PICTURE * 4 // 3:
            raise ValueError
        raw = base64.b64decode(data, validate=True)
    except (ValueError, binascii.Error):
        raw = b""
    return (
        Image(kind, raw, name) if raw and kind.startswith("image/") else Text(f"[a picture ({kind}) that is not kept]")
    )


def picture_from_url(url: Any) -> Image | Text:
    """A picture from a `data:` address; others are named, never fetched."""
    if isinstance(url, str) and (found := re.match(r"data:([\w/+.-]{1,60});base64,", url)):
        return picture(found[1], url[found.end() :])
    return Text(f"[a picture at {word(url, 120) or 'an unknown place'}]")
