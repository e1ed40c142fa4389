"""The bytes of a session file: whole records in, whole records out.

A record is the lines from `---` to `...`, both in column 0; inside one, every line is indented or starts with a key,
so that nothing in it can look like a mark. A record counts only with its end mark: a message cut by a crash or a
full disk has none. There is no checksum, on purpose: a person may edit a session with any editor, and what fsync
could leave as holes in the middle (NUL bytes) is no YAML and so is found anyway."""

from __future__ import annotations

import fcntl
import itertools
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ouro.errors import SessionError, SessionInUse
from ouro.memory.backend import timestamp
from ouro.utils.files import lock_descriptor

FILE_NAME = "session.yaml"
START = b"---\n"
END = b"\n...\n"
_START_MARK = re.compile(rb"^---[ \t\r]*$", re.MULTILINE)
_END_MARK = re.compile(rb"^\.\.\.[ \t\r]*(?:\n|\Z)", re.MULTILINE)
_KIND = re.compile(rb"(?:\xef\xbb\xbf)?(?:\s|#[^\n]*\n)*(\w+):")
_NUMBER = re.compile(rb"^(?:message|compaction): *([0-9]{1,15})[ \t\r]*(?:#[^\n]*)?$", re.MULTILINE)
_ROLE = re.compile(rb"^role:", re.MULTILINE)
_BLANK = re.compile(rb"(?:\xef\xbb\xbf)?(?:[ \t\r]*(?:#[^\n]*)?\n)*[ \t\r]*(?:#[^\n]*)?\Z")


_FIRST_WINDOW, _WINDOW = 1 << 17, 1 << 19
"""Bytes that are read at once on the way back: most often the first are enough."""


class RawRecord(msgspec.Struct, frozen=True):
    """The bytes of one record without its marks, and where they are in the file."""

    data: bytes
    offset: int
    size: int
    """With the marks."""
    is_whole: bool = True
    """False: its end mark is missing, and it is not to be believed."""


def split(data: bytes, offset: int = 0) -> tuple[list[RawRecord], bytes]:
    """The records in `data`, and the tail that lacks its end mark (empty where all is well)."""
    blocks: list[RawRecord] = []
    position = 0
    for end in _marks(_END_MARK, END[1:4], data):
        blocks.extend(_blocks(data[position : end.start()], offset + position, end.end() - position))
        position = end.end()
    tail = data[position:]
    return blocks, b"" if _BLANK.match(tail) else tail


def _blocks(text: bytes, offset: int, size: int) -> Iterator[RawRecord]:
    """One block, or several where an end mark is missing between them: then only the last one is whole."""
    starts = list(_marks(_START_MARK, START[:3], text))
    if not starts:
        yield RawRecord(text, offset, size)
        return
    for start, following in itertools.pairwise(starts):
        length = following.start() - start.start()
        yield RawRecord(text[start.end() : following.start()], offset + start.start(), length, is_whole=False)
    last = starts[-1]
    yield RawRecord(text[last.end() :], offset + last.start(), size - last.start())


def kind_of(block: RawRecord) -> str:
    """The key that a record begins with; empty where it cannot be told without reading it."""
    found = _KIND.match(block.data)
    return found[1].decode() if found and block.is_whole else ""


def number_of(block: RawRecord) -> int:
    """The number of a message or a compaction; 0 where it has none."""
    found = _NUMBER.search(block.data)
    return int(found[1]) if found else 0


def is_message(block: RawRecord) -> bool:
    """Whether a block is a message, as far as can be told without reading it."""
    return block.is_whole and _ROLE.search(block.data) is not None


def _marks(mark: re.Pattern[bytes], begins: bytes, data: bytes, place: int = 0) -> Iterator[re.Match[bytes]]:
    """Where these marks are from a place on that a line begins at. A line that holds none costs next to nothing."""
    while place >= 0:
        found = mark.match(data, place)
        if found:
            yield found
        place = data.find(b"\n" + begins, max(place, found.end() - 1 if found else place)) + 1 or -1


