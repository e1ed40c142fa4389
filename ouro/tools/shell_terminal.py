"""A shell command in a terminal of the editor: the same bounds, sandbox and environment as one that runs here."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ouro.tools.shell_process import GRACE, kill_tagged, running
from ouro.tools.truncate import OutputCapture

_NO_INPUT = 'exec "$@" </dev/null'


class Terminals(Protocol):
    """An editor that runs commands in terminals of its own, where the user sees them. It may be gone at any time."""

    async def create(self, call_id: str, argv: Sequence[str], cwd: Path) -> str:
        """Run a command for a tool call; returns the id of the terminal, empty where the editor opened none."""
        ...

    async def wait(self, terminal_id: str) -> int:
        """Return the exit code, below zero where a signal ended it, or the editor is gone."""
        ...

    async def kill(self, terminal_id: str) -> None: ...

    async def release(self, terminal_id: str) -> str:
        """Return the output; nothing is done with the terminal afterwards."""
        ...


async def start_in_terminal(
    terminals: Terminals,
    call_id: str,
    command: tuple[Sequence[str], int],
    cwd: Path,
    environment: Mapping[str, str],
    capture: OutputCapture,
) -> TerminalCommand | None:
    """Start a command; None where the editor opened no terminal.

    Args:
        command: what to run, and the tag of its processes (`bounded`).
        capture: gets the output at the end.
    """
    argv, tag = command
    # `env -i`: the keys that the editor has in its environment are not for the agent.
    words = ["env", "-i", *(f"{name}={value}" for name, value in environment.items()), "sh", "-c", _NO_INPUT, "sh"]
    terminal_id = await terminals.create(call_id, [*words, *argv], cwd)
    return TerminalCommand(terminals, terminal_id, tag, capture) if terminal_id else None


class TerminalCommand:
    """A `RunningCommand`."""

    def __init__(self, terminals: Terminals, terminal_id: str, tag: int, capture: OutputCapture) -> None:
        self.tag = tag
        self.exit_code: int | None = None
        self._terminals = terminals
        self._id = terminal_id
        self._capture = capture
        self._began = time.monotonic()
        self._ended: float | None = None
        self._exit = asyncio.create_task(self._wait_for_exit())
        running.add(self)

    @property
    def seconds(self) -> float:
        return (self._ended or time.monotonic()) - self._began

    async def wait(self, seconds: float | None) -> bool:
        await asyncio.wait({self._exit}, timeout=seconds)
        return self._exit.done()

    async def end(self) -> int:
        """End it with all that it started, and get its output."""
        try:
            if not self._exit.done():
                await self._terminals.kill(self._id)
            await asyncio.to_thread(kill_tagged, self.tag)
            await self.wait(GRACE)
            self._capture.add((await self._terminals.release(self._id)).replace("\r\n", "\n").encode())
        finally:
            self.kill()
        return 0

    def kill(self) -> None:
        if self._ended is None:
            self._ended = time.monotonic()
            kill_tagged(self.tag)
            self._exit.cancel()
            self.exit_code = -signal.SIGKILL if self.exit_code is None else self.exit_code
            self._capture.close()
            running.discard(self)

    async def _wait_for_exit(self) -> None:
        self.exit_code = await self._terminals.wait(self._id)
