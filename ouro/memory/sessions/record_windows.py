"""Reads records of a session file without reading all of it: backwards, at an offset, or a window at a
time.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ouro.memory.sessions.session_file import (
    END_BEGINS,
    END_MARK,
    FILE_NAME,
    MAX_READ_BYTES,
    START_MARK,
    RawRecord,
    find_marks,
    open_private_file,
    read_range,
    records_in,
)

if TYPE_CHECKING:
    from aiofiles.threadpool.binary import AsyncFileIO

_FIRST_WINDOW = 1 << 17
"""Bytes of the first read when reading backwards; it is usually enough."""
_WINDOW = 1 << 19
"""Bytes of each further read."""
_MAX_WINDOW = 1 << 30
"""A record of more bytes is not looked for."""


@asynccontextmanager
async def open_session_file(folder: Path) -> AsyncIterator[AsyncFileIO]:
    """Open the session file in `folder` for `read_at`; it is closed at the end of the block.

    It is opened by `open_private_file`, which makes it private and raises SessionError for a
    symlink or a file of another user. The path and the flags that aiofiles would use are ignored.
    """
    import aiofiles  # imported late: it takes 2 ms, and a start does not need it

    check = partial(open_private_file, folder, FILE_NAME, os.O_RDONLY)
    async with aiofiles.open(
        folder / FILE_NAME, "rb", buffering=0, opener=lambda *_: check()
    ) as file:
        yield file


async def read_backward(file: AsyncFileIO, begin: int, end: int) -> AsyncIterator[RawRecord]:
    """Yield the records between the offsets `begin` and `end`, last one first. A record must begin
    at `begin`, and one must end at `end`. The file is read backward in windows: a window is read
    only when the records of the one before are used up.
    """
    window_size = _FIRST_WINDOW  # of the next window, in bytes
    rest = b""  # bytes that were read, but not yielded: the end of an incomplete record
    while end > begin:
        start = max(begin, end - window_size)
        data = await read_at(file, start, end) + rest
        # The position in `data` where the first whole record begins; None: it has none.
        first_record = 0 if start == begin else _end_of_first_mark(data)
        if first_record is None:
            window_size *= 2
            rest = data
        else:
            for record in reversed(records_in(data[first_record:], start + first_record)):
                yield record
            window_size = _WINDOW
            rest = data[:first_record]
        end = start


def _end_of_first_mark(data: bytes) -> int | None:
    """Returns the position after the first end mark in data that begins in the middle of a line;
    None if it has none.
    """
    next_line = data.find(b"\n") + 1
    if next_line == 0:
        return None
    mark = next(find_marks(END_MARK, begins=END_BEGINS, data=data, offset=next_line), None)
    return mark.end() if mark else None


async def read_record_at(file: AsyncFileIO, offset: int) -> RawRecord | None:
    """Returns the record that begins at an offset; None if no record begins there, or it has no end
    mark.
    """
    if offset > 0 and await read_at(file, offset - 1, offset) != b"\n":
        return None
    window_size = 1 << 16
    while True:
        data = await read_at(file, offset, offset + window_size)
        if not START_MARK.match(data):
            return None
        records = records_in(data, offset)
        if records:
            return records[0]
        is_file_end = len(data) < window_size
        if is_file_end:
            return None
        window_size *= 8


async def read_at(file: AsyncFileIO, start: int, end: int) -> bytes:
    """Returns the bytes from `start` to `end`; fewer if the file is shorter."""
    await file.seek(start)
    pieces: list[bytes] = []
    while start < end and (piece := await file.read(min(end - start, MAX_READ_BYTES))):
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


def read_records(
    descriptor: int, start: int, end: int, window: int = 8 << 20
) -> Iterator[RawRecord]:
    """Yield the records between two offsets, first one first. Reads `window` bytes at a time, and
    more for a longer record. Ends where no end mark follows any more. Blocks.
    """
    window_size = window
    while start < end:
        data = read_range(descriptor, start, min(end, start + window_size))
        records = records_in(data, start)
        yield from records
        if records:
            start = records[-1].offset + records[-1].size
            window_size = window
        elif start + window_size < end and window_size < _MAX_WINDOW:
            window_size *= 8  # one record is longer than the window
        else:
            return
