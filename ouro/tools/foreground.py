"""Foreground: a command that a tool call waits for, until the user moves it to the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ouro.tools.shell_process import RunningCommand, ShellProcess


class Foreground:
    """Receives what a command prints: for the tool call, and after the move for the job."""

    def __init__(self, report: Callable[[str], None], *, can_move: bool) -> None:
        self._report = report
        self._can_move = can_move
        self._asked = asyncio.Event()
        """Set when the user wants to move the command."""
        self.is_moved = False
        self.changed = asyncio.Event()
        """Set by each output after the move."""

    def take(self, data: bytes) -> None:
        """Report an output to the tool call; after the move, only note that there is one."""
        from ouro.tools.truncate import readable

        if self.is_moved:
            self.changed.set()
        else:
            self._report(readable(data))

    def move(self, process: RunningCommand) -> bool:
        """Let the call end while the command goes on; returns False if it cannot be moved."""
        if not (self._can_move and isinstance(process, ShellProcess)):
            return False
        if process.exit_code is not None:
            return False
        self._asked.set()
        return True

    async def wait(self, process: RunningCommand, seconds: float | None) -> bool:
        """Wait until the command has ended, or the user moves it to the background (`is_moved` is set
        then). Returns False on timeout.
        """
        ended = asyncio.create_task(process.wait(seconds))
        asked = asyncio.create_task(self._asked.wait())
        try:
            await asyncio.wait({ended, asked}, return_when=asyncio.FIRST_COMPLETED)
            self.is_moved = not ended.done()
            return self.is_moved or ended.result()
        finally:
            ended.cancel()
            asked.cancel()
