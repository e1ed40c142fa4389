"""Images and long outputs in the outputs folder of a session, named by their hash."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from ouro.errors import SessionError
from ouro.memory.sessions.session_file import opened, read_range, replace, sync_folder
from ouro.messages import Image

FOLDER = "outputs"
_NAME = re.compile(rf"{FOLDER}/([0-9a-f]{{32}}\.[a-z0-9]{{1,8}})")
_MOST = 64 << 20
"""Bytes of one output that are read back."""


def keep_image(folder: Path, image: Image) -> str:
    """Write an image, unless it exists; returns its path relative to the session's folder.

    Raises:
        OSError: it was not written.
    """
    return _keep(folder, image_name(image), image.data)


def keep_text(folder: Path, text: str) -> str:
    data = text.encode("utf-8", "replace")
    return _keep(folder, _name(data, "txt"), data)


def image_name(image: Image) -> str:
    """The path of an image relative to the session's folder."""
    return _name(image.data, re.sub(r"[^a-z0-9]", "", image.media_type.rpartition("/")[2].lower())[:8] or "bin")


def fetch_output(folder: Path, name: str) -> bytes:
    """The bytes of an image or output.

    Raises:
        OSError: it does not exist, or is not a file of the session.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise FileNotFoundError(name)
    try:
        with opened(folder / FOLDER, found[1], os.O_RDONLY) as descriptor:
            return read_range(descriptor, 0, min(_MOST, os.fstat(descriptor).st_size))
    except SessionError as error:
        raise FileNotFoundError(name) from error


def _name(data: bytes, ending: str) -> str:
    return f"{FOLDER}/{hashlib.sha256(data).hexdigest()[:32]}.{ending}"


def _keep(folder: Path, name: str, data: bytes) -> str:
    place = (folder / name).parent
    if not place.is_dir():
        place.mkdir(mode=0o700, exist_ok=True)
        sync_folder(folder)
    if not (folder / name).exists():
        replace(place, (folder / name).name, data)
    return name
