"""A terminal for tests and benchmarks: a program in a pseudo-terminal, and the picture that a user
sees (pyte); also with the full screen on a fake session in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pexpect
import pyte

from fakes.waiting import PATIENCE

# pyte misreads the sequences of the keyboard protocol. Half a sequence waits for its other half.
NOT_FOR_PYTE = re.compile(rb"\x1b\[[<>=][\d;]*[a-zA-Z]")
_HALF = re.compile(rb"\x1b(\[[<>=]?[\d;]*)?\Z")


class Terminal:
    """Runs `command` from the moment of `started`; `size` is rows and columns.

    Nothing here waits for a fixed time: `until` reads until a condition is true, or fails with the
    screen.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        cwd: Path,
        size: tuple[int, int] = (30, 100),
    ) -> None:
        self.screen = PyteScreen(size[1], size[0])
        self.raw = b""
        """Everything that the program has written."""
        self.background = "rgb:0000/0000/0000"
        """The answer to a query of the background colour; empty: none."""
        self._stream = pyte.ByteStream(self.screen)
        self._rest = b""
        self._ended = False
        self._lines: list[str] | None = None
        """The screen as text, until it changes: `shows` reads it several times for each frame."""
        self.modes_before = _modes_of_a_new_terminal()
        """The modes of a new terminal: the program may change them before they can be read."""
        self.started = time.monotonic()
        self.child = pexpect.spawn(
            command[0],
            list(command[1:]),
            env=dict(environment),
            cwd=str(cwd),
            dimensions=size,
            timeout=PATIENCE,
        )
        self.child.delaybeforesend = None
        self.child.delayafterclose = self.child.delayafterterminate = (
            self.child.ptyproc.delayafterclose
        ) = 0.01

    @property
    def pid(self) -> int:
        return self.child.pid

    def send(self, keys: str | bytes) -> None:
        """Type."""
        self.child.send(keys)

    def read(self, wait: float = 0.05) -> bool:
        """Read what the program writes within `wait` seconds; returns False at its end."""
        if self._ended:
            return False
        if not select.select([self.child.child_fd], [], [], wait)[0]:
            return True
        try:
            data = os.read(self.child.child_fd, 1 << 20)
        except OSError:  # Linux: the program has closed its side
            data = b""
        if not data:
            self._ended = True
            return False
        self.raw += data
        self._lines = None
        self._answer(data)
        data = NOT_FOR_PYTE.sub(b"", self._rest + data)
        half = _HALF.search(data)
        self._rest = half[0] if half else b""
        *before, last = data[: len(data) - len(self._rest)].split(b"\x1b[6n")
        for piece in before:  # the program asks for the place of the cursor between two pieces
            self._stream.feed(piece)
            self.child.send(f"\x1b[{self.screen.cursor.y + 1};{self.screen.cursor.x + 1}R".encode())
        self._stream.feed(last)
        return True

    def _answer(self, data: bytes) -> None:
        """Answer the queries that programs send at their start."""
        for question, answer in (
            (b"\x1b[c", b"\x1b[?62;22c"),
            (b"\x1b]11;?", f"\x1b]11;{self.background}\x1b\\".encode() if self.background else b""),
            (b"\x1b]10;?", b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\"),
        ):
            if question in data:
                self.child.send(answer)

    def until(self, is_so: Callable[[], object], seconds: float = PATIENCE) -> None:
        """Read until a condition is true."""
        end = time.monotonic() + seconds
        while not is_so():
            self.read()
            if time.monotonic() > end:
                raise AssertionError("\n".join([f"not true in {seconds:g} s:", *self.lines()]))

    def until_shows(self, *texts: str) -> None:
        """Read until all of these can be read on the screen."""
        self.until(lambda: all(map(self.shows, texts)))

    def until_gone(self, *texts: str) -> None:
        """Read until none of these can be read on the screen."""
        self.until(lambda: not any(map(self.shows, texts)))

    def lines(self) -> list[str]:
        """The rows of the screen, without blanks at their ends."""
        if self._lines is None:
            rows, columns = self.screen.buffer, range(self.screen.columns)
            # `display` fails on a wide character of which one half is overwritten.
            self._lines = [
                "".join(rows[y][x].data for x in columns).rstrip() for y in range(self.screen.lines)
            ]
        return self._lines

    def text(self) -> str:
        """The same in one piece."""
        return "\n".join(self.lines())

    def shows(self, text: str) -> bool:
        """Whether the screen shows this."""
        return any(text in line for line in self.lines())

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of the window, and notify the program."""
        self.screen.resize(rows, columns)
        self._lines = None
        self.child.setwinsize(rows, columns)

    def modes(self) -> list:
        """The terminal's modes, from termios."""
        return termios.tcgetattr(self.child.child_fd)

    def hang_up(self) -> None:
        """Close the window while the program runs."""
        self.child.ptyproc.fileobj.close()
        self.child.child_fd = self.child.ptyproc.fd = -1
        self.child.closed = self.child.ptyproc.closed = self._ended = True

    def signal(self, number: signal.Signals) -> None:
        """Send the program a signal."""
        os.kill(self.pid, number)

    def end(self, seconds: float = PATIENCE) -> int:
        """Read to the end; returns the exit code, 128 and more for a signal."""
        end = time.monotonic() + seconds
        while self.read() or self.child.isalive():
            if time.monotonic() > end:
                raise AssertionError("\n".join(["the program did not end:", *self.lines()]))
        return (
            self.child.exitstatus
            if self.child.exitstatus is not None
            else 128 + self.child.signalstatus
        )

    def close(self) -> None:
        """Kill the program and its child processes."""
        for pid in reversed(list(descendants(self.child.pid))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not self.child.closed:
            self.child.close(force=True)
        else:
            while self.child.isalive():
                pass


def _modes_of_a_new_terminal() -> list:
    ours, theirs = os.openpty()
    try:
        return termios.tcgetattr(ours)
    finally:
        os.close(ours)
        os.close(theirs)


class PyteScreen(pyte.Screen):
    """With the alternate screen of real terminals, as far as needed: both screens begin empty."""

    def set_mode(self, *modes: int, **kwargs: bool) -> None:
        super().set_mode(*modes, **kwargs)
        self._change_screen(modes, kwargs)

    def reset_mode(self, *modes: int, **kwargs: bool) -> None:
        super().reset_mode(*modes, **kwargs)
        self._change_screen(modes, kwargs)

    def _change_screen(self, modes: Sequence[int], kwargs: Mapping[str, bool]) -> None:
        if kwargs.get("private") and 1049 in modes:
            self.erase_in_display(2)
            self.cursor_position()


def is_alive(pid: int) -> bool:
    """Whether there is a process with this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def descendants(pid: int) -> Iterator[int]:
    """A process and all its descendants."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            for child in (task / "children").read_text().split():
                yield from descendants(int(child))


TESTS = Path(__file__).parents[1]


_JOB = """
import os, signal, sys
child = os.fork()
if not child:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execvp(sys.argv[1], sys.argv[1:])
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def as_job(command: Sequence[str]) -> list[str]:
    """The command that runs `command` as a shell does, so that Ctrl+Z stops it: in a process group
    with a parent in the same terminal.

    Unlike a shell, the parent leaves the terminal to the stopped job: a test continues it by a
    signal.
    """
    return [sys.executable, "-c", _JOB, *command]


def job_in(terminal: Terminal) -> int:
    """The process of the command that was started by `as_job`."""
    starter = terminal.child.pid
    children = Path(f"/proc/{starter}/task/{starter}/children")
    terminal.until(lambda: children.read_text().strip())
    return int(children.read_text().split()[0])


class ScreenTerminal(Terminal):
    """`python -m fakes.screen_program SCENARIO` in a terminal."""

    def __init__(
        self,
        scenario: str,
        folder: Path,
        size: tuple[int, int] = (24, 80),
        *,
        is_job: bool = False,
        **environment: str,
    ) -> None:
        self.folder = folder
        values = {
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "PYTHONPATH": str(TESTS),
            **environment,
        }
        command = [sys.executable, "-m", "fakes.screen_program", scenario, str(folder)]
        command = as_job(command) if is_job else command
        super().__init__(command, {**os.environ, **values}, Path.cwd(), size)

    def calls(self, name: str) -> list:
        """The recorded values of this name."""
        file = self.folder / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        return [value for line in lines for key, value in json.loads(line).items() if key == name]
