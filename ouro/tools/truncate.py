"""Long output made short: head and tail for the model, all of it in a file that it can read."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from ouro.tools.spool import SPOOLED, Spool
from ouro.utils.text import clean

SHOWN = 30_000
"""Characters of one result that a model is given."""
IN_MEMORY = 256 * 1024
"""Bytes of output that are held while a command runs: half of its head, half of its tail."""


class Capture:
    """What a command prints: head and tail in memory, all of it in a file once it is too long to be shown.

    Args:
        folder: where the file is made when it is needed.
        mask: takes secrets out of what is written to the file; called in a thread.
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
        self._spool: Spool | None = None

    def add(self, data: bytes) -> None:
        """One more piece of output."""
        self._keep(data)
        self.total += len(data)
        if self._spool:
            self._spool.add(data)
        elif self.total > SHOWN and not self.unsaved:
            self._start_spool()

    def close(self) -> None:
        """No more will come."""
        if self._spool:
            self._spool.close()

    def settle(self, seconds: float) -> None:
        """Wait for the file to be complete, where there is one; not to be called in the loop."""
        if self._spool:
            self._spool.settle(seconds)

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

    def _start_spool(self) -> None:
        try:
            self._spool = Spool(self._folder, self._mask)
        except OSError as error:
            self.unsaved = f"the rest could not be kept ({error.strerror})"
            return
        self.file = self._spool.path
        self._spool.add(bytes(self._head + self._tail))


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
