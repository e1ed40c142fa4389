"""Images that models accept: checked, and scaled down if necessary."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from ouro.errors import ToolError
from ouro.messages import Image
from ouro.utils.text import byte_size

MAX_SIDE = 1568
"""Maximum pixels of an image: providers scale larger images down, so they would only make the
request longer.
"""
_MAX_BYTES = 3_500_000
"""Maximum bytes of an image; providers accept 5 MB in base64."""
_MAX_PIXELS = 100_000_000
"""A file of few bytes can have so many that they fill the memory."""
MAX_FILE_BYTES = 100_000_000
"""Maximum bytes of a file that is read whole."""
_TYPE_OF_FIRST_BYTES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)


def image_type(start: bytes) -> str:
    """The media type of the image that begins with these bytes; empty if models do not accept it."""
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for mark, kind in _TYPE_OF_FIRST_BYTES if start.startswith(mark)), "")


def make_image(name: str, data: bytes) -> tuple[Image, str]:
    """An image that a provider accepts, scaled down if necessary, and its size as text.

    With data that is not an image, a provider refuses the request, and each later request of the
    session.

    Raises:
        ToolError: it is damaged, or far too large.
    """
    from PIL import Image as Pillow
    from PIL import UnidentifiedImageError

    # Pillow's warning would be printed over the screen; the size is checked below.
    Pillow.MAX_IMAGE_PIXELS = None
    media_type = image_type(data)
    try:
        with Pillow.open(io.BytesIO(data)) as opened:
            width, height = opened.size
            if width * height > _MAX_PIXELS:
                raise ToolError(f"{name} is too large to be shown: {width}×{height} pixels.")
            size = f"{width}×{height}"
            if media_type and max(width, height) <= MAX_SIDE and len(data) <= _MAX_BYTES:
                opened.load()
                return Image(media_type, data, name), size
            opened.draft("RGB", (MAX_SIDE, MAX_SIDE))  # a JPEG is decoded at a smaller size
            smaller = opened.convert("RGBA" if opened.has_transparency_data else "RGB")
            smaller.thumbnail((MAX_SIDE, MAX_SIDE))
            media_type, scaled = _encode(smaller, photo=media_type in ("image/jpeg", "image/webp"))
            return (
                Image(media_type, scaled, name),
                f"{size}, scaled to {smaller.width}×{smaller.height}",
            )
    except ToolError:
        raise
    except UnidentifiedImageError as error:
        raise ToolError(
            f"{name} cannot be shown: the picture is damaged, or is not PNG, JPEG, GIF or WebP."
        ) from error
    except Exception as error:  # Pillow raises many kinds of errors for broken data
        raise ToolError(f"{name} cannot be shown: the picture is damaged ({error}).") from error


def read_image(path: Path, name: str) -> Image:
    """Read the image in a file. Raises OSError, and ToolError as `make_image`."""
    if (size := path.stat().st_size) > MAX_FILE_BYTES:
        raise ToolError(f"{name} is too large to be shown: {byte_size(size)}.")
    image, _ = make_image(name, path.read_bytes())
    return image


def _encode(image: Any, *, photo: bool) -> tuple[str, bytes]:
    """Encode an image of Pillow; returns the media type and the bytes. A photo becomes a JPEG, any other
    image a PNG, unless that has more than _MAX_BYTES.
    """
    if not photo:
        buffer = io.BytesIO()
        image.save(buffer, "PNG", optimize=True)
        if len(buffer.getvalue()) <= _MAX_BYTES:
            return "image/png", buffer.getvalue()
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, "JPEG", quality=85)
    return "image/jpeg", buffer.getvalue()
