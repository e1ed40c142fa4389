"""Which files were taken over, and how they were then: so that the next time only what has changed is read."""

from __future__ import annotations

import json
from collections.abc import Container
from pathlib import Path

from ouro.utils.log import log
from ouro.utils.private_files import write_private


class Ledger:
    """Derived, and may be deleted at any time: then all is read again, and nothing is added twice."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: dict[str, list[object]] = {}
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return
        if isinstance(found, dict):
            self._lines = {key: line for key, line in found.items() if isinstance(line, list) and len(line) == 3}

    def session_of(self, path: Path, sessions: Container[object]) -> str:
        """The session that a file was taken over into, where neither has changed or gone since; else empty."""
        line = self._lines.get(str(path))
        if line is None or line[2] not in sessions or line[:2] != _state(path):
            return ""
        return str(line[2])

    def note(self, path: Path, session_id: str) -> None:
        """A file has been taken over as it is now."""
        self._lines[str(path)] = [*_state(path), session_id]

    def save(self) -> None:
        """Keep it for the next time."""
        try:
            write_private(self._path, json.dumps(self._lines, ensure_ascii=True))
        except OSError as error:
            log.warning("%s: %s", self._path, error)  # the next time all is read again


def _state(path: Path) -> list[object]:
    try:
        found = path.stat()
    except OSError:
        return [0, 0]
    return [found.st_size, found.st_mtime_ns]
