"""Atomic file writes, locks between processes, and the kinds of files near a folder."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from ouro import __version__
from ouro.errors import OuroError, UsageError
from ouro.utils.late_pattern import late_pattern
from ouro.utils.ouro_paths import ensure_private_dir, get_written_journals
from ouro.utils.processes import is_running
from ouro.utils.text import whole_number

LAYOUT = 1
"""The number of the layout of all stores. A version of ouro that changes one of them raises it. A
store without a mark has layout 1.
"""
MARK = ".layout"
"""The name of the file with a store's layout. This ouro neither reads nor changes a store with a
higher number.
"""
_MAX_MARK_BYTES = 200
"""Bytes of `MARK` that are read."""
UPDATE_HINT = "Update ouro, or set OURO_HOME to another folder. Nothing was changed."
_RETRY_SECONDS = 0.02
"""Seconds between two attempts to get a lock."""
MAX_LOOKED_AT = 2_000
"""Names that are looked at to find the kinds of files of a project."""
_MAX_FOLDER_DEPTH = 3
"""Levels of folders that are looked at for that."""
_PACKAGES_AND_OUTPUT = {"node_modules", "venv", "__pycache__", "target", "build", "dist", "vendor"}
_TEMPORARY = late_pattern(r"\..+\.([1-9][0-9]{0,8})\.[0-9a-f-]{8,36}(?:\.tmp)?")
"""Names of temporary files: of `replace_file`, of the secret scanner (a UUID), and of earlier
versions (no suffix).
"""
_recorded_folders: set[str] = set()
"""The folders that this process has recorded."""


def replace_file(
    folder: int,
    name: str,
    data: bytes | Iterable[bytes],
    *,
    mode: int = 0o600,
    prepare: Callable[[int], None] = lambda _descriptor: None,
    exclusive: bool = False,
    check: Callable[[], None] = lambda: None,
) -> os.stat_result:
    """Replace the file `name` in an open folder with `data`; after a crash there is the old file or
    the new one.

    Args:
        mode: permissions of the file, less the umask.
        prepare: called with the descriptor of the new file while it is empty; if it raises, the old
            file stays.
        exclusive: fail if the file exists.
        check: called before the file is replaced; if it raises, the old file stays.

    Returns:
        The status of the new file.

    Raises:
        FileExistsError: `exclusive`, and the file exists.
        OSError: the file could not be written; the old one is untouched.
    """
    temporary = f".{name[:100]}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(temporary, flags, mode, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                prepare(descriptor)
                file.writelines([data] if isinstance(data, bytes) else data)
                file.flush()
                os.fsync(descriptor)
                status = os.fstat(descriptor)
            check()
            # `replace` would overwrite a file that another process has made since; a link fails.
            is_linked = exclusive and _link(folder, temporary, name)
            if not is_linked:  # not exclusive, or a file system without hard links
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
    except OSError as error:
        error.filename = name
        with suppress(OSError):
            error.filename = os.path.join(path_of(folder), name)  # noqa: PTH118 - of text
        raise
    # Flush the folder, too, so that the new name is on disk. The file is replaced already: it is
    # not an error if the folder cannot be read.
    with suppress(OSError):
        # Opened again: `folder` may be O_PATH, which cannot be flushed.
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return status


def is_temporary(path: str) -> bool:
    """Whether a path has a name that `replace_file` gives to a file while it writes it."""
    is_candidate = path.endswith(".tmp")
    return is_candidate and _TEMPORARY.fullmatch(path.rpartition("/")[2]) is not None


def sweep_temporary(folder: Path, pid: str = "") -> None:
    """Remove the temporary files that `replace_file` left in a folder when its process was killed. Files
    of running processes stay.

    `pid`: only the files of this process are removed; empty: those of all.
    """
    try:
        names = os.listdir(folder)  # noqa: PTH208 (10,000 of them)
    except OSError:
        return
    for name in names:
        match = _TEMPORARY.fullmatch(name) if name[0] == "." else None
        if match is None or pid not in ("", match[1]):
            continue
        if not is_running(int(match[1])):
            with suppress(OSError):
                (folder / name).unlink()


def note_written_dir(folder: int) -> None:
    """Record an open folder before a file is replaced in it. If this process is killed, the next start
    removes the temporary files there.
    """
    with suppress(OSError):
        path = path_of(folder)
        if path not in _recorded_folders:
            journals = ensure_private_dir(get_written_journals())
            append_private(journals / str(os.getpid()), f"{path}\0")
            _recorded_folders.add(path)


def sweep_written_dirs(ouro_folders: Iterable[Path]) -> None:
    """Remove temporary files that killed processes left in ouro's own folders and in the folders
    that `note_written_dir` recorded.
    """
    for folder in ouro_folders:
        sweep_temporary(folder)
    for journal in get_written_journals().glob("*"):
        if journal.name.isdecimal() and not is_running(int(journal.name)):
            with suppress(OSError):
                for recorded in os.fsdecode(journal.read_bytes()).split("\0")[:-1]:
                    sweep_temporary(Path(recorded), pid=journal.name)
                journal.unlink()


def _link(folder: int, temporary: str, name: str) -> bool:
    """Give the temporary file its name with a hard link. Returns False on a file system without
    hard links. Raises FileExistsError if the name is taken.
    """
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except FileExistsError:
        raise
    except OSError:
        # Without links, only a look can show whether the name is taken.
        with suppress(FileNotFoundError):
            os.stat(name, dir_fd=folder, follow_symlinks=False)
            raise FileExistsError(name) from None
        return False
    return True


def write_private(path: Path, data: str | bytes) -> None:
    """Replace the file `path` with `data`: 0600, on disk when this returns; after a crash there is
    the old file.

    A link to a file of the user (as dotfile managers make them) stays a link.

    Raises:
        OSError: it could not be written; the old file is untouched.
    """
    target = path.resolve() if path.is_symlink() else path
    ensure_private_dir(path.parent)
    with open_folder(target.parent) as folder:
        replace_file(folder, target.name, data.encode() if isinstance(data, str) else data)


def append_private(path: Path, text: str) -> None:
    """Append `text` to a file (0600, created if it is missing); on disk when this returns."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            file.write(os.fsencode(text))  # a path may not be UTF-8
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        error.filename = str(path)
        raise


