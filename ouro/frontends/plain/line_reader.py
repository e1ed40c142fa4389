"""LineReader: the prompt where the terminal itself edits the line."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ouro.errors import UsageError
from ouro.frontends.headless.input import handle_signals, read_lines
from ouro.frontends.headless.output import Pipe

if TYPE_CHECKING:
    from ouro.frontends.plain.repl import Repl


_LOCAL_FLAGS = 3
"""The place of the local flags in the attributes of a terminal."""


class LineReader:
    """Reads lines where nothing can be drawn: TERM=dumb, pipes, screen readers. The terminal echoes
    the keys.
    """

    def __init__(self, repl: Repl) -> None:
        self._repl = repl
        self._pipe = Pipe(sys.stdout)
        self._lines: AsyncGenerator[bytes, None] | None = None
        """The lines of standard input; None before the first `read`."""
        self._has_ended = False
        """Whether the input is at its end, or Ctrl+C has ended ouro."""
        self._shown_prompt = ""
        """The label that was printed after the last line; empty if none was."""
        self._pending_read: asyncio.Future[bytes | None] | None = None

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """A context in which Ctrl+C is handled. At its end the terminal prints typed keys again,
        even if a secret was being typed.
        """
        with handle_signals(lambda _number: self._interrupt(), signal.SIGINT):
            try:
                yield
            finally:
                _set_echo(is_on=True)

    def write(self, text: str) -> None:
        self._pipe.write(text)

    async def read(self) -> str | None:
        """The next line; a line that ends with a backslash continues in the next one. None at the end
        of the input.
        """
        lines: list[str] = []
        while (line := await self._read_line()) is not None:
            lines.append(line.removesuffix("\\"))
            if not line.endswith("\\"):
                return "\n".join(lines)
        return "\n".join(lines) or None

    async def close(self) -> None:
        """Does nothing: there is no prompt to remove."""

    async def edit(self, _text: str) -> str:
        raise UsageError(
            "This terminal cannot open an editor.", "Edit the file itself, then answer."
        )

    @property
    def unsent(self) -> str:
        """Always empty: the terminal edits its own line."""
        return ""

    def fill(self, _text: str) -> bool:
        """Always returns False: the terminal edits its own line, so a draft cannot be put there."""
        return False

    def redraw(self) -> None:
        """Print the label of the prompt, if a line is expected and the label is not printed
        already. Piped input is expected only while a question is open.
        """
        label = self._repl.label()
        is_expected = self._repl.is_asking() or (sys.stdin.isatty() and not self._repl.turns.busy)
        if not self._has_ended and label != self._shown_prompt and is_expected:
            self.write(label)
            self._shown_prompt = label
            _set_echo(not self._repl.is_secret())

    async def _read_line(self) -> str | None:
        """The next line of the input; None at its end, or when Ctrl+C ends ouro. The read is a task
        of its own, which `_interrupt` can cancel.
        """
        if self._has_ended:
            return None
        self._lines = self._lines or read_lines(sys.stdin.fileno())
        self._pending_read = asyncio.ensure_future(anext(self._lines, None))
        try:
            await asyncio.wait((self._pending_read,))
        finally:
            self._pending_read.cancel()
        line = None if self._pending_read.cancelled() else self._pending_read.result()
        if line is None:
            self._has_ended = True
            return None
        self._shown_prompt = ""
        return line.decode(errors="replace").rstrip("\r")

    def _interrupt(self) -> None:
        """Handle Ctrl+C. If nothing runs, the second Ctrl+C ends the input."""
        if self._repl.interrupt():
            self._has_ended = True
            if self._pending_read is not None:
                self._pending_read.cancel()


def _set_echo(is_on: bool) -> None:
    """Set whether the terminal prints what is typed. It does not while a secret is typed."""
    if not sys.stdin.isatty():
        return
    import termios

    attributes = termios.tcgetattr(sys.stdin)
    if is_on:
        attributes[_LOCAL_FLAGS] |= termios.ECHO
    else:
        attributes[_LOCAL_FLAGS] &= ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, attributes)
