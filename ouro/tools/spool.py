"""Long output on disk: written beside the loop, with secrets taken out, up to a limit."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from ouro.utils.runtime import ensure_private_dir

SPOOLED = 4 * 1024 * 1024
"""Bytes of output that are kept in a file at most."""
_PIECE = 8 * 1024


class Spool:
    """A file that output goes to. A thread writes it: to look for secrets takes longer than the loop can wait."""

    def __init__(self, folder: Path, mask: Callable[[str], str] | None) -> None:
        """Make the file.

        Raises:
            OSError: it cannot be made.
        """
        ensure_private_dir(folder)
        self.path = folder / f"output-{secrets.token_hex(4)}.txt"
        self._descriptor = os.open(
            self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        self._mask = mask
        self._room = SPOOLED
        self._queue: SimpleQueue[bytes] = SimpleQueue()
        # Does not hold up the end of the program: what is missing then is the end of a long output.
        self._writer = threading.Thread(target=self._write, name="spool", daemon=True)
        self._writer.start()

    def add(self, data: bytes) -> None:
        """One more piece; what is beyond the limit is left out."""
        if data and self._room:
            data = data[: self._room]
            self._room -= len(data)
            self._queue.put(data)

    def close(self) -> None:
        """No more will come. The file is complete soon after; `settle` waits for it."""
        self._queue.put(b"")

    def settle(self, seconds: float) -> None:
        """Wait until the file is complete, but not for longer than this; not to be called in the loop."""
        self._writer.join(seconds)

    def _write(self) -> None:
        pending = b""
        with os.fdopen(self._descriptor, "wb", buffering=0) as file, contextlib.suppress(OSError):
            while data := self._queue.get():
                pending += data
                while len(pending) > _PIECE:
                    end = _cut(pending)
                    file.write(self._masked(pending[:end]))
                    pending = pending[end:]
            file.write(self._masked(pending))

    def _masked(self, data: bytes) -> bytes:
        if self._mask is None:
            return data
        return self._mask(data.decode("utf-8", "replace")).encode("utf-8", "replace")


def _cut(data: bytes) -> int:
    """Where to cut a piece off, so that no secret is cut in two: after a line, or else between words."""
    for mark in (b"\n", b" "):
        if end := data.rfind(mark, 0, _PIECE) + 1:
            return end
    return _PIECE
