"""The names of a file that has several (hard links): a change of one name in place changes all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from ouro.safety.protected import is_under
from ouro.utils.ouro_paths import get_checkpoints_dir

_MAX_LOOKED_AT = 20_000
"""Files and folders that are looked at for the names of one file: 30 ms."""


class OtherNames(msgspec.Struct, frozen=True):
    """What a search for the other names of a file has found."""

    found: tuple[Path, ...] = ()
    are_all: bool = True
    """False if the file has a further name that was not found, perhaps outside of the folders."""

    @property
    def exist(self) -> bool:
        """Whether the file has another name."""
        return bool(self.found) or not self.are_all


def find_other_names(path: Path, folders: Sequence[Path]) -> OtherNames:
    """Find the other names of a regular file below folders, without following links. Blocks.

    The hard links by which checkpoints keep a large file are no names: nothing but ouro opens them.
    """
    try:
        status = path.lstat()
    except OSError:  # not there yet
        return OtherNames()
    if not _is_shared(status):
        return OtherNames()

    number_missing = status.st_nlink - 1 - _count_kept_links(status)
    if number_missing <= 0:
        return OtherNames()
    same_number = (name for name in _names_with_number(status.st_ino, folders) if name != path)
    # Looked at together at the end: a name that moved during the search may have been seen twice.
    found = tuple(name for name in sorted(set(same_number)) if _is_same_file(name, status))
    return OtherNames(found, are_all=len(found) >= number_missing)


def _is_shared(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_nlink > 1


def _count_kept_links(status: os.stat_result) -> int:
    from ouro.safety.checkpoints.large_files import find_kept_links

    return len(find_kept_links(get_checkpoints_dir(), status))


def _names_with_number(number: int, folders: Sequence[Path]) -> Iterator[Path]:
    """Yield the files below folders that have an inode number, on any device. Stops when it has
    seen more than `_MAX_LOOKED_AT` files and folders.
    """
    number_seen = 0
    waiting = [folder for folder in set(folders) if not _is_inside_another(folder, folders)]
    while waiting:
        folder = waiting.pop()
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                number_seen += 1
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(folder / entry.name)
                elif entry.inode() == number:
                    yield folder / entry.name
        if number_seen > _MAX_LOOKED_AT:
            return


def _is_inside_another(folder: Path, folders: Sequence[Path]) -> bool:
    return any(above != folder and is_under(folder, above) for above in folders)


def _is_same_file(path: Path, status: os.stat_result) -> bool:
    with suppress(OSError):
        now = path.lstat()
        return (now.st_dev, now.st_ino) == (status.st_dev, status.st_ino)
    return False
