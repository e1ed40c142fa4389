"""Shell: run a command in bash; follow and end background commands."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from ouro.display import CommandOutput, Display
from ouro.errors import ToolError
from ouro.events import Notice
from ouro.safety import Confinement, Effect, Limits
from ouro.tools.shell_process import (
    RunningCommand,
    ShellProcess,
    Terminals,
    end_orphans,
    limit_command,
    start_in_terminal,
    start_shell,
)
from ouro.tools.tool import Tool, ToolContext, ToolResult
from ouro.tools.truncate import OutputCapture, readable
from ouro.utils.files import sweep_written_dirs
from ouro.utils.runtime import get_written_dirs
from ouro.utils.text import plural

Wrap = Callable[[Sequence[str]], Sequence[str]]
_TAIL = 2000
_MAX_RUNNING = 20
_MAX_SAVED = 100
DEFAULT_SECONDS = 120
_MAX_SECONDS = 600
_TITLE = 100
_SPOOL_TIMEOUT = 1.0


class Job:
    def __init__(
        self, job_id: str, command: str, process: ShellProcess, capture: OutputCapture, changed: asyncio.Event
    ) -> None:
        self.id = job_id
        self.command = command
        self._process = process
        self._capture = capture
        self._read = 0
        self._changed = changed
        self.watcher = asyncio.create_task(self._watch(), name=job_id)

    @property
    def running(self) -> bool:
        return self.exit_code is None

    @property
    def exit_code(self) -> int | None:
        """None while it runs; below zero where a signal ended it."""
        return self._process.exit_code

    @property
    def seconds(self) -> float:
        return self._process.seconds

    @property
    def tail(self) -> str:
        return self._capture.since(max(0, self._capture.total - _TAIL)).rstrip("\n")

    def take_output(self) -> str:
        """Its output since the last call."""
        text = self._capture.since(self._read)
        self._read = self._capture.total
        return text

    async def wait(self, seconds: float) -> None:
        """Wait until it has printed something or has ended, at most for the given time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.running and self._capture.total == self._read:
                    self._changed.clear()
                    await self._changed.wait()

    async def end(self) -> None:
        """End it and all that it started."""
        await self._process.end()

    def kill(self) -> None:
        """KILL it at once, and stop watching."""
        self._process.kill()
        self.watcher.cancel()

    async def _watch(self) -> None:
        """Wait for the end of its shell, then end the processes that it left behind."""
        try:
            await self._process.wait(None)
            await self._process.end()
        finally:
            self._process.kill()
            self._changed.set()


async def tell_orphans(warn: Callable[[str], None], project: Path) -> None:
    """Clean up after killed ouros: remove their temporary files, end their commands, and warn about those."""
    await asyncio.to_thread(sweep_written_dirs, get_written_dirs(project))
    if ended := await asyncio.to_thread(end_orphans):
        left = plural(ended, "process", "processes")
        warn(f"An ouro that was killed had left {left} of its commands running. Ended.")


