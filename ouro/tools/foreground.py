"""Foreground: a command that a tool call waits for, until the user moves it to the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ouro.tools.shell_process import RunningCommand, ShellProcess


class Foreground:
    """Receives what a command prints: for the tool call, and after the move for the background job.

    Args:
        report: gets what the command prints before the move.
        can_move: whether the user may move the command to the background.
    """

    def __init__(self, report: Callable[[str], None], *, can_move: bool) -> None:
        self._report = report
        self._can_move = can_move
        self._move_requested = asyncio.Event()
        """Set when the user wants to move the command."""
        self.is_moved = False
        """Whether the user has moved the command to the background."""
        self.changed = asyncio.Event()
        """Set by each output after the move."""

    def receive_output(self, data: bytes) -> None:
        """Called with each piece of output. It is reported to the tool call. After the move to the
        background only `changed` is set.
        """
        from ouro.tools.truncate import readable

        if self.is_moved:
            self.changed.set()
        else:
            self._report(readable(data))

    def move(self, process: RunningCommand) -> bool:
        """Let the tool call end while the command goes on in the background. Returns False if that
        is not possible: it has ended, or runs in a terminal of an editor.
        """
        if not (self._can_move and isinstance(process, ShellProcess)):
            return False
        if process.exit_code is not None:
            return False
        self._move_requested.set()
        return True

    async def wait(self, process: RunningCommand, seconds: float | None) -> bool:
        """Wait until the command has ended, or the user moves it to the background, which sets
        `is_moved`. Returns False if neither happens within `seconds` (None: no limit).
        """
        ended = asyncio.create_task(process.wait(seconds))
        requested = asyncio.create_task(self._move_requested.wait())
        try:
            await asyncio.wait({ended, requested}, return_when=asyncio.FIRST_COMPLETED)
            self.is_moved = not ended.done()
            return self.is_moved or ended.result()
        finally:
            ended.cancel()
            requested.cancel()
