"""Images, PDF pages and notebooks for the read tool, and the kind of a binary file."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ouro.errors import ToolError
from ouro.messages import Image

MAX_SIDE = 1568
"""Pixels. Providers scale larger images down themselves; sending them only makes the request longer."""
_MAX_BYTES = 3_500_000
"""Bytes of an image; providers accept 5 MB in base64."""
_MAX_PIXELS = 100_000_000
_MAX_OUTPUT = 4000
_MAX_PICTURES = 4

_PICTURES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))
_KINDS = (
    (b"\x7fELF", "an ELF program or library"),
    (b"MZ", "a Windows program"),
    (b"PK\x03\x04", "a zip archive (or an office file, a jar, a wheel)"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\xca\xfe\xba\xbe", "Java bytecode or a macOS program"),
    (b"\xcf\xfa\xed\xfe", "a macOS program"),
    (b"RIFF", "a media file"),
    (b"\x00\x00\x00", "a media file"),
)


def picture_type(start: bytes) -> str:
    """The media type of an image that models accept; empty for other data."""
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for mark, kind in _PICTURES if start.startswith(mark)), "")


def kind_of(start: bytes) -> str:
    """The kind of a binary file, from its first bytes."""
    return next((kind for mark, kind in _KINDS if start.startswith(mark)), "binary data")


def picture(name: str, data: bytes) -> tuple[Image, str]:
    """An image for the model, scaled down if necessary, and its size as text.

    Raises:
        ToolError: it is damaged, or far too large.
    """
    from PIL import Image as Pillow

    Pillow.MAX_IMAGE_PIXELS = None  # its warning would be printed over the screen; the size is checked below
    try:
        with Pillow.open(io.BytesIO(data)) as opened:
            width, height = opened.size
            if width * height > _MAX_PIXELS:
                raise ToolError(f"{name} is too large to look at: {width}×{height} pixels.")
            size = f"{width}×{height}"
            if max(width, height) <= MAX_SIDE and len(data) <= _MAX_BYTES:
                return Image(picture_type(data), data, name), size
            opened.draft("RGB", (MAX_SIDE, MAX_SIDE))
            smaller = opened.convert("RGBA" if opened.has_transparency_data else "RGB")
            smaller.thumbnail((MAX_SIDE, MAX_SIDE))
            media_type, scaled = _encoded(smaller, photo=picture_type(data) in ("image/jpeg", "image/webp"))
            return Image(media_type, scaled, name), f"{size}, scaled to {smaller.width}×{smaller.height}"
    except (OSError, SyntaxError, ValueError) as error:
        raise ToolError(f"{name} cannot be shown: the picture is damaged ({error}).") from error


def _encoded(picture: Any, *, photo: bool) -> tuple[str, bytes]:
    if not photo:
        buffer = io.BytesIO()
        picture.save(buffer, "PNG", optimize=True)
        if len(buffer.getvalue()) <= _MAX_BYTES:
            return "image/png", buffer.getvalue()
    buffer = io.BytesIO()
    picture.convert("RGB").save(buffer, "JPEG", quality=85)
    return "image/jpeg", buffer.getvalue()


def pdf_pages(name: str, data: bytes, first: int, count: int) -> tuple[list[str], int]:
    """The text of `count` pages from page `first` on, and how many pages there are.

    Raises:
        ToolError: it is damaged, or locked.
    """
    from pypdf import PdfReader

    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise ToolError(f"{name} is locked with a password.")
        total = len(reader.pages)
        return [reader.pages[at].extract_text() for at in range(first - 1, min(first - 1 + count, total))], total
    except ToolError:
        raise
    except Exception as error:
        raise ToolError(f"{name} cannot be read: the PDF is damaged ({error}).") from error


def notebook(text: str) -> tuple[list[str], list[Image]]:
    """A notebook as lines (each cell with number, kind and output), and its images.

    Raises:
        ValueError: it is not a notebook.
    """
    document = json.loads(text)
    cells = document.get("cells") if isinstance(document, dict) else None
    if not isinstance(cells, list):
        raise ValueError("no cells")  # noqa: TRY004 - the caller takes it for plain JSON
    lines: list[str] = []
    pictures: list[Image] = []
    for number, cell in enumerate((cell for cell in cells if isinstance(cell, dict)), 1):
        count = cell.get("execution_count")
        lines.append(f"--- cell {number} ({cell.get('cell_type', 'raw')}{f', run as [{count}]' if count else ''})")
        lines += _joined(cell.get("source")).split("\n")
        for output in (item for item in cell.get("outputs") or () if isinstance(item, dict)):
            lines += ["--- output", *_output(output, f"cell {number}", pictures).split("\n")]
    return lines, pictures


def _output(output: Mapping[str, Any], where: str, pictures: list[Image]) -> str:
    if output.get("output_type") == "error":
        text = "\n".join(map(str, output.get("traceback") or (f"{output.get('ename')}: {output.get('evalue')}",)))
        return _shortened(text)
    data = output.get("data")
    if not isinstance(data, dict):
        return _shortened(_joined(output.get("text")))
    for media_type in ("image/png", "image/jpeg"):
        if media_type in data:
            if len(pictures) < _MAX_PICTURES:
                pictures.append(picture(where, base64.b64decode(_joined(data[media_type])))[0])
            return f"({media_type})"
    plain = data.get("text/plain") or data.get("text/markdown")
    return _shortened(_joined(plain)) if plain else f"({', '.join(data)})"


def _shortened(text: str) -> str:
    from ouro.utils.text import clean

    text = clean(text).removesuffix("\n")
    return text if len(text) <= _MAX_OUTPUT else f"{text[:_MAX_OUTPUT]}\n[{len(text) - _MAX_OUTPUT:,} more characters]"


def _joined(source: object) -> str:
    parts: Sequence[object] = source if isinstance(source, list) else (source or "",)
    return "".join(map(str, parts))
