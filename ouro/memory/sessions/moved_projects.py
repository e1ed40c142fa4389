"""Finds where the folder of a project was before it was moved or renamed, so that its sessions are
found.

A file has, by the path of each project, what identifies its folder: its number on the disk (inode),
which stays the same after `mv`. Disks give the number of a deleted folder to a new one, so the time
of its creation counts, too.
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
from ouro.utils.path_encoding import text_path

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
    """Record what identifies the folder of a session. A failure is only logged: the path is in the
    session anyway. Blocks.

    Args:
        root: the folder of all sessions.
        project: the folder that a session works in.
    """
    marks = _read_marks(project)
    if not marks or _read_projects(root).get(project) == marks:
        return
    try:
        with lock_file(root / f"{FILE_NAME}.lock", timeout=_LOCK_TIMEOUT):
            projects = _read_projects(root)
            projects.pop(project, None)  # so that it becomes the last one, which is the newest
            projects[project] = marks
            newest = list(projects.items())[-_MAX_FOLDERS:]
            marks_by_path = {path: sorted(project_marks) for path, project_marks in newest}
            write_private(root / FILE_NAME, json.dumps(marks_by_path, indent=0))
    except OSError as error:
        log.warning("sessions: %s cannot be written: %s", FILE_NAME, error)


def earlier_paths(root: Path, project: str) -> frozenset[str]:
    """Returns the recorded paths, which do not exist any more, at which the folder `project` or its
    repository was before; empty if there are none. `root` is the folder of all sessions.

    The folder is recognized by its marks: they identify a folder and its repository, and stay the
    same when these are moved.
    """
    marks = _read_marks(project)
    paths: set[str] = set()
    for path, recorded_marks in _read_projects(root).items():
        is_same_folder = path != project and not marks.isdisjoint(recorded_marks)
        if is_same_folder and not os.path.lexists(text_path(path)):
            paths.add(path)
    return frozenset(paths)


def _read_marks(project: str) -> frozenset[str]:
    """Returns what identifies a folder, and the repository that it is in; empty if it does not
    exist.
    """
    return frozenset(_find_marks(text_path(project)))


def _find_marks(folder: Path) -> Iterator[str]:
    """Yield what identifies a folder, then what identifies its repository; nothing if it cannot be
    read.
    """
    with suppress(OSError):
        yield f"folder {_identity(folder)}"
        repository = repository_of(folder)
        if repository is not None:
            yield f"repository {_identity(repository)}"


def _identity(folder: Path) -> str:
    """Returns the disk of a folder, its number there, and the time of its creation, as one text. It
    stays the same when the folder is moved.
    """
    status = folder.stat()
    return f"{status.st_dev}:{status.st_ino}:{_birth_time(folder, status)}"


def _birth_time(folder: Path, status: os.stat_result) -> str:
    """Returns the time at which a folder was created; empty where the system does not say it. On
    Linux only `statx` does, which Python does not offer.
    """
    if (birth := getattr(status, "st_birthtime", None)) is not None:
        return str(birth)
    import ctypes  # needed only when a session is created or a project was moved

    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    try:
        statx = ctypes.CDLL(None).statx
    except AttributeError:
        return ""
    has_failed = statx(_AT_FDCWD, os.fsencode(folder), 0, _STATX_BTIME, buffer) != 0
    # The first field names the fields that the file system has set.
    set_fields = int.from_bytes(buffer.raw[:4], "little")
    if has_failed or not set_fields & _STATX_BTIME:
        return ""
    seconds = int.from_bytes(buffer.raw[_BTIME_OFFSET : _BTIME_OFFSET + 8], "little")
    nanoseconds = int.from_bytes(buffer.raw[_BTIME_OFFSET + 8 : _BTIME_OFFSET + 12], "little")
    return f"{seconds}.{nanoseconds}"


def _read_projects(root: Path) -> dict[str, frozenset[str]]:
    """Returns the marks of each recorded project, by its path. Empty if the file is missing or
    cannot be read: then it is made again.
    """
    try:
        data = json.loads(read_start(root / FILE_NAME, _MAX_BYTES))
        return {str(path): frozenset(map(str, marks)) for path, marks in data.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
