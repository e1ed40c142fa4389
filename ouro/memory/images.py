"""Pictures, kept beside the session file under the hash of their bytes."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from ouro.errors import SessionError
from ouro.memory.session_file import read_file, replace
from ouro.messages import Image

FOLDER = "outputs"
_NAME = re.compile(rf"{FOLDER}/([0-9a-f]{{32}}\.[a-z0-9]{{1,8}})")


def keep_image(folder: Path, image: Image) -> str:
    """Write a picture, unless it is there already; gives its name below the session's folder.

    Raises:
        OSError: it was not written.
    """
    name = image_name(image)
    place = (folder / name).parent
    place.mkdir(mode=0o700, exist_ok=True)
    if not (folder / name).exists():
        replace(place, (folder / name).name, image.data)
    return name


def image_name(image: Image) -> str:
    """Where below a session's folder a picture is kept."""
    ending = re.sub(r"[^a-z0-9]", "", image.media_type.rpartition("/")[2].lower())[:8] or "bin"
    return f"{FOLDER}/{hashlib.sha256(image.data).hexdigest()[:32]}.{ending}"


def fetch_image(folder: Path, name: str) -> bytes:
    """The bytes of a picture that was kept.

    Raises:
        OSError: it is not there, or it is not one of ours.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise FileNotFoundError(name)
    try:
        return read_file(folder / FOLDER, found[1])
    except SessionError as error:
        raise FileNotFoundError(name) from error
