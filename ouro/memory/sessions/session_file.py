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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from ouro.errors import SessionError, SessionInUse, SessionLost, SessionOpenHere
from ouro.memory.backend import NumberedRecord, Record, timestamp
from ouro.memory.safe_yaml import dump
from ouro.utils.files import lock_descriptor, note_written_dir, replace_file, unlock
from ouro.utils.late_pattern import late_pattern
from ouro.utils.processes import is_running, is_suspended
from ouro.utils.text import local_time

if TYPE_CHECKING:
    from typing_extensions import Buffer

FILE_NAME = "session.yaml"
LOCK_NAME = "lock"
START = b"---\n"
END_LINE = b"...\n"
END = b"\n" + END_LINE
_START_BEGINS = b"---"
END_BEGINS = b"..."
"""How every mark begins, also one that was written by hand with blanks after it."""
START_MARK = late_pattern(rb"^---[ \t\r]*$", re.MULTILINE)
END_MARK = late_pattern(rb"^\.\.\.[ \t\r]*(?:\n|\Z)", re.MULTILINE)
_FIRST_KEY = late_pattern(rb"(?:\xef\xbb\xbf)?(?:\s|#[^\n]*\n)*(\w+):")
"""The first key of a record, after blank lines and comments."""
_NUMBER_LINE = late_pattern(
    rb"^(?:message|compaction|drop): *([0-9]{1,15})[ \t\r]*(?:#[^\n]*)?$", re.MULTILINE
)
"""The line with the number of a message, a compaction or a drop."""
_ROLE_LINE = late_pattern(rb"^role:", re.MULTILINE)
_BLANK_LINES = late_pattern(rb"(?:\xef\xbb\xbf)?(?:[ \t\r]*(?:#[^\n]*)?\n)*[ \t\r]*(?:#[^\n]*)?\Z")
"""Text with nothing but blank lines and comments."""
MAX_READ_BYTES = 1 << 26
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
    """Returns the records in `data`, and the bytes after the last end mark, which are empty in an
    undamaged file.

    Args:
        offset: the position of `data` in the file.
    """
    records: list[RawRecord] = []
    position = 0
    for end_mark in find_marks(END_MARK, END_BEGINS, data):
        text, size = data[position : end_mark.start()], end_mark.end() - position
        # Several, if the end mark of an earlier record is missing.
        records.extend(_cut_records(text, offset + position, size))
        position = end_mark.end()
    tail = data[position:]
    return records, b"" if _BLANK_LINES.match(tail) else tail


def records_in(data: bytes, offset: int = 0) -> list[RawRecord]:
    """Returns the records in `data`, without what is after the last end mark. `offset` is the
    position of `data` in the file.
    """
    records, _tail = split_records(data, offset)
    return records


def _cut_records(text: bytes, offset: int, size: int) -> Iterator[RawRecord]:
    """Yield the record in a text that ends before an end mark.

    If an end mark is missing before it, the text has several start marks: each record is yielded,
    and only the last one is whole.

    Args:
        offset: the position of the text in the file.
        size: the number of its bytes together with the end mark.
    """
    starts = list(find_marks(START_MARK, _START_BEGINS, text))
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
    """Returns the first key of a record, which says its kind. Empty if the record is not whole, or
    a YAML parser is needed to find the key.
    """
    match = _FIRST_KEY.match(record.data)
    return match[1].decode() if match and record.is_whole else ""


def number_of(record: RawRecord) -> int:
    """Returns the number of a message, a compaction or a drop, without parsing it; 0 if it has
    none.
    """
    match = _NUMBER_LINE.search(record.data)
    return int(match[1]) if match else 0


def is_message(record: RawRecord) -> bool:
    """Whether a record is whole and looks like a message, without parsing it."""
    return record.is_whole and _ROLE_LINE.search(record.data) is not None


def find_marks(
    mark: re.Pattern[bytes], begins: bytes, data: bytes, offset: int = 0
) -> Iterator[re.Match[bytes]]:
    """Yield the matches of a mark, a pattern of a whole line, from `offset` on.

    Args:
        begins: the bytes with which each mark begins. `find` looks for them, because it is faster
            than the pattern.
        offset: the start of a line.
    """
    while True:
        match = mark.match(data, offset)
        if match:
            yield match
        # The newline at the end of a mark may be the one before the next mark.
        search_from = max(offset, match.end() - 1) if match else offset
        newline = data.find(b"\n" + begins, search_from)
        if newline < 0:
            return
        offset = newline + 1


def _open_folder(folder: Path) -> int:
    """Open a folder; returns its descriptor. Raises SessionError for a symlink, or a folder of
    another user.
    """
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


