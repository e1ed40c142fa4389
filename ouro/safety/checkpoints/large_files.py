"""Files that are too large for checkpoints. A hard link, or a copy that shares its blocks, keeps
their content and costs nothing until they change.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from ouro.safety.checkpoints.checkpoint_repository import Repository
from ouro.safety.checkpoints.trees import PLAIN_MODE, PROGRAM_MODE
from ouro.utils.ouro_paths import ensure_private_dir

_LARGE_FILES_FOLDER = "large"
_CLONE_FILE = 0x40049409
"""The ioctl FICLONE of Linux."""
_COPY_SUFFIX = ".copy"
_SEEN_SUFFIX = ".seen"
_SPARE_FACTOR = 3
"""A content is kept if the disk has room for this many of it."""
_MAX_KEPT_BYTES = 4_000_000_000
"""The largest file whose content is stored."""


class LargeFile(msgspec.Struct, frozen=True):
    """A file over the limit as it was before a turn."""

    key: str
    """Its device, inode, size and time: another content has another key."""
    mode: str


def remember_large(repository: Repository, names: Collection[str]) -> dict[str, LargeFile]:
    """Make a copy or a link of each regular file in `names`, which checkpoints leave out; see
    `_share`. Returns these files by their names. Other names, such as folders, are ignored.
    """
    large_files: dict[str, LargeFile] = {}
    for name in names:
        path = repository.root / name
        with suppress(OSError):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                large = LargeFile(_key(status), git_mode(status))
                large_files[name] = large
                folder = ensure_private_dir(repository.folder / _LARGE_FILES_FOLDER)
                _share(path, folder / large.key)
    return large_files


def find_kept_links(base: Path, status: os.stat_result) -> list[Path]:
    """Returns the hard links by which checkpoints keep the content of a file, of any workspace.

    Args:
        base: the folder with the checkpoints of all workspaces.
    """
    number = f"{status.st_dev}-{status.st_ino}-"  # as `_key` begins
    links: list[Path] = []
    for path in base.glob(f"*/{_LARGE_FILES_FOLDER}/{number}*"):
        with suppress(OSError):
            kept = path.lstat()
            if (kept.st_dev, kept.st_ino) == (status.st_dev, status.st_ino):
                links.append(path)
    return links


def changed_large(repository: Repository, before: Mapping[str, LargeFile]) -> dict[str, LargeFile]:
    """Returns the large files in `before` that have changed or are gone since."""
    return {
        name: large
        for name, large in before.items()
        if key_now(repository.root / name) != large.key
    }


def key_now(path: Path) -> str:
    """Returns the key (`LargeFile.key`) of a file as it is now; empty if it is not a regular file,
    or not there.
    """
    try:
        status = path.lstat()
    except OSError:
        return ""
    return _key(status) if stat.S_ISREG(status.st_mode) else ""


def keep_content(repository: Repository, large: LargeFile) -> str:
    """Write the content of a large file, as it was before a turn, into the repository. Returns the
    id of the blob; empty if the content is lost or the disk has no room.
    """
    link = repository.folder / _LARGE_FILES_FOLDER / large.key
    copy = link.with_name(link.name + _COPY_SUFFIX)
    source = copy if copy.exists() else link
    size = int(large.key.split("-")[2])  # as `_key` makes it
    # A program that changes a file in place changes what a hard link names, too.
    is_intact = source == copy or key_now(link) == large.key
    try:
        if not is_intact or not has_room(repository.folder, size):
            return ""
        return repository.write_large_blob(source)
    except OSError:
        return ""


def has_room(folder: Path, size: int) -> bool:
    """Whether a content of `size` bytes may be stored on the disk of a folder: it has at most
    `_MAX_KEPT_BYTES`, and `_SPARE_FACTOR` times as much is free.
    """
    return size <= _MAX_KEPT_BYTES and shutil.disk_usage(folder).free > _SPARE_FACTOR * size


def forget_old_large(folder: Path, days: float) -> None:
    """Delete the links and copies of large files that no checkpoint of the last `days` needs. The
    time of the file with the suffix `.seen` says when a checkpoint needed one last.
    """
    oldest = time.time() - days * 86_400
    for path in (folder / _LARGE_FILES_FOLDER).glob("*"):
        is_old_mark = path.suffix == _SEEN_SUFFIX and path.stat().st_mtime < oldest
        if is_old_mark:
            link, copy = path.with_suffix(""), path.with_suffix(_COPY_SUFFIX)
            for file in (path, link, copy):
                file.unlink(missing_ok=True)


def _key(status: os.stat_result) -> str:
    return f"{status.st_dev}-{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"


def git_mode(status: os.stat_result) -> str:
    """The mode that git gives to a regular file: it says whether the owner can run the file."""
    return PROGRAM_MODE if status.st_mode & 0o100 else PLAIN_MODE


def _share(path: Path, link: Path) -> None:
    """Make a copy that shares the blocks of a file. If the file system cannot do that, make a hard
    link. Nothing is made if one of them exists already, or if neither is possible.

    A hard link keeps the content of a file that is removed or replaced later, but not of a file
    that is changed in place. `link` is the path of the link; the copy is made beside it.
    """
    # The time of this mark says when the copy or link was needed last.
    link.with_name(link.name + _SEEN_SUFFIX).touch(mode=0o600)
    copy = link.with_name(link.name + _COPY_SUFFIX)
    if copy.exists() or link.exists() or _clone(path, copy):
        return
    with suppress(OSError):
        os.link(path, link, follow_symlinks=False)


def _clone(path: Path, copy: Path) -> bool:
    """Make a copy of a file that shares its blocks. Returns False if the file system cannot."""
    temporary = copy.with_name(f".{copy.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    try:
        with path.open("rb") as source, temporary.open("xb") as target:
            fcntl.ioctl(target.fileno(), _CLONE_FILE, source.fileno())
        temporary.chmod(0o600)
        temporary.replace(copy)
    except OSError:
        temporary.unlink(missing_ok=True)
        return False
    return True
