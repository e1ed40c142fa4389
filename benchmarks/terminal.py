"""A program in a real pseudo-terminal, with the time of everything that it shows."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyte

COLUMNS, ROWS = 120, 40


class Terminal:
    """Runs `command` from the moment of `start`; `screen` is what a person would see."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], cwd: Path) -> None:
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self.screen)
        self.started = time.monotonic()
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execvpe(command[0], list(command), environment)
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    def type(self, text: str) -> None:
        """Send keys."""
        os.write(self.descriptor, text.encode())

    def text(self) -> str:
        """The screen, as lines."""
        return "\n".join(self.screen.display)

    def until(self, seen: Callable[[str], bool], limit: float, every: Callable[[], None] = lambda: None) -> float | None:
        """Milliseconds from the start until the screen satisfies `seen`; None when it did not within `limit` seconds."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if self._read(0.005):
                if seen(self.text()):
                    return (time.monotonic() - self.started) * 1000
            else:
                every()
        return None

    def _read(self, wait: float) -> bool:
        if not select.select([self.descriptor], [], [], wait)[0]:
            return False
        try:
            data = os.read(self.descriptor, 65536)
        except OSError:
            return False
        self._answer(data)
        self._stream.feed(data)
        return bool(data)

    def _answer(self, data: bytes) -> None:
        """Answer what programs ask a terminal at their start, as a terminal would."""
        for question, answer in (
            (b"\x1b[6n", f"\x1b[{self.screen.cursor.y + 1};{self.screen.cursor.x + 1}R".encode()),
            (b"\x1b[c", b"\x1b[?62;22c"),
            (b"\x1b]11;?", b"\x1b]11;rgb:0000/0000/0000\x1b\\"),
            (b"\x1b]10;?", b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\"),
        ):
            if question in data:
                os.write(self.descriptor, answer)

    def memory(self) -> float:
        """MiB of resident memory, the program and its descendants."""
        return sum(_resident(pid) for pid in descendants(self.pid)) / 1024

    def close(self) -> None:
        """End the program and all that it started."""
        for pid in reversed(descendants(self.pid)):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        os.close(self.descriptor)
        os.waitpid(self.pid, 0)


def descendants(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            children = (task / "children").read_text().split()
        except OSError:
            continue
        for child in children:
            found.extend(descendants(int(child)))
    return found


def _resident(pid: int) -> int:
    """KiB, the pages shared with others counted by their share."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0
