"""Folders of sessions that were moved or renamed: what identifies a folder is kept beside its path.

A path alone does not find the sessions of a project after `mv`. The number of a folder on its disk
stays the same then. Disks give the number of a deleted folder to a new one, so the time of its
creation counts, too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ouro.utils.files import lock_file, read_start, write_private
from ouro.utils.git import repository_of
from ouro.utils.log import log
from ouro.utils.path_escapes import text_path

FILE_NAME = ".projects.json"
_MAX_BYTES = 4_000_000
_MAX_FOLDERS = 5_000
_LOCK_TIMEOUT = 1.0
_AT_FDCWD = -100
_STATX_BTIME = 0x800
_STATX_BYTES = 256
_BTIME_OFFSET = 0x50
"""Where `struct statx` has the seconds of the creation; the nanoseconds follow."""


def note_folder(root: Path, project: str) -> None:
    """Keep what identifies the folder of a session. A failure is only logged: the path is kept in
    the session anyway. Blocks.

    Args:
        root: the folder of all sessions.
        project: the folder that a session works in.
    """
    marks = _marks(project)
    if not marks or _read(root).get(project) == marks:
        return
    try:
        with lock_file(root / f"{FILE_NAME}.lock", timeout=_LOCK_TIMEOUT):
            known = _read(root)
            known.pop(project, None)
            known[project] = marks
            newest = list(known.items())[-_MAX_FOLDERS:]
            listed = {path: sorted(kept) for path, kept in newest}
            write_private(root / FILE_NAME, json.dumps(listed, indent=0))
    except OSError as error:
        log.warning("sessions: %s cannot be written: %s", FILE_NAME, error)


def earlier_paths(root: Path, project: str) -> frozenset[str]:
    """The paths at which this folder, or its repository, was before; none of them exists now."""
    marks = _marks(project)
    return frozenset(
        path
        for path, known in _read(root).items()
        if not marks.isdisjoint(known) and path != project and not os.path.lexists(text_path(path))
    )


def _marks(project: str) -> frozenset[str]:
    """What identifies a folder and the repository that it is in; empty if there is no folder."""
    return frozenset(_marks_of(text_path(project)))


def _marks_of(folder: Path) -> Iterator[str]:
    """What identifies a folder, then what identifies its repository; nothing if it cannot be read."""
    with suppress(OSError):
        yield f"folder {_identity(folder)}"
        repository = repository_of(folder)
        if repository is not None:
            yield f"repository {_identity(repository)}"


def _identity(folder: Path) -> str:
    """What stays the same when a folder is moved: its disk, its number there, and when it was
    created.
    """
    found = folder.stat()
    return f"{found.st_dev}:{found.st_ino}:{_birth(folder, found)}"


def _birth(folder: Path, found: os.stat_result) -> str:
    """The time of creation; empty where the system does not tell it."""
    if (birth := getattr(found, "st_birthtime", None)) is not None:
        return str(birth)
    import ctypes  # needed only when a session is created or a project was moved

    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    try:
        statx = ctypes.CDLL(None).statx
    except AttributeError:
        return ""
    if statx(_AT_FDCWD, os.fsencode(folder), 0, _STATX_BTIME, buffer):
        return ""
    if not int.from_bytes(buffer.raw[:4], "little") & _STATX_BTIME:
        return ""
    seconds = int.from_bytes(buffer.raw[_BTIME_OFFSET : _BTIME_OFFSET + 8], "little")
    nanoseconds = int.from_bytes(buffer.raw[_BTIME_OFFSET + 8 : _BTIME_OFFSET + 12], "little")
    return f"{seconds}.{nanoseconds}"


def _read(root: Path) -> dict[str, frozenset[str]]:
    """Path of a project -> its marks. A file that cannot be read counts as empty: it is rebuilt."""
    try:
        data = json.loads(read_start(root / FILE_NAME, _MAX_BYTES))
        return {str(path): frozenset(map(str, marks)) for path, marks in data.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
