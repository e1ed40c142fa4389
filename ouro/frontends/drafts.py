"""Drafts: the unsent text of a prompt. It is saved until it is sent, also if ouro is killed."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ouro.utils.log import log
from ouro.utils.masked_writes import write_masked, writer
from ouro.utils.ouro_paths import ensure_private_dir, get_drafts_dir

if TYPE_CHECKING:
    from ouro.session import Session

MAX_DRAFT_AGE = 30 * 86_400.0
"""A draft that nobody came back to is deleted after this time."""
DRAFT_DELAY = 0.3
"""Seconds between a key and the save of the unsent text."""
_MAX_BYTES = 1_000_000


class DraftFile:
    """The file with the draft of one session. This process locks it while the session is open.

    Text after a leading space is not saved, as in the history. Secrets are masked in the file.
    """

    def __init__(self, root: Path, folder: Path, session_id: str) -> None:
        self._path = _drafts_folder(root, folder) / session_id
        self._descriptor = -1
        self._text = ""

    def save(self, text: str) -> None:
        """Save the text in the background; a text that is the same is not written again."""
        text = "" if text.startswith(" ") else text
        if text != self._text:
            self._text = text
            write_masked(text, self._write)

    def close(self) -> None:
        """Release the file. It stays if it has text, for the next start."""
        if self._descriptor >= 0:
            if not self._text.strip():
                self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, text: str) -> None:
        """Write in place, so that the lock stays. Errors are only logged: they must not stop ouro."""
        try:
            if self._descriptor < 0:
                ensure_private_dir(self._path.parent)
                self._descriptor = _open_locked(self._path, os.O_CREAT)
            data = text.encode(errors="replace")[:_MAX_BYTES]
            if self._descriptor >= 0:
                os.pwrite(self._descriptor, data, 0)
                os.ftruncate(self._descriptor, len(data))
        except OSError as error:
            log.warning("the draft was not saved: %s", error)


class KeptDraft:
    """The unsent text of a prompt: it is saved a moment after it has changed."""

    def __init__(self, unsent: Callable[[], str]) -> None:
        self._unsent = unsent
        self._file: DraftFile | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, session: Session) -> str:
        """Save the text for this session from now on. Returns the draft that a killed ouro left for
        it, or for a new session in this folder; empty if there is none.
        """
        self.close(keep=False)  # the prompt still has it
        if not session.status().is_saved:
            return ""
        saved_id = session.id if session.resumed is not None else ""
        saved_draft = take_draft(get_drafts_dir(), session.cwd, saved_id)
        self._file = DraftFile(get_drafts_dir(), session.cwd, session.id)
        return saved_draft

    def change(self) -> None:
        """Save the text soon, because it may have changed."""
        if self._timer is None and self._file is not None:
            self._timer = asyncio.get_running_loop().call_later(DRAFT_DELAY, self._save)

    def close(self, *, keep: bool = True) -> None:
        """Save the unsent text, or drop it if it is not to `keep`. Then release the file."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._file is None:
            return
        self._file.save(self._unsent() if keep else "")
        file, self._file = self._file, None
        writer.submit(file.close)

    def _save(self) -> None:
        self._timer = None
        if self._file is not None:
            self._file.save(self._unsent())


def take_draft(root: Path, folder: Path, session_id: str = "") -> str:
    """Return and delete the draft of a session that was killed, or the newest one of this folder;
    empty if there is none.
    """
    for path in list(_draft_paths(root, folder)):
        if session_id and path.name != session_id:
            continue
        if text := _take_file(path):
            return text
    return ""


def _draft_paths(root: Path, folder: Path) -> Iterator[Path]:
    """The files of the drafts, the newest first. Very old ones are deleted."""
    paths_by_time = []
    for path in _drafts_folder(root, folder).glob("*"):
        with suppress(OSError):
            paths_by_time.append((path.stat().st_mtime, path))
    for changed_at, path in sorted(paths_by_time, reverse=True):
        if time.time() - changed_at > MAX_DRAFT_AGE:
            _take_file(path)
        else:
            yield path


def _take_file(path: Path) -> str:
    """Read and delete a draft; empty if a running ouro still has its lock."""
    try:
        descriptor = _open_locked(path)
    except OSError:
        return ""
    if descriptor < 0:
        return ""
    try:
        text = os.pread(descriptor, _MAX_BYTES, 0).decode(errors="replace")
        path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)
    return text.rstrip()


def _open_locked(path: Path, flags: int = 0) -> int:
    """Open a file and lock it; returns its descriptor, or -1 if another process has the lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return -1
    return descriptor


def _drafts_folder(root: Path, folder: Path) -> Path:
    """The folder with the drafts of all sessions that work in `folder`."""
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    return root / name
