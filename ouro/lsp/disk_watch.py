"""Files of a project that other programs have made, changed or removed, for a language server."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from lsprotocol import types

MAX_WATCHED = 20_000
"""Files that are compared; a larger project is compared in part."""
MAX_SECONDS = 0.5
MAX_CHANGES = 1_000
_SKIPPED = {".git", ".hg", ".venv", "venv", "node_modules", "__pycache__", "target", ".ouro"}

FileState = tuple[int, int]
"""Time of change and size."""


class DiskWatch:
    """Compares the files with certain endings with the last time.

    Args:
        endings: of the files that a server reads.
    """

    def __init__(self, root: Path, endings: tuple[str, ...]) -> None:
        self._root = root
        self._endings = endings
        self._known: dict[str, FileState] | None = None
        self._is_cut = False

    def changes(self) -> list[types.FileEvent]:
        """The files that differ from the last call; none at the first one. Blocks."""
        self._is_cut = False
        found = dict(self._scan())
        before, self._known = self._known, found
        if before is None:
            return []
        kinds = types.FileChangeType
        events = [
            types.FileEvent(Path(path).as_uri(), kinds.Changed if path in before else kinds.Created)
            for path, state in found.items()
            if before.get(path) != state
        ]
        # What was not reached is not gone.
        deleted = () if self._is_cut else before.keys() - found.keys()
        events += [types.FileEvent(Path(path).as_uri(), kinds.Deleted) for path in deleted]
        return events[:MAX_CHANGES]

    def _scan(self) -> Iterator[tuple[str, FileState]]:
        """The files that a server is for, with time and size. Stops at a limit of time or number."""
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
                    if entry.name not in _SKIPPED:
                        folders.append(entry.path)
                elif entry.name.endswith(self._endings):
                    count += 1
                    try:
                        state = entry.stat()
                    except OSError:
                        continue
                    yield entry.path, (state.st_mtime_ns, state.st_size)
