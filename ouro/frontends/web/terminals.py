"""BrowserTerminals: `ouro attach` in pseudo-terminals, for terminals in the browser."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from ouro.errors import OuroError
from ouro.session.background_record import BackgroundRecord
from ouro.utils.processes import send_signal
from ouro.utils.pseudo_terminal import in_own_terminal, set_size

MAX_TERMINALS = 8
MAX_SIDE = 1_000
"""Columns or rows of a terminal."""
END_TIMEOUT = 3.0
"""Seconds for `ouro attach` to leave its session; then it is killed. The session continues."""
_OWN_TERMINAL_VARIABLES = ("COLUMNS", "LINES", "TMUX", "TERM_PROGRAM", "NO_COLOR")
"""Variables about the terminal in which `ouro serve` was started. NO_COLOR was set for that one: the
terminal of the browser has colors.
"""
_READ_SIZE = 64 * 1024
_MAX_UNWRITTEN = 1024 * 1024
"""Bytes of input that `ouro attach` has not read yet; further input is dropped."""


class TooManyTerminals(OuroError):
    """All terminals are in use. Their number is limited, because each one is a process."""


class BrowserTerminal:
    """One `ouro attach` in a pseudo-terminal. Its starter must call `end`."""

    def __init__(self, process: asyncio.subprocess.Process, our_end: int) -> None:
        self._process = process
        self._our_end = our_end
        """The file descriptor of our end of the pseudo-terminal."""
        self._loop = asyncio.get_running_loop()
        self._readable = asyncio.Event()
        self._unwritten = bytearray()
        """What the user typed, and the terminal has not taken yet."""
        self._is_over = False
        os.set_blocking(our_end, False)
        self._loop.add_reader(our_end, self._readable.set)

    @classmethod
    async def start(cls, record: BackgroundRecord, columns: int, rows: int) -> BrowserTerminal:
        """Start `ouro attach`. Raises OSError if no terminal or no process can be made."""
        our_end, its_end = os.openpty()
        try:
            set_size(its_end, _limit_side(columns), _limit_side(rows))
            attach = (sys.executable, "-P", "-m", "ouro", "attach", record.id)
            process = await asyncio.create_subprocess_exec(
                *in_own_terminal(its_end, attach),
                stdin=its_end,
                stdout=its_end,
                stderr=its_end,
                env=_terminal_environment(),
                cwd=record.cwd if Path(record.cwd).is_dir() else None,
                start_new_session=True,
            )
        except BaseException:
            os.close(our_end)
            raise
        finally:
            os.close(its_end)
        return cls(process, our_end)

    async def copy_output(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Send what `ouro attach` draws, until it has ended. While the browser is too slow, no
        output is read, so that `ouro attach` waits.
        """
        while not self._is_over:
            await self._readable.wait()
            self._readable.clear()
            try:
                output = os.read(self._our_end, _READ_SIZE)
            except BlockingIOError:
                continue
            except OSError:  # Linux: no process has the terminal open any more
                return
            if not output:
                return
            await send(output)
            self._readable.set()  # there may be more

    def write(self, typed: str) -> None:
        """Pass on what the user typed. It is dropped if too much is unwritten already."""
        if len(self._unwritten) < _MAX_UNWRITTEN:
            self._unwritten += typed.encode("utf-8", "replace")
        self._write_some()

    def resize(self, columns: int, rows: int) -> None:
        if not self._is_over:
            set_size(self._our_end, _limit_side(columns), _limit_side(rows))

    async def end(self) -> None:
        """Leave the session, and end the process."""
        if self._is_over:
            return
        self._is_over = True
        self._loop.remove_reader(self._our_end)
        self._loop.remove_writer(self._our_end)
        os.close(self._our_end)
        send_signal(self._process.pid, signal.SIGHUP, group=True)
        try:
            async with asyncio.timeout(END_TIMEOUT):
                await self._process.wait()
        except TimeoutError:
            send_signal(self._process.pid, signal.SIGKILL, group=True)
            await self._process.wait()

    def _write_some(self) -> None:
        """Write as much of `_unwritten` as the terminal takes now. If some is left, the loop calls
        this again as soon as the terminal takes more.
        """
        if self._is_over:
            return
        try:
            written = os.write(self._our_end, self._unwritten)
            del self._unwritten[:written]
        except BlockingIOError:
            pass
        except OSError:  # `ouro attach` has ended
            self._unwritten.clear()
        if self._unwritten:
            self._loop.add_writer(self._our_end, self._write_some)
        else:
            self._loop.remove_writer(self._our_end)


class BrowserTerminals:
    """The terminals that are open. There is a limit; `close` ends them all."""

    def __init__(self) -> None:
        self._running: set[BrowserTerminal] = set()
        self._starting = 0

    async def start(self, record: BackgroundRecord, columns: int, rows: int) -> BrowserTerminal:
        """Start a terminal. Raises TooManyTerminals, and OSError if none can be made."""
        if len(self._running) + self._starting >= MAX_TERMINALS:
            raise TooManyTerminals(
                f"{MAX_TERMINALS} full screens are open already.", "Close one in a browser."
            )
        self._starting += 1
        try:
            terminal = await BrowserTerminal.start(record, columns, rows)
        finally:
            self._starting -= 1
        self._running.add(terminal)
        return terminal

    async def end(self, terminal: BrowserTerminal) -> None:
        """End a terminal, which then counts no more, even if that fails."""
        try:
            await terminal.end()
        finally:
            self._running.discard(terminal)

    async def close(self) -> None:
        await asyncio.gather(*map(self.end, tuple(self._running)), return_exceptions=True)


def _limit_side(length: int) -> int:
    """A number of columns or rows, moved into the limits of a terminal."""
    return max(2, min(int(length), MAX_SIDE))


def _terminal_environment() -> dict[str, str]:
    """The environment for a terminal in the browser. It is the environment of this process, but
    describes the browser's terminal instead of the terminal of this process.
    """
    inherited = {
        name: value for name, value in os.environ.items() if name not in _OWN_TERMINAL_VARIABLES
    }
    return {**inherited, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