def open_private_file(folder: Path, name: str, flags: int) -> int:
    """Open the regular file `name` in `folder`, and make it private (0600); returns its descriptor.

    Raises SessionError for a symlink, a device, or a file or folder of another user; OSError if it
    cannot be opened with these flags.
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
    descriptor = open_private_file(folder, name, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def encode_record(data: Any) -> bytes:
    """Returns the bytes of a record with this plain data, with its marks."""
    return START + dump(data).encode() + END_LINE


def _write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes. One call of `os.write` may write only some of them."""
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, data[written:])


def set_tail_aside(folder: Path, descriptor: int) -> Path | None:
    """Move what follows the last end mark of a session file to a `.torn` file beside it. Returns
    the path of that file; None if there is nothing to move.
    """
    size = os.fstat(descriptor).st_size
    ends_with_mark = os.pread(descriptor, len(END), max(0, size - len(END))) == END
    if size == 0 or ends_with_mark:
        return None
    start, tail = find_whole_end(descriptor)
    if not tail:
        return None
    saved_path = save_beside(folder, "torn", tail)
    os.ftruncate(descriptor, start)
    os.fsync(descriptor)
    return saved_path


def find_whole_end(descriptor: int) -> tuple[int, bytes]:
    """Returns the offset where the last whole record ends, and the bytes after it, which are empty
    in an undamaged file. Reads larger and larger windows from the end. Blocks.
    """
    size = os.fstat(descriptor).st_size
    window = 1 << 16
    while True:
        start = max(0, size - window)
        data = read_range(descriptor, start, size)
        # A window that does not begin at the start of the file begins in the middle of a line.
        first_line = 0 if start == 0 else data.find(b"\n") + 1
        has_line_start = start == 0 or first_line > 0
        ends: list[int] = []
        if has_line_start:
            marks = find_marks(END_MARK, begins=END_BEGINS, data=data, offset=first_line)
            ends = [mark.end() for mark in marks]
        if ends or start == 0:
            end = ends[-1] if ends else 0
            tail = b"" if _BLANK_LINES.match(data, end) else data[end:]
            return start + end, tail
        window *= 8


def save_beside(folder: Path, ending: str, data: bytes) -> Path:
    """Write bytes to a new file `session-N.ENDING` in `folder`, with the first free number; returns
    its path.
    """
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
    """Replace a whole file, or make it. It is on disk when this returns. Raises as
    `open_private`.
    """
    descriptor = _open_folder(folder)
    # A kill may leave a temporary file here. `SessionFolders.sweep` does not look into the folders
    # of old sessions, which are written again when they are resumed.
    note_written_dir(descriptor)
    try:
        replace_file(descriptor, name, data)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Wait until the names that were added to a folder or removed from it are on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_file(folder: Path, name: str = FILE_NAME) -> bytes:
    """Returns the content of a file in `folder`, under the checks of `open_private`. Blocks."""
    with open_private(folder, name, os.O_RDONLY) as descriptor:
        return read_range(descriptor, start=0, end=os.fstat(descriptor).st_size)


def read_range(descriptor: int, start: int, end: int) -> bytes:
    """Returns the bytes from `start` to `end`; fewer if the file is shorter. Blocks."""
    pieces: list[bytes] = []
    while start < end and (piece := os.pread(descriptor, min(end - start, MAX_READ_BYTES), start)):
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


