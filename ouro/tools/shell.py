"""Shell: run a command in bash; follow and end background commands."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec

from ouro.display import CommandOutput, Display, Question
from ouro.errors import ToolError
from ouro.events import Notice
from ouro.safety import Confinement, Effect, Limits, RevertedFile
from ouro.tools.foreground import Foreground
from ouro.tools.line_watch import LineWatch, watch_lines
from ouro.tools.reverted_files import describe_reverted
from ouro.tools.shell_process import (
    RunningCommand,
    ShellProcess,
    TerminalCommand,
    Terminals,
    Wrap,
    limit_command,
    start_shell,
    terminal_command,
)
from ouro.tools.tool import Tool, ToolContext, ToolResult
from ouro.tools.truncate import OutputCapture
from ouro.utils.text import plural

_TAIL = 2000
_MAX_RUNNING = 20
_MAX_SAVED = 100
_MAX_SECONDS = 600
_TITLE = 100
_SPOOL_TIMEOUT = 1.0
_TIMED_OUT = (
    "Ended after {:g} s, its time limit; above is what it had printed."
    f" If it only needs longer, set timeout_seconds (at most {_MAX_SECONDS}); if it is"
    " a server or takes minutes, run it again with background: true."
)
_LEAVE_OUT, _RESTORE = "Leave it out", "Restore it"


AtEnd = Callable[[], Awaitable[object]]


async def _do_nothing() -> None:
    """What follows a job that changes nothing."""


class Job:
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
        self._read = 0
        self._changed = changed
        self._at_end = at_end
        self._watch_lines = watch
        self._is_end_known = False
        """Whether the model or the user knows that it has ended."""
        self.watcher = asyncio.create_task(self._watch(), name=job_id)

    @property
    def running(self) -> bool:
        return self.process.exit_code is None

    @property
    def tail(self) -> str:
        capture = self.process.capture
        return capture.since(max(0, capture.total - _TAIL)).rstrip("\n")

    def report(self) -> ToolResult:
        """Its output since the last report, and its state."""
        news = self.process.capture.since(self._read).rstrip("\n")
        self._read = self.process.capture.total
        exit_code = self.process.exit_code
        status = exit_status(exit_code)
        self._is_end_known |= exit_code is not None
        text = f"{news or '(nothing new)'}\n[{self.id}: {status}, {self.process.seconds:.1f} s]"
        code = None if exit_code is None or exit_code < 0 else exit_code
        return ToolResult(
            text, Display(f"{self.id} {status}", CommandOutput(self.command, news, code))
        )

    @property
    def news(self) -> str:
        """What has happened to it that the model does not know, in a few words; empty: nothing."""
        if self.watcher.done() and not self._is_end_known:
            return f"{self.id} ended ({exit_status(self.process.exit_code)})"
        if self._watch_lines is not None and self._watch_lines.has_matches:
            return f"{self.id} printed a line that matches its `watch`"
        return ""

    def take_news(self) -> str:
        """The news for the model, with the end of the output; then there is no news."""
        title, seconds = self.news, self.process.seconds
        lines = self._watch_lines.take() if self._watch_lines is not None else ""
        self._is_end_known |= self.watcher.done()
        matches = f"Lines that match its `watch`:\n{lines}\n" if lines else ""
        return (
            f"{title}, after {seconds:.0f} s. Its command: {self.command}\n{matches}"
            f"The end of its output:\n{self.tail or '(no output)'}"
        )

    async def end(self) -> None:
        """End it for a caller who then knows it: this is no news."""
        self._is_end_known = True
        await self.process.end()

    async def wait(self, seconds: float) -> None:
        """Wait until it has printed something or has ended, at most so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.running and self.process.capture.total == self._read:
                    self._changed.clear()
                    await self._changed.wait()

    async def _watch(self) -> None:
        """Wait for the end of its shell, then end the remaining processes."""
        try:
            await self.process.wait(None)
            await self.process.end()
        finally:
            self.process.kill()
            if self._watch_lines is not None:
                await self._watch_lines.close()
            await self._at_end()
            self._changed.set()


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
        self._on_news = on_news or (lambda: None)
        self._jobs: dict[str, Job] = {}
        self._count = 0

    async def start(
        self,
        line: str,
        cwd: Path,
        environment: Mapping[str, str],
        wrap: Wrap,
        at_end: AtEnd = _do_nothing,
        watch: str = "",
    ) -> Job:
        """Start `line`, confined by `wrap`, and return at once; `at_end` runs when it has ended.

        Args:
            watch: a regular expression: a line of the output that matches it is news.

        Raises:
            ToolError: too many run already, the shell could not be started, or `watch` is wrong.
        """
        if sum(job.running for job in self._jobs.values()) >= _MAX_RUNNING:
            raise ToolError(
                f"{_MAX_RUNNING} background jobs run already. End some with shell_kill."
            )
        argv, tag = await limit_command(line, cwd, wrap)
        changed = asyncio.Event()
        watching = await watch_lines(watch, self._on_news) if watch else None
        capture = self.new_capture(watching.feed if watching else None)
        try:
            process = await start_shell(
                argv, tag, cwd, environment, capture, lambda _: changed.set()
            )
        except BaseException:
            if watching is not None:
                watching.kill()
            raise
        return self._add(line, process, changed, at_end, watching)

    def adopt(
        self, line: str, process: ShellProcess, changed: asyncio.Event, at_end: AtEnd
    ) -> ToolResult:
        """Make a job of a running command; returns the result of the call that has started it."""
        job = self._add(line, process, changed, at_end, None)
        printed = job.report().text.rpartition("\n")[0]
        text = (
            f"{printed}\n[The user moved it to the background: it goes on as {job.id}, without a"
            f" time limit. shell_output(id={job.id!r}) reads what it prints next. Do not start it"
            " again.]"
        )
        return ToolResult(text, Display(f"moved to {job.id}", CommandOutput(line, job.tail)))

    def _add(
        self,
        line: str,
        process: ShellProcess,
        changed: asyncio.Event,
        at_end: AtEnd,
        watching: LineWatch | None,
    ) -> Job:
        self._count += 1
        job = Job(f"job_{self._count}", line, process, changed, at_end, watching)
        job.watcher.add_done_callback(lambda _: self._on_news())
        self._jobs[job.id] = job
        ended = [job.id for job in self._jobs.values() if not job.running]
        for job_id in ended[: max(0, len(self._jobs) - _MAX_SAVED)]:
            del self._jobs[job_id]
        return job

    def new_capture(self, on_data: Callable[[bytes], None] | None = None) -> OutputCapture:
        return OutputCapture(self._spool_dir, self._mask, on_data)

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
            await asyncio.gather(*(job.process.end() for job in jobs))
        finally:
            for job in jobs:
                job.process.kill()
                job.watcher.cancel()
            await asyncio.gather(*(job.watcher for job in jobs), return_exceptions=True)


