"""Background jobs: commands that go on after the call that has started them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from ouro.display import CommandOutput, Display
from ouro.errors import ToolError
from ouro.safety import Effect
from ouro.tools.shell_process import ShellProcess, Wrap, limit_command, start_shell
from ouro.tools.tool import AnyTool, Tool, ToolContext, ToolResult

if TYPE_CHECKING:
    from ouro.tools.line_watch import LineWatch
    from ouro.tools.output_capture import OutputCapture
    from ouro.tools.pty_job import PtyJob
    from ouro.tools.pty_process import PtyProcess

_TAIL_LENGTH = 2000
"""Bytes of output that are shown when a job has ended."""
_MAX_RUNNING = 20
_MAX_JOBS_KEPT = 100


AtEnd = Callable[[], Awaitable[object]]
"""What is done when a job has ended."""


async def do_nothing() -> None:
    """The `AtEnd` of a job after which there is nothing to do."""


PTY_SETTLE_SECONDS = 10.0
"""Seconds in which a program with a terminal may end, or print before it waits for input."""


class Job:
    """A command that runs in the background, and what of its output was reported."""

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
        self._watch_lines = watch
        self._is_end_known = False
        """Whether the model or the user knows that it has ended."""
        self._is_ended_by_user = False
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
        if exit_code is not None and exit_code < 0:  # ended by a signal
            exit_code = None
        output = CommandOutput(self.command, new_output, exit_code)
        return ToolResult(text, Display(f"{self.id} {status}", output))

    @property
    def news(self) -> str:
        """What has happened to it that the model does not know, in a few words; empty if nothing."""
        if self.watcher.done() and not (self._is_end_known or self.is_of_user):
            return f"{self.id} ended ({self.status})"
        if self._watch_lines is not None and self._watch_lines.has_matches:
            return f"{self.id} printed a line that matches its `watch`"
        return ""

    def take_news(self) -> str:
        """Take the news, as text for the model with the end of the output. `news` is empty
        afterwards.
        """
        title, seconds = self.news, self.process.seconds
        matching_lines = self._watch_lines.take_lines() if self._watch_lines is not None else ""
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
            if self._watch_lines is not None:
                await self._watch_lines.close()
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


class ShellJobs:
    """The background jobs of one session; `close` ends them all.

    Args:
        spool_dir: where long output is kept.
        mask: removes secrets from saved output; called in a thread.
        on_news: called when a job has ended, or has printed a line that is watched for. None: the agent is not woken.
    """

    def __init__(
        self,
        spool_dir: Path,
        mask: Callable[[str], str] | None = None,
        on_news: Callable[[], None] | None = None,
    ) -> None:
        self._spool_dir = spool_dir
        self._mask = mask
        self.wakes = on_news is not None
        """Whether the model is woken when a job has news: something listens to `on_news`."""
        self._on_news = on_news or (lambda: None)
        self._jobs: dict[str, Job] = {}
        self._count = 0
        """How many jobs were started."""

    async def start(
        self,
        line: str,
        cwd: Path,
        environment: Mapping[str, str],
        wrap: Wrap,
        at_end: AtEnd = do_nothing,
        watch: str = "",
        *,
        in_container: bool = False,
    ) -> Job:
        """Start `line` as a job, confined by `wrap`, and return it at once.

        Args:
            at_end: is called when it has ended.
            watch: a regular expression: a line of the output that matches it is news. Empty: none.
            in_container: whether `wrap` runs it in a container.

        Raises:
            ToolError: too many run already, the shell could not be started, or `watch` is wrong.
        """
        self._require_room()
        argv, tag = await limit_command(line, cwd, wrap, in_container=in_container)
        changed = asyncio.Event()
        line_watch = None
        if watch:
            from ouro.tools.line_watch import watch_lines  # imported late: few jobs need it

            line_watch = await watch_lines(watch, self._on_news)
        capture = self.new_capture(line_watch.feed if line_watch else None)
        try:
            process = await start_shell(
                argv, tag, cwd, environment, capture, report=lambda _: changed.set()
            )
        except BaseException:
            if line_watch is not None:
                await line_watch.kill()
            raise
        return self._add_job(
            Job(
                self._next_id(),
                command=line,
                process=process,
                changed=changed,
                at_end=at_end,
                watch=line_watch,
            )
        )

    async def start_in_pty(
        self,
        line: str,
        cwd: Path,
        environment: Mapping[str, str],
        wrap: Wrap,
        at_end: AtEnd = do_nothing,
        *,
        is_confined: bool = False,
        in_container: bool = False,
        report: Callable[[str], None] = lambda _text: None,
    ) -> PtyJob:
        """Start `line` as a job in a pseudo-terminal, confined by `wrap`, and return it at once.
        `job.pty.type` types into the program.

        Args:
            at_end: is called when it has ended.
            is_confined: whether what is typed later can do no more than `wrap` permits.
            in_container: whether `wrap` runs it in a container.
            report: gets what it prints, without codes.

        Raises:
            ToolError: too many run already, or it could not be started.
        """
        # Imported late: few sessions need a terminal.
        from ouro.tools.pty_job import PtyJob
        from ouro.tools.pty_process import start_in_pty
        from ouro.tools.truncate import readable

        self._require_room()
        argv, tag = await limit_command(line, cwd, wrap, in_container=in_container)
        changed = asyncio.Event()
        capture = self.new_capture()

        def receive_output(data: bytes) -> None:
            report(readable(data))
            changed.set()

        process = await start_in_pty(argv, tag, cwd, environment, capture, report=receive_output)
        job = PtyJob(
            self._next_id(),
            command=line,
            process=process,
            changed=changed,
            at_end=at_end,
            is_confined=is_confined,
        )
        self._add_job(job)
        return job

    def adopt(
        self, line: str, process: ShellProcess, changed: asyncio.Event, at_end: AtEnd
    ) -> ToolResult:
        """Make a job of a running command, which the user moves to the background. Returns the
        result of the tool call that has started it.

        Args:
            changed: is set by each output of the command.
        """
        return describe_moved(
            self._add_job(
                Job(self._next_id(), command=line, process=process, changed=changed, at_end=at_end)
            )
        )

    def _require_room(self) -> None:
        """Raise ToolError if too many jobs run already."""
        if sum(job.running for job in self._jobs.values()) >= _MAX_RUNNING:
            raise ToolError(
                f"{_MAX_RUNNING} background jobs run already. End some with shell_kill."
            )

    def _next_id(self) -> str:
        """The id of a new job."""
        self._count += 1
        return f"job_{self._count}"

    def _add_job(self, job: Job) -> Job:
        """Add a job to the list, and return it. If there are more than _MAX_JOBS_KEPT jobs, the
        oldest ended jobs are removed.
        """
        job.watcher.add_done_callback(lambda _: self._on_news())
        self._jobs[job.id] = job
        too_many = max(0, len(self._jobs) - _MAX_JOBS_KEPT)
        ended = [job.id for job in self._jobs.values() if not job.running]
        for job_id in ended[:too_many]:
            del self._jobs[job_id]
        return job

    def new_capture(self, on_data: Callable[[bytes], None] | None = None) -> OutputCapture:
        """A new capture for the output of one command. If it is long, it is saved in the folder of
        this session.

        Args:
            on_data: is called with each piece of the output.
        """
        from ouro.tools.output_capture import OutputCapture

        return OutputCapture(self._spool_dir, self._mask, on_data)

    def list(self) -> tuple[Job, ...]:
        """All jobs of the session, oldest first."""
        return tuple(self._jobs.values())

    def find(self, job_id: str) -> Job:
        """The job with this id. Raises ToolError if there is none; the message lists all."""
        if job := self._jobs.get(job_id):
            return job
        jobs = ", ".join(self._jobs) or "none"
        raise ToolError(f"There is no background job {job_id!r}. The jobs of this session: {jobs}.")

    async def close(self) -> None:
        """End all jobs, and wait until they have ended."""
        jobs = self.list()
        try:
            await asyncio.gather(*(job.process.end() for job in jobs))
        finally:
            for job in jobs:
                job.process.kill()
                job.watcher.cancel()
            await asyncio.gather(*(job.watcher for job in jobs), return_exceptions=True)


class JobArgs(msgspec.Struct, forbid_unknown_fields=True):
    id: str


class ShellOutputArgs(JobArgs):
    """`text` and `keys` are limited by shell_input."""

    wait_seconds: Annotated[
        float, msgspec.Meta(ge=0, le=600, description="Wait for something new.")
    ] = 0
    text: Annotated[str, msgspec.Meta(description="Typed first, into a job with `pty`.")] = ""
    keys: Annotated[
        list[str], msgspec.Meta(description="Pressed after text: enter, tab, up, ctrl+c …")
    ] = []


class ShellOutput(Tool[ShellOutputArgs]):
    """Get what a background job has printed since you last asked, and whether it still runs."""

    name = "shell_output"
    effect = Effect.NONE
    Args = ShellOutputArgs

    def __init__(self, jobs: ShellJobs) -> None:
        self._jobs = jobs

    def title(self, args: ShellOutputArgs) -> str:
        return f"shell_output {args.id}"

    def resolve(self, args: ShellOutputArgs) -> tuple[AnyTool, Any]:
        """The tool that does the work, and its arguments. To look at a job has no effect: if
        nothing is typed, it is this tool. What is typed can run something: then it is shell_input,
        about which the user is asked.
        """
        if not args.text and not args.keys:
            return self, args
        from ouro.tools.shell_input import ShellInput, ShellInputArgs  # imported late: seldom used

        input_args = ShellInputArgs(args.id, args.text, args.keys, args.wait_seconds)
        return ShellInput(self._jobs), input_args

    async def run(self, args: ShellOutputArgs, ctx: ToolContext) -> ToolResult:
        job = self._jobs.find(args.id)
        await job.wait(args.wait_seconds)
        return job.report()


class ShellKill(Tool[JobArgs]):
    """End a background job and all that it started."""

    name = "shell_kill"
    effect = Effect.NONE
    Args = JobArgs

    def __init__(self, jobs: ShellJobs) -> None:
        self._jobs = jobs

    def title(self, args: JobArgs) -> str:
        return f"shell_kill {args.id}"

    async def run(self, args: JobArgs, ctx: ToolContext) -> ToolResult:
        job = self._jobs.find(args.id)
        await job.end()
        return job.report()


def exit_status(exit_code: int | None) -> str:
    """The state of a command in words. `exit_code` is None while it runs, and below zero if a
    signal ended it.
    """
    if exit_code is None:
        return "running"
    return f"ended by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
