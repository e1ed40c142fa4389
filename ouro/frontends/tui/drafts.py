"""Drafts: what the person is about to say, with its pictures; long pastes folded to a chip."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from ouro.messages import Image

FOLD_CHARACTERS = 2_000
FOLD_LINES = 10
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Draft:
    """A message that has not been sent."""

    text: str
    images: tuple[Image, ...] = ()


@dataclass(slots=True)
class Chips:
    """What stands behind the chips in a draft: `[pasted 120 lines]`, `[image 1: PNG, 34 kB]`."""

    _pastes: dict[str, str] = field(default_factory=dict)
    _images: dict[str, Image] = field(default_factory=dict)

    def fold(self, pasted: str) -> str:
        """A pasted text without control characters; where it is long, the chip that stands for it."""
        text = _CONTROL.sub("", pasted.replace("\r\n", "\n").replace("\r", "\n"))
        lines = text.count("\n") + 1
        if len(text) <= FOLD_CHARACTERS and lines <= FOLD_LINES:
            return text
        size = f"{lines:,} lines" if lines > FOLD_LINES else f"{len(text):,} characters"
        chip = self._free(f"pasted {size}")
        self._pastes[chip] = text
        return chip

    def add_image(self, image: Image) -> str:
        """The chip that stands for a picture."""
        kind = image.media_type.rpartition("/")[2].upper()
        chip = f"[image {len(self._images) + 1}: {kind}, {max(1, len(image.data) // 1000):,} kB]"
        self._images[chip] = image
        return chip

    def expand(self, text: str) -> Draft:
        """The draft that is meant: pastes in full, and the pictures whose chips are still there."""
        text = self.expand_text(text).strip()
        return Draft(text, tuple(image for chip, image in self._images.items() if chip in text))

    def expand_text(self, text: str) -> str:
        """`text` with the pastes in full."""
        for chip, pasted in self._pastes.items():
            text = text.replace(chip, pasted)
        return text

    def ending(self, before: str) -> str:
        """The chip that `before` ends with; empty where it ends with none."""
        return next((chip for chip in (*self._pastes, *self._images) if before.endswith(chip)), "")

    def _free(self, name: str) -> str:
        names = (f"[{name}]", *(f"[{name} #{number}]" for number in range(2, len(self._pastes) + 3)))
        return next(chip for chip in names if chip not in self._pastes)


_PATIENCE = 3.0
_MOST_BYTES = 20_000_000
_MAGIC = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif", b"RIFF": "image/webp"}


async def read_image() -> Image | None:
    """The picture on the clipboard; None where there is none, or no program that can tell."""
    for command in _programs():
        data = await _output_of(command)
        for magic, media_type in _MAGIC.items():
            if data.startswith(magic):
                return Image(media_type, data, "clipboard")
    return None


def _programs() -> Iterator[list[str]]:
    found = {
        "wl-paste": ["wl-paste", "--no-newline", "--type", "image/png"] if os.environ.get("WAYLAND_DISPLAY") else [],
        "xclip": ["xclip", "-selection", "clipboard", "-target", "image/png", "-out"]
        if os.environ.get("DISPLAY")
        else [],
        "pngpaste": ["pngpaste", "-"] if sys.platform == "darwin" else [],
    }
    return (command for name, command in found.items() if command and shutil.which(name))


async def _output_of(command: list[str]) -> bytes:
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdin=quiet, stdout=asyncio.subprocess.PIPE, stderr=quiet)
    try:
        async with asyncio.timeout(_PATIENCE):
            data, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return b""
    return data if len(data) <= _MOST_BYTES else b""