@contextmanager
def opened(folder: Path, name: str, flags: int) -> Iterator[int]:
    """A descriptor of the regular file `name` in `folder`, ours alone to read (0600).

    Raises:
        SessionError: a symlink, a device, a folder of somebody else: nothing that ouro made.
        OSError: it cannot be opened.
    """
    place = _open_folder(folder)
    try:
        descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=place)
    finally:
        os.close(place)
    try:
        _check_ours(descriptor, folder / name)
        yield descriptor
    finally:
        os.close(descriptor)


def _open_folder(folder: Path) -> int:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError as error:
        raise SessionError(f"{folder} is not a folder that ouro made; it is left alone.") from error
    if os.fstat(descriptor).st_uid != os.getuid():
        os.close(descriptor)
        raise SessionError(
            f"{folder} belongs to another user; ouro does not use it.", "Move it away, or set OURO_HOME."
        )
    return descriptor


def _check_ours(descriptor: int, path: Path) -> None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise SessionError(f"{path} is not a regular file; it is left alone.")
    if found.st_uid != os.getuid():
        raise SessionError(f"{path} belongs to another user; ouro does not use it.")
    if found.st_mode & 0o077:
        os.fchmod(descriptor, 0o600)


def as_record(text: str) -> bytes:
    """The lines of a record between its marks."""
    return START + text.encode() + END[1:]


def append(folder: Path, record: bytes, *, create: bool = False) -> int:
    """Put one record behind the others, in one write, and on disk; gives the place where it begins.

    A tail without its end mark that is found there is set aside first. What cannot be written whole is taken back.

    Raises:
        OSError: it was not written.
        SessionError: the file is not ours.
    """
    flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT | os.O_EXCL if create else 0)
    with opened(folder, FILE_NAME, flags) as descriptor, _alone(descriptor):
        set_tail_aside(folder, descriptor)
        size = os.fstat(descriptor).st_size
        glue = b"" if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n" else b"\n"
        try:
            _write_all(descriptor, glue + START + record + END[1:])
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, size)
            raise
    if create:
        sync_folder(folder)
    return size + len(glue)


@contextmanager
def _alone(descriptor: int) -> Iterator[None]:
    try:
        lock_descriptor(descriptor)
    except OSError:
        # Some network disks know no locks; O_APPEND still keeps records apart.
        yield
        return
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _write_all(descriptor: int, data: bytes) -> None:
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, data[written:])


def set_tail_aside(folder: Path, descriptor: int) -> Path | None:
    """Cut off what stands behind the last end mark, and keep it in a file of its own; None where all is well."""
    size = os.fstat(descriptor).st_size
    if size == 0 or os.pread(descriptor, len(END), max(0, size - len(END))) == END:
        return None
    start, tail = end_of_whole(descriptor)
    if not tail:
        return None
    kept = keep_aside(folder, tail)
    os.ftruncate(descriptor, start)
    os.fsync(descriptor)
    return kept


def end_of_whole(descriptor: int) -> tuple[int, bytes]:
    """Where the last whole record ends, and the tail behind it that lacks its end mark (empty where all is well)."""
    size = os.fstat(descriptor).st_size
    reach = 1 << 16
    while True:
        start = max(0, size - reach)
        data = read_range(descriptor, start, size)
        # The first line of a window may be the middle of one.
        first = 0 if start == 0 else data.find(b"\n") + 1
        ends = [match.end() for match in _marks(_END_MARK, END[1:4], data, first)] if first or start == 0 else []
        if ends or start == 0:
            end = ends[-1] if ends else 0
            return start + end, b"" if _BLANK.match(data, end) else data[end:]
        reach *= 8


