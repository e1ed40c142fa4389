"""Screens: `ouro attach` in a pseudo-terminal, for a terminal in the browser."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from ouro.errors import OuroError
from ouro.session.background_record import BackgroundRecord
from ouro.utils.pseudo_terminal import in_own_terminal, set_size
from ouro.utils.runtime import send_signal

MAX_SCREENS = 8
MAX_SIDE = 1_000
"""Columns or rows of a terminal."""
END_TIMEOUT = 3.0
"""Seconds for a screen to leave its session; then it is killed. The session continues."""
_READ = 64 * 1024
_MAX_WAITING = 1024 * 1024
"""Bytes of input that a screen has not read yet; of more, the rest is dropped."""


class TooManyScreens(OuroError):
    """Each screen is a process of its own."""


class Screen:
    """One `ouro attach` in a terminal of its own. Its starter must call `end`."""

    def __init__(self, process: asyncio.subprocess.Process, terminal: int) -> None:
        self._process = process
        self._terminal = terminal
        self._loop = asyncio.get_running_loop()
        self._readable = asyncio.Event()
        self._unwritten = bytearray()
        self._is_over = False
        os.set_blocking(terminal, False)
        self._loop.add_reader(terminal, self._readable.set)

    @classmethod
    async def start(cls, record: BackgroundRecord, columns: int, rows: int) -> Screen:
        """Start `ouro attach`. Raises OSError if there is no terminal, or no process."""
        our_end, its_end = os.openpty()
        try:
            set_size(its_end, _side(columns), _side(rows))
            attach = (sys.executable, "-P", "-m", "ouro", "attach", record.id)
            process = await asyncio.create_subprocess_exec(
                *in_own_terminal(its_end, attach),
                stdin=its_end,
                stdout=its_end,
                stderr=its_end,
                env=_environment(),
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
        """Send what the screen draws, until it has ended. A slow browser stops it meanwhile."""
        while not self._is_over:
            await self._readable.wait()
            self._readable.clear()
            try:
                drawn = os.read(self._terminal, _READ)
            except BlockingIOError:
                continue
            except OSError:  # Linux: no process has the terminal open any more
                return
            if not drawn:
                return
            await send(drawn)
            self._readable.set()  # there may be more

    def write(self, typed: str) -> None:
        """Pass on what the user typed."""
        if len(self._unwritten) < _MAX_WAITING:
            self._unwritten += typed.encode("utf-8", "replace")
        self._write_some()

    def resize(self, columns: int, rows: int) -> None:
        if not self._is_over:
            set_size(self._terminal, _side(columns), _side(rows))

    async def end(self) -> None:
        """Leave the session, and end the process."""
        if self._is_over:
            return
        self._is_over = True
        self._loop.remove_reader(self._terminal)
        self._loop.remove_writer(self._terminal)
        os.close(self._terminal)
        send_signal(self._process.pid, signal.SIGHUP, group=True)
        try:
            async with asyncio.timeout(END_TIMEOUT):
                await self._process.wait()
        except TimeoutError:
            send_signal(self._process.pid, signal.SIGKILL, group=True)
            await self._process.wait()

    def _write_some(self) -> None:
        """Write what the terminal takes now, and the rest when it takes more."""
        if self._is_over:
            return
        try:
            written = os.write(self._terminal, self._unwritten)
            del self._unwritten[:written]
        except BlockingIOError:
            pass
        except OSError:  # the screen has ended
            self._unwritten.clear()
        if self._unwritten:
            self._loop.add_writer(self._terminal, self._write_some)
        else:
            self._loop.remove_writer(self._terminal)


class Screens:
    """The screens that run; `close` ends them."""

    def __init__(self) -> None:
        self._running: set[Screen] = set()
        self._starting = 0

    async def start(self, record: BackgroundRecord, columns: int, rows: int) -> Screen:
        """Start a screen. Raises TooManyScreens, and as `Screen.start`."""
        if len(self._running) + self._starting >= MAX_SCREENS:
            raise TooManyScreens(
                f"{MAX_SCREENS} full screens are open already.", "Close one in a browser."
            )
        self._starting += 1
        try:
            screen = await Screen.start(record, columns, rows)
        finally:
            self._starting -= 1
        self._running.add(screen)
        return screen

    async def end(self, screen: Screen) -> None:
        try:
            await screen.end()
        finally:
            self._running.discard(screen)

    async def close(self) -> None:
        await asyncio.gather(*map(self.end, tuple(self._running)), return_exceptions=True)


def _side(length: int) -> int:
    """A number of columns or rows within the limits."""
    return max(2, min(int(length), MAX_SIDE))


def _environment() -> dict[str, str]:
    """The environment of this process, for the terminal of the browser."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in ("COLUMNS", "LINES", "TMUX", "TERM_PROGRAM", "NO_COLOR")
    }
    return {**inherited, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
