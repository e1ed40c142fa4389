"""The checkpoints of all workspaces on disk: list them, and delete old ones."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection
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
from ouro.safety.checkpoints.checkpoints import Checkpoints
from ouro.safety.checkpoints.large_files import forget_old_large
from ouro.safety.checkpoints.turn_journal import OPEN_TURNS_FOLDER, has_live_turn, open_turns
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
    """Returns the checkpoints of each workspace below `base`, the last used first. Folders that are
    not complete are left out. Raises CheckpointError if a newer ouro has written there.
    """
    demand_known_checkpoints(base)
    folders = base.iterdir() if base.is_dir() else ()
    stored = []
    for folder in folders:
        with suppress(OSError):
            workspace = os.fsdecode((folder / "workspace").read_bytes())
            stored.append(
                StoredCheckpoints(
                    folder, workspace, bytes=_folder_size(folder), last=_last_change(folder)
                )
            )
    return tuple(sorted(stored, key=lambda item: -item.last))


def workspaces_changed_by(
    base: Path, session: str, numbers: Collection[int], other_than: Path
) -> list[str]:
    """Returns the workspaces in which turns of a session have changed files that were not undone.

    Args:
        numbers: the messages with which the turns began.
        other_than: the folder of checkpoints that is left out.
    """
    workspaces = []
    for folder in base.iterdir() if base.is_dir() else ():
        if folder == other_than or not _may_have_turns(folder, session):
            continue
        with suppress(OSError, CheckpointError):
            workspace = os.fsdecode((folder / "workspace").read_bytes())
            turns = Checkpoints(Path(workspace), base, session).turns()
            changed = {turn.number for turn in turns if turn.new and not turn.undone}
            # What an open turn has changed is not recorded yet.
            if not {*changed, *open_turns(folder, session)}.isdisjoint(numbers):
                workspaces.append(workspace)
    return workspaces


def _may_have_turns(folder: Path, session: str) -> bool:
    """Whether the checkpoints in a folder may have turns of a session; without git."""
    name = f"{REFS}/turns/{session}"
    if (folder / name).is_dir() or any(open_turns(folder, session)):
        return True
    with suppress(OSError):
        return name.encode() in (folder / "packed-refs").read_bytes()
    return False


def clean_checkpoints(base: Path, *, days: float, max_bytes: int, keep: Path | None = None) -> int:
    """Delete old checkpoints; returns the number of bytes that were freed.

    All checkpoints of a workspace are deleted if its last one is older than `days`. They are also
    deleted if they do not fit into `max_bytes` beside the checkpoints of workspaces that were used
    later. In all other workspaces only the refs older than `days` are deleted, with the objects
    that nothing else uses.

    Args:
        keep: the folder of checkpoints that is in use; it is never deleted as a whole, like one
            with a turn that runs. None: no folder.

    Raises:
        OSError, CheckpointError: those of a workspace cannot be deleted. Those of all others were
            cleaned; of several errors the first is raised.
    """
    freed, kept_bytes, oldest = 0, 0, time.time() - days * _DAY
    errors: list[Exception] = []
    for stored in stored_checkpoints(base):
        fits = stored.last >= oldest and kept_bytes + stored.bytes <= max_bytes
        try:
            freed += _clean_workspace(stored, days, oldest, stays=fits or stored.folder == keep)
        except (OSError, CheckpointError) as error:
            errors.append(error)
        if stored.folder.exists():
            kept_bytes += stored.bytes
    if errors:
        raise errors[0]
    return freed


def _clean_workspace(stored: StoredCheckpoints, days: float, oldest: float, *, stays: bool) -> int:
    """Delete the old checkpoints of a workspace, or all of them; returns the number of bytes that
    were freed. `days` and `oldest` (the same as Unix time) say which are old.

    Args:
        stays: whether its folder stays. The folder of a turn that runs stays in any case.
    """
    with lock_file(stored.folder / "lock", timeout=TIMEOUT):
        if not stays and not has_live_turn(stored.folder):
            shutil.rmtree(stored.folder)
            return stored.bytes
        freed = _prune(stored, oldest)
        forget_old_large(stored.folder, days)
    return freed


def _prune(stored: StoredCheckpoints, oldest: float) -> int:
    """Delete the refs of a workspace that are older than `oldest` (Unix time), and then the objects
    that nothing uses. Returns the number of bytes that were freed.

    Objects of the last hour stay, because a turn that runs may use them.
    """
    repository = Repository(Path(stored.workspace), stored.folder.parent)
    if repository.folder != stored.folder or not repository.root.is_dir():
        return 0  # the workspace is gone or has moved: the folder is deleted when it is old
    listing = ("for-each-ref", "--format=%(committerdate:unix) %(refname)", REFS)
    refs = (line.split(" ", 1) for line in repository.git(*listing).splitlines())
    deletions = "".join(f"delete {ref}\n" for date, ref in refs if float(date) < oldest)
    if not deletions:
        return 0
    repository.git("update-ref", "--stdin", data=deletions.encode())
    with suppress(CheckpointError):  # the user's repository may have lost what old refs need
        repository.git("gc", "--quiet", "--prune=1.hour.ago")
    return max(0, stored.bytes - _folder_size(stored.folder))


def _folder_size(folder: Path) -> int:
    """Returns the number of bytes of all files in a folder and below it."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _last_change(folder: Path) -> float:
    """Returns the time of the last checkpoint in a folder (Unix time); 0 if there is none."""
    files = (folder / "index", folder / OPEN_TURNS_FOLDER)
    times = [file.stat().st_mtime for file in files if file.exists()]
    return max(times, default=0.0)
