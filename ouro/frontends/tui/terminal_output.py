"""TerminalOutput: writes to the terminal at once what it takes without waiting."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TextIO

from ouro.frontends.tui.console_glyphs import console_writer


class TerminalOutput:
    """The output of the terminal, with glyphs that it has; once it is gone, writes are dropped.

    Textual writes in a thread, because a terminal may take no output. To wake the thread for each frame
    took 0.7 ms of the 3.7 from a key to its character. So a text is written by `write_at_once`, and only
    what the terminal does not take goes to the thread, which calls `write` and `flush`.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._to_console = console_writer()
        self._device = _open_without_waiting(file)
        """The terminal, opened once more, for writes that never wait. None: that is not possible."""
        self._passed = 0
        """How many texts were passed to the thread,"""
        self._written = 0
        """how many of them it has written to the buffer,"""
        self._flushed = 0
        """and how many of them the terminal has."""

    def write_at_once(self, text: str) -> str | bytes:
        """Write what the terminal takes now. The caller must pass the rest, which is returned, to the
        thread: all of the text while the thread still writes, so that the order stays. Empty if all
        was written.
        """
        if self._to_console is not None:
            text = self._to_console(text)
        rest: str | bytes = text
        if self._device is not None and self._passed == self._flushed:
            rest = _write_part(self._device, text.encode(self._file.encoding, "replace"))
        if rest:
            self._passed += 1
        return rest

    def write(self, text: str | bytes) -> None:
        """Write to the buffer; waits if it is full, and the terminal takes nothing."""
        with suppress(OSError, ValueError):
            if isinstance(text, bytes):
                self._file.flush()
                self._file.buffer.write(text)
            else:
                self._file.write(text)
        self._written += 1

    def close(self) -> None:
        """Close what this object has opened. All later texts go to the thread."""
        device, self._device = self._device, None
        if device is not None:
            os.close(device)

    def flush(self) -> None:
        """Write the buffer to the terminal; waits until it has taken it."""
        written = self._written
        with suppress(OSError, ValueError):
            self._file.flush()
        self._flushed = written


def _open_without_waiting(file: TextIO) -> int | None:
    """Open the terminal of `file` again, so that its writes do not wait. The descriptor of `file` itself
    is shared with other programs, which rely on it to wait. None if it is no terminal, or another user's.
    """
    try:
        shared = file.fileno()
        device = os.open(os.ttyname(shared), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError):
        return None
    if os.path.sameopenfile(shared, device):
        return device
    os.close(device)  # a terminal of the same name, outside of this container
    return None


def _write_part(device: int, data: bytes) -> bytes:
    """Write what the terminal takes, and return the rest. All is dropped if the terminal is gone."""
    try:
        return data[os.write(device, data) :]
    except BlockingIOError:
        return data
    except OSError:
        return b""
