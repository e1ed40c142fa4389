"""The checkpoints of all workspaces on disk: list them, and delete old ones."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from ouro.safety.checkpoints.checkpoint_repository import (
    REFS,
    TIMEOUT,
    CheckpointError,
    Repository,
    demand_known_checkpoints,
)
from ouro.safety.checkpoints.large_files import forget_old_large
from ouro.safety.checkpoints.turn_journal import FOLDER as OPEN
from ouro.safety.checkpoints.turn_journal import has_live_turn
from ouro.utils.files import lock_file

_DAY = 86_400


class StoredCheckpoints(msgspec.Struct, frozen=True):
    """The checkpoints of one workspace on disk."""

    folder: Path
    workspace: str
    bytes: int
    last: float
    """Unix time of the last checkpoint."""


def stored_checkpoints(base: Path) -> tuple[StoredCheckpoints, ...]:
    """The stored checkpoints below `base`, newest first. Raises CheckpointError: of a newer ouro."""
    demand_known_checkpoints(base)
    found = []
    for folder in base.iterdir() if base.is_dir() else ():
        with suppress(OSError):
            workspace = os.fsdecode((folder / "workspace").read_bytes())
            found.append(StoredCheckpoints(folder, workspace, _size(folder), _last(folder)))
    return tuple(sorted(found, key=lambda one: -one.last))


def clean_checkpoints(base: Path, *, days: float, max_bytes: int, keep: Path | None = None) -> int:
    """Delete old checkpoints: of workspaces without one for `days`, then the oldest until at most
    `max_bytes` are left.

    In other workspaces, refs older than `days` are deleted, with the objects that only they use.

    Args:
        keep: the folder of a workspace that is in use.

    Returns:
        The number of bytes that were freed.

    Raises:
        OSError: they cannot be deleted.
    """
    freed, total, oldest = 0, 0, time.time() - days * _DAY
    for one in stored_checkpoints(base):
        with lock_file(one.folder / "lock", timeout=TIMEOUT):
            is_used = one.folder == keep or has_live_turn(one.folder)
            if not is_used and (one.last < oldest or total + one.bytes > max_bytes):
                shutil.rmtree(one.folder)
                freed += one.bytes
            else:
                freed += _prune(one, oldest)
                forget_old_large(one.folder, days)
                total += one.bytes
    return freed


def _prune(one: StoredCheckpoints, oldest: float) -> int:
    """Delete old refs, and the objects that nothing uses; those of a turn that runs are new."""
    repository = Repository(Path(one.workspace), one.folder.parent)
    if repository.folder != one.folder or not repository.root.is_dir():
        return 0  # the workspace is gone: the folder is deleted when it is old
    listing = ("for-each-ref", "--format=%(committerdate:unix) %(refname)", REFS)
    found = (line.split(" ", 1) for line in repository.git(*listing).splitlines())
    deletions = "".join(f"delete {ref}\n" for date, ref in found if float(date) < oldest)
    if not deletions:
        return 0
    repository.git("update-ref", "--stdin", data=deletions.encode())
    with suppress(CheckpointError):  # the user's repository may have lost what old ones refer to
        repository.git("gc", "--quiet", "--prune=1.hour.ago")
    return max(0, one.bytes - _size(one.folder))


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _last(folder: Path) -> float:
    places = (folder / "index", folder / OPEN)
    times = [place.stat().st_mtime for place in places if place.exists()]
    return max(times, default=0.0)
