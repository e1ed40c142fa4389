"""Who writes a session: a lock that the kernel takes back when its holder dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ouro.errors import SessionInUse
from ouro.memory.backend import timestamp
from ouro.memory.sessions.session_file import opened

LOCK_NAME = "lock"


class SessionLock:
    """Held from its making to `release`.

    Raises:
        SessionInUse: someone else holds it; the message says which process, and since when.
    """

    def __init__(self, folder: Path) -> None:
        with opened(folder, LOCK_NAME, os.O_RDWR | os.O_CREAT) as descriptor:
            self._descriptor = os.dup(descriptor)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._descriptor, 200, 0).decode("utf-8", "replace").strip()
            os.close(self._descriptor)
            raise _in_use(holder) from error
        except OSError:
            # A disk without locks: the session is still written record by record, each kept apart by O_APPEND.
            return
        self._write_holder()

    def release(self) -> None:
        """Let others have it."""
        os.close(self._descriptor)

    def _write_holder(self) -> None:
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()} {timestamp()}\n".encode(), 0)
        except OSError:
            # A full disk: the lock holds all the same, it only cannot say whose it is.
            return


def _in_use(holder: str) -> SessionInUse:
    pid, _, since = holder.partition(" ")
    if pid == str(os.getpid()):
        return SessionInUse("This session is open already, here in this ouro.", "Go on there, or close it first.")
    who = f"process {pid} since {since}" if since else "another process"
    return SessionInUse(f"This session is in use by {who}.", "Go on there, close it, or go on in a copy: `--fork`.")
