"""The clipboard's picture, by the program that this desktop has for it."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator

from ouro.messages import Image

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
