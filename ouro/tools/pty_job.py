"""A background job in a pseudo-terminal: its report is a screen."""

from __future__ import annotations

import asyncio

from ouro.display import CommandOutput, Display
from ouro.tools.background_job import Job
from ouro.tools.pty_process import PtyProcess
from ouro.tools.shell_process import AtEnd
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
        """How many lines had left the screen at the last report."""

    @property
    def tail(self) -> str:
        return self.pty.screen.text()

    def report(self) -> ToolResult:
        """The result with the lines that have left the screen since the last report (the last
        _MAX_ABOVE of them), the screen, and the state of the job.
        """
        super().report()  # notes that the output and the end are known; its text is not used
        screen = self.pty.screen
        new_count = screen.gone - self._reported_lines
        lines = screen.lines_since(self._reported_lines)[-_MAX_ABOVE:]
        self._reported_lines = screen.gone
        if new_count > len(lines):
            lines.insert(0, f"[{new_count - len(lines)} lines left out]")
        shown = "\n".join([*lines, screen.text()]).strip("\n")
        status = self.status
        waits = " It hides what is typed: it asks for a secret." if self.pty.hides_input else ""
        text = f"{shown or '(nothing on the screen)'}\n[{self.id}: {status}.{waits}]"
        code = self.process.exit_code
        if code is not None and code < 0:
            code = None  # ended by a signal: the user is shown no exit code
        output = CommandOutput(self.command, shown, code)
        return ToolResult(text, Display(f"{self.id} {status}", output))