class ShellJobs:
    """The background jobs of one session; `close` ends them all.

    Args:
        spool_dir: where long output is kept.
        mask: removes secrets from saved output; called in a thread.
    """

    def __init__(self, spool_dir: Path, mask: Callable[[str], str] | None = None) -> None:
        self._spool_dir = spool_dir
        self._mask = mask
        self._jobs: dict[str, Job] = {}
        self._count = 0

    async def start(self, line: str, cwd: Path, environment: Mapping[str, str], wrap: Wrap) -> Job:
        """Start `line`, confined by `wrap`, and return at once.

        Raises:
            ToolError: too many run already, or the shell could not be started.
        """
        if sum(job.running for job in self._jobs.values()) >= _MAX_RUNNING:
            raise ToolError(f"{_MAX_RUNNING} background jobs run already. End some with shell_kill.")
        capture, changed = self.new_capture(), asyncio.Event()
        process = await start_shell(line, cwd, environment, wrap, capture, lambda _: changed.set())
        self._count += 1
        job = Job(f"job_{self._count}", line, process, capture, changed)
        self._jobs[job.id] = job
        ended = [job.id for job in self._jobs.values() if not job.running]
        for job_id in ended[: max(0, len(self._jobs) - _MAX_SAVED)]:
            del self._jobs[job_id]
        return job

    def new_capture(self) -> OutputCapture:
        """For the output of one command."""
        return OutputCapture(self._spool_dir, self._mask)

    def list(self) -> tuple[Job, ...]:
        """All jobs of the session, oldest first."""
        return tuple(self._jobs.values())

    def find(self, job_id: str) -> Job:
        """One job. Raises ToolError: there is none with this id."""
        if job := self._jobs.get(job_id):
            return job
        jobs = ", ".join(self._jobs) or "none"
        raise ToolError(f"There is no background job {job_id!r}. The jobs of this session: {jobs}.")

    async def close(self) -> None:
        jobs = self.list()
        try:
            await asyncio.gather(*(job.end() for job in jobs))
        finally:
            for job in jobs:
                job.kill()
            await asyncio.gather(*(job.watcher for job in jobs), return_exceptions=True)


