"""StatusScript: the user's command that writes the status line."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import dump_json
from ouro.utils.log import log
from ouro.utils.text import clean, cut, one_line

SECONDS = 5.0
"""The time limit of a run; the line before stays meanwhile. A script that starts a `jq` for each
field takes 0.3 s on a busy machine.
"""
PAUSE = 0.3
"""Seconds between two runs."""
MAX_LINE = 500
"""Maximum characters of the line."""
MAX_FAILURES = 3
"""After this number of failed runs in a row it is not run any more."""
_COLOR_CODE = late_pattern(r"(\x1b\[[0-9;:]*m)")
_END_OF_COLORS = "\x1b[0m"
_WHITE_SPACE = late_pattern(r"\s+")


class StatusScript:
    """Runs a command with the state of the session as JSON on its standard input; the first line of
    its output is the status line. It runs again when the state has changed, one run at a time.

    The state has the fields of Claude Code. The times are added at each run: else it would change
    all the time.
    """

    def __init__(self, command: str, cwd: Path, environment: Mapping[str, str]) -> None:
        self.command = command
        self.line = ""
        """The newest line, with codes of colours and nothing else; empty until there is one."""
        self._cwd = cwd
        self._environment = environment
        self._newest_state: dict[str, Any] = {}
        """The state that the line should be for."""
        self._run_state: dict[str, Any] = {}
        """The state that the last run was for."""
        self._failures = 0
        self._start = time.monotonic()
        self._task: asyncio.Task[None] | None = None

    def update(
        self,
        state: Mapping[str, Any],
        on_change: Callable[[str], object] = lambda _line: None,
        on_end: Callable[[str], object] = lambda _why: None,
    ) -> None:
        """Run the command for this state in the background, if the state is a new one. While a run
        is under way, it is run again afterwards for the newest state.

        Args:
            on_change: gets the line when it has changed.
            on_end: gets the reason when the command has failed too often, and is not run any more.
        """
        self._newest_state = dict(state)
        is_due = self._newest_state != self._run_state and self._failures < MAX_FAILURES
        if is_due and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run(on_change, on_end))

    async def close(self) -> None:
        """End the run that is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(
        self, on_change: Callable[[str], object], on_end: Callable[[str], object]
    ) -> None:
        """Run the command again and again, with a pause, until it has run for the newest state.
        After MAX_FAILURES failed runs in a row it is not run any more.
        """
        while self._newest_state != self._run_state:
            self._run_state = self._newest_state
            problem = await self._run_once(on_change)
            self._failures = self._failures + 1 if problem else 0
            if self._failures >= MAX_FAILURES:
                on_end(
                    f"`tui.status_command` failed {MAX_FAILURES} times and is not run any more in"
                    f" this session: {problem}"
                )
                return
            await asyncio.sleep(PAUSE)

    async def _run_once(self, on_change: Callable[[str], object]) -> str:
        """Run the command once for `_run_state`. Returns what went wrong, empty if it succeeded;
        then its output is the line.
        """
        from ouro.extensions.hook_process import run_command  # few have a script

        milliseconds = round(1000 * (time.monotonic() - self._start))
        cost = {**self._run_state.get("cost", {}), "total_duration_ms": milliseconds}
        answer = await run_command(
            ("bash", "-c", self.command),
            dump_json({**self._run_state, "cost": cost}).encode(),
            self._cwd,
            self._environment,
            SECONDS,
            clean_output=_colored_line,
        )
        if answer.exit_code != 0:
            problem = one_line(answer.error) or f"exit code {answer.exit_code}"
            log.warning("tui.status_command: %s", problem)
            return problem
        if answer.out != self.line:
            self.line = answer.out
            on_change(self.line)
        return ""


def _colored_line(text: str) -> str:
    """The first line of an output, cut to MAX_LINE characters, without control characters except
    codes of colours. If it has any, it ends with the usual colours.
    """
    line, room = "", MAX_LINE
    first_line = next(iter(text.strip().splitlines()), "")
    for piece in _COLOR_CODE.split(first_line):
        if _COLOR_CODE.fullmatch(piece):
            line += piece
        elif room > 0:
            words = cut(_WHITE_SPACE.sub(" ", clean(piece)), room)
            line += words
            room -= len(words)
    line = line.strip()
    return f"{line}{_END_OF_COLORS}" if "\x1b" in line else line
