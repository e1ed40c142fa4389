"""Prompt history: one file for all sessions and front ends, one entry per line."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from ouro.utils.files import lock_descriptor
from ouro.utils.log import log
from ouro.utils.masked_writes import write_masked
from ouro.utils.ouro_paths import ensure_private_dir

_MAX_READ_BYTES = 2_000_000


class PromptHistory:
    """The history file, shared by all sessions that are open.

    A line is one entry, with `\\n` and `\\\\` for a new line and a backslash. Text after a leading
    space is not saved.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._project: Path | None = None
        """The file with the entries of the project, which are in the common file, too."""
        self._session_entries: list[str] = []
        """The entries of this session, the oldest first."""
        self._unsent: list[str] = []
        """Texts of all sessions that were cleared, not sent."""

    def begin_session(self, project: Path, prompts: Sequence[str] = ()) -> None:
        """Begin a session in a project. From now on `entries` returns the entries of other projects
        first, then those of this project, and those of the session last: its earlier `prompts`, the
        texts that were not sent in earlier sessions of this process, and what is added.
        """
        file_name = hashlib.sha256(os.fsencode(project)).hexdigest()[:16]
        # What was typed before the first session was open belongs to it.
        is_first_session = self._project is None
        typed_before = self._session_entries if is_first_session else self._unsent
        self._project = self._path.with_name(f"{self._path.name}.d") / file_name
        self._session_entries = [*(text for text in prompts if text.strip()), *typed_before]

    def entries(self) -> list[str]:
        """All entries without duplicates, the oldest first: first the entries of other projects,
        then of this project, then of this session. An unreadable file counts as empty.
        """
        entries = _read(self._path)
        if self._project:
            entries += _read(self._project)
        entries += self._session_entries
        # Of equal entries the newest stays.
        newest_first = dict.fromkeys(reversed(entries))
        return list(newest_first)[::-1]

    def add(self, text: str) -> None:
        """Add an entry. In this session it stays as it is; in the file its secrets are masked."""
        if text.strip() and not text.startswith(" "):
            self._session_entries.append(text)
            write_masked(text, self._write)

    def keep_unsent(self, text: str) -> None:
        """Keep a text that was not sent, until ouro ends."""
        if text.strip():
            self._session_entries.append(text)
            self._unsent.append(text)

    def _write(self, text: str) -> None:
        """Write an entry to the file of all projects and to the file of this project. Errors of the
        disk are only logged, because they must not stop ouro.
        """
        for path in filter(None, (self._path, self._project)):
            self._append(path, text)

    def _append(self, path: Path, text: str) -> None:
        """Append an entry to a file as one line."""
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
    """The entries in the last `_MAX_READ_BYTES` of a file, the oldest first. Of a longer file, the
    first of them may lack its beginning. Empty if the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _MAX_READ_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [_unescape(line) for line in text.split("\n") if line]


class HistoryWalk:
    """Walks through the entries with Up and Down. The draft is the newest entry."""

    def __init__(self, entries: Sequence[str], draft: str) -> None:
        self._texts = [*entries, draft]
        self._index = len(self._texts) - 1

    def move(self, by: int) -> str | None:
        """Move by that many entries and return the entry; None beyond the ends."""
        if not 0 <= self._index + by < len(self._texts):
            return None
        self._index += by
        return self._texts[self._index]

    def shows(self, text: str) -> bool:
        """Whether `text` is the entry that this walk showed last."""
        return self._texts[self._index] == text


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\r", "").replace("\n", "\\n")


def _unescape(line: str) -> str:
    return "\\".join(part.replace("\\n", "\n") for part in line.split("\\\\"))
