"""ShellJobs: the background jobs of a session; ShellOutput and ShellKill: the tools for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from ouro.errors import ToolError
from ouro.safety import Effect
from ouro.tools.shell_process import (
    AtEnd,
    ShellProcess,
    Wrap,
    do_nothing,
    limit_command,
    start_shell,
)
from ouro.tools.tool import AnyTool, Tool, ToolContext, ToolResult

if TYPE_CHECKING:
    from ouro.tools.background_job import Job
    from ouro.tools.output_capture import OutputCapture
    from ouro.tools.pty_job import PtyJob

_MAX_RUNNING = 20
_MAX_JOBS_KEPT = 100


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
        from ouro.tools.background_job import Job  # not at a start

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
        from ouro.tools.background_job import Job, describe_moved  # not at a start

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
        return ShellInput(self._jobs.find), input_args

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
