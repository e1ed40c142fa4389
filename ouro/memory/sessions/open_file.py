"""The file of an open session: notice when others delete, cut or replace it, and write it again."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from ouro.errors import SessionError, SessionLost
from ouro.memory.backend import NumberedRecord, Record
from ouro.memory.sessions.session_file import (
    FILE_NAME,
    RawRecord,
    number_of,
    open_private,
    read_file,
    read_range,
    rewrite_file,
    save_beside,
    split,
)

_TAIL = 256
"""Bytes at the end of what this process knows: they tell whether a file that has grown was only appended to."""


class OpenFile:
    """What a process knows of the session file that it has open. All methods block.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._size = 0
        self._tail = b""
        with open_private(folder, FILE_NAME, os.O_RDONLY) as descriptor:
            self._descriptor = os.dup(descriptor)  # the bytes can be read as long as it is open, whatever has its name
        self.take(self._descriptor)

    def take(self, descriptor: int) -> None:
        """Remember the end of the file after a record was appended."""
        self._size = os.fstat(descriptor).st_size
        self._tail = os.pread(self._descriptor, _TAIL, max(0, self._size - _TAIL))

    def check(self, descriptor: int) -> None:
        """Raises SessionLost where this descriptor does not lead to the file, or the file has lost bytes."""
        found, known = os.fstat(descriptor), os.fstat(self._descriptor)
        if (found.st_dev, found.st_ino) != (known.st_dev, known.st_ino):
            raise self.lost("replaced")
        if not self._has_all():
            raise self.lost("cut or rewritten")

    def lost(self, what: str) -> SessionLost:
        return SessionLost(f"{self._folder / FILE_NAME} was {what} by another program while the session was open.")

    def write_again(self, records: Sequence[Record], encode: Callable[[Record], bytes], header: bytes) -> Path | None:
        """Write the session again: the file as it was, or where its bytes are gone, what is left and `records`.

        Args:
            records: of the session that are in memory, oldest first; all of them were saved.

        Returns:
            The file to which what was there was moved; None where there was nothing else.
        """
        found = b""
        with suppress(FileNotFoundError, SessionError):
            found = read_file(self._folder)
        if self._has_all():
            data = read_range(self._descriptor, 0, self._size)
        else:
            data = header + _before(found, records) + b"".join(map(encode, records))
        beside = None if data.startswith(found) else save_beside(self._folder, "found", found)
        rewrite_file(self._folder, FILE_NAME, data)
        return beside

    def close(self) -> None:
        os.close(self._descriptor)

    def _has_all(self) -> bool:
        """Whether the file that was opened still has all that this process has read and written."""
        start = max(0, self._size - _TAIL)
        return os.pread(self._descriptor, len(self._tail), start) == self._tail


def _before(data: bytes, records: Sequence[Record]) -> bytes:
    """The records that are left of a file, from behind its header to those that are in memory."""
    in_memory = {record.number for record in records if isinstance(record, NumberedRecord)}
    left = [record for record in split(data)[0] if record.is_whole][1:]
    end = next((place for place, record in enumerate(left) if number_of(record) in in_memory), len(left))
    return b"".join(_whole(data, record) for record in left[:end])


def _whole(data: bytes, record: RawRecord) -> bytes:
    found = data[record.offset : record.offset + record.size]
    return found if found.endswith(b"\n") else found + b"\n"