class ShellOutputArgs(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    wait_seconds: Annotated[float, msgspec.Meta(ge=0, le=600, description="Wait for something new.")] = 0


class ShellOutput(Tool[ShellOutputArgs]):
    """Get what a background job has printed since you last asked, and whether it still runs."""

    name: ClassVar[str] = "shell_output"
    effect: ClassVar[Effect] = Effect.NONE
    Args = ShellOutputArgs

    def __init__(self, jobs: ShellJobs) -> None:
        self._jobs = jobs

    def title(self, args: ShellOutputArgs) -> str:
        return f"shell_output {args.id}"

    async def run(self, args: ShellOutputArgs, ctx: ToolContext) -> ToolResult:
        job = self._jobs.find(args.id)
        await job.wait(args.wait_seconds)
        return _describe(job)


class ShellKillArgs(msgspec.Struct, forbid_unknown_fields=True):
    id: str


class ShellKill(Tool[ShellKillArgs]):
    """End a background job and all that it started."""

    name: ClassVar[str] = "shell_kill"
    effect: ClassVar[Effect] = Effect.NONE
    Args = ShellKillArgs

    def __init__(self, jobs: ShellJobs) -> None:
        self._jobs = jobs

    def title(self, args: ShellKillArgs) -> str:
        return f"shell_kill {args.id}"

    async def run(self, args: ShellKillArgs, ctx: ToolContext) -> ToolResult:
        job = self._jobs.find(args.id)
        await job.end()
        return _describe(job)


def _describe(job: Job) -> ToolResult:
    status, news = exit_status(job.exit_code), job.take_output().rstrip("\n")
    text = f"{news or '(nothing new)'}\n[{job.id}: {status}, {job.seconds:.1f} s]"
    code = None if job.running or (job.exit_code or 0) < 0 else job.exit_code
    return ToolResult(text, Display(f"{job.id} {status}", CommandOutput(job.command, news, code)))


class ShellArgs(msgspec.Struct, forbid_unknown_fields=True):
    command: Annotated[str, msgspec.Meta(min_length=1)]
    cwd: Annotated[str, msgspec.Meta(description="The folder; default: the workspace.")] = ""
    timeout_seconds: Annotated[
        float,
        msgspec.Meta(
            ge=0,
            le=_MAX_SECONDS,
            description="Default: the limit in the settings.",
        ),
    ] = 0.0
    background: Annotated[
        bool,
        msgspec.Meta(description="No time limit: servers, watchers, slow commands."),
    ] = False
    outside_sandbox: Annotated[
        bool,
        msgspec.Meta(description="The user is asked. Only after the sandbox refused what the command needs."),
    ] = False


class Shell(Tool[ShellArgs]):
    """Run a command in bash and get its output and exit code.

    Each call is a new shell in the workspace: variables and `cd` do not last. There is no terminal and no input: use
    flags such as `-y`. What a command leaves running is stopped; start servers in the background, then use shell_output
    and shell_kill. Long output is cut in the middle, and a file that is named has all of it.
    """

    name: ClassVar[str] = "shell"
    effect: ClassVar[Effect] = Effect.RUN
    Args = ShellArgs

    def __init__(
        self,
        root: Path,
        jobs: ShellJobs,
        environment: Mapping[str, str],
        confinement: Confinement | None = None,
        timeout_seconds: float = DEFAULT_SECONDS,
        terminals: Terminals | None = None,
    ) -> None:
        """Prepare the shell.

        Args:
            root: where lines run.
            jobs: the background jobs; long output is saved where theirs is.
            environment: of the commands, without secrets (`child_environment`).
            confinement: confines commands; None confines none.
            timeout_seconds: the time limit of a call that sets none.
            terminals: runs the commands of tool calls in terminals of an editor, confined as here.
        """
        self._root = root.resolve()
        self._jobs = jobs
        self._environment = environment
        self._confinement = confinement
        self._timeout = timeout_seconds
        self._terminals = terminals
        self._running: set[RunningCommand] = set()

    def runs_outside(self, args: ShellArgs) -> bool:
        return args.outside_sandbox and self._confinement is not None and self._confinement.is_on

    def title(self, args: ShellArgs) -> str:
        first, *more = args.command.strip().splitlines() or [""]
        return f"shell {first[:_TITLE]}{'…' if more or len(first) > _TITLE else ''}"

    def targets(self, args: ShellArgs) -> tuple[str, ...]:
        return (f"cd -- {shlex.quote(args.cwd)}\n{args.command}" if args.cwd else args.command,)

    async def preview(self, args: ShellArgs) -> Display:
        place = f" in {args.cwd}" if args.cwd else ""
        lasting = " in the background" if args.background else ""
        outside = " outside of the sandbox" if self.runs_outside(args) else ""
        return Display(f"run{lasting}{outside}{place}", CommandOutput(args.command))

    async def run(self, args: ShellArgs, ctx: ToolContext) -> ToolResult:
        named = os.path.expanduser(args.cwd.replace("\0", "\ufffd"))  # noqa: PTH111 - Path's raises for ~nobody
        cwd = (self._root / named).resolve()
        if self._confinement is not None and ctx.limits != "off":
            if not self._confinement.known_tier:
                await asyncio.to_thread(self._confinement.chosen)  # it tests what works here
            if warning := self._confinement.take_warning():
                ctx.emit(Notice(warning, "warning"))
        if args.background:
            job = await self._jobs.start(args.command, cwd, self._environment, self._wrap(ctx.limits, ctx.call_id))
            text = (
                f"Started in the background as {job.id}. Read what it prints with shell_output(id={job.id!r}), "
                f"end it with shell_kill(id={job.id!r})."
            )
            return ToolResult(text, Display(f"started as {job.id}", CommandOutput(args.command)))
        seconds = args.timeout_seconds or self._timeout
        return await self.run_line(
            args.command, ctx.report, cwd=cwd, timeout_seconds=seconds, limits=ctx.limits, call_id=ctx.call_id
        )

    @property
    def sandbox_tier(self) -> str:
        """The tier that confines commands, `none`, or `off`; empty before the first command has tested it."""
        return self._confinement.known_tier if self._confinement is not None else ""

    async def run_line(
        self,
        line: str,
        report: Callable[[str], None],
        *,
        cwd: Path | None = None,
        timeout_seconds: float | None = None,
        limits: Limits = "off",
        call_id: str = "",
    ) -> ToolResult:
        """Run one command to its end: a tool call, or what the user typed after `!` (no time limit).

        Raises:
            ToolError: the folder does not exist, or bash cannot be started.
        """
        cwd = cwd or self._root
        capture = self._jobs.new_capture()
        process = await self._start(line, cwd, limits, capture, report, call_id)
        self._running.add(process)
        in_time, left = True, 0
        try:
            in_time = await process.wait(timeout_seconds)
        finally:
            # Also after an interrupt; a second interrupt turns `end` into a KILL.
            try:
                left = await process.end()
            finally:
                self._running.discard(process)
        if capture.file:
            # The file is complete when it is read next, unless the output is very long.
            await asyncio.to_thread(capture.settle, _SPOOL_TIMEOUT)
        output = capture.text()
        note = "" if in_time else _out_of_time(timeout_seconds)
        if not note and limits != "off" and process.exit_code and self._confinement:
            hit = self._confinement.find_limit(output)
            note = f"A limit of the sandbox: {hit}." if hit else _refused(self._confinement.find_denial(output), limits)
        return self._result(line, cwd, output, process, note or _left_behind(left))

    async def _start(
        self, line: str, cwd: Path, limits: Limits, capture: OutputCapture, report: Callable[[str], None], call_id: str
    ) -> RunningCommand:
        wrap = self._wrap(limits, call_id)
        if self._terminals and call_id:
            argv, tag = limit_command(line, cwd)
            command = await asyncio.to_thread(wrap, argv), tag
            if started := await start_in_terminal(self._terminals, call_id, command, cwd, self._environment, capture):
                report("")  # the front end shows the terminal now
                return started
        return await start_shell(line, cwd, self._environment, wrap, capture, lambda data: report(readable(data)))

    def _wrap(self, limits: Limits, call_id: str) -> Wrap:
        confinement = self._confinement
        return list if confinement is None else lambda argv: confinement.wrap(argv, limits, call_id)

    def close(self) -> None:
        """Delete the files that confined commands have put into their /tmp."""
        if self._confinement is not None:
            self._confinement.close()

    def kill_all(self) -> None:
        """KILL every foreground command at once."""
        for process in tuple(self._running):
            process.kill()

    def _result(self, line: str, cwd: Path, output: str, process: RunningCommand, note: str) -> ToolResult:
        timed_out = note.startswith("Ended after")
        code = None if timed_out or (process.exit_code or 0) < 0 else process.exit_code
        status = "time limit" if timed_out else exit_status(process.exit_code)
        place = "" if cwd == self._root else f" in {cwd}"
        output = output.rstrip("\n")
        parts = [output or "(no output)", f"[{status}, {process.seconds:.1f} s{place}]", note]
        lines = f"{output.count(chr(10)) + 1} lines" if "\n" in output else ""
        summary = ", ".join(filter(None, [status if code != 0 else "", lines]))
        shown = Display(summary, CommandOutput(line, output, code))
        return ToolResult("\n".join(filter(None, parts)), shown, failed=code != 0)


def exit_status(exit_code: int | None) -> str:
    if exit_code is None:
        return "running"
    return f"ended by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"


def _out_of_time(seconds: float | None) -> str:
    return (
        f"Ended after {seconds:g} s, its time limit; above is what it had printed. If it only needs longer, set "
        f"timeout_seconds (at most {_MAX_SECONDS}); if it is a server or takes minutes, run it again with "
        "background: true."
    )


def _refused(line: str, limits: Limits) -> str:
    """What to do where the sandbox has probably refused something."""
    if not line:
        return ""
    may = {"read": "change nothing", "memory": "change only long-term memory"}.get(
        limits, "change only the workspace (not .git) and /tmp"
    )
    return (
        f"The sandbox may have refused this: {line}\nA command in it may {may}, and has no network beyond the "
        "setting `sandbox.hosts`. If it needs more, run it again with outside_sandbox: true; the user is asked."
    )


def _left_behind(count: int) -> str:
    if not count:
        return ""
    processes = plural(count, "process that it had", "processes that it had")
    return f"Ended {processes} left running; to keep one, start it with background: true."
