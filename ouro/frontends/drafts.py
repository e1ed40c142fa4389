"""Drafts: the unsent text of a prompt. It is saved until it is sent, also if ouro is killed."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
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

    Args:
        drafts_root: the folder with all drafts.
        working_folder: the folder of the session.
    """

    def __init__(self, drafts_root: Path, working_folder: Path, session_id: str) -> None:
        self._path = _drafts_folder(drafts_root, working_folder) / session_id
        self._descriptor = -1
        """That of the locked file; -1 before the first save, and while another process locks it."""
        self._text = ""
        """The text that was saved last."""

    def save(self, text: str) -> None:
        """Save the text in the background, if it has changed since the last call. A text that
        begins with a space is not kept, so it is saved as empty.
        """
        text = "" if text.startswith(" ") else text
        if text != self._text:
            self._text = text
            write_masked(text, self._write)

    def close(self) -> None:
        """Release the file. If its text is blank, the file is deleted; otherwise it stays for the
        next start.
        """
        if self._descriptor >= 0:
            if not self._text.strip():
                self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, text: str) -> None:
        """Write the text into the file, in place, so that the lock stays. Nothing is written while another
        process has the lock. Errors are only logged: they must not stop ouro.
        """
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


class DraftSaver:
    """Saves the unsent text of a prompt a moment after it has changed.

    Args:
        get_unsent_text: returns the text of the prompt, and of the messages that wait.
    """

    def __init__(self, get_unsent_text: Callable[[], str]) -> None:
        self._get_unsent_text = get_unsent_text
        self._file: DraftFile | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, session: Session) -> str:
        """From now on save the text for this session. Returns the draft that a killed ouro left:
        for a resumed session its own draft, for a new one the newest draft of its folder. Empty if
        there is none.
        """
        self.close(keep=False)  # the prompt still has it
        if not session.status().is_saved:
            return ""
        saved_id = session.id if session.resumed is not None else ""
        saved_draft = take_draft(get_drafts_dir(), session.cwd, saved_id)
        self._file = DraftFile(get_drafts_dir(), session.cwd, session.id)
        return saved_draft

    def save_soon(self) -> None:
        """Save the text soon, because it may have changed."""
        if self._timer is None and self._file is not None:
            self._timer = asyncio.get_running_loop().call_later(DRAFT_DELAY, self._save)

    def close(self, *, keep: bool = True) -> None:
        """Save the unsent text, or with `keep=False` drop it. Then release the file."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._file is None:
            return
        self._file.save(self._get_unsent_text() if keep else "")
        file, self._file = self._file, None
        writer.submit(file.close)  # the writer first does the save, which waits in its queue

    def _save(self) -> None:
        """Save the text that is in the prompt now; the timer calls this."""
        self._timer = None
        if self._file is not None:
            self._file.save(self._get_unsent_text())


def join_unsent(texts: Iterable[str], undone_text: str) -> str:
    """Join the unsent texts for the draft. A message that undo showed in the prompt again, and that
    is unchanged, is no draft: `/redo` restores it. Texts that begin with a space are not saved.
    """
    typed_texts = [text for text in texts if text != undone_text]
    return "\n".join(text for text in typed_texts if text and not text.startswith(" "))


def take_draft(drafts_root: Path, working_folder: Path, session_id: str = "") -> str:
    """Read and delete a draft that a killed ouro left. With `session_id` it is the draft of this
    session, otherwise the newest draft of any session in `working_folder`. Empty if there is none.
    """
    # A list, so that all old drafts are deleted, also if a newer one is returned.
    for path in list(_draft_paths(drafts_root, working_folder)):
        if session_id and path.name != session_id:
            continue
        if text := _take_file(path):
            return text
    return ""


def _draft_paths(drafts_root: Path, working_folder: Path) -> Iterator[Path]:
    """Yield the files of the drafts, the newest first. Drafts older than MAX_DRAFT_AGE are deleted
    instead.
    """
    paths_by_time = []
    for path in _drafts_folder(drafts_root, working_folder).glob("*"):
        with suppress(OSError):
            paths_by_time.append((path.stat().st_mtime, path))
    for changed_at, path in sorted(paths_by_time, reverse=True):
        if time.time() - changed_at > MAX_DRAFT_AGE:
            _take_file(path)  # it deletes the file, unless a running ouro has its lock
        else:
            yield path


def _take_file(path: Path) -> str:
    """Read and delete a draft. If a running ouro has its lock, or the file cannot be opened, nothing is
    done, and the text is empty.
    """
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


def _drafts_folder(drafts_root: Path, working_folder: Path) -> Path:
    """The folder with the drafts of all sessions that work in `working_folder`."""
    name = hashlib.sha256(os.fsencode(working_folder)).hexdigest()[:16]
    return drafts_root / name
