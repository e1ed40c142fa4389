"""Shell: run a command in bash; follow and end background commands."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from ouro.display import CommandOutput, Display, Question
from ouro.events import Notice
from ouro.safety import Confinement, Effect, Limits, NotMovedError, RevertedFile
from ouro.tools.shell_jobs import ShellJobs
from ouro.tools.shell_process import (
    AtEnd,
    RunningCommand,
    ShellProcess,
    TerminalCommand,
    Terminals,
    Wrap,
    command_inside,
    do_nothing,
    exit_status,
    limit_command,
    start_shell,
    terminal_command,
)
from ouro.tools.tool import Tool, ToolContext, ToolResult
from ouro.utils.ouro_paths import tilde
from ouro.utils.text import plural

if TYPE_CHECKING:
    from ouro.tools.foreground import Foreground

_MAX_SECONDS = 600
_MAX_TITLE = 100
_SPOOL_TIMEOUT = 1.0
"""Seconds that a result waits for the file with its whole output to be written."""
_SETUP_LINES = 5
"""Last lines of a failed postCreateCommand that the user sees."""
_TIMED_OUT = (
    "Ended after {:g} s, its time limit; above is what it had printed."
    f" If it only needs longer, set timeout_seconds (at most {_MAX_SECONDS}); if it is"
    " a server or takes minutes, run it again with background: true. If it waited for input, use a"
    " flag such as -y, or pty: true."
)
_MAX_FILES_NAMED = 5
"""Files that the sandbox moved out of the workspace; the others are counted."""
# The answers to the question about them.
_LEAVE_OUT, _RESTORE = "Leave it out", "Restore it"


class ShellArgs(msgspec.Struct, forbid_unknown_fields=True):
    command: Annotated[str, msgspec.Meta(min_length=1)]
    cwd: Annotated[str, msgspec.Meta(description="The folder; default: the workspace.")] = ""
    timeout_seconds: Annotated[float, msgspec.Meta(ge=0, le=_MAX_SECONDS)] = 0.0
    """0: the limit in the settings."""
    background: Annotated[
        bool, msgspec.Meta(description="No time limit: servers, watchers, slow commands.")
    ] = False
    watch: Annotated[
        str,
        msgspec.Meta(
            description="With `background`: a regular expression; a line that matches wakes you."
        ),
    ] = ""
    pty: Annotated[
        bool,
        msgspec.Meta(description="In a terminal, for what asks or draws."),
    ] = False
    outside_sandbox: Annotated[
        bool,
        msgspec.Meta(
            description="The user is asked. Only after the sandbox refused what the command needs."
        ),
    ] = False


class Shell(Tool[ShellArgs]):
    """Run a command in bash and get its output and exit code.

    Each call is a new shell in the workspace: variables and `cd` do not last. Without `pty` there is
    no terminal and no input: use flags such as `-y`. What a command leaves running is stopped; start
    servers in the background, then use shell_output and shell_kill. Long output is cut in the
    middle, and a file that is named has all of it.
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
        """The commands in the foreground, each with what moves it to the background."""
        self._user_lines: set[asyncio.Event] = set()
        """For each line of the user that runs in a terminal: what moves it to the background."""
        self._setup_lock = asyncio.Lock()
        """Held while the container is set up: other calls wait for that."""

    def runs_outside(self, args: ShellArgs) -> bool:
        return args.outside_sandbox and self.confinement.is_on

    def title(self, args: ShellArgs) -> str:
        # Often the first line says little, such as `set -e`: the title has as many as fit.
        lines = [line.strip() for line in args.command.splitlines()]
        command = " ⏎ ".join(filter(None, lines))
        return f"shell {command[:_MAX_TITLE]}{'…' if len(command) > _MAX_TITLE else ''}"

    def targets(self, args: ShellArgs) -> tuple[str, ...]:
        from shlex import quote  # not at a start

        return (f"cd -- {quote(args.cwd)}\n{args.command}" if args.cwd else args.command,)

    async def preview(self, args: ShellArgs) -> Display:
        place = f" in {args.cwd}" if args.cwd else ""
        lasting = " in the background" if args.background else ""
        outside = f" {self._outside_words}" if self.runs_outside(args) else ""
        return Display(f"run{lasting}{outside}{place}", CommandOutput(args.command))

    async def run(self, args: ShellArgs, ctx: ToolContext) -> ToolResult:
        """Run the command: in the foreground, in the background, or in a terminal."""
        folder = os.path.expanduser(args.cwd.replace("\0", "\ufffd"))  # noqa: PTH111 - Path's raises for ~nobody
        cwd = (self._root / folder).resolve()
        await self._prepare_sandbox(ctx)
        if args.pty:
            return await self._run_in_pty(args, cwd, ctx)
        if args.background:
            return await self._run_in_background(args, cwd, ctx)
        return await self._run_in_foreground(args, cwd, ctx)

    async def _prepare_sandbox(self, ctx: ToolContext) -> None:
        """Before a command: find out which sandbox works here, warn once if it is weak, and set up
        the container if there is one.
        """
        if ctx.limits != "off":
            if not self.confinement.known_tier:
                # The first call tests which sandbox works here, and stores it. It blocks.
                await asyncio.to_thread(self.confinement.chosen)
            if warning := self.confinement.take_warning():
                ctx.emit(Notice(warning, "warning"))
        if self.confinement.in_container:
            await self._set_up_container(ctx)

    async def _run_in_background(self, args: ShellArgs, cwd: Path, ctx: ToolContext) -> ToolResult:
        """Start a background job. The result says how the model reads its output and ends it."""
        job = await self._jobs.start(
            args.command,
            cwd,
            self._environment,
            self._make_wrap(ctx.limits, ctx.call_id, cwd),
            partial(self._move_out_obeyed_files, ctx),
            args.watch,
            in_container=self.confinement.in_container,
        )
        text = (
            f"Started in the background as {job.id}. Read what it prints with"
            f" shell_output(id={job.id!r}), end it with shell_kill(id={job.id!r}).{self._wake_note(args)}"
        )
        return ToolResult(text, Display(f"started as {job.id}", CommandOutput(args.command)))

    async def _run_in_foreground(self, args: ShellArgs, cwd: Path, ctx: ToolContext) -> ToolResult:
        """Run a command to its end, or until the user moves it to the background. Files that it has
        made and that other programs obey are moved out of the workspace, and the user is asked
        about them.
        """
        from ouro.tools.foreground import Foreground

        seconds = args.timeout_seconds or self._timeout
        reverted: Sequence[RevertedFile] = ()
        foreground = Foreground(ctx.report, can_move=True)
        try:
            result = await self.run_line(
                args.command,
                ctx.report,
                foreground,
                partial(self._move_out_obeyed_files, ctx),
                cwd=cwd,
                timeout_seconds=seconds,
                limits=ctx.limits,
                call_id=ctx.call_id,
            )
        finally:
            # If it was moved to the background, its job does this at its end.
            if not foreground.is_moved:
                reverted = await self._move_out_obeyed_files(ctx)
        if not reverted:
            return result
        note = await self._ask_to_restore(reverted, ctx)
        return msgspec.structs.replace(result, text=f"{result.text}\n{note}")

    async def _run_in_pty(self, args: ShellArgs, cwd: Path, ctx: ToolContext) -> ToolResult:
        """Start a job in a terminal. The result is its screen, when it seems to wait for input or
        has ended.
        """
        job = await self._jobs.start_in_pty(
            args.command,
            cwd,
            self._environment,
            self._make_wrap(ctx.limits, ctx.call_id, cwd, pty=True),
            partial(self._move_out_obeyed_files, ctx),
            is_confined=ctx.limits != "off",
            in_container=self.confinement.in_container,
        )
        from ouro.tools.pty_process import PTY_SETTLE_SECONDS  # loaded with the job

        await job.pty.wait_for_quiet(args.timeout_seconds or PTY_SETTLE_SECONDS)
        result = job.report()
        if not job.running:
            return msgspec.structs.replace(result, failed=job.process.exit_code != 0)
        how = (
            f"\n[It waits in a terminal. Type with shell_output(id={job.id!r}, text=…, keys=[…]), end it"
            f" with shell_kill.{self._wake_note(args)}]"
        )
        return msgspec.structs.replace(result, text=result.text + how)

    def _wake_note(self, args: ShellArgs) -> str:
        """A sentence for the model: whether the end of a background job, or a line that `watch`
        matches, wakes it. Empty if there is nothing to say.
        """
        if self._jobs.wakes:
            line = " and at a line that matches" if args.watch else ""
            return f" At its end{line} you are woken, so you need not wait for it."
        return " `watch` does nothing here: you are not woken." if args.watch else ""

    async def run_line(
        self,
        line: str,
        report: Callable[[str], None],
        foreground: Foreground | None = None,
        at_end: AtEnd = do_nothing,
        *,
        cwd: Path | None = None,
        timeout_seconds: float | None = None,
        limits: Limits = "off",
        call_id: str = "",
    ) -> ToolResult:
        """Run one command to its end, and end what it leaves running. The command is from a tool
        call, or a line that the user typed after `!`.

        Args:
            foreground: lets the user move it to the background; None: it cannot be moved.
            at_end: is called when a command has ended that was moved to the background.
            cwd: the folder in which it runs; None: the workspace.
            timeout_seconds: None: no time limit.
            call_id: the id of the tool call; empty for a line of the user.

        Raises:
            ToolError: the folder does not exist, or bash cannot be started.
        """
        from ouro.tools.foreground import Foreground

        # Run the command until it ends, or is moved to the background.
        cwd = cwd or self._root
        foreground = foreground or Foreground(report, can_move=False)
        process = await self._start_command(line, cwd, limits, report, foreground, call_id)
        self._running[process] = foreground
        in_time, left_running = await self._wait_and_end(process, foreground, timeout_seconds)
        if foreground.is_moved and isinstance(process, ShellProcess):
            return self._jobs.adopt(line, process, foreground.changed, at_end)

        # Complete its output, and count what it left running.
        if process.capture.file:
            # The file is complete when it is read next, unless the output is very long.
            await asyncio.to_thread(process.capture.wait_for_file, _SPOOL_TIMEOUT)
        if not left_running:
            left_running = await self._count_ended_by_sandbox(process, limits, call_id)

        # Describe how it ended.
        if in_time:
            code, status = process.exit_code, exit_status(process.exit_code)
            explanation = await self._explain_failure(process, limits)
            notes = [explanation, *_left_running_note(left_running)]
        else:
            code, status, notes = None, "time limit", [_TIMED_OUT.format(timeout_seconds)]
        is_ended_by_signal = (code or 0) < 0
        return self._make_result(
            line,
            process,
            code=None if is_ended_by_signal else code,
            status=status,
            notes=notes,
            cwd=cwd,
            left_running=left_running,
        )

    async def _count_ended_by_sandbox(
        self, process: RunningCommand, limits: Limits, call_id: str
    ) -> int:
        """Returns how many processes that a command left running were ended by its sandbox: some
        sandboxes do that themselves. 0 for a command without a sandbox.
        """
        is_confined = bool(call_id) and (limits != "off" or process.inside is not None)
        if not is_confined:
            return 0
        return await asyncio.to_thread(self.confinement.take_left_running, call_id)

    def _make_result(
        self,
        line: str,
        process: RunningCommand,
        *,
        code: int | None,
        status: str,
        notes: Sequence[str],
        cwd: Path,
        left_running: int,
    ) -> ToolResult:
        """The result of a command that has ended.

        Args:
            code: the exit code; None if it has none, because a signal or the time limit ended it.
            status: how it ended, in words.
            notes: lines for the model below the output; those that are empty are left out.
            left_running: the number of processes that it left running, and that were ended.
        """
        output = process.capture.text().rstrip("\n")
        place = "" if cwd == self._root else f" in {cwd}"
        lines_of_text = [
            output or "(no output)",
            f"[{status}, {process.seconds:.1f} s{place}]",
            *notes,
        ]
        summary_words = [
            status if code != 0 else "",
            process.capture.describe_lines(output),
            _ended_processes(left_running),
        ]
        summary = ", ".join(filter(None, summary_words))
        shown = Display(summary, CommandOutput(line, output, code))
        return ToolResult("\n".join(filter(None, lines_of_text)), shown, failed=code != 0)

    async def run_line_in_terminal(
        self, line: str, report: Callable[[str], None], *, is_shared: bool = True
    ) -> ToolResult:
        """Run a line of the user to its end in a terminal. The user can type into it, and move it
        to the background: then this returns at once, and the line goes on as a job. Raises
        ToolError if it cannot be started.

        Args:
            is_shared: whether the model sees the line. Then, if it was moved, the model also learns when
                it ends.
        """
        moved = asyncio.Event()

        def report_until_moved(text: str) -> None:
            if not moved.is_set():
                report(text)

        job = await self._jobs.start_in_pty(
            line,
            self._root,
            self._environment,
            lambda argv: argv,
            is_confined=False,
            report=report_until_moved,
        )
        job.is_of_user = True  # its end is no news for the model
        self._user_lines.add(moved)
        try:
            await _wait_for_first(job.watcher, moved)
        except BaseException:
            await job.end()
            raise
        finally:
            self._user_lines.discard(moved)
        if not job.watcher.done():
            job.is_of_user = not is_shared
            from ouro.tools.background_job import describe_moved  # loaded with the job

            return describe_moved(job)
        await job.watcher  # it is done: raises what failed in it
        await job.end()  # what the line left running ends, too
        result, code = job.report(), job.process.exit_code
        summary = "" if code == 0 else exit_status(code)
        shown = msgspec.structs.replace(result.display, summary=summary)
        return msgspec.structs.replace(result, display=shown, failed=code != 0)

    async def _wait_and_end(
        self, process: RunningCommand, foreground: Foreground, seconds: float | None
    ) -> tuple[bool, int]:
        """Wait until a command has ended, and end what it left running. If the user moves it to the
        background, nothing is ended. Returns whether it ended (or was moved) within `seconds`
        (None: no limit), and how many processes it had left running.
        """
        left_running = 0
        try:
            in_time = await foreground.wait(process, seconds)
        finally:
            # Also after an interrupt; with a second interrupt `end` sends KILL.
            try:
                left_running = 0 if foreground.is_moved else await process.end()
            finally:
                del self._running[process]
        return in_time, left_running

    async def _move_out_obeyed_files(self, ctx: ToolContext) -> Sequence[RevertedFile]:
        """Move files out of the workspace that the command has made and that other programs obey,
        and warn the user. Returns these files; none if the command ran without limits.
        """
        if ctx.limits == "off":
            return ()
        reverted: Sequence[RevertedFile]
        try:
            reverted = await asyncio.to_thread(self.confinement.revert, ctx.call_id)
        except NotMovedError as error:
            ctx.emit(Notice(f"What the command made cannot be moved out: {error}", "warning"))
            reverted = error.reverted
        if reverted:
            ctx.emit(Notice(f"{_describe_moved_files(reverted, self._root)}.", "warning"))
        return reverted

    async def _ask_to_restore(self, reverted: Sequence[RevertedFile], ctx: ToolContext) -> str:
        """Ask the user whether to restore the files that were moved out, and do it. Returns a
        sentence for the model about the answer.
        """
        what = _describe_moved_files(reverted, self._root)
        question = Question(
            "Restore what other programs obey?",
            (_LEAVE_OUT, _RESTORE),
            several=False,
            details=f"{what}.",
        )
        if _RESTORE not in await ctx.ask(question):
            return (
                f"{what}. The user has not allowed it. Do not make it in another form; `write` and"
                " outside_sandbox: true ask the user."
            )
        failed = await asyncio.to_thread(self.confinement.restore, reverted)
        not_restored = f" Not restored: {', '.join(map(str, failed))}." if failed else ""
        return f"{what}. The user has allowed it, so it was restored.{not_restored}"

    async def _start_command(
        self,
        line: str,
        cwd: Path,
        limits: Limits,
        report: Callable[[str], None],
        foreground: Foreground,
        call_id: str,
    ) -> RunningCommand:
        """Start a line. A line of a tool call runs in a terminal of the user's editor, if the
        editor opens one. Any other line runs as a child process.
        """
        in_container = self.confinement.in_container and bool(call_id)
        wrap = self._make_wrap(limits, call_id, cwd)
        argv, tag = await limit_command(line, cwd, wrap, in_container=in_container)
        capture, environment = self._jobs.new_capture(), self._environment
        if self._terminals and call_id:
            words = terminal_command(argv, environment)
            if terminal_id := await self._terminals.create(call_id, words, cwd):
                report("")  # the front end shows the terminal now
                inside = command_inside(argv)
                return TerminalCommand(self._terminals, terminal_id, tag, capture, inside)
        return await start_shell(
            argv, tag, cwd, environment, capture, report=foreground.receive_output
        )

    def _make_wrap(self, limits: Limits, call_id: str, cwd: Path, *, pty: bool = False) -> Wrap:
        """Returns a function that confines a command: it takes the words of the command, and
        returns the words that run it in the sandbox. Nothing is recorded for a line of the user,
        which has no call id. `pty`: whether the command gets a terminal.
        """
        if not call_id:
            return lambda argv: self.confinement.wrap(argv, limits)
        return lambda argv: self.confinement.wrap_command(argv, limits, call_id, cwd, pty=pty)

    @property
    def _outside_words(self) -> str:
        """Where a command runs that the user lets out of the sandbox, in words for the user. If
        commands run in a container, such a command runs there too.
        """
        if self.confinement.in_container:
            return "in the container with the network of the machine"
        return "outside of the sandbox"

    async def _set_up_container(self, ctx: ToolContext) -> None:
        """Run the line that prepares the container of the project (`postCreateCommand`), once,
        before the first command. A failure is shown.
        """
        async with self._setup_lock:
            line = await asyncio.to_thread(self.confinement.take_setup)
            if not line:
                return
            ctx.emit(Notice(f"Setting up the container: {line}"))
            result = await self.run_line(
                line,
                ctx.report,
                timeout_seconds=_MAX_SECONDS,
                call_id=f"{ctx.call_id}_setup",
            )
            if result.failed:
                end = "\n".join(result.text.splitlines()[-_SETUP_LINES:])
                ctx.emit(Notice(f"postCreateCommand failed: {line}\n{end}", "warning"))

    async def _explain_failure(self, process: RunningCommand, limits: Limits) -> str:
        """A sentence for the model about why a command failed, if its container or its sandbox is
        the reason; otherwise empty.
        """
        code, inside = process.exit_code, process.inside
        if not code:  # None: it still runs; 0: it did not fail
            return ""
        output = process.capture.text()
        if inside is not None and (loss := await asyncio.to_thread(inside.find_loss, code, output)):
            return loss
        return self._sandbox_advice(output, limits)

    def _sandbox_advice(self, output: str, limits: Limits) -> str:
        """Advice for the model if the output shows that the sandbox has probably refused something;
        otherwise empty.
        """
        if limits == "off":
            return ""
        if limit := self.confinement.find_limit(output):
            return f"A limit of the sandbox: {limit}."
        if not (line := self.confinement.find_denial(output)):
            return ""
        permission = {
            "read": "change nothing",
            "memory": "change only long-term memory",
            "repository": "change only the workspace and /tmp",
        }.get(limits, "change only the workspace (not .git) and /tmp")
        return (
            f"The sandbox may have refused this: {line}\nA command in it may {permission}, sees no"
            " keys, and has no network beyond the setting `sandbox.hosts`. If it needs more, run it again with"
            " outside_sandbox: true; the user is asked."
        )

    def move_to_background(self) -> int:
        """Let all running tool calls and lines of the user end, while their commands go on as
        background jobs. Returns how many were moved.
        """
        moved_count = 0
        for moved in tuple(self._user_lines):
            moved.set()
            moved_count += 1
        for process, foreground in tuple(self._running.items()):
            if foreground.move(process):
                moved_count += 1
        return moved_count

    def kill_all(self) -> None:
        """KILL every foreground command at once."""
        for process in tuple(self._running):
            process.kill()


