"""MemoryFiles: safe access to the files of a memory folder. Links, devices and replaced files do
not mislead or block it.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock

import msgspec

from ouro.errors import MemoryUnusable
from ouro.utils.files import replace_file, write_private
from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import read_state
from ouro.utils.text import clean, fold

ARCHIVE = "archive"
UNREADABLE = ""
"""Stands for the content of a file that may not be read."""
MAX_FILE_BYTES = 256 * 1024
"""A longer file is not read."""
MAX_FILES = 50_000
"""Of more files in one folder only the first ones by name are read."""
MERGE_CONFLICT = "the marks of a merge conflict were left out, both sides are used"
"""Why a part of a file is not read."""
NO_MEMORY_FILE = "neither a core file nor a note"
"""Why a whole file is not read."""
_MAX_NAME_BYTES = 250
_MIN_FILES_TO_CACHE = 100
"""If at least so many files were read, their blobs are recorded in the cache; fewer files are read
again as fast.
"""
TIME_STEP_NS = 2_000_000_000
"""A file that is written twice within this time may keep its modification time: FAT has steps of
two seconds.
"""
_USUAL_NAME = late_pattern(r"(?:archive/)?[a-z0-9][a-z0-9_-]{0,99}\.md")
"""A name as ouro chooses it: it is the same file on every disk."""
_NOTE_NAME = late_pattern(r"(?:archive/)?mem_[0-9a-f]{8,32}\.md")
_POSSIBLE_NAME = late_pattern(r"(?:archive/)?[^/\x00-\x1f\x7f.][^/\x00-\x1f\x7f]*\.md")
"""A name of a Markdown file in the folder or in `archive/`, in any script, not hidden."""
_CONFLICT = late_pattern(
    r"^<{7}(?: [^\n]*)?\n(?P<ours>.*?)(?:^\|{7}(?: [^\n]*)?\n.*?)?^={7}\r?\n(?P<theirs>.*?)"
    r"^>{7}(?: [^\n]*)?(?:\n|\Z)",
    re.MULTILINE | re.DOTALL,
)
"""What `git merge` writes where both sides changed the same lines; `|||||||` begins the base."""
_REASON_OF_BAD_NAME = "not a name of a memory file"
_OPEN_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_OPEN_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class FolderListing(msgspec.Struct, frozen=True):
    """The files of a memory folder at one moment; no file was opened for it."""

    fingerprints: Mapping[str, str] = {}
    """Name -> a text that changes whenever the file changes; sorted by name."""
    refused: Mapping[str, str] = {}
    """Name -> why the file is not read."""


class _CachedBlobs(msgspec.Struct, frozen=True):
    """The blobs of the files when they had these fingerprints: name -> blob."""

    prints: Mapping[str, str] = {}
    blobs: dict[str, str] = {}


class FileRefused(Exception):
    """A file that is not read; the message says why."""


def is_memory_name(name: str) -> bool:
    """Whether a name relative to the memory folder may be that of a memory file: a Markdown file in
    the folder or in `archive/`, not hidden, without invisible characters, in Unicode form NFC, and
    not too long.
    """
    if _USUAL_NAME.fullmatch(name):
        return True
    from unicodedata import normalize  # unusual names are rare

    is_visible_nfc = name.isprintable() and normalize("NFC", name) == name
    return (
        is_visible_nfc
        and bool(_POSSIBLE_NAME.fullmatch(name))
        and len(name.encode()) <= _MAX_NAME_BYTES
    )


def is_note_name(name: str) -> bool:
    """Whether a name relative to the folder is that of a note."""
    return _NOTE_NAME.fullmatch(name) is not None


class MemoryFiles:
    """The Markdown files of one memory folder and of its `archive/`. Everything blocks: use from a
    thread.

    Every method raises MemoryUnusable if the folder is a link, or belongs to another user.
    """

    def __init__(self, folder: Path, cache: Path | None = None) -> None:
        """`cache`: a file outside of the folder that saves the blobs of its files, with a fingerprint
        of each file, for the next process.
        """
        self.folder = folder
        self._cache = cache
        self._listing = FolderListing()
        self._known_blobs: _CachedBlobs | None = None
        """What `blobs` read last, for the listing at that time; None before the first call."""
        self._is_listing_fixed = False
        """Whether `list_folder` returns the last listing without listing again (`freeze_listing`)."""
        self._lock = RLock()
        """Without it, a thread that lists while another thread holds a listing would miss changes.
        """

    @contextmanager
    def freeze_listing(self) -> Iterator[None]:
        """Inside the context, all answers are about the same moment: the folder is listed once, at
        the start. A write ends that.
        """
        with self._lock:
            self._listing = self.list_folder()
            was_fixed, self._is_listing_fixed = self._is_listing_fixed, True
            try:
                yield
            finally:
                self._is_listing_fixed = was_fixed

    def list_folder(self) -> FolderListing:
        """List the files of the folder and of `archive/` without opening them. Returns the same
        object as before if no file has changed. The listing also has the files that are not read,
        with the reason: no plain file, a bad name, or on some disks the name of another file.
        """
        with self._lock:
            if self._is_listing_fixed:
                return self._listing

            # List the folder and `archive/`.
            fingerprints: dict[str, str] = {}
            refused: dict[str, str] = {}
            with suppress(FileNotFoundError), self.open_folder_of() as root:
                _list_folder(root, "", fingerprints, refused)
                archive = f"{ARCHIVE}/"
                with (
                    suppress(FileNotFoundError, MemoryUnusable),
                    self.open_folder_of(archive) as folder,
                ):
                    _list_folder(folder, archive, fingerprints, refused)

            # If a file has changed, make a new listing, also with the names that are not read.
            if fingerprints != self._listing.fingerprints:
                unusual = [name for name in fingerprints if not _USUAL_NAME.fullmatch(name)]
                bad_names = {
                    name: _REASON_OF_BAD_NAME for name in unusual if not is_memory_name(name)
                }
                by_name = {name: fingerprints[name] for name in sorted(fingerprints)}
                same_files = _find_same_on_some_disks(by_name, unusual) if unusual else {}
                self._listing = FolderListing(by_name, {**same_files, **refused, **bad_names})
            return self._listing

    def read(self, name: str) -> str:
        """The text of a file. Raises FileRefused if it is not a plain file of the user, is too
        long, or is not text; FileNotFoundError if there is no such file.
        """
        with self.open_folder_of(name) as folder:
            return decode_text(_read_file(folder, name.rpartition("/")[2]))

    def contents(self, names: Iterable[str]) -> dict[str, bytes | None]:
        """Name -> bytes of many files; None for a file that does not exist or may not be read."""
        contents: dict[str, bytes | None] = dict.fromkeys(names)
        contents.update(self._read_existing(list(contents)))
        return contents

    def texts(self, names: Collection[str]) -> dict[str, str | None]:
        """Name -> text of many files; None for a file that does not exist or may not be read."""
        texts: dict[str, str | None] = dict.fromkeys(names)
        for name, data in self._read_existing(names):
            with suppress(FileRefused):
                texts[name] = None if data is None else decode_text(data)
        return texts

    def _read_existing(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        """Yield the files of `names` that exist, each with its bytes, or None if it may not be read.
        Each folder is opened only once.
        """
        names_by_folder: dict[str, list[str]] = {}
        for name in filter(is_memory_name, names):
            parent, _, base = name.rpartition("/")
            names_by_folder.setdefault(parent, []).append(base)
        for parent, bases in names_by_folder.items():
            with suppress(FileNotFoundError), self.open_folder_of(f"{parent}/") as folder:
                for base in bases:
                    data = None
                    try:
                        data = _read_file(folder, base)
                    except FileNotFoundError:
                        continue
                    except (FileRefused, OSError):
                        pass  # data stays None
                    yield f"{parent}/{base}" if parent else base, data

    def find(self, name: str) -> str | None:
        """The text of a file; None if it does not exist or may not be read."""
        with suppress(FileRefused, OSError):
            return self.read(name)
        return None

    def blobs(self, names: Iterable[str] | None = None) -> dict[str, str]:
        """The blob ids of all files, or of those in `names` that exist, by name. UNREADABLE stands
        for a file that may not be read or is not text. Without `names` only files that have changed
        are read.
        """
        if names is not None:
            return {name: _blob_of_text(data) for name, data in self._read_existing(names)}
        with self._lock:
            listing = self.list_folder()
            prints = listing.fingerprints
            known = self._known_blobs or self._load_cache()
            if known.prints is prints:  # `list_folder` returned the same object: nothing changed
                return known.blobs
            changed = {name for name, _ in prints.items() - known.prints.items()}
            blobs = {name: blob for name, blob in known.blobs.items() if name in prints}
            blobs |= dict.fromkeys(changed, UNREADABLE)  # the readable ones are set below
            for name, data in self._read_existing(changed - listing.refused.keys()):
                blobs[name] = _blob_of_text(data)
            self._known_blobs = _CachedBlobs(prints, blobs)
            if len(changed) >= _MIN_FILES_TO_CACHE:
                self._save_cache(self._known_blobs)
            return blobs

    def _load_cache(self) -> _CachedBlobs:
        """The blobs of the files when they were last recorded; empty without a cache file."""
        return read_state(self._cache, _CachedBlobs) if self._cache else _CachedBlobs()

    def _save_cache(self, seen: _CachedBlobs) -> None:
        """Record the blobs that were read in the cache file, for the next process. Files that are so
        new that another change may have the same time are left out. Errors are ignored.
        """
        newest_certain_time = time.time_ns() - TIME_STEP_NS
        prints = {
            name: seen.prints[name] for name, blob in seen.blobs.items() if blob != UNREADABLE
        }
        old_prints = {
            name: file_print
            for name, file_print in prints.items()
            if change_time(file_print) < newest_certain_time
        }
        old_blobs = {name: seen.blobs[name] for name in old_prints}
        with suppress(OSError):  # reading works with a read-only home
            if self._cache:
                write_private(self._cache, msgspec.json.encode(_CachedBlobs(old_prints, old_blobs)))

    def write(self, name: str, data: bytes | None) -> None:
        """Replace a whole file (0600), or remove it (None); an error leaves the old one.

        Raises FileRefused if it is not a name of a memory file, or the name of something that is
        not a plain file.
        """
        base = name.rpartition("/")[2]
        with self.open_folder_of(name, create=data is not None) as folder:
            with suppress(FileNotFoundError):
                status = os.stat(base, dir_fd=folder, follow_symlinks=False)
                if reason := _reason_to_refuse(status):
                    raise FileRefused(reason)
            if data is None:
                with suppress(FileNotFoundError):
                    os.unlink(base, dir_fd=folder)
            else:
                replace_file(folder, base, data)
            os.fsync(folder)
        self._is_listing_fixed = False  # the listing is out of date

    @contextmanager
    def open_folder_of(self, name: str = "", *, create: bool = False) -> Iterator[int]:
        """Yield the descriptor of the folder in which the file `name` is (empty: of the memory
        folder), and close it at the end. With `create`, missing folders are made.

        Raises FileNotFoundError if there is no such folder, FileRefused if a memory file cannot have
        this name, MemoryUnusable if the folder is a link or belongs to another user.
        """
        subfolder, _, base = name.rpartition("/")
        if base and not is_memory_name(name):
            raise FileRefused(_REASON_OF_BAD_NAME)
        if create:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.folder.is_symlink():
            raise MemoryUnusable(
                f"{self.folder} is a link; memory is not read through it.", "Make it a folder."
            )
        descriptor = os.open(self.folder, _OPEN_FOLDER_FLAGS)
        try:
            if subfolder:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(subfolder, 0o700, dir_fd=descriptor)
                memory_folder = descriptor
                try:
                    descriptor = os.open(subfolder, _OPEN_FOLDER_FLAGS, dir_fd=memory_folder)
                except NotADirectoryError as error:
                    text = f"{subfolder} in the memory folder is not a folder; it is left alone."
                    raise MemoryUnusable(text) from error
                os.close(memory_folder)
            if os.fstat(descriptor).st_uid != os.getuid():
                raise MemoryUnusable(
                    f"{self.folder / subfolder} belongs to another user; ouro does not read it as"
                    " memory."
                )
            yield descriptor
        finally:
            os.close(descriptor)


def _read_file(folder: int, base: str) -> bytes:
    """The bytes of the file `base` in a folder, given by its descriptor. Raises FileRefused if it
    is not a plain file of the user, or too long; FileNotFoundError if there is none.
    """
    try:
        descriptor = os.open(base, _OPEN_FILE_FLAGS, dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError as error:
        with suppress(OSError):
            status = os.stat(base, dir_fd=folder, follow_symlinks=False)
            if reason := _reason_to_refuse(status):
                raise FileRefused(reason) from error
        raise FileRefused(f"cannot be opened: {error.strerror}") from error
    try:
        if reason := _reason_to_refuse(os.fstat(descriptor)):
            raise FileRefused(reason)
        data = b""
        while len(data) <= MAX_FILE_BYTES:
            piece = os.read(descriptor, MAX_FILE_BYTES + 1 - len(data))
            if not piece:
                break
            data += piece
    finally:
        os.close(descriptor)
    if len(data) > MAX_FILE_BYTES:
        raise FileRefused(_reason_if_too_long(len(data)))
    return data


def _list_folder(
    folder: int, prefix: str, fingerprints: dict[str, str], refused: dict[str, str]
) -> None:
    """Add the fingerprint of each file of a folder to `fingerprints`; for a file that is not read,
    also add the reason to `refused`. The keys are the names of the files with `prefix` before them.
    Hidden files and `archive/` are left out, and all files after the first `MAX_FILES` by name.

    This runs at each listing, for each note: therefore few operations a file.
    """
    names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    user = os.getuid()
    for name in names[:MAX_FILES]:
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue  # another process has just removed it
        mode = status.st_mode
        if stat.S_ISDIR(mode) and prefix + name == ARCHIVE:
            continue
        fingerprints[prefix + name] = fingerprint(status)
        # For the usual file the call below, which would return no reason, is saved.
        is_plain = stat.S_ISREG(mode) and status.st_uid == user and status.st_nlink == 1
        if is_plain and status.st_size <= MAX_FILE_BYTES:
            continue
        if reason := _reason_to_refuse(status):
            refused[prefix + name] = reason


def fingerprint(status: os.stat_result) -> str:
    """A text that changes whenever the file changes. It ends with the ctime, which no program can
    set.
    """
    return f"{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"


def change_time(file_print: str) -> int:
    """The time at the end of a fingerprint, in nanoseconds since 1970; 0 for the id of a commit,
    which `GitMemoryStore.folder_state` has among its fingerprints.
    """
    if ":" not in file_print:
        return 0
    return int(file_print.rpartition(":")[2])


def split_notes(
    files: Mapping[str, str], refused: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Split listed files into the notes that are read, and all others. Returns both as name ->
    fingerprint.

    Args:
        files: name -> fingerprint.
        refused: name -> the reason, of those that are not read.
    """
    notes: dict[str, str] = {}
    others: dict[str, str] = {}
    for name, file_print in files.items():
        if is_note_name(name) and name not in refused:
            notes[name] = file_print
        else:
            others[name] = file_print
    return notes, others


