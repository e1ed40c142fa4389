"""Pictures in what is written out: shown where that is harmless and small, else named."""

from __future__ import annotations

from ouro.messages import Image
from ouro.utils.text import clean

_SHOWN = ("image/png", "image/jpeg", "image/gif", "image/webp")


def can_be_shown(image: Image, largest: int) -> bool:
    """Whether a picture may stand in a document; one that is markup (SVG) never does."""
    return image.media_type in _SHOWN and 0 < len(image.data) <= largest


def picture_name(image: Image) -> str:
    """What a picture is called, on one line."""
    return " ".join(clean(image.name).split())[:120] or clean(image.media_type)
