"""Files that are the user's alone: 0600, written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ouro.utils.runtime import ensure_private_dir


def write_private(path: Path, text: str) -> None:
    """Put `text` in the place of `path`: 0600, on disk when this returns; a crash leaves the old file.

    A link to a file of the user (as dotfile managers make them) stays a link.

    Raises:
        OSError: it could not be written; the old file is untouched.
    """
    target = path.resolve() if path.is_symlink() else path
    ensure_private_dir(path.parent)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)  # 0600 by its contract
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