def _find_same_on_some_disks(names: Mapping[str, str], unusual: Iterable[str]) -> dict[str, str]:
    """Find the names that are the same file as another name on disks that ignore case or the form
    of Unicode. Returns the reason why it is not read for each name except one.

    The exception is the name that ouro itself would choose; if it is not there, the first. Only the
    `unusual` ones of `names` are compared: a usual name is its own portable name.
    """
    chosen_names: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for name in sorted(unusual):
        portable = portable_name(name)
        has_usual_name = portable in names and _USUAL_NAME.fullmatch(portable)
        chosen = chosen_names.setdefault(portable, portable if has_usual_name else name)
        if chosen != name:
            reasons[name] = f"its name is the same as {chosen} on some disks"
    return reasons


def portable_name(name: str) -> str:
    """The name in one form of Unicode, without differences of case. Two names that are one file on
    disks which ignore these have the same portable name.
    """
    return fold(name)


def _reason_to_refuse(status: os.stat_result) -> str:
    """The reason why a file is not read; empty if it may be read."""
    mode = status.st_mode
    if stat.S_ISLNK(mode):
        return "a link"
    if stat.S_ISDIR(mode):
        return "a folder"
    if not stat.S_ISREG(mode):
        return "a pipe, socket or device"
    if status.st_uid != os.getuid():
        return "belongs to another user"
    if status.st_nlink > 1:
        return "a hard link: the same file has another name elsewhere"
    return _reason_if_too_long(status.st_size) if status.st_size > MAX_FILE_BYTES else ""


def _reason_if_too_long(size: int) -> str:
    return f"{size:,} bytes: longer than the {MAX_FILE_BYTES:,} that a memory file may have"


def blob_id(data: bytes) -> str:
    """The id that git gives to a file with these bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _blob_of_text(data: bytes | None) -> str:
    """The blob id of what was read; UNREADABLE if it could not be read (None), or is not text."""
    if data is None:
        return UNREADABLE
    try:
        decode_text(data)
    except FileRefused:
        return UNREADABLE
    return blob_id(data)


def decode_text(data: bytes) -> str:
    """The text of a file, its lines ended by `\\n`. Raises FileRefused if it is not UTF-8, or holds
    NUL bytes.
    """
    if b"\0" in data:
        raise FileRefused("holds NUL bytes: not text")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise FileRefused(f"not UTF-8 (byte {error.start})") from error


def visible_text(text: str) -> str:
    """`text` without invisible characters (M12)."""
    return clean(text)


def without_conflict_marks(text: str) -> str:
    """The text of a file with the lines of both sides of each conflict of `git merge`: the marks
    say nothing, and the user has not chosen a side yet.
    """
    return _CONFLICT.sub(lambda conflict: conflict["ours"] + conflict["theirs"], text)