def blocks_back(descriptor: int, begin: int, end: int) -> Iterator[RawRecord]:
    """The records between two places where records begin or end, the last one first; no more is read than is taken."""
    reach, carried = _FIRST_WINDOW, b""
    while end > begin:
        start = max(begin, end - reach)
        data = read_range(descriptor, start, end) + carried
        cut = _first_whole(data) if start > begin else 0
        if cut is None:
            reach *= 2
        else:
            yield from reversed(split(data[cut:], start + cut)[0])
            reach = _WINDOW
        carried, end = (data if cut is None else data[:cut]), start


def _first_whole(data: bytes) -> int | None:
    """Where the first record of a window begins that is in it from its start."""
    line = data.find(b"\n") + 1
    found = next(_marks(_END_MARK, END[1:4], data, line), None) if line else None
    return found.end() if found else None


def block_at(descriptor: int, place: int) -> RawRecord | None:
    """The record that begins at a place; None where none does."""
    if place > 0 and os.pread(descriptor, 1, place - 1) != b"\n":
        return None
    reach = 1 << 16
    while True:
        data = read_range(descriptor, place, place + reach)
        if not _START_MARK.match(data):
            return None
        blocks, _ = split(data, place)
        if blocks or len(data) < reach:
            return blocks[0] if blocks else None
        reach *= 8


def keep_aside(folder: Path, data: bytes) -> Path:
    """Put damaged bytes into the next free `session-N.torn`."""
    number = 1
    while True:
        name = f"session-{number}.torn"
        try:
            with opened(folder, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
                _write_all(descriptor, data)
                os.fsync(descriptor)
        except FileExistsError:
            number += 1
            continue
        sync_folder(folder)
        return folder / name


def replace(folder: Path, name: str, data: bytes) -> None:
    """Put a whole file in place of another: temporary file, flush, rename, flush of the folder."""
    temporary = f".{name}.{os.getpid()}.{os.urandom(4).hex()}"
    try:
        with opened(folder, temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
            _write_all(descriptor, data)
            os.fsync(descriptor)
        (folder / temporary).replace(folder / name)
    except OSError:
        (folder / temporary).unlink(missing_ok=True)
        raise
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Put the names in `folder` on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_file(folder: Path, name: str = FILE_NAME) -> bytes:
    """A whole file, under the checks of `opened`."""
    with opened(folder, name, os.O_RDONLY) as descriptor:
        return read_range(descriptor, 0, os.fstat(descriptor).st_size)


def read_range(descriptor: int, start: int, end: int) -> bytes:
    """The bytes from `start` to `end`, fewer where the file has become shorter."""
    pieces: list[bytes] = []
    while start < end:
        piece = os.pread(descriptor, min(end - start, 1 << 26), start)
        if not piece:
            break
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


LOCK_NAME = "lock"


class SessionLock:
    """Held from its making to `release`.

    Raises:
        SessionInUse: someone else holds it; the message says which process, and since when.
    """

    def __init__(self, folder: Path) -> None:
        with opened(folder, LOCK_NAME, os.O_RDWR | os.O_CREAT) as descriptor:
            self._descriptor = os.dup(descriptor)
        try:
            lock_descriptor(self._descriptor, timeout=0)
        except BlockingIOError as error:
            holder = os.pread(self._descriptor, 200, 0).decode("utf-8", "replace").strip()
            os.close(self._descriptor)
            raise _in_use(holder) from error
        except OSError:
            # A disk without locks: the session is still written record by record, each kept apart by O_APPEND.
            return
        self._write_holder()

    def release(self) -> None:
        """Let others have it."""
        os.close(self._descriptor)

    def _write_holder(self) -> None:
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()} {timestamp()}\n".encode(), 0)
        except OSError:
            # A full disk: the lock holds all the same, it only cannot say whose it is.
            return


def _in_use(holder: str) -> SessionInUse:
    pid, _, since = holder.partition(" ")
    if pid == str(os.getpid()):
        return SessionInUse("This session is open already, here in this ouro.", "Go on there, or close it first.")
    who = f"process {pid} since {since}" if since else "another process"
    return SessionInUse(f"This session is in use by {who}.", "Go on there, close it, or go on in a copy: `--fork`.")
