"""Documents for the user: as a stream, whole or not at all, and never over another file by accident."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ouro.errors import UsageError


def write_document(path: Path, pieces: Iterable[str], *, force: bool = False) -> None:
    """Put a document into a file that only its owner can read.

    Args:
        path: the file.
        pieces: the document.
        force: also where a file is there already.

    Raises:
        UsageError: the file is there already, or cannot be written.
    """
    if not force and os.path.lexists(path):
        raise _taken(path)
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name[:40]}.", dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace", newline="\n") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        _put_in_place(temporary, path, force=force)
    except FileExistsError as error:
        raise _taken(path) from error
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def _put_in_place(temporary: str, path: Path, *, force: bool) -> None:
    if force:
        Path(temporary).replace(path)
        return
    try:
        path.hardlink_to(temporary)  # fails where somebody has made the file meanwhile
    except FileExistsError:
        raise
    except OSError:  # a disk that knows no hard links
        if os.path.lexists(path):
            raise FileExistsError(path) from None
        Path(temporary).replace(path)


def _taken(path: Path) -> UsageError:
    return UsageError(f"{path} is there already.", "Name another file, or write over it with `--force`.")
