"""Git repositories inside of the workspace. Checkpoints leave them out, so a turn that changed
files in one cannot be undone there: these files are named to the user.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from ouro.utils.files import read_start
from ouro.utils.late_pattern import late_pattern

_MAX_LOOKED_AT = 20_000
"""Entries of one repository that are looked at: 60 ms."""
_MAX_NAMED = 3
_MAX_BYTES = 1 << 16
_SUBMODULE_PATH = late_pattern(r"^\s*path\s*=(.*)$", re.MULTILINE)


def submodules(root: Path) -> list[str]:
    """Returns the folders of the submodules that `.gitmodules` names, relative to `root`. Those
    with `..` in their path are left out. Empty if there is no such file, or it cannot be read.
    """
    text = read_start(root / ".gitmodules", _MAX_BYTES, os.O_NOFOLLOW)
    folders = (match[1].strip().strip('"') for match in _SUBMODULE_PATH.finditer(text))
    return [folder for folder in folders if folder and ".." not in folder.split("/")]


def missing_submodules(root: Path) -> list[str]:
    """Returns the folders of the submodules that are not checked out."""
    return [name for name in submodules(root) if not os.path.lexists(root / name / ".git")]


def changed_inside(root: Path, name: str, began: int, kept: Collection[str]) -> str:
    """Returns why changes in a nested repository cannot be undone, with the first changed files.
    Empty if no file changed there, or it is not a repository.

    Args:
        name: the folder of the repository, relative to `root`.
        began: files that changed after this time (ns) count.
        kept: the files, relative to `root`, that can be undone because their content was kept:
            these do not count.
    """
    if not os.path.lexists(root / name / ".git"):
        return ""
    # Enough to know whether there are more than can be named.
    max_files = len(kept) + _MAX_NAMED + 1
    first_files = islice(_changed_files(root, name, began), max_files)
    changed = [path for path in first_files if path not in kept]
    if not changed:
        return ""
    and_more = " and more" if len(changed) > _MAX_NAMED else ""
    files = ", ".join(os.path.relpath(path, name) for path in changed[:_MAX_NAMED])
    return f"it is a git repository of its own; {files}{and_more} changed there"


def _changed_files(root: Path, name: str, began: int) -> Iterator[str]:
    """Yield the files of a nested repository, relative to `root`, that changed after the time
    `began` (ns). Stops when it has seen more than `_MAX_LOOKED_AT` files and folders.
    """
    number_seen = 0
    for folder, folders, files in os.walk(root / name):
        folders[:] = sorted(inner for inner in folders if inner != ".git")
        number_seen += len(files) + len(folders)
        if number_seen > _MAX_LOOKED_AT:
            return
        for file in sorted(files):
            path = os.path.join(folder, file)  # noqa: PTH118 - for many files
            with suppress(OSError):
                if file != ".git" and os.lstat(path).st_ctime_ns > began:
                    yield os.path.relpath(path, root)
