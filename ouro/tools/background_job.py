"""A background job: a command that goes on after the call that has started it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from ouro.display import CommandOutput, Display
from ouro.tools.shell_process import AtEnd, ShellProcess, exit_status
from ouro.tools.tool import ToolResult

if TYPE_CHECKING:
    from ouro.tools.line_watch import LineWatch
    from ouro.tools.pty_process import PtyProcess

_TAIL_LENGTH = 2000
"""Bytes of output that are shown when a job has ended."""


class Job:
    """A command that runs in the background, and what of its output was reported.

    Args:
        changed: is set by each output of the command.
        at_end: is called when it has ended.
        watch: finds the lines of its output that are news; None: none are.
    """

    pty: PtyProcess | None = None
    """The terminal of a job that has one."""
    is_of_user = False
    """Whether it is a line of the user, who follows it: its end is no news."""
    is_confined = True
    """Whether what is typed into it can do no more than its sandbox permits."""

    def __init__(
        self,
        job_id: str,
        command: str,
        process: ShellProcess,
        changed: asyncio.Event,
        at_end: AtEnd,
        watch: LineWatch | None = None,
    ) -> None:
        self.id = job_id
        self.command = command
        self.process = process
        self._reported_bytes = 0
        """How much of the output the model has got."""
        self._changed = changed
        """Set by each output of the command."""
        self._at_end = at_end
        self._line_watch = watch
        self._is_end_known = False
        """Whether the model or the user knows that it has ended."""
        self._is_ended_by_user = False
        """Whether the user has ended it, while it ran."""
        self.watcher = asyncio.create_task(self._wait_for_end(), name=job_id)
        """Waits for the end of the command."""

    @property
    def running(self) -> bool:
        return self.process.exit_code is None

    @property
    def tail(self) -> str:
        """The end of the output."""
        capture = self.process.capture
        return capture.text_since(max(0, capture.total - _TAIL_LENGTH)).rstrip("\n")

    def report(self) -> ToolResult:
        """The result with the output since the last report, and the state of the job. If the job
        has ended, the model knows that from now on, and it is not in `news` any more.
        """
        new_output = self.process.capture.text_since(self._reported_bytes).rstrip("\n")
        self._reported_bytes = self.process.capture.total
        exit_code, status = self.process.exit_code, self.status
        if exit_code is not None:
            self._is_end_known = True
        text = (
            f"{new_output or '(nothing new)'}\n[{self.id}: {status}, {self.process.seconds:.1f} s]"
        )
        if exit_code is not None and exit_code < 0:
            exit_code = None  # ended by a signal: the user is shown no exit code
        output = CommandOutput(self.command, new_output, exit_code)
        return ToolResult(text, Display(f"{self.id} {status}", output))

    @property
    def news(self) -> str:
        """What has happened to it that the model does not know, in a few words; empty if nothing."""
        if self.watcher.done() and not (self._is_end_known or self.is_of_user):
            return f"{self.id} ended ({self.status})"
        if self._line_watch is not None and self._line_watch.has_matches:
            return f"{self.id} printed a line that matches its `watch`"
        return ""

    def take_news(self) -> str:
        """Take the news, as text for the model with the end of the output. `news` is empty
        afterwards.
        """
        title, seconds = self.news, self.process.seconds
        matching_lines = self._line_watch.take_lines() if self._line_watch is not None else ""
        if self.watcher.done():
            self._is_end_known = True
        matches = f"Lines that match its `watch`:\n{matching_lines}\n" if matching_lines else ""
        return (
            f"{title}, after {seconds:.0f} s. Its command: {self.command}\n{matches}"
            f"The end of its output:\n{self.tail or '(no output)'}"
        )

    async def end(self, *, by_user: bool = False) -> None:
        """End it, and wait until it has ended. Its end is no news, because the caller knows it.

        Args:
            by_user: whether the user ends it: its state then says so.
        """
        self._is_end_known = True
        if by_user and self.running:
            self._is_ended_by_user = True
        await self.process.end()

    @property
    def status(self) -> str:
        """Its state in words: whether it runs, or how it has ended."""
        if self._is_ended_by_user and not self.running:
            return "ended by the user"
        return exit_status(self.process.exit_code)

    async def wait(self, seconds: float) -> None:
        """Wait until it has printed something since the last report, or has ended; at most
        `seconds`.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.running and self.process.capture.total == self._reported_bytes:
                    self._changed.clear()
                    await self._changed.wait()

    async def _wait_for_end(self) -> None:
        """Wait for the end of its shell, end the remaining processes, and call `at_end`."""
        try:
            await self.process.wait(None)
            await self.process.end()
        finally:
            self.process.kill()
            if self._line_watch is not None:
                await self._line_watch.close()
            await self._at_end()
            self._changed.set()


def describe_moved(job: Job) -> ToolResult:
    """The result of a tool call whose command the user has moved to the background: what it has
    printed, and how the model follows it as a job.
    """
    printed, _, _state = job.report().text.rpartition("\n")  # the last line is the state of the job
    text = (
        f"{printed}\n[The user moved it to the background: it goes on as {job.id}, without a"
        f" time limit. shell_output(id={job.id!r}) reads what it prints next. Do not start it"
        " again.]"
    )
    return ToolResult(text, Display(f"moved to {job.id}", CommandOutput(job.command, job.tail)))
