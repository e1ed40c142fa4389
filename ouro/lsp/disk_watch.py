"""DiskWatch: files of a project that other programs have made, changed or removed, for a language
server.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from lsprotocol import types

MAX_WATCHED = 20_000
"""Maximum files that are compared; of a larger project only a part is."""
MAX_SECONDS = 0.5
"""The time limit of a comparison."""
MAX_CHANGES = 1_000
"""Maximum changes that are reported at once."""
_SKIPPED_FOLDERS = {
    ".git",
    ".hg",
    ".venv",
    "venv",
    "node_modules",
    "__pycache__",
    "target",
    ".ouro",
}
"""Folders that are not searched."""

FileState = tuple[int, int]
"""Time of change and size of a file."""


class DiskWatch:
    """Compares the files of a folder with those at the last comparison.

    Args:
        endings: of the files that a server reads.
    """

    def __init__(self, root: Path, endings: tuple[str, ...]) -> None:
        self._root = root
        self._endings = endings
        self._last_states: dict[str, FileState] | None = None
        """The files at the last comparison; None before the first one."""
        self._is_cut = False
        """Whether the last search reached a limit."""

    def changes(self) -> list[types.FileEvent]:
        """The files that were created, changed or deleted since the last call; empty at the first call.
        Blocks.
        """
        self._is_cut = False
        states = dict(self._scan())
        before, self._last_states = self._last_states, states
        if before is None:
            return []
        kinds = types.FileChangeType
        events = [
            types.FileEvent(Path(path).as_uri(), kinds.Changed if path in before else kinds.Created)
            for path, state in states.items()
            if before.get(path) != state
        ]
        # A file that was not reached may still exist.
        deleted = () if self._is_cut else before.keys() - states.keys()
        events += [types.FileEvent(Path(path).as_uri(), kinds.Deleted) for path in deleted]
        return events[:MAX_CHANGES]

    def _scan(self) -> Iterator[tuple[str, FileState]]:
        """Yield the files that the server reads, with their state. It stops at a limit of time or
        number.
        """
        deadline, count = time.monotonic() + MAX_SECONDS, 0
        folders = [str(self._root)]
        while folders:
            if time.monotonic() > deadline or count > MAX_WATCHED:
                self._is_cut = True
                return
            try:
                with os.scandir(folders.pop()) as scan:
                    entries = [*scan]
            except OSError:
                continue
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in _SKIPPED_FOLDERS:
                        folders.append(entry.path)
                elif entry.name.endswith(self._endings):
                    count += 1
                    try:
                        state = entry.stat()
                    except OSError:
                        continue
                    yield entry.path, (state.st_mtime_ns, state.st_size)
