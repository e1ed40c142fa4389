"""MemoryFiles: safe access to the files of a memory folder. Links, devices and swaps cannot mislead or block it."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ouro.errors import MemoryUnusable
from ouro.utils.files import replace_file
from ouro.utils.text import clean

ARCHIVE = "archive"
UNREADABLE = ""
"""Stands for the content of a file that may not be read."""
MAX_FILE_BYTES = 256 * 1024
MAX_FILES = 50_000
_MAX_NAME_BYTES = 250
_USUAL_NAME = re.compile(r"(?:archive/)?[a-z0-9][a-z0-9_-]{0,99}\.md")
_NAME = re.compile(r"(?:archive/)?[^/\x00-\x1f\x7f.][^/\x00-\x1f\x7f]*\.md")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ListedFile(msgspec.Struct, frozen=True):
    name: str
    fingerprint: str
    """Changes whenever the file does."""
    reason: str = ""
    """Why it is not read; empty where it may be."""


class FileRefused(Exception):
    """A file that is not read; the message says why."""


def is_memory_name(name: str) -> bool:
    """Whether a name relative to the folder may be a memory file: Markdown, in the folder or in `archive/`."""
    if _USUAL_NAME.fullmatch(name):
        return True
    plain = name.isprintable() and unicodedata.normalize("NFC", name) == name
    return plain and bool(_NAME.fullmatch(name)) and len(name.encode()) <= _MAX_NAME_BYTES


class MemoryFiles:
    """The Markdown files of one memory folder and of its `archive/`. Everything blocks: use from a thread.

    Every method raises MemoryUnusable where the folder is a link, or belongs to another user.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._blobs: dict[str, tuple[str, str]] = {}

    def check(self) -> None:
        """Raises MemoryUnusable or FileNotFoundError where the folder cannot be used."""
        with self._opened(""):
            pass

    def look(self) -> list[ListedFile]:
        """Each file, sorted by name; none is opened."""
        try:
            with self._opened("") as root:
                found = list(_listed(root, ""))
                with suppress(FileNotFoundError, MemoryUnusable), self._opened(ARCHIVE) as archive:
                    found += _listed(archive, f"{ARCHIVE}/")
        except FileNotFoundError:
            return []
        return _without_twins(sorted(found, key=lambda file: file.name))

    def read(self, name: str) -> str:
        """The text of a file; raises as `read_bytes`, and FileRefused where it is not text."""
        return decode_text(self.read_bytes(name))

    def read_bytes(self, name: str) -> bytes:
        """The bytes of a file; raises FileRefused where it is not a plain file of the user, or too long."""
        with self._place(name) as (folder, base):
            try:
                descriptor = os.open(base, _READ, dir_fd=folder)
            except FileNotFoundError:
                raise
            except OSError as error:
                with suppress(OSError):
                    if reason := _why_not(os.stat(base, dir_fd=folder, follow_symlinks=False)):
                        raise FileRefused(reason) from error
                raise FileRefused(f"cannot be opened: {error.strerror}") from error
            try:
                if reason := _why_not(os.fstat(descriptor)):
                    raise FileRefused(reason)
                data = b""
                while len(data) <= MAX_FILE_BYTES and (piece := os.read(descriptor, MAX_FILE_BYTES + 1 - len(data))):
                    data += piece
            finally:
                os.close(descriptor)
        if len(data) > MAX_FILE_BYTES:
            raise FileRefused(_too_long(len(data)))
        return data

    def find(self, name: str) -> str | None:
        """The text of a file; None where it does not exist or may not be read."""
        with suppress(FileRefused, OSError):
            return self.read(name)
        return None

    def find_bytes(self, name: str) -> bytes | None:
        with suppress(FileRefused, OSError):
            return self.read_bytes(name)
        return None

    def blobs(self) -> dict[str, str]:
        """Name -> blob id of each file; UNREADABLE where it may not be read or is not text."""
        now: dict[str, tuple[str, str]] = {}
        for file in self.look():
            cached = self._blobs.get(file.name)
            if cached is None or cached[0] != file.fingerprint:
                cached = file.fingerprint, UNREADABLE
                with suppress(FileRefused, OSError):
                    data = self.read_bytes(file.name) if not file.reason else b"\0"
                    decode_text(data)
                    cached = file.fingerprint, blob_id(data)
            now[file.name] = cached
        self._blobs = now
        return {name: blob for name, (_, blob) in now.items()}

    def write(self, name: str, data: bytes | None) -> None:
        """Replace a whole file (0600), or remove it (None); an error leaves the old one.

        Raises FileRefused where it is not a name of a memory file, or something that is not a plain file has it.
        """
        with self._place(name, create=data is not None) as (folder, base):
            with suppress(FileNotFoundError):
                if reason := _why_not(os.stat(base, dir_fd=folder, follow_symlinks=False)):
                    raise FileRefused(reason)
            if data is None:
                with suppress(FileNotFoundError):
                    os.unlink(base, dir_fd=folder)
            else:
                replace_file(folder, base, data)
            os.fsync(folder)

    @contextmanager
    def _place(self, name: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        if not is_memory_name(name):
            raise FileRefused("not a name of a memory file")
        above, _, base = name.rpartition("/")
        with self._opened(above, create=create) as folder:
            yield folder, base

    @contextmanager
    def _opened(self, below: str, *, create: bool = False) -> Iterator[int]:
        if create:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.folder.is_symlink():
            raise MemoryUnusable(f"{self.folder} is a link; memory is not read through it.", "Make it a folder.")
        descriptor = os.open(self.folder, _FOLDER)
        try:
            if below:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(below, 0o700, dir_fd=descriptor)
                root = descriptor
                try:
                    descriptor = os.open(below, _FOLDER, dir_fd=root)
                except NotADirectoryError as error:
                    text = f"{below} in the memory folder is not a folder; it is left alone."
                    raise MemoryUnusable(text) from error
                os.close(root)
            if os.fstat(descriptor).st_uid != os.getuid():
                raise MemoryUnusable(f"{self.folder / below} belongs to another user; ouro does not read it as memory.")
            yield descriptor
        finally:
            os.close(descriptor)


def _listed(folder: int, prefix: str) -> Iterator[ListedFile]:
    for name in sorted(os.listdir(folder))[:MAX_FILES]:
        if name.startswith("."):
            continue
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue  # another process has just removed it
        if stat.S_ISDIR(found.st_mode) and prefix + name == ARCHIVE:
            continue
        reason = "not a name of a memory file" if not is_memory_name(prefix + name) else _why_not(found)
        yield ListedFile(prefix + name, fingerprint(found), reason)


def fingerprint(found: os.stat_result) -> str:
    """Changes whenever the file does."""
    return f"{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}"


def _without_twins(found: list[ListedFile]) -> list[ListedFile]:
    """On some disks two of the names would be one file: the name that ouro would choose counts, else the first."""
    last_first = sorted(found, key=lambda file: (not _USUAL_NAME.fullmatch(file.name), file.name), reverse=True)
    first = {portable_name(file.name): file.name for file in last_first}
    return [
        file
        if file.reason or (name := first[portable_name(file.name)]) == file.name
        else replace(file, reason=f"its name is the same as {name} on some disks")
        for file in found
    ]


def portable_name(name: str) -> str:
    """Equal for two names that are one file on some disk."""
    return name.casefold() if name.isascii() else unicodedata.normalize("NFKC", name).casefold()


def _why_not(found: os.stat_result) -> str:
    """Why a file is not read; empty where it may be."""
    if stat.S_ISLNK(found.st_mode):
        return "a link"
    if stat.S_ISDIR(found.st_mode):
        return "a folder"
    if not stat.S_ISREG(found.st_mode):
        return "a pipe, socket or device"
    if found.st_uid != os.getuid():
        return "belongs to another user"
    if found.st_nlink > 1:
        return "a hard link: the same file has another name elsewhere"
    return _too_long(found.st_size) if found.st_size > MAX_FILE_BYTES else ""


def _too_long(size: int) -> str:
    return f"{size:,} bytes: longer than the {MAX_FILE_BYTES:,} that a memory file may have"


def blob_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def decode_text(data: bytes) -> str:
    """The text of a file; raises FileRefused where it is not UTF-8."""
    if b"\0" in data:
        raise FileRefused("holds NUL bytes: not text")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise FileRefused(f"not UTF-8 (byte {error.start})") from error


def visible_text(text: str) -> tuple[str, int]:
    """`text` without invisible characters (M12), and how many they were."""
    seen = clean(text)
    return seen, len(text) - len(seen)
