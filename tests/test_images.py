"""Images that models accept."""

from __future__ import annotations

import io

import pytest
from PIL import Image as Pillow

from ouro.errors import ToolError
from ouro.images import make_image


def test_unsupported_format_is_converted_to_png():
    buffer = io.BytesIO()
    Pillow.new("RGB", (30, 20), "red").save(buffer, "BMP")
    image, size = make_image("a.bmp", buffer.getvalue())
    assert (image.media_type, size) == ("image/png", "30×20, scaled to 30×20")
    assert Pillow.open(io.BytesIO(image.data)).size == (30, 20)


def test_what_is_no_picture_is_refused():
    with pytest.raises(ToolError, match="is not PNG, JPEG, GIF or WebP"):
        make_image("a.svg", b"<svg/>")
