"""A command in a pseudo-terminal of its own, into which the agent and the user can type."""

from __future__ import annotations

import asyncio
import os
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ouro.errors import ToolError
from ouro.tools.output_capture import OutputCapture
from ouro.tools.pty_screen import COLUMNS, ROWS, PtyScreen
from ouro.tools.shell_process import ShellProcess, command_inside, start_process
from ouro.utils.pseudo_terminal import in_own_terminal, set_size

if TYPE_CHECKING:
    from ouro.safety import CommandInside

PTY_SETTLE_SECONDS = 10.0
"""Seconds in which a program with a terminal may end, or print before it waits for input."""
_DRAWN_BYTES = 4 * 1024
"""Bytes of output that are drawn at once: about 10 ms."""
_DRAW_INTERVAL = 0.05
"""Seconds between two pieces of the output that are drawn: a program that floods must not keep the
event loop busy.
"""
_MAX_WAITING = 64 * 1024
"""Bytes of output that wait to be drawn; of more, the oldest are left out."""
_QUIET_SECONDS = 0.3
"""Seconds without output after which a program seems to wait for input."""
_SILENT_SECONDS = 2.0
"""The same for a program that has printed nothing yet, as while it starts."""
_MAX_WRITE = 1_024
"""Bytes that are typed at once."""
_WRITE_SECONDS = 3.0
"""Seconds in which a program must read what is typed."""
_TERMINAL_VARIABLES = {"TERM": "xterm-256color", "COLORTERM": "", "GIT_TERMINAL_PROMPT": "1"}
"""What is different for a program with a terminal; pagers stay off: their keys cost a call each."""

CTRL = {f"ctrl+{chr(code + 96)}": chr(code) for code in range(1, 27)}
KEYS = {
    "enter": "\r",
    "tab": "\t",
    "escape": "\x1b",
    "space": " ",
    "backspace": "\x7f",
    "delete": "\x1b[3~",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "home": "\x1b[H",
    "end": "\x1b[F",
    "pageup": "\x1b[5~",
    "pagedown": "\x1b[6~",
    "shift+tab": "\x1b[Z",
    **CTRL,
}
"""What a terminal sends for a key, by its name."""
_ARROWS = {"up", "down", "right", "left", "home", "end"}
"""Keys that have other codes while the program asks for those of applications (DECCKM)."""