async def _wait_for_first(ended: asyncio.Task[None], asked: asyncio.Event) -> None:
    """Wait until the task has ended or the event is set, whichever is first."""
    asked_task = asyncio.create_task(asked.wait())
    try:
        await asyncio.wait({ended, asked_task}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        asked_task.cancel()


def _left_running_note(count: int) -> list[str]:
    """A note for the model about processes that outlived the command; none if there were none."""
    ended = _ended_processes(count)
    return [f"{ended}; to keep one, start it with background: true."] if ended else []


def _ended_processes(count: int) -> str:
    """How many processes were ended, in words; empty for 0."""
    if not count:
        return ""
    was = "was" if count == 1 else "were"
    return f"{plural(count, 'process', 'processes')} {was} left running and {was} ended"


def _describe_moved_files(reverted: Sequence[RevertedFile], root: Path) -> str:
    """A sentence, without its full stop, about the files that were moved out of the workspace:
    their names, and where they are now. A file outside of `root` is named by its whole path.
    """
    names = []
    for item in reverted[:_MAX_FILES_NAMED]:
        is_below_root = item.path.is_relative_to(root)
        names.append(str(item.path.relative_to(root) if is_below_root else item.path))
    others = ""
    if len(reverted) > _MAX_FILES_NAMED:
        others = f" and {len(reverted) - _MAX_FILES_NAMED} more"
    is_restored = any(item.was_changed for item in reverted)
    changed = ", and restored what was there before" if is_restored else ""
    folders = ", ".join(dict.fromkeys(tilde(item.moved.parent) for item in reverted))
    return (
        f"Other programs obey {', '.join(names)}{others}, so ouro moved what the command made there"
        f" to {folders}{changed}"
    )
