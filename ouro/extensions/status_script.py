"""StatusScript: the user's command that writes the status line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ouro.utils.json_types import dump_json
from ouro.utils.log import log
from ouro.utils.text import one_line

SECONDS = 0.3
"""The time limit of a run; the line before stays if it is over."""
MAX_LINE = 500
MAX_FAILURES = 3
"""After so many failed runs in a row it is not run any more."""


class StatusScript:
    """Runs a command with the state of the session as JSON on its standard input; the first line of
    its output is the status line. It runs again when the state has changed, one run at a time.
    """

    def __init__(self, command: str, cwd: Path, environment: Mapping[str, str]) -> None:
        self.command = command
        self.line = ""
        """The newest line; empty until there is one."""
        self._cwd = cwd
        self._environment = environment
        self._wanted = b""
        self._shown = b""
        self._failures = 0
        self._task: asyncio.Task[None] | None = None

    def update(
        self, state: Mapping[str, Any], on_change: Callable[[str], object] = lambda _line: None
    ) -> None:
        """Bring the line up to date with the state, in the background; `on_change` gets a new line."""
        self._wanted = dump_json(state).encode()
        is_due = self._wanted != self._shown and self._failures < MAX_FAILURES
        if is_due and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run(on_change))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, on_change: Callable[[str], object]) -> None:
        from ouro.extensions.hook_process import run_command  # few have a script

        while self._wanted != self._shown and self._failures < MAX_FAILURES:
            self._shown = self._wanted
            answer = await run_command(
                ("bash", "-c", self.command), self._shown, self._cwd, self._environment, SECONDS
            )
            if answer.exit_code != 0:
                self._failures += 1
                log.warning("tui.status_command: %s", answer.error or answer.exit_code)
                continue
            self._failures = 0
            line = one_line(next(iter(answer.out.splitlines()), ""), MAX_LINE)
            if line != self.line:
                self.line = line
                on_change(line)
