"""Long output made short: head and tail for the model, all of it in a file that it can read."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from ouro.utils.terminal_text import clean

SHOWN = 30_000
"""Characters of one result that a model is given."""
IN_MEMORY = 256 * 1024
"""Bytes of output that are held while a command runs: half of its head, half of its tail."""
SPOOLED = 16 * 1024 * 1024
"""Bytes of output that are kept in a file at most."""


class Capture:
    """What a command prints: head and tail in memory, all of it in a file once it is too long to be shown.

    Args:
        folder: where the file is made when it is needed.
        mask: takes secrets out of what is written to the file; must be quick.
    """

    def __init__(self, folder: Path, mask: Callable[[str], str] | None = None) -> None:
        self.total = 0
        """Bytes printed so far."""
        self.file: Path | None = None
        """Where all of it is kept (up to SPOOLED bytes), once there is such a file."""
        self.unsaved = ""
        """Why there is no such file although there should be."""
        self._folder = folder
        self._mask = mask
        self._head = bytearray()
        self._tail = bytearray()
        self._spool: BinaryIO | None = None
        self._spooled = 0
        self._pending = bytearray()

    def add(self, data: bytes) -> None:
        """One more piece of output."""
        self._keep(data)
        self.total += len(data)
        if self.total > SHOWN:
            self._write(data)

    def close(self) -> None:
        """No more will come: the file is complete."""
        if self._spool:
            self._flush(bytes(self._pending))
            self._pending.clear()
            with contextlib.suppress(OSError):
                self._spool.close()
            self._spool = None

    def text(self, limit: int = SHOWN) -> str:
        """Head and tail, cleaned for reading, with what was left out stated between them."""
        if b"\0" in self._head[:8192]:
            return f"[binary output, {self.total:,} bytes, is not shown{self._whereabouts()}]"
        if len(self._head) + len(self._tail) >= self.total:
            return shorten(readable(bytes(self._head + self._tail)), limit, self._whereabouts())
        head, tail = readable(bytes(self._head)), readable(bytes(self._tail))
        note = f"{self.total:,} bytes in all{self._whereabouts()}"
        return _joined(_cut_head(head, limit // 3), _cut_tail(tail, limit - limit // 3), note)

    def since(self, position: int, limit: int = SHOWN) -> str:
        """What was printed after the first `position` bytes, cleaned for reading; what is gone is stated."""
        new = self.total - position
        if position < len(self._head):
            held = bytes(self._head[position:] + self._tail)
        else:
            held = bytes(self._tail[max(0, len(self._tail) - new) :])
        note = self._whereabouts()
        if len(held) < new:
            return f"[{new - len(held):,} bytes left out{note}]\n{_cut_tail(readable(held), limit)}"
        return shorten(readable(held), limit, note)

    def _whereabouts(self) -> str:
        if self.file is None:
            return f"; {self.unsaved}" if self.unsaved else ""
        part = f"its first {SPOOLED // 1024 // 1024} MB are" if self.total > SPOOLED else "all of it is"
        return f"; {part} in {self.file}"

    def _keep(self, data: bytes) -> None:
        room = max(0, IN_MEMORY // 2 - len(self._head))
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > IN_MEMORY:
            del self._tail[: -IN_MEMORY // 2]

    def _write(self, data: bytes) -> None:
        if self._spooled >= SPOOLED or self.unsaved:
            return
        if self._spool is None:
            self._open()
            data = bytes(self._head + self._tail)
        self._pending += data
        # Whole lines, so that no secret is cut in two before the mask sees it.
        end = self._pending.rfind(b"\n") + 1 or (len(self._pending) if len(self._pending) > IN_MEMORY else 0)
        self._flush(bytes(self._pending[:end]))
        del self._pending[:end]

    def _open(self) -> None:
        path = self._folder / f"output-{secrets.token_hex(4)}.txt"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self.unsaved = f"the rest could not be kept ({error.strerror})"
            return
        self._spool = os.fdopen(descriptor, "wb", buffering=0)
        self.file = path

    def _flush(self, data: bytes) -> None:
        if not data or self._spool is None:
            return
        data = data[: SPOOLED - self._spooled]
        self._spooled += len(data)
        if self._mask:
            data = self._mask(data.decode("utf-8", "replace")).encode("utf-8", "replace")
        try:
            self._spool.write(data)
        except OSError as error:
            self.unsaved = f"the rest could not be kept ({error.strerror})"


def readable(data: bytes) -> str:
    """Printed bytes as a person would have seen them in the end: progress bars folded, no terminal control."""
    return clean(folded(data.decode("utf-8", "replace")))


def folded(text: str) -> str:
    """`text` with each line as its last carriage return left it."""
    if "\r" not in text:
        return text
    lines = re.sub(r"\r+\n", "\n", text).split("\n")
    return "\n".join(next((part for part in reversed(line.split("\r")) if part.strip()), "") for line in lines)


def shorten(text: str, limit: int = SHOWN, note: str = "") -> str:
    """`text`, or its head and tail where it is longer than `limit` characters; `note` is said where it was cut."""
    if len(text) <= limit:
        return text
    head, tail = _cut_head(text, limit // 3), _cut_tail(text, limit - limit // 3)
    return _joined(head, tail, f"{len(text):,} characters in all{note}")


def _joined(head: str, tail: str, note: str) -> str:
    return f"{head}\n\n[… cut here: {note}]\n\n{tail}"


def _cut_head(text: str, limit: int) -> str:
    """The beginning, up to the end of a line where one is near."""
    end = text.rfind("\n", limit // 2, limit)
    return text[: end if end > 0 else limit].rstrip("\n") if len(text) > limit else text.rstrip("\n")


def _cut_tail(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    start = text.find("\n", len(text) - limit, len(text) - limit // 2)
    return text[start + 1 if start >= 0 else len(text) - limit :]
