"""ProcessRecord: names what a killed ouro leaves behind, so that the next start can remove it."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ouro.utils.ouro_paths import ensure_private_dir

PREFIX = "ouro-"
"""The names of records, and of the things that they stand for, begin with it."""


class ProcessRecord:
    """A file that names something of this process. It is locked while the process lives."""

    def __init__(self, folder: Path, name: str, about: str) -> None:
        """Write a record with the text `about`. Raises OSError: it cannot be written, or the name
        is taken.
        """
        self._path = ensure_private_dir(folder) / name
        self._file = self._path.open("x", encoding="utf-8")
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._file.write(about)
        self._file.flush()

    def remove(self) -> None:
        """Delete the record, because what it names is gone."""
        self._path.unlink(missing_ok=True)
        self._file.close()


class LeftRecord(NamedTuple):
    """The record of a killed process."""

    path: Path
    about: str
    """The text that the process has written into it."""


def left_records(folder: Path) -> Iterator[LeftRecord]:
    """Yields the records of processes that have ended. Each record is locked until the next one is
    asked for. Blocks.
    """
    for path in sorted(folder.glob(f"{PREFIX}*")):
        with suppress(OSError, ValueError), path.open("r+", encoding="utf-8") as file:
            # Fails while its process lives, which holds the lock.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield LeftRecord(path, file.read())