def write_document(path: Path, pieces: Iterable[str], *, force: bool = False) -> None:
    """Write a document for the user to a file that only the user can read.

    Raises:
        UsageError: the file exists and `force` is not set, or it cannot be written.
    """
    try:
        # Checked before the document is made, which may take long.
        if not force and os.path.lexists(path):
            raise FileExistsError(path)
        with open_folder(path.parent) as folder:
            chunks = (piece.encode(errors="replace") for piece in pieces)
            replace_file(folder, path.name, chunks, exclusive=not force)
    except FileExistsError as error:
        raise UsageError(
            f"{path} exists.", "Choose another file, or overwrite it with `--force`."
        ) from error
    except FileNotFoundError as error:
        raise UsageError(f"There is no folder {path.parent}.", "Make it first.") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error


@contextmanager
def lock_file(path: Path, timeout: float | None = None) -> Iterator[int]:
    """Hold the lock file `path` (created empty, 0600) inside this context; a killed process
    releases it.

    Args:
        timeout: seconds to wait; None waits as long as it takes, 0 tries once.

    Yields:
        Its descriptor: a child that inherits it keeps the lock when this process is killed.

    Raises:
        BlockingIOError: another process held it all that time.
        OSError: the file cannot be opened, or the file system has no locks.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        lock_descriptor(descriptor, timeout)
        yield descriptor
    finally:
        unlock(descriptor)


def lock_descriptor(descriptor: int, timeout: float | None = None) -> None:
    """Lock an open file until it is closed. Arguments and errors as in `lock_file`."""
    if timeout is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return
    deadline = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_RETRY_SECONDS)
        else:
            return


def unlock(descriptor: int) -> None:
    """Release the lock of an open file, and close it."""
    with suppress(OSError):  # the disk has no locks
        # Closing is not enough while a child process is being started, because it has a copy.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


@contextmanager
def try_lock_file(path: Path) -> Iterator[bool]:
    """Try to lock the file `path` inside this context. Yields True if this process has the lock; False
    if another has it, or the file cannot be locked. Never waits, never raises.
    """
    with ExitStack() as stack:
        is_mine = False
        try:
            ensure_private_dir(path.parent)
            stack.enter_context(lock_file(path, timeout=0))
            is_mine = True
        except BlockingIOError:
            pass
        except OSError as error:
            from ouro.utils.log import log  # imported late: the first frame does not need `logging`

            log.warning("%s cannot be locked: %s", path, error)
        yield is_mine


def path_of(descriptor: int) -> str:
    """The real path of an open file or folder. Raises OSError: the system does not know it."""
    if sys.platform == "darwin":
        return os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - Path.readlink gives no more


@contextmanager
def open_folder(folder: Path, *, follow: bool = True) -> Iterator[int]:
    """Open a folder inside this context; yields its descriptor. Raises OSError if it cannot be opened.

    `follow`: if it is False, a link is an error: the folder itself, or one above it.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not follow and path_of(descriptor) != str(folder):
            raise OSError(errno.ELOOP, "a folder on its path is a link now")
        yield descriptor
    finally:
        os.close(descriptor)


