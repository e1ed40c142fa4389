"""MemoryFiles: safe access to the files of a memory folder. Links, devices and swaps cannot mislead or block it."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
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


_Status = tuple[int, int, int, int, int, int, int]
"""Mode, owner, hard links, inode, size, time of change of the content and of the file."""


class _Listing(msgspec.Struct, frozen=True):
    raw: Mapping[str, _Status]
    files: tuple[ListedFile, ...]
    fingerprints: Mapping[str, str]


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
        self._listing = _Listing({}, (), {})
        self._blobs_of: tuple[_Listing, dict[str, str]] | None = None
        self._is_held = False

    def check(self) -> None:
        """Raises MemoryUnusable or FileNotFoundError where the folder cannot be used."""
        with self._opened(""):
            pass

    def look(self) -> Sequence[ListedFile]:
        """Each file, sorted by name; none is opened. The same object where nothing has changed."""
        return self._look().files

    def fingerprints(self) -> Mapping[str, str]:
        """Name -> fingerprint of each file. The same object where nothing has changed."""
        return self._look().fingerprints

    @contextmanager
    def held(self) -> Iterator[None]:
        """While inside, the folder is listed once: for several questions about one moment."""
        self._listing = self._look()
        was_held, self._is_held = self._is_held, True
        try:
            yield
        finally:
            self._is_held = was_held

    def places(self, names: Iterable[str]) -> dict[str, str]:
        """Fingerprints of the two folders and of some files: cheap, and new where a file is added, removed or replaced.

        Only a file that is not named, and that was written in place, changes none of them.
        """
        found: dict[str, str] = {}
        for name in ("", ARCHIVE, *names):
            with suppress(OSError):
                found[name] = fingerprint((self.folder / name).lstat())
        return found

    def _look(self) -> _Listing:
        if self._is_held:
            return self._listing
        raw: dict[str, _Status] = {}
        try:
            with self._opened("") as root:
                _scan(root, "", raw)
                with suppress(FileNotFoundError, MemoryUnusable), self._opened(ARCHIVE) as archive:
                    _scan(archive, f"{ARCHIVE}/", raw)
        except FileNotFoundError:
            raw = {}
        if raw != self._listing.raw:
            files = tuple(_without_twins([_listed(name, raw[name]) for name in sorted(raw)]))
            self._listing = _Listing(raw, files, {file.name: file.fingerprint for file in files})
        return self._listing

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
                    if reason := _refusal(os.stat(base, dir_fd=folder, follow_symlinks=False)):
                        raise FileRefused(reason) from error
                raise FileRefused(f"cannot be opened: {error.strerror}") from error
            try:
                if reason := _refusal(os.fstat(descriptor)):
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

    def blobs(self, names: Iterable[str] | None = None) -> dict[str, str]:
        """Name -> blob id of each file, or of some; UNREADABLE where it may not be read or is not text."""
        if names is not None:
            return {name: blob for name in names if (blob := self._blob(name))}
        listing = self._look()
        if self._blobs_of and self._blobs_of[0] is listing:
            return self._blobs_of[1]
        now: dict[str, tuple[str, str]] = {}
        for file in listing.files:
            cached = self._blobs.get(file.name)
            if cached is None or cached[0] != file.fingerprint:
                cached = file.fingerprint, UNREADABLE
                with suppress(FileRefused, OSError):
                    data = self.read_bytes(file.name) if not file.reason else b"\0"
                    decode_text(data)
                    cached = file.fingerprint, blob_id(data)
            now[file.name] = cached
        self._blobs = now
        self._blobs_of = listing, {name: blob for name, (_, blob) in now.items()}
        return self._blobs_of[1]

    def _blob(self, name: str) -> str | None:
        """None where there is no such file."""
        try:
            data = self.read_bytes(name)
            decode_text(data)
        except FileNotFoundError:
            return None
        except (FileRefused, OSError):
            return UNREADABLE
        return blob_id(data)

    def write(self, name: str, data: bytes | None) -> None:
        """Replace a whole file (0600), or remove it (None); an error leaves the old one.

        Raises FileRefused where it is not a name of a memory file, or something that is not a plain file has it.
        """
        with self._place(name, create=data is not None) as (folder, base):
            with suppress(FileNotFoundError):
                if reason := _refusal(os.stat(base, dir_fd=folder, follow_symlinks=False)):
                    raise FileRefused(reason)
            if data is None:
                with suppress(FileNotFoundError):
                    os.unlink(base, dir_fd=folder)
            else:
                replace_file(folder, base, data)
            os.fsync(folder)
        self._is_held = False  # what was listed has changed

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


def _scan(folder: int, prefix: str, found: dict[str, _Status]) -> None:
    with os.scandir(folder) as entries:
        names = sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)
    for entry in names[:MAX_FILES]:
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue  # another process has just removed it
        if not (stat.S_ISDIR(status.st_mode) and prefix + entry.name == ARCHIVE):
            found[prefix + entry.name] = (
                status.st_mode, status.st_uid, status.st_nlink, status.st_ino, status.st_size, status.st_mtime_ns,
                status.st_ctime_ns,
            )  # fmt: skip


def _listed(name: str, found: _Status) -> ListedFile:
    mode, owner, links, inode, size, modified, changed = found
    reason = _why_not(mode, owner, links, size) if is_memory_name(name) else "not a name of a memory file"
    return ListedFile(name, f"{inode}:{size}:{modified}:{changed}", reason)


def fingerprint(found: os.stat_result) -> str:
    """Changes whenever the file does."""
    return f"{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}"


def _without_twins(found: Sequence[ListedFile]) -> list[ListedFile]:
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


def _why_not(mode: int, owner: int, links: int, size: int) -> str:
    """Why a file is not read; empty where it may be."""
    if stat.S_ISLNK(mode):
        return "a link"
    if stat.S_ISDIR(mode):
        return "a folder"
    if not stat.S_ISREG(mode):
        return "a pipe, socket or device"
    if owner != os.getuid():
        return "belongs to another user"
    if links > 1:
        return "a hard link: the same file has another name elsewhere"
    return _too_long(size) if size > MAX_FILE_BYTES else ""


def _refusal(found: os.stat_result) -> str:
    return _why_not(found.st_mode, found.st_uid, found.st_nlink, found.st_size)


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
