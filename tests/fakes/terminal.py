"""A terminal for tests: a program in a pseudo-terminal, and the picture that a person would see (pyte)."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pexpect
import pyte

TESTS = Path(__file__).parents[1]


class Terminal:
    """`python -m fakes.screen_program SCENARIO` in a terminal of its own."""

    def __init__(self, scenario: str, folder: Path, size: tuple[int, int] = (24, 80), **environment: str) -> None:
        self.folder = folder
        self.screen = pyte.Screen(size[1], size[0])
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        values = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": str(TESTS), **environment}
        self.child = pexpect.spawn(
            sys.executable,
            ["-m", "fakes.screen_program", scenario, str(folder)],
            env={**os.environ, **values},
            dimensions=size,
            timeout=20,
        )
        self.child.delaybeforesend = None

    def send(self, keys: str | bytes) -> None:
        """Type."""
        self.child.send(keys)

    def read(self) -> bool:
        """Take in what the program has drawn; False at its end."""
        try:
            data = self.child.read_nonblocking(1_000_000, timeout=0.05)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.raw += data
        # pyte takes the keyboard protocol's sequences for others
        self._stream.feed(data.replace(b"\x1b[>25u", b"").replace(b"\x1b[<u", b""))
        return True

    def until(self, is_so: Callable[[], object], seconds: float = 20.0) -> None:
        """Read until something is so."""
        end = time.monotonic() + seconds
        while not is_so():
            self.read()
            assert time.monotonic() < end, "\n".join(["it did not become so:", *self.lines()])

    def lines(self) -> list[str]:
        """What can be read on the screen."""
        return [line.rstrip() for line in self.screen.display]

    def shows(self, text: str) -> bool:
        """Whether the screen shows this."""
        return any(text in line for line in self.lines())

    def told(self, name: str) -> list:
        """What the session was told under this name."""
        file = self.folder / "told"
        lines = file.read_text().splitlines() if file.exists() else []
        return [value for line in lines for key, value in json.loads(line).items() if key == name]

    def end(self) -> int:
        """Read to the end; gives the exit code, 128 and more for a signal."""
        while self.read():
            pass
        self.child.wait()
        return self.child.exitstatus if self.child.exitstatus is not None else 128 + self.child.signalstatus
