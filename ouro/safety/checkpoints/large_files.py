"""Files over the limit: a link or a copy that shares its blocks costs nothing until they change."""

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
from ouro.utils.runtime import ensure_private_dir

_FOLDER = "large"
_FICLONE = 0x40049409
_COPY = ".copy"
_SPARE = 3
"""A content is kept if the disk has room for this many of it."""
_MAX_KEPT = 4_000_000_000


class LargeFile(msgspec.Struct, frozen=True):
    """A file over the limit as it was before a turn."""

    key: str
    """Its device, inode, size and time: another content has another key."""
    mode: str


def remember_large(repository: Repository, names: Collection[str]) -> dict[str, LargeFile]:
    """The large files among the names that were left out, each with a link or a copy of its blocks
    where the file system has them.
    """
    found: dict[str, LargeFile] = {}
    for name in names:
        path = repository.root / name
        with suppress(OSError):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                found[name] = LargeFile(_key(status), _mode(status))
                _share(path, ensure_private_dir(repository.folder / _FOLDER) / found[name].key)
    return found


def changed_large(repository: Repository, before: Mapping[str, LargeFile]) -> dict[str, LargeFile]:
    """The large files that are not as they were."""
    return {
        name: large
        for name, large in before.items()
        if key_now(repository.root / name) != large.key
    }


def key_now(path: Path) -> str:
    """The key of a file as it is; empty if it is not a regular file."""
    try:
        status = path.lstat()
    except OSError:
        return ""
    return _key(status) if stat.S_ISREG(status.st_mode) else ""


def keep_content(repository: Repository, large: LargeFile) -> str:
    """Keep the content of a large file as it was before a turn; the id of the blob, or an empty
    text if the content is lost or the disk has no room.
    """
    place = repository.folder / _FOLDER / large.key
    copy = place.with_name(place.name + _COPY)
    source = copy if copy.exists() else place
    size = int(large.key.split("-")[2])
    is_intact = source == copy or key_now(place) == large.key
    try:
        if not is_intact or not has_room(repository.folder, size):
            return ""
        return repository.write_large_blob(source)
    except OSError:
        return ""


def has_room(folder: Path, size: int) -> bool:
    return size <= _MAX_KEPT and shutil.disk_usage(folder).free > _SPARE * size


def forget_old_large(folder: Path, days: float) -> None:
    """Delete the links of files that no checkpoint of the last days mentions."""
    oldest = time.time() - days * 86_400
    for path in (folder / _FOLDER).glob("*"):
        mark = path.with_name(path.name) if path.suffix == ".seen" else None
        if mark is not None and mark.stat().st_mtime < oldest:
            for name in (mark, mark.with_suffix(""), mark.with_suffix(_COPY)):
                name.unlink(missing_ok=True)


def _key(status: os.stat_result) -> str:
    return f"{status.st_dev}-{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"


def _mode(status: os.stat_result) -> str:
    return "100755" if status.st_mode & 0o100 else "100644"


def _share(path: Path, place: Path) -> None:
    """A copy that shares the blocks of a file, else a hard link: it outlives a removed or replaced
    file, not one that is changed in place.
    """
    place.with_name(place.name + ".seen").touch(mode=0o600)
    copy = place.with_name(place.name + _COPY)
    if copy.exists() or place.exists() or _clone(path, copy):
        return
    with suppress(OSError):
        os.link(path, place, follow_symlinks=False)


def _clone(path: Path, copy: Path) -> bool:
    """Copy a file so that both share their blocks; False if the file system cannot."""
    temporary = copy.with_name(f".{copy.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    try:
        with path.open("rb") as source, temporary.open("xb") as target:
            fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
        temporary.chmod(0o600)
        temporary.replace(copy)
    except OSError:
        temporary.unlink(missing_ok=True)
        return False
    return True