class JobArgs(msgspec.Struct, forbid_unknown_fields=True):
    id: str


class ShellOutputArgs(JobArgs):
    wait_seconds: Annotated[
        float, msgspec.Meta(ge=0, le=600, description="Wait for something new.")
    ] = 0


class ShellOutput(Tool[ShellOutputArgs]):
    """Get what a background job has printed since you last asked, and whether it still runs."""

    name = "shell_output"
    effect = Effect.NONE
    Args = ShellOutputArgs

    def __init__(self, jobs: ShellJobs) -> None:
        self._jobs = jobs

    def title(self, args: ShellOutputArgs) -> str:
        return f"shell_output {args.id}"

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


class ShellArgs(msgspec.Struct, forbid_unknown_fields=True):
    command: Annotated[str, msgspec.Meta(min_length=1)]
    cwd: Annotated[str, msgspec.Meta(description="The folder; default: the workspace.")] = ""
    timeout_seconds: Annotated[
        float,
        msgspec.Meta(ge=0, le=_MAX_SECONDS, description="Default: the limit in the settings."),
    ] = 0.0
    background: Annotated[
        bool, msgspec.Meta(description="No time limit: servers, watchers, slow commands.")
    ] = False
    watch: Annotated[
        str,
        msgspec.Meta(
            description="With `background`: a regular expression; a line that matches wakes you."
        ),
    ] = ""
    outside_sandbox: Annotated[
        bool,
        msgspec.Meta(
            description="The user is asked. Only after the sandbox refused what the command needs."
        ),
    ] = False


