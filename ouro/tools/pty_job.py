"""A background job in a pseudo-terminal: its report is a screen."""

from __future__ import annotations

import asyncio

from ouro.display import CommandOutput, Display
from ouro.tools.pty_process import PtyProcess
from ouro.tools.shell_jobs import AtEnd, Job
from ouro.tools.tool import ToolResult

_MAX_ABOVE = 100
"""Lines above the screen in one report."""


class PtyJob(Job):
    """A job whose output is a screen."""

    def __init__(
        self,
        job_id: str,
        command: str,
        process: PtyProcess,
        changed: asyncio.Event,
        at_end: AtEnd,
        *,
        is_confined: bool = False,
    ) -> None:
        super().__init__(job_id, command, process, changed, at_end)
        self.pty: PtyProcess = process
        self.is_confined = is_confined
        self._reported_lines = 0

    @property
    def tail(self) -> str:
        return self.pty.screen.text()

    def report(self) -> ToolResult:
        """What has left the screen since the last report, the screen, and the state of the job."""
        super().report()
        screen = self.pty.screen
        lines = screen.lines_since(self._reported_lines)
        left_out = screen.gone - self._reported_lines - len(lines) + max(0, len(lines) - _MAX_ABOVE)
        self._reported_lines = screen.gone
        if left_out:
            lines = [f"[{left_out} lines left out]", *lines[-_MAX_ABOVE:]]
        shown = "\n".join([*lines, screen.text()]).strip("\n")
        code, status = self.process.exit_code, self.status
        waits = " It hides what is typed: it asks for a secret." if self.pty.hides_input else ""
        text = f"{shown or '(nothing on the screen)'}\n[{self.id}: {status}.{waits}]"
        code = None if code is None or code < 0 else code
        return ToolResult(
            text, Display(f"{self.id} {status}", CommandOutput(self.command, shown, code))
        )