def open_regular(path: Path, flags: int = 0) -> BufferedReader:
    """Open a regular file for reading. A pipe is an error, and does not block. `flags`: further
    flags of `os.open`.

    Raises:
        OSError: it cannot be opened, or is not a regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return os.fdopen(descriptor, "rb")


def read_start(path: Path, max_bytes: int, flags: int = 0) -> str:
    """The text of the first bytes of a file, at most `max_bytes`; empty if it is not a regular file,
    or cannot be read. `flags`: further flags of `os.open`.
    """
    try:
        with open_regular(path, flags) as file:
            return file.read(max_bytes).decode("utf-8", "replace")
    except OSError:
        return ""


def demand_known_layout(mark: Path, store: str, error: type[OuroError]) -> None:
    """Raise `error` if the mark of a store is of a newer ouro, or is not a number. A store without a
    mark, or with an empty one, is known.

    Args:
        mark: the path of the mark.
        store: what is stored there, for the message.
    """
    try:
        # `1 0.4.2`: the layout, and the version that wrote it.
        words = mark.read_bytes()[:_MAX_MARK_BYTES].decode("utf-8", "replace").split()
    except OSError:  # no mark: an earlier version made it
        return
    if not words:
        return
    layout = whole_number(words[0])
    if layout is not None and layout <= LAYOUT:
        return
    raise error(*describe_newer_ouro(store, "".join(words[1:2])))


def describe_newer_ouro(store: str, version: str = "") -> tuple[str, str]:
    """The message and the hint about a store of a newer ouro. `version`: the one that wrote it; empty if
    it is not known.
    """
    # The version comes from a file that anyone may have written: show only what looks like one.
    number = version if version.replace(".", "").isalnum() and version.isascii() else ""
    named = f" ({number[:20]})" if number else ""
    return f"{store} was written by a newer ouro{named}.", UPDATE_HINT


def mark_layouts(stores: Mapping[Path, str], error: type[OuroError]) -> None:
    """Write the mark, a file with the number of the layout, into the folder of each store that is
    going to be changed. Raises `error` if one of them is of a newer ouro; then nothing is written.
    A folder that cannot be written is left as it is.

    Args:
        stores: each folder, which may not exist yet, with its name for the message.
    """
    for folder, store in stores.items():
        demand_known_layout(folder / MARK, store, error)
    for folder in stores:
        with suppress(OSError):  # a read-only home
            if folder.is_dir():
                mark_layout(folder / MARK)


def mark_layout(mark: Path) -> None:
    """Write the mark of a store that is created or changed, if it has none."""
    if not os.path.lexists(mark):
        write_private(mark, f"{LAYOUT} {__version__}\n")


def near_endings(root: Path) -> Iterator[str]:
    """Yield the ending (`.py`, in lower case) of each file in `root` and in its folders, to a depth
    of 3. Stops after MAX_LOOKED_AT names.
    """
    folders, name_count = [(str(root), 0)], 0  # each folder with its depth
    for folder, depth in folders:  # the list grows meanwhile, so that near folders come first
        try:
            with os.scandir(folder) as scan:
                entries = [*scan]
        except OSError:
            continue
        for entry in entries:
            name_count += 1
            if name_count > MAX_LOOKED_AT:
                return
            if not entry.is_dir(follow_symlinks=False):
                yield os.path.splitext(entry.name)[1].lower()  # noqa: PTH122 - for many names
            elif depth < _MAX_FOLDER_DEPTH and _may_hold_project_files(entry.name):
                folders.append((entry.path, depth + 1))


def _may_hold_project_files(folder: str) -> bool:
    """Whether a folder of this name is no place of packages, build output or hidden files."""
    return not folder.startswith(".") and folder not in _PACKAGES_AND_OUTPUT