class Shell(Tool[ShellArgs]):
    """Run a command in bash and get its output and exit code.

    Each call is a new shell in the workspace: variables and `cd` do not last. There is no terminal
    and no input: use flags such as `-y`. What a command leaves running is stopped; start servers in
    the background, then use shell_output and shell_kill. Long output is cut in the middle, and a
    file that is named has all of it.
    """

    name = "shell"
    effect = Effect.RUN
    Args = ShellArgs

    def __init__(
        self,
        root: Path,
        jobs: ShellJobs,
        environment: Mapping[str, str],
        confinement: Confinement,
        timeout_seconds: float = 120,
        terminals: Terminals | None = None,
    ) -> None:
        """Prepare the shell.

        Args:
            root: where lines run.
            jobs: the background jobs; long output is saved in the same folder.
            environment: the environment of the commands, without secrets (`child_environment`).
            confinement: confines commands.
            timeout_seconds: the time limit of a call that sets none.
            terminals: runs the commands of tool calls in terminals of an editor, with the same confinement.
        """
        self._root = root.resolve()
        self._jobs = jobs
        self._environment = environment
        self.confinement = confinement
        self._timeout = timeout_seconds
        self._terminals = terminals
        self._running: dict[RunningCommand, Foreground] = {}

    def runs_outside(self, args: ShellArgs) -> bool:
        return args.outside_sandbox and self.confinement.is_on

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
        if ctx.limits != "off":
            if not self.confinement.known_tier:
                # The first call tests which sandbox works here.
                await asyncio.to_thread(self.confinement.chosen)
            if warning := self.confinement.take_warning():
                ctx.emit(Notice(warning, "warning"))
        if args.background:
            wrap = self._wrap(ctx.limits, ctx.call_id)
            job = await self._jobs.start(
                args.command,
                cwd,
                self._environment,
                wrap,
                partial(self._revert, ctx),
                args.watch,
            )
            text = (
                f"Started in the background as {job.id}. Read what it prints with"
                f" shell_output(id={job.id!r}), end it with shell_kill(id={job.id!r}).{self._wakes(args)}"
            )
            return ToolResult(text, Display(f"started as {job.id}", CommandOutput(args.command)))
        seconds = args.timeout_seconds or self._timeout
        taken: Sequence[RevertedFile] = ()
        foreground = Foreground(ctx.report, can_move=True)
        try:
            result = await self.run_line(
                args.command,
                ctx.report,
                foreground,
                partial(self._revert, ctx),
                cwd=cwd,
                timeout_seconds=seconds,
                limits=ctx.limits,
                call_id=ctx.call_id,
            )
        finally:
            if not foreground.is_moved:
                taken = await self._revert(ctx)
        if not taken:
            return result
        note = await self._ask_about(taken, ctx)
        return msgspec.structs.replace(result, text=f"{result.text}\n{note}")

    def _wakes(self, args: ShellArgs) -> str:
        """What happens at the end of a background job, for the model."""
        if self._jobs.wakes:
            line = " and at a line that matches" if args.watch else ""
            return f" At its end{line} you are woken, so you need not wait for it."
        return " `watch` does nothing here: you are not woken." if args.watch else ""

    async def run_line(
        self,
        line: str,
        report: Callable[[str], None],
        foreground: Foreground | None = None,
        at_end: AtEnd = _do_nothing,
        *,
        cwd: Path | None = None,
        timeout_seconds: float | None = None,
        limits: Limits = "off",
        call_id: str = "",
    ) -> ToolResult:
        """Run one command to its end: a tool call, or what the user typed after `!` (no time
        limit).

        Args:
            foreground: lets the user move it to the background; `at_end` runs when it has ended there.

        Raises:
            ToolError: the folder does not exist, or bash cannot be started.
        """
        cwd = cwd or self._root
        front = foreground or Foreground(report, can_move=False)
        process = await self._start(line, cwd, limits, report, front, call_id)
        self._running[process] = front
        in_time, left = await self._wait_and_end(process, front, timeout_seconds)
        if front.is_moved and isinstance(process, ShellProcess):
            return self._jobs.adopt(line, process, front.changed, at_end)
        if process.capture.file:
            # The file is complete when it is read next, unless the output is very long.
            await asyncio.to_thread(process.capture.settle, _SPOOL_TIMEOUT)
        output = process.capture.text()
        if limits != "off" and call_id:
            left = left or await asyncio.to_thread(self.confinement.take_left_running, call_id)
        if in_time:
            status = exit_status(process.exit_code)
            refusal = self._explain_refusal(output, limits) if process.exit_code else ""
            notes = [refusal, *_describe_left(left)]
        else:
            status, notes = "time limit", [_TIMED_OUT.format(timeout_seconds)]
        is_ended_by_signal = (process.exit_code or 0) < 0
        code = process.exit_code if in_time and not is_ended_by_signal else None
        place = "" if cwd == self._root else f" in {cwd}"
        output = output.rstrip("\n")
        pieces = [output or "(no output)", f"[{status}, {process.seconds:.1f} s{place}]", *notes]
        parts = [
            status if code != 0 else "",
            process.capture.describe_lines(output),
            _was_ended(left),
        ]
        summary = ", ".join(filter(None, parts))
        shown = Display(summary, CommandOutput(line, output, code))
        return ToolResult("\n".join(filter(None, pieces)), shown, failed=code != 0)

    async def _wait_and_end(
        self, process: RunningCommand, front: Foreground, seconds: float | None
    ) -> tuple[bool, int]:
        """Whether it ended in time, or was moved; and how many processes had outlived its shell."""
        left = 0
        try:
            in_time = await front.wait(process, seconds)
        finally:
            # Also after an interrupt; with a second interrupt `end` sends KILL.
            try:
                left = 0 if front.is_moved else await process.end()
            finally:
                del self._running[process]
        return in_time, left

    async def _revert(self, ctx: ToolContext) -> Sequence[RevertedFile]:
        """Move out what the command has made that other programs obey, with a warning."""
        if ctx.limits == "off":
            return ()
        try:
            taken = await asyncio.to_thread(self.confinement.revert, ctx.call_id)
        except OSError as error:
            ctx.emit(Notice(f"What the command made cannot be moved out: {error}", "warning"))
            return ()
        if taken:
            ctx.emit(Notice(f"{describe_reverted(taken, self._root)}.", "warning"))
        return taken

    async def _ask_about(self, taken: Sequence[RevertedFile], ctx: ToolContext) -> str:
        """Ask the user whether they may stay; returns the result for the model."""
        what = describe_reverted(taken, self._root)
        question = Question(
            "Restore what other programs obey?", (_LEAVE_OUT, _RESTORE), False, f"{what}."
        )
        if _RESTORE not in await ctx.ask(question):
            return (
                f"{what}. The user has not allowed it. Do not make it in another form; `write` and"
                " outside_sandbox: true ask the user."
            )
        failed = await asyncio.to_thread(self.confinement.restore, taken)
        lost = f" Not restored: {', '.join(map(str, failed))}." if failed else ""
        return f"{what}. The user has allowed it, so it was restored.{lost}"

    async def _start(
        self,
        line: str,
        cwd: Path,
        limits: Limits,
        report: Callable[[str], None],
        front: Foreground,
        call_id: str,
    ) -> RunningCommand:
        argv, tag = await limit_command(line, cwd, self._wrap(limits, call_id))
        capture, environment = self._jobs.new_capture(), self._environment
        if self._terminals and call_id:
            words = terminal_command(argv, environment)
            if terminal_id := await self._terminals.create(call_id, words, cwd):
                report("")  # the front end shows the terminal now
                return TerminalCommand(self._terminals, terminal_id, tag, capture)
        return await start_shell(argv, tag, cwd, environment, capture, front.take)

    def _wrap(self, limits: Limits, call_id: str) -> Wrap:
        return lambda argv: self.confinement.wrap(argv, limits, call_id)

    def _explain_refusal(self, output: str, limits: Limits) -> str:
        """Advice if the sandbox has probably refused something; otherwise empty."""
        if limits == "off":
            return ""
        if hit := self.confinement.find_limit(output):
            return f"A limit of the sandbox: {hit}."
        if not (line := self.confinement.find_denial(output)):
            return ""
        may = {"read": "change nothing", "memory": "change only long-term memory"}.get(
            limits, "change only the workspace (not .git) and /tmp"
        )
        return (
            f"The sandbox may have refused this: {line}\nA command in it may {may}, and has no"
            " network beyond the setting `sandbox.hosts`. If it needs more, run it again with"
            " outside_sandbox: true; the user is asked."
        )

    def move_to_background(self) -> int:
        """Let the tool calls end while their commands go on as jobs; returns how many."""
        return sum(front.move(process) for process, front in tuple(self._running.items()))

    def kill_all(self) -> None:
        """KILL every foreground command at once."""
        for process in tuple(self._running):
            process.kill()


def _describe_left(count: int) -> list[str]:
    ended = _was_ended(count)
    return [f"{ended}; to keep one, start it with background: true."] if ended else []


def _was_ended(count: int) -> str:
    if not count:
        return ""
    was = "was" if count == 1 else "were"
    return f"{plural(count, 'process', 'processes')} {was} left running and {was} ended"


def exit_status(exit_code: int | None) -> str:
    if exit_code is None:
        return "running"
    return f"ended by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
