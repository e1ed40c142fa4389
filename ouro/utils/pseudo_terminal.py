"""Pseudo-terminals: their size, and programs that have one of their own."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections.abc import Sequence
from contextlib import suppress

# A session leader without a terminal gets the first one that it opens as its own.
_OWN_TERMINAL = ': <>"$0"; exec "$@"'


def set_size(terminal: int, columns: int, rows: int) -> None:
    """Set the size of a terminal, about which its program gets a signal. Nothing happens if the descriptor
    is not a terminal.
    """
    with suppress(OSError):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def in_own_terminal(slave: int, command: Sequence[str]) -> tuple[str, ...]:
    """The command that runs this one with `slave` as its controlling terminal, in a process session
    that has none yet.
    """
    return ("/bin/sh", "-c", _OWN_TERMINAL, os.ttyname(slave), *command)
