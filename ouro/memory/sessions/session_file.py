"""The bytes of a session file: records read and appended, the lock, files that are replaced as a
whole.

A record is the lines from `---` to `...`, both in column 0. Inside a record every line is indented
or starts with a key, so no line can look like a mark. A record counts only with its end mark: a
message cut by a crash or a full disk has none. There is no checksum, because users may edit a
session with any editor. Holes that a lost fsync can leave (NUL bytes) are not valid YAML and are
found when the record is parsed.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import stat
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from ouro.errors import SessionError, SessionInUse, SessionLost, SessionOpenHere
from ouro.memory.backend import NumberedRecord, Record, timestamp
from ouro.memory.sessions.yaml_text import dump
from ouro.utils.files import lock_descriptor, note_written_dir, replace_file, unlock
from ouro.utils.late_pattern import late_pattern
from ouro.utils.processes import is_running, is_suspended
from ouro.utils.text import local_time

if TYPE_CHECKING:
    from aiofiles.threadpool.binary import AsyncFileIO
    from typing_extensions import Buffer

FILE_NAME = "session.yaml"
LOCK_NAME = "lock"
START = b"---\n"
END = b"\n...\n"
_START_MARK = late_pattern(rb"^---[ \t\r]*$", re.MULTILINE)
_END_MARK = late_pattern(rb"^\.\.\.[ \t\r]*(?:\n|\Z)", re.MULTILINE)
_FIRST_KEY = late_pattern(rb"(?:\xef\xbb\xbf)?(?:\s|#[^\n]*\n)*(\w+):")
"""The first key of a record, after blank lines and comments."""
_NUMBER_LINE = late_pattern(
    rb"^(?:message|compaction|drop): *([0-9]{1,15})[ \t\r]*(?:#[^\n]*)?$", re.MULTILINE
)
"""The line with the number of a message, a compaction or a drop."""
_ROLE_LINE = late_pattern(rb"^role:", re.MULTILINE)
_BLANK_LINES = late_pattern(rb"(?:\xef\xbb\xbf)?(?:[ \t\r]*(?:#[^\n]*)?\n)*[ \t\r]*(?:#[^\n]*)?\Z")
"""Text with nothing but blank lines and comments."""
_FIRST_WINDOW = 1 << 17
"""Bytes of the first read when reading backwards; it is usually enough."""
_WINDOW = 1 << 19
"""Bytes of each further read."""
_MAX_READ_BYTES = 1 << 26
_ORPHAN_TIMEOUT = 1.0
"""Seconds to wait for a lock whose holder was killed."""
_TAIL_BYTES = 256
"""Bytes at the end of the known part of a file: they show whether a file that has grown was only
appended to.
"""


class RawRecord(msgspec.Struct, frozen=True):
    """The bytes of one record without its marks, and where they are in the file."""

    data: bytes
    offset: int
    size: int
    """Bytes of the record with its marks."""
    is_whole: bool = True
    """False if the end mark is missing: then the record must not be loaded."""


def split_records(data: bytes, offset: int = 0) -> tuple[list[RawRecord], bytes]:
    """The records in `data`, and the tail without an end mark (empty in an undamaged file).
    `offset`: of `data` in the file.
    """
    records: list[RawRecord] = []
    position = 0
    for end in _find_marks(_END_MARK, END[1:4], data):
        records.extend(
            _cut_records(data[position : end.start()], offset + position, end.end() - position)
        )
        position = end.end()
    tail = data[position:]
    return records, b"" if _BLANK_LINES.match(tail) else tail


def records_in(data: bytes, offset: int = 0) -> list[RawRecord]:
    """The records in `data`, without a tail that has no end mark. `offset`: of `data` in the file."""
    records, _tail = split_records(data, offset)
    return records


def _cut_records(text: bytes, offset: int, size: int) -> Iterator[RawRecord]:
    """Yield the record of a text up to an end mark. If an end mark is missing between several
    records, each is yielded, and only the last one is complete.
    """
    starts = list(_find_marks(_START_MARK, START[:3], text))
    if not starts:
        yield RawRecord(text, offset, size)
        return
    for start, following in itertools.pairwise(starts):
        length = following.start() - start.start()
        yield RawRecord(
            text[start.end() : following.start()], offset + start.start(), length, is_whole=False
        )
    last = starts[-1]
    yield RawRecord(text[last.end() :], offset + last.start(), size - last.start())


def kind_of(record: RawRecord) -> str:
    """The first key of a record; empty if a YAML parser is needed to find it."""
    match = _FIRST_KEY.match(record.data)
    return match[1].decode() if match and record.is_whole else ""


def number_of(record: RawRecord) -> int:
    """The number of a message, a compaction or a drop; 0 if it has none."""
    match = _NUMBER_LINE.search(record.data)
    return int(match[1]) if match else 0


def is_message(record: RawRecord) -> bool:
    """Whether a record looks like a message, without parsing it."""
    return record.is_whole and _ROLE_LINE.search(record.data) is not None


def _find_marks(
    mark: re.Pattern[bytes], begins: bytes, data: bytes, offset: int = 0
) -> Iterator[re.Match[bytes]]:
    """Yield the marks from `offset` on, which must be the start of a line.

    Args:
        begins: the bytes with which each mark begins: `find` skips other lines fast.
    """
    while True:
        match = mark.match(data, offset)
        if match:
            yield match
        search_from = max(offset, match.end() - 1) if match else offset
        newline = data.find(b"\n" + begins, search_from)
        if newline < 0:
            return
        offset = newline + 1


def _open_folder(folder: Path) -> int:
    """A descriptor of a folder; raises SessionError for a symlink, or a folder of another user."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError as error:
        raise SessionError(
            f"{folder} is not a folder that ouro made. It is left unchanged."
        ) from error
    if os.fstat(descriptor).st_uid != os.getuid():
        os.close(descriptor)
        raise SessionError(
            f"{folder} belongs to another user; ouro does not use it.",
            "Move it away, or set OURO_HOME.",
        )
    return descriptor


