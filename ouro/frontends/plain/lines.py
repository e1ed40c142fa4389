"""Reading lines without any drawing: TERM=dumb, pipes, screen readers. The terminal itself echoes and edits."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from ouro.frontends.headless.input import read_block
from ouro.frontends.headless.output import Pipe


class Host(Protocol):
    """What a prompt asks of the front end around it."""

    def label(self) -> str:
        """What stands before the cursor."""
        ...

    def toolbar(self) -> str:
        """The status line."""
        ...

    def is_asking(self) -> bool:
        """A question waits: the line answers it and is no message."""
        ...

    def is_secret(self) -> bool:
        """What is typed must not be seen."""
        ...

    def is_busy(self) -> bool:
        """A turn runs."""
        ...

    def interrupt(self) -> bool:
        """Ctrl-C: True where ouro should end."""
        ...

    def queue(self, text: str) -> None:
        """Keep a message for the next turn."""
        ...

    def take_back(self) -> str | None:
        """The last message that was not delivered yet, to be edited."""
        ...

    def cycle_mode(self) -> None:
        """Go on to the next permission mode."""
        ...

    def files(self) -> list[str]:
        """The project's files."""
        ...


class LineReader:
    """Reads lines from standard input, with a bare prompt."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.write = Pipe(sys.stdout).write
        self._rest = b""
        self._ended = False
        self._shown = ""
        self._waiting: asyncio.Task[bytes] | None = None

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """While this is open, Ctrl-C is the host's."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupted)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            _echo(True)

    async def read(self) -> str | None:
        """The next line, continued while it ends in a backslash; None at the end of the input."""
        lines: list[str] = []
        while (line := await self._line()) is not None:
            lines.append(line.removesuffix("\\"))
            if not line.endswith("\\"):
                return "\n".join(lines)
        return "\n".join(lines) or None

    async def close(self) -> None:
        """There is nothing to take away."""

    def fill(self, _text: str) -> bool:
        """Put a draft into the prompt: the terminal edits its line itself, so nobody can."""
        return False

    def changed(self) -> None:
        """Show the prompt where the person is expected to type, once."""
        label = self._host.label()
        if not self._ended and label != self._shown and (self._host.is_asking() or not self._host.is_busy()):
            self.write(label)
            self._shown = label
            _echo(not self._host.is_secret())

    async def _line(self) -> str | None:
        while b"\n" not in self._rest and not self._ended:
            self._waiting = asyncio.ensure_future(read_block(sys.stdin.fileno()))
            try:
                await asyncio.wait((self._waiting,))
            finally:
                self._waiting.cancel()
            block = b"" if self._waiting.cancelled() else self._waiting.result()
            self._rest += block
            self._ended = self._ended or not block
        if not self._rest:
            return None
        line, _, self._rest = self._rest.partition(b"\n")
        self._shown = ""
        return line.decode(errors="replace").rstrip("\r")

    def _interrupted(self) -> None:
        if self._host.interrupt():
            self._ended = True
            if self._waiting is not None:
                self._waiting.cancel()


def _echo(shown: bool) -> None:
    """Let the terminal show what is typed, or not."""
    if not sys.stdin.isatty():
        return
    import termios

    attributes = termios.tcgetattr(sys.stdin)
    attributes[3] = attributes[3] | termios.ECHO if shown else attributes[3] & ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, attributes)
