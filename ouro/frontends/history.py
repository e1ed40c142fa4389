"""Prompt history: one file for all sessions and front ends, one entry per line."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from ouro.utils.files import lock_descriptor
from ouro.utils.log import log
from ouro.utils.masked_writes import write_masked
from ouro.utils.runtime import ensure_private_dir

_KEPT_BYTES = 2_000_000


class PromptHistory:
    """The history file, shared by all sessions that are open.

    A line is one entry, with `\\n` and `\\\\` for a new line and a backslash. Text after a leading
    space is not saved.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._project: Path | None = None
        """The file with the entries of the project, which are in the common file, too."""
        self._own: list[str] = []

    def use(self, project: Path, said: Sequence[str] = ()) -> None:
        """From now on the entries of this project come last, and after them those of the session:
        what was `said` in it before, and what is added.
        """
        name = hashlib.sha256(os.fsencode(project)).hexdigest()[:16]
        typed_before = self._own if self._project is None else []
        self._project = self._path.with_name(f"{self._path.name}.d") / name
        self._own = [*(text for text in said if text.strip()), *typed_before]

    def entries(self) -> list[str]:
        """All entries without duplicates, oldest first: those of other projects, of this one, of
        this session. An unreadable file counts as empty.
        """
        found = [*_read(self._path), *(_read(self._project) if self._project else ()), *self._own]
        return list(dict.fromkeys(reversed(found)))[::-1]

    def add(self, text: str) -> None:
        """Save an entry: unchanged in memory, without secrets in the file."""
        if text.strip() and not text.startswith(" "):
            self._own.append(text)
            write_masked(text, self._write)

    def _write(self, text: str) -> None:
        """Write an entry. Disk errors are only logged: a lost history entry must not stop ouro."""
        for path in filter(None, (self._path, self._project)):
            self._append(path, text)

    def _append(self, path: Path, text: str) -> None:
        """Append an entry to a file. An error is only logged."""
        try:
            ensure_private_dir(path.parent)
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                lock_descriptor(descriptor)
                os.write(descriptor, f"{_escape(text)}\n".encode(errors="replace"))
            finally:
                os.close(descriptor)
        except OSError as error:
            log.warning("the history line was not saved: %s", error)


def _read(path: Path) -> list[str]:
    """The last entries of a file; none if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _KEPT_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [_unescape(line) for line in text.split("\n") if line]


class HistoryWalk:
    """A walk through the entries with Up and Down. The draft is the newest entry."""

    def __init__(self, entries: Sequence[str], draft: str) -> None:
        self._lines = [*entries, draft]
        self._at = len(self._lines) - 1

    def move(self, by: int) -> str | None:
        """Move by that many entries and return the entry; None beyond the ends."""
        if not 0 <= self._at + by < len(self._lines):
            return None
        self._at += by
        return self._lines[self._at]

    def shows(self, text: str) -> bool:
        """Whether `text` is the entry that this walk showed last."""
        return self._lines[self._at] == text


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\r", "").replace("\n", "\\n")


def _unescape(line: str) -> str:
    return "\\".join(part.replace("\\n", "\n") for part in line.split("\\\\"))