def _open_private_file(folder: Path, name: str, flags: int) -> int:
    """A descriptor of the regular file `name` in `folder`, made private (0600).

    Raises SessionError for a symlink, a device, or a file or folder of another user.
    """
    folder_descriptor = _open_folder(folder)
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, 0o600, dir_fd=folder_descriptor)
    except OSError as error:
        error.filename = str(folder / name)
        raise
    finally:
        os.close(folder_descriptor)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise SessionError(f"{folder / name} is not a regular file. It is left unchanged.")
        if status.st_uid != os.getuid():
            raise SessionError(f"{folder / name} belongs to another user; ouro does not use it.")
        if status.st_mode & 0o077:
            os.fchmod(descriptor, 0o600)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def open_private(folder: Path, name: str, flags: int) -> Iterator[int]:
    """Open the regular file `name` in `folder`, made private (0600); it is closed at the end of the
    block. Blocks.

    Raises SessionError for a symlink, a device, or a file or folder of another user.
    """
    descriptor = _open_private_file(folder, name, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@asynccontextmanager
async def open_session_file(folder: Path) -> AsyncIterator[AsyncFileIO]:
    """The session file, opened with the same checks, for `read_at`."""
    import aiofiles  # imported late: it takes 2 ms, and a start does not need it

    check = partial(_open_private_file, folder, FILE_NAME, os.O_RDONLY)
    async with aiofiles.open(
        folder / FILE_NAME, "rb", buffering=0, opener=lambda *_: check()
    ) as file:
        yield file


def encode_record(data: Any) -> bytes:
    """A record from plain data, with its marks."""
    return START + dump(data).encode() + END[1:]


def _write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes: one call may write only some of them."""
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, data[written:])


def set_tail_aside(folder: Path, descriptor: int) -> Path | None:
    """Move what follows the last end mark to a `.torn` file. Returns that file; None if there is
    nothing to move.
    """
    size = os.fstat(descriptor).st_size
    if size == 0 or os.pread(descriptor, len(END), max(0, size - len(END))) == END:
        return None
    start, tail = find_whole_end(descriptor)
    if not tail:
        return None
    saved_path = save_beside(folder, "torn", tail)
    os.ftruncate(descriptor, start)
    os.fsync(descriptor)
    return saved_path


def find_whole_end(descriptor: int) -> tuple[int, bytes]:
    """The offset where the last whole record ends, and the tail without an end mark (usually
    empty). Blocks.
    """
    size = os.fstat(descriptor).st_size
    window = 1 << 16
    while True:
        start = max(0, size - window)
        data = read_range(descriptor, start, size)
        # A window may begin in the middle of a line.
        first_line = 0 if start == 0 else data.find(b"\n") + 1
        ends = (
            [match.end() for match in _find_marks(_END_MARK, END[1:4], data, first_line)]
            if first_line or start == 0
            else []
        )
        if ends or start == 0:
            end = ends[-1] if ends else 0
            return start + end, b"" if _BLANK_LINES.match(data, end) else data[end:]
        window *= 8


async def read_backward(file: AsyncFileIO, begin: int, end: int) -> AsyncIterator[RawRecord]:
    """Yield the records between two record borders, last one first. Reads at most one window more
    than is consumed.
    """
    reach, rest = _FIRST_WINDOW, b""
    while end > begin:
        start = max(begin, end - reach)
        data = await read_at(file, start, end) + rest
        cut: int | None = 0
        if start > begin:  # the window begins in the middle of a record
            next_line = data.find(b"\n") + 1
            mark = (
                next(_find_marks(_END_MARK, END[1:4], data, next_line), None) if next_line else None
            )
            cut = mark.end() if mark else None
        if cut is None:
            reach *= 2
        else:
            for record in reversed(records_in(data[cut:], start + cut)):
                yield record
            reach = _WINDOW
        rest, end = (data if cut is None else data[:cut]), start


async def read_record_at(file: AsyncFileIO, offset: int) -> RawRecord | None:
    """The record that begins at an offset; None if no record begins there."""
    if offset > 0 and await read_at(file, offset - 1, offset) != b"\n":
        return None
    reach = 1 << 16
    while True:
        data = await read_at(file, offset, offset + reach)
        if not _START_MARK.match(data):
            return None
        records = records_in(data, offset)
        if records or len(data) < reach:
            return records[0] if records else None
        reach *= 8


async def read_at(file: AsyncFileIO, start: int, end: int) -> bytes:
    """The bytes from `start` to `end`; fewer if the file has become shorter."""
    await file.seek(start)
    pieces: list[bytes] = []
    while start < end and (piece := await file.read(min(end - start, _MAX_READ_BYTES))):
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


def save_beside(folder: Path, ending: str, data: bytes) -> Path:
    """Write bytes to the next free `session-N.ENDING`."""
    number = 1
    while True:
        name = f"session-{number}.{ending}"
        try:
            with open_private(folder, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
                _write_all(descriptor, data)
                os.fsync(descriptor)
        except FileExistsError:
            number += 1
            continue
        sync_folder(folder)
        return folder / name


def rewrite_file(folder: Path, name: str, data: bytes) -> None:
    """Replace a whole file, on disk when this returns. Raises as `open_private`."""
    descriptor = _open_folder(folder)
    # A kill may leave a temporary file here. `SessionFolders.sweep` does not look into the folders
    # of old sessions, which are written again when they are resumed.
    note_written_dir(descriptor)
    try:
        replace_file(descriptor, name, data)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make sure that names which were added to a folder or removed from it are on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_file(folder: Path, name: str = FILE_NAME) -> bytes:
    """A whole file, under the checks of `open_private`. Blocks."""
    with open_private(folder, name, os.O_RDONLY) as descriptor:
        return read_range(descriptor, 0, os.fstat(descriptor).st_size)


def read_range(descriptor: int, start: int, end: int) -> bytes:
    """The bytes from `start` to `end`; fewer if the file has become shorter. Blocks."""
    pieces: list[bytes] = []
    while start < end and (piece := os.pread(descriptor, min(end - start, _MAX_READ_BYTES), start)):
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


def read_records(
    descriptor: int, start: int, end: int, window: int = 8 << 20
) -> Iterator[RawRecord]:
    """Yield the records between two offsets, a few megabytes at a time. Ends at a tail without an
    end mark. Blocks.
    """
    reach = window
    while start < end:
        data = read_range(descriptor, start, min(end, start + reach))
        records = records_in(data, start)
        yield from records
        if records:
            start, reach = records[-1].offset + records[-1].size, window
        elif start + reach < end and reach < 1 << 30:
            reach *= 8  # one record is longer than the window
        else:
            return


class OpenFile(FileIO):
    """The session file that a process has open, and its lock. All methods but `append` block and
    raise OSError.

    Args:
        offsets: where each message begins, by number: a compaction records it for the messages that it keeps.
        new: the file must not exist yet.
    """

    def __init__(
        self, folder: Path, lock: SessionLock, offsets: Mapping[int, int] = {}, *, new: bool = False
    ) -> None:
        flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT | os.O_EXCL if new else 0)
        # Readable while it is open, even if another file has its name.
        super().__init__(_open_private_file(folder, FILE_NAME, flags), "rb+")
        self.folder = folder
        self.lock = lock
        self.offsets = dict(offsets)
        self._size = 0
        self._tail = b""
        self._one_append = Lock()
        self._remember_end(self.fileno())

    @property
    def end(self) -> int:
        """Where the next record begins, unless another program appends to the file first."""
        return self._size + (self._tail[-1:] not in (b"", b"\n"))

    async def append(self, records: Iterable[bytes]) -> None:
        """Append each record with `write`, in one thread call, in which a generator makes its
        records, too.
        """
        await asyncio.to_thread(self.writelines, records)

    def writelines(self, records: Iterable[Buffer]) -> None:
        """Append each record with `write`. Other calls wait meanwhile."""
        with self._one_append:  # a save whose caller was cancelled may still run
            super().writelines(records)

    def write(self, record: Buffer) -> int:
        """Append one record in one write call and flush it.

        A tail without an end mark is moved to a `.torn` file first. A record that cannot be written
        whole is removed again. Raises SessionLost as `check`.
        """
        data = bytes(record)
        # `close` does not wait for a save whose caller was cancelled.
        descriptor = os.dup(self.fileno())
        try:
            # Some network disks have no locks; there O_APPEND keeps records apart.
            with suppress(OSError):
                lock_descriptor(descriptor)
            self.check(descriptor)
            set_tail_aside(self.folder, descriptor)
            size = os.fstat(descriptor).st_size
            glue = b"" if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n" else b"\n"
            try:
                _write_all(descriptor, glue + data)
                os.fsync(descriptor)
                self._remember_end(descriptor)
            except OSError:
                os.ftruncate(descriptor, size)
                raise
        finally:
            unlock(descriptor)
        return len(data)

    def _remember_end(self, descriptor: int) -> None:
        """Store the size and the last bytes of the file, with which `_has_all_bytes` compares it."""
        self._size = os.fstat(descriptor).st_size
        self._tail = os.pread(descriptor, _TAIL_BYTES, max(0, self._size - _TAIL_BYTES))

    def check(self, descriptor: int) -> None:
        """Raise SessionLost if another file has the name of this one, or bytes of it are gone.

        Args:
            descriptor: of this file.
        """
        try:
            with open_private(self.folder, FILE_NAME, os.O_RDONLY) as named:
                is_same = os.path.sameopenfile(named, descriptor)
        except (FileNotFoundError, SessionError) as error:
            raise self._lost_error(
                "deleted" if isinstance(error, FileNotFoundError) else "replaced"
            ) from error
        if not is_same:
            raise self._lost_error("replaced")
        if not self._has_all_bytes(descriptor):
            raise self._lost_error("cut or rewritten")

    def _lost_error(self, what: str) -> SessionLost:
        """The error for a file that another program replaced, deleted or changed."""
        return SessionLost(
            f"{self.folder / FILE_NAME} was {what} by another program while the session was open."
        )

    def write_again(
        self, records: Sequence[Record], encode: Callable[[Record], bytes], header: bytes
    ) -> Path | None:
        """Write the session again, when another program has deleted, replaced or cut its file.

        That is the opened file. If bytes of it are gone, it is the records that are left and
        `records`, those in memory, oldest first. Returns where the bytes of the other program were
        saved; None if there were none, or they are in the session.
        """
        other_data = b""
        with suppress(FileNotFoundError, SessionError):
            other_data = read_file(self.folder)
        if self._has_all_bytes(self.fileno()):
            data = read_range(self.fileno(), 0, self._size)
        else:
            data = header + _records_before(other_data, records) + b"".join(map(encode, records))
        saved_path = (
            None if data.startswith(other_data) else save_beside(self.folder, "found", other_data)
        )
        rewrite_file(self.folder, FILE_NAME, data)
        return saved_path

    def _has_all_bytes(self, descriptor: int) -> bool:
        """Whether the file that was opened still has all that this process has read and written."""
        start = max(0, self._size - _TAIL_BYTES)
        return os.pread(descriptor, len(self._tail), start) == self._tail


def _records_before(data: bytes, records: Sequence[Record]) -> bytes:
    """The bytes of the records after the header of a file, up to the first one that is among
    `records`.
    """
    in_memory = {record.number for record in records if isinstance(record, NumberedRecord)}
    records_data: list[bytes] = []
    for record in [record for record in records_in(data) if record.is_whole][1:]:
        if number_of(record) in in_memory:
            break
        text = data[record.offset : record.offset + record.size]
        records_data.append(text if text.endswith(b"\n") else text + b"\n")
    return b"".join(records_data)


class SessionLock:
    """The lock of a session, held until `close`. Raises SessionInUse, which names the process that
    holds the lock.
    """

    def __init__(self, folder: Path) -> None:
        self._descriptor = _open_private_file(folder, LOCK_NAME, os.O_RDWR | os.O_CREAT)
        try:
            self._lock()
        except BlockingIOError as error:
            pid, _, since = self._holder().partition(" ")
            os.close(self._descriptor)
            if pid == str(os.getpid()):
                raise SessionOpenHere from error
            who = (
                f"process {pid} since {local_time(since) or since}" if since else "another process"
            )
            is_waiting = pid.isdecimal() and is_suspended(int(pid))
            suspended = ", which is suspended: `fg` in its terminal continues it"
            raise SessionInUse(
                f"This session is in use by {who}{suspended if is_waiting else ''}.",
                "Continue there, close it, or open a copy with `--fork`.",
            ) from error
        except OSError:
            return  # a disk without locks: O_APPEND still keeps records apart
        with suppress(OSError):  # a full disk: the lock works, but cannot name its holder
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()} {timestamp()}\n".encode(), 0)

    def close(self) -> None:
        unlock(self._descriptor)

    def _lock(self) -> None:
        """Lock the file. Raises BlockingIOError if a running process holds the lock."""
        try:
            lock_descriptor(self._descriptor, timeout=0)
        except BlockingIOError:
            pid = self._holder().partition(" ")[0]
            if not pid.isdecimal() or is_running(int(pid)):
                raise
            # The holder was killed while it started a child: the child has the lock until it
            # executes its program.
            lock_descriptor(self._descriptor, timeout=_ORPHAN_TIMEOUT)

    def _holder(self) -> str:
        """The process id and the time that the holder of the lock has written; empty if there is
        none.
        """
        return os.pread(self._descriptor, 200, 0).decode("utf-8", "replace").strip()