class OpenFile(FileIO):
    """The session file that a process has open, and its lock. All methods but `append` block and
    raise OSError.

    Args:
        offsets: where each message begins, by number: a compaction records it for the messages that
            it keeps.
        new: the file must not exist yet.
    """

    def __init__(
        self, folder: Path, lock: SessionLock, offsets: Mapping[int, int] = {}, *, new: bool = False
    ) -> None:
        flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT | os.O_EXCL if new else 0)
        # Opened for reading, too: `write_again` reads the bytes even if the file was deleted.
        super().__init__(open_private_file(folder, FILE_NAME, flags), "rb+")
        self.folder = folder
        self.lock = lock
        self.offsets = dict(offsets)
        self._size = 0
        """The size of the file after the last save."""
        self._tail = b""
        """The last bytes of the file after the last save."""
        self._one_append = Lock()
        self._remember_end(self.fileno())

    @property
    def end(self) -> int:
        """The offset where the next record begins, unless another program appends to the file
        first.
        """
        last_byte = self._tail[-1:]
        needs_newline = last_byte not in (b"", b"\n")
        return self._size + 1 if needs_newline else self._size

    async def append(self, records: Iterable[bytes]) -> None:
        """Append each record with `write`, all of them in one thread. If `records` is a generator,
        it runs in that thread too.
        """
        await asyncio.to_thread(self.writelines, records)

    def writelines(self, records: Iterable[Buffer]) -> None:
        """Append each record with `write`. Other calls wait meanwhile."""
        with self._one_append:  # a save whose caller was cancelled may still run
            super().writelines(records)

    def write(self, record: Buffer) -> int:
        """Append one record, which is on disk when this returns; returns its number of bytes.

        What follows the last end mark is moved to a `.torn` file first. A record that cannot be
        written whole is removed again. Raises SessionLost as `require_unchanged`.
        """
        data = bytes(record)
        # A copy: `close` does not wait for a save whose caller was cancelled.
        descriptor = os.dup(self.fileno())
        try:
            # Some network disks have no locks; there O_APPEND keeps records apart.
            with suppress(OSError):
                lock_descriptor(descriptor)
            self.require_unchanged(descriptor)
            set_tail_aside(self.folder, descriptor)
            size = os.fstat(descriptor).st_size
            ends_line = size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"
            try:
                _write_all(descriptor, data if ends_line else b"\n" + data)
                os.fsync(descriptor)
                self._remember_end(descriptor)
            except OSError:
                os.ftruncate(descriptor, size)
                raise
        finally:
            unlock(descriptor)
        return len(data)

    def _remember_end(self, descriptor: int) -> None:
        """Remember the size and the last bytes of the file, for `_has_all_bytes` and `end`."""
        self._size = os.fstat(descriptor).st_size
        self._tail = os.pread(descriptor, _TAIL_BYTES, max(0, self._size - _TAIL_BYTES))

    def require_unchanged(self, descriptor: int) -> None:
        """Raise SessionLost if another program deleted, replaced, cut or rewrote this file.

        Args:
            descriptor: one of this file.
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
        """Returns the error for this file; `what` is what another program did with it."""
        return SessionLost(
            f"{self.folder / FILE_NAME} was {what} by another program while the session was open."
        )

    def write_again(
        self, records: Sequence[Record], encode: Callable[[Record], bytes], header: bytes
    ) -> Path | None:
        """Write the session file again after another program has deleted, replaced or cut it.

        If the opened file still has all its bytes, these are written. Otherwise the new file has
        the header, the records of the present file that are not in memory, and then those in
        memory.

        Args:
            records: the records in memory, oldest first.
            encode: makes the bytes of a record.
            header: the bytes of the header.

        Returns:
            The path where the bytes of the present file were saved; None if there was none, or the
            new file begins with them.
        """
        other_data = b""  # what is now in the place of the session file
        with suppress(FileNotFoundError, SessionError):
            other_data = read_file(self.folder)
        if self._has_all_bytes(self.fileno()):
            data = read_range(self.fileno(), start=0, end=self._size)
        else:
            data = header + _records_before(other_data, records) + b"".join(map(encode, records))
        saved_path = None
        if not data.startswith(other_data):
            saved_path = save_beside(self.folder, "found", other_data)
        rewrite_file(self.folder, FILE_NAME, data)
        return saved_path

    def _has_all_bytes(self, descriptor: int) -> bool:
        """Whether the opened file still has all that this process has read and written: its last
        bytes are at the same place.
        """
        start = max(0, self._size - _TAIL_BYTES)
        return os.pread(descriptor, len(self._tail), start) == self._tail


def _records_before(data: bytes, records: Sequence[Record]) -> bytes:
    """Returns the bytes of the records of a file after its header, up to the first one that is
    among `records` by its number.
    """
    in_memory = {record.number for record in records if isinstance(record, NumberedRecord)}
    whole_records = [record for record in records_in(data) if record.is_whole]
    records_data: list[bytes] = []
    for record in whole_records[1:]:  # the first one is the header
        if number_of(record) in in_memory:
            break
        text = data[record.offset : record.offset + record.size]
        records_data.append(text if text.endswith(b"\n") else text + b"\n")
    return b"".join(records_data)


class SessionLock:
    """The lock of a session, held from construction until `close`.

    Raises SessionInUse if another process holds it, and names that process.
    """

    def __init__(self, folder: Path) -> None:
        """Lock the session in `folder`, and write this process and the time into the lock file.

        Raises:
            SessionOpenHere: another session of this process has it open.
            SessionInUse: another process has it open.
        """
        self._descriptor = open_private_file(folder, LOCK_NAME, os.O_RDWR | os.O_CREAT)
        try:
            self._lock()
        except BlockingIOError as error:
            pid, _, since = self._holder().partition(" ")
            os.close(self._descriptor)
            if pid == str(os.getpid()):
                raise SessionOpenHere from error
            who = "another process"
            if since:
                who = f"process {pid} since {local_time(since) or since}"
            if pid.isdecimal() and is_suspended(int(pid)):
                who += ", which is suspended: `fg` in its terminal continues it"
            raise SessionInUse(
                f"This session is in use by {who}.",
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
        """Lock the file. Raises BlockingIOError if a running process holds the lock, or OSError on
        a disk without locks.
        """
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
        """Returns the process id and the time that the holder of the lock has written, with a space
        between them; empty if nothing was written.
        """
        return os.pread(self._descriptor, 200, 0).decode("utf-8", "replace").strip()