class PtyProcess(ShellProcess):
    """A command in a pseudo-terminal. Its starter must call `end` or `kill`.

    Args:
        master: the descriptor of the terminal, from which its output is read.
        report: gets what it prints.
        inside: its processes in a container; None: it runs on this machine.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        tag: int,
        capture: OutputCapture,
        master: int,
        report: Callable[[bytes], None],
        inside: CommandInside | None = None,
    ) -> None:
        # A descriptor of its own, because the reader of the output closes `master`.
        self._terminal: int | None = os.dup(master)
        self._undrawn = bytearray()
        """The output that is not drawn on the screen yet."""
        self._timer: asyncio.TimerHandle | None = None
        """Calls `_draw_slice` after a moment; None: nothing waits to be drawn."""
        self._last_output = time.monotonic()
        """The time of the last output, or of the last typing (`time.monotonic`)."""
        self._is_silent = True
        """Whether it has printed nothing since it was started, or since something was typed."""
        self.screen = PtyScreen(self._reply)
        super().__init__(process, tag, capture, master, report, inside)
        capture.on_data = self._queue_output

    keys = tuple(KEYS)
    """The names of the keys that can be pressed."""

    @property
    def hides_input(self) -> bool:
        """Whether it asks for a secret: a line is read, and what is typed is not shown."""
        if self._terminal is None:
            return False
        try:
            flags = termios.tcgetattr(self._terminal)[3]
        except termios.error:
            return False
        return bool(flags & termios.ICANON) and not flags & termios.ECHO

    def key_codes(self, key: str) -> str:
        """What the terminal sends for a key with a name in `KEYS`; empty for an unknown name."""
        code = KEYS.get(key, "")
        if key in _ARROWS and self.screen.sends_application_keys:
            return code.replace("\x1b[", "\x1bO")  # the form that the program has asked for
        return code

    async def type(self, text: str) -> None:
        """Type into the program.

        Raises:
            ToolError: it has ended, or does not read what is typed.
        """
        data = text.encode()
        self._last_output, self._is_silent = time.monotonic(), True
        until = time.monotonic() + _WRITE_SECONDS
        while data:
            if self._terminal is None or self.exit_code is not None:
                raise ToolError("The program has ended: nothing can be typed into it.")
            try:
                data = data[os.write(self._terminal, data[:_MAX_WRITE]) :]
            except BlockingIOError:
                if time.monotonic() > until:
                    raise ToolError("The program does not read what is typed.") from None
                await asyncio.sleep(0.02)
            except OSError as error:
                raise ToolError(f"Nothing can be typed into the program: {error}.") from error

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the terminal; the program gets a signal."""
        if (columns, rows) == self.screen.size or self._terminal is None:
            return
        self.screen.resize(columns, rows)
        set_size(self._terminal, *self.screen.size)

    async def wait_for_quiet(self, seconds: float) -> None:
        """Wait at most `seconds`, until the program has ended or seems to wait for input: it has
        printed nothing for a moment. When this returns early, all of its output is drawn.
        """
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            quiet_seconds = time.monotonic() - self._last_output
            needed_seconds = _SILENT_SECONDS if self._is_silent else _QUIET_SECONDS
            is_done = self.exit_code is not None or quiet_seconds > needed_seconds
            if is_done and not self._undrawn:
                return
            await asyncio.sleep(_DRAW_INTERVAL)

    def _queue_output(self, data: bytes) -> None:
        """Keep new output until it is drawn, soon. If too much waits, only the newest part is kept."""
        self._last_output, self._is_silent = time.monotonic(), False
        self._undrawn += data
        del self._undrawn[: max(0, len(self._undrawn) - _MAX_WAITING)]
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_DRAW_INTERVAL, self._draw_slice)

    def _draw_slice(self) -> None:
        """Draw the next piece of the output that waits. If more waits, this is called again after
        _DRAW_INTERVAL.
        """
        self._timer = None
        piece = bytes(self._undrawn[:_DRAWN_BYTES])
        del self._undrawn[:_DRAWN_BYTES]
        self.screen.feed(piece)
        if self._undrawn:
            self._timer = asyncio.get_running_loop().call_later(_DRAW_INTERVAL, self._draw_slice)

    def _reply(self, text: str) -> None:
        """Send the program what a terminal answers by itself, such as the place of the cursor."""
        if self._terminal is not None:
            with suppress(OSError):  # it does not read, or has ended
                os.write(self._terminal, text.encode())

    def _kill(self) -> None:
        """End the processes, draw the end of the output, and close the terminal."""
        super()._kill()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.screen.feed(bytes(self._undrawn[-_DRAWN_BYTES:]))
        self._undrawn.clear()
        if self._terminal is not None:
            os.close(self._terminal)
            self._terminal = None


async def start_in_pty(
    argv: Sequence[str],
    tag: int,
    cwd: Path,
    environment: Mapping[str, str],
    capture: OutputCapture,
    report: Callable[[bytes], None],
) -> PtyProcess:
    """Start the result of `limit_command` in a pseudo-terminal and a process session of its own.

    In a sandbox with process sessions of its own there is no control of jobs (`fg`, Ctrl+Z).

    Args:
        tag: what marks the processes of the command, as `limit_command` returns it.

    Raises:
        ToolError: there is no terminal, or bash cannot be started.
    """
    try:
        master, slave = os.openpty()
    except OSError as error:
        raise ToolError(f"The system has no terminal for it: {error}.") from error
    set_size(slave, COLUMNS, ROWS)
    variables = {
        **environment,
        **_TERMINAL_VARIABLES,
        "GIT_EDITOR": environment.get("EDITOR") or "vi",
    }
    process = await start_process(
        in_own_terminal(slave, argv), cwd, variables, slave, (master, slave)
    )
    return PtyProcess(
        process, tag, capture, master=master, report=report, inside=command_inside(argv)
    )
