"""LineReader: reads lines where nothing can be drawn (TERM=dumb, pipes, screen readers); the terminal echoes keys."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ouro.frontends.headless.input import read_lines
from ouro.frontends.headless.output import Pipe

if TYPE_CHECKING:
    from ouro.frontends.plain.repl import Repl


class LineReader:
    """Reads lines from standard input, with a bare prompt."""

    def __init__(self, repl: Repl) -> None:
        self._repl = repl
        self.write = Pipe(sys.stdout).write
        self._lines: AsyncGenerator[bytes, None] | None = None
        self._has_ended = False
        self._shown = ""
        self._waiting: asyncio.Future[bytes | None] | None = None

    @contextmanager
    def in_use(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            _echo(True)

    async def read(self) -> str | None:
        """The next line, continued while it ends in a backslash; None at the end of the input."""
        read: list[str] = []
        while (line := await self._line()) is not None:
            read.append(line.removesuffix("\\"))
            if not line.endswith("\\"):
                return "\n".join(read)
        return "\n".join(read) or None

    async def close(self) -> None:
        """Do nothing: there is no prompt to remove."""

    def fill(self, _text: str) -> bool:
        """Return False: the terminal edits its own line, so a draft cannot be put there."""
        return False

    def redraw(self) -> None:
        """Print the prompt once when a line is expected; with piped input, only for questions."""
        label = self._repl.label()
        is_expected = self._repl.is_asking() or (sys.stdin.isatty() and not self._repl.turns.busy)
        if not self._has_ended and label != self._shown and is_expected:
            self.write(label)
            self._shown = label
            _echo(not self._repl.is_secret())

    async def _line(self) -> str | None:
        if self._has_ended:
            return None
        self._lines = self._lines or read_lines(sys.stdin.fileno())
        self._waiting = asyncio.ensure_future(anext(self._lines, None))
        try:
            await asyncio.wait((self._waiting,))
        finally:
            self._waiting.cancel()
        line = None if self._waiting.cancelled() else self._waiting.result()
        if line is None:
            self._has_ended = True
            return None
        self._shown = ""
        return line.decode(errors="replace").rstrip("\r")

    def _interrupt(self) -> None:
        if self._repl.interrupt():
            self._has_ended = True
            if self._waiting is not None:
                self._waiting.cancel()


def _echo(shown: bool) -> None:
    if not sys.stdin.isatty():
        return
    import termios

    attributes = termios.tcgetattr(sys.stdin)
    attributes[3] = attributes[3] | termios.ECHO if shown else attributes[3] & ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, attributes)
