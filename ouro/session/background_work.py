"""BackgroundWork: the shell lines of the user, background jobs and subagents of a session."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from ouro.agent.subagents import Subagents
from ouro.display import CommandOutput, Display, Question
from ouro.errors import SaveFailed, ToolError
from ouro.events import (
    Emit,
    Event,
    Notice,
    QuestionAsked,
    Reply,
    ToolFinished,
    ToolProgress,
    ToolRunning,
    ToolStarted,
)
from ouro.memory.manager import MemoryManager
from ouro.messages import SHELL_NOTE, ToolCall, user
from ouro.safety import Permissions
from ouro.session.session_tasks import SessionTasks, Steering
from ouro.session.standing_work import StandingWork
from ouro.tools.shell import Shell
from ouro.tools.shell_jobs import ShellJobs
from ouro.tools.tool import ToolResult
from ouro.utils.ouro_paths import tilde

if TYPE_CHECKING:
    from ouro.tools.background_job import Job

_MAX_INTERRUPTED = 20_000
"""Characters at the end of the output of an interrupted line that stay shown."""
_BUILTINS_FOR_LATER_LINES = frozenset(
    {"cd", "pushd", "popd", "export", "unset", "alias", "unalias", "source", "."}
)
"""Builtins of the shell whose only effect is on later lines of the same shell."""
_SHELL_HAS_ENDED = (
    "Each line has a shell of its own: the next one runs in {folder} again, with the same variables"
    " as before. Join it with what needs it: `cd src && make`."
)


class BackgroundTask(msgspec.Struct, frozen=True):
    """A background job, a subagent (it may have ended), the goal, or a repeated message."""

    id: str
    title: str
    """The command, or the task in a few words."""
    state: str
    is_running: bool
    outlives_turn: bool
    output: str
    """The end of the output of a job; what a subagent does now; what the last check of the goal has
    found; the text of a repeated message.
    """


RunLine = Callable[[str, Callable[[str], None]], Awaitable[ToolResult]]
"""Runs a shell line to its end, and reports what it prints."""


class BackgroundWork(msgspec.Struct, frozen=True, eq=False):
    """The background of a session: the user's own shell lines, background jobs and subagents."""

    shell: Shell
    jobs: ShellJobs
    subagents: Subagents
    permissions: Permissions
    tasks: SessionTasks
    steering: Steering
    memory: MemoryManager
    standing: StandingWork

    def list(self) -> tuple[BackgroundTask, ...]:
        """The goal, the repeated messages, the subagents and the background jobs."""
        return (*self._list_standing(), *self.list_work())

    def list_work(self) -> tuple[BackgroundTask, ...]:
        """All subagents since the session was opened, also those that have ended; then the
        background jobs.
        """
        tasks = []
        for agent in self.subagents.list_progress():
            activity = f": {agent.activity}" if agent.activity else ""
            state = f"{agent.state}{activity} ({agent.figures})"
            tasks.append(
                BackgroundTask(
                    id=agent.id,
                    title=agent.task,
                    state=state,
                    is_running=not agent.is_over,
                    outlives_turn=agent.background,
                    output=agent.activity,
                )
            )
        for job in self.jobs.list():
            state = f"{job.status}, {job.process.seconds:.0f} s"
            tasks.append(
                BackgroundTask(
                    id=job.id,
                    title=job.command,
                    state=state,
                    is_running=job.running,
                    outlives_turn=True,
                    output=job.tail,
                )
            )
        return tuple(tasks)

    def _list_standing(self) -> Iterator[BackgroundTask]:
        """The goal and the repeated messages as background tasks."""
        pursuit = self.standing.goal
        if goal := pursuit.goal:
            yield BackgroundTask(
                id="goal",
                title=goal.title,
                state=pursuit.state,
                is_running=pursuit.is_active,
                outlives_turn=True,
                output=goal.last_finding,
            )
        for message in self.standing.repeated.list():
            yield BackgroundTask(
                id=message.id,
                title=message.text,
                state=message.state,
                is_running=True,
                outlives_turn=True,
                output=message.text,
            )

    def last_terminal(self) -> Job | None:
        """The newest program that runs in a terminal; None if there is none."""
        running = [job for job in self.jobs.list() if job.pty is not None and job.running]
        return running[-1] if running else None

    async def kill(self, task_id: str) -> None:
        """End a background job, a subagent, the goal or a repeated message. Raises ToolError if it
        is not running.
        """
        if self.standing.end(task_id):
            return
        is_job = any(job.id == task_id for job in self.jobs.list())
        if is_job:
            await self.jobs.find(task_id).end(by_user=True)
        else:
            await self.subagents.kill(task_id)

    def move_running(self) -> int:
        """Move the running commands to the background; returns how many."""
        return self.shell.move_to_background()

    def kill_lines(self) -> None:
        """Kill every running shell line at once, except background jobs."""
        self.shell.kill_all()

    def run_line(
        self, line: str, share: bool, *, in_terminal: bool = False
    ) -> AsyncGenerator[Event, None]:
        """Run a shell line of the user; yields its events.

        Args:
            share: whether the output is sent to the model.
            in_terminal: whether the line gets a terminal, into which the user can type.
        """
        run: RunLine = self.shell.run_line
        if in_terminal:
            run = partial(self.shell.run_line_in_terminal, is_shared=share)
        return self.tasks.run_alongside(lambda emit: self._run_users_line(line, share, run, emit))

    async def close(self) -> None:
        """End the subagents and the background jobs."""
        await self.subagents.close()
        await self.jobs.close()

    async def _run_users_line(self, line: str, share: bool, run: RunLine, emit: Emit) -> None:
        """Run a shell line of the user with `run`, and emit its events. A dangerous one runs only
        after the user has confirmed it. If `share`, its output is sent to the model.
        """
        call = ToolCall(f"own_{uuid.uuid4().hex[:12]}", "shell", {"command": line})
        start = time.monotonic()
        if not await self._is_confirmed(line, call.id, emit):
            emit(Notice("The line was not run."))
            return
        emit(ToolStarted(call, line))
        emit(ToolRunning(call.id))

        printed = ""

        def report(text: str) -> None:
            """Show what the line prints, and keep its end for an interrupt."""
            nonlocal printed
            printed = (printed + text)[-_MAX_INTERRUPTED:]
            emit(ToolProgress(call.id, text))

        def finish(display: Display, failed: bool) -> None:
            emit(
                ToolFinished(call.id, call.name, display, failed, seconds=time.monotonic() - start)
            )

        try:
            result = await run(line, report)
        except ToolError as error:
            result = ToolResult(str(error), Display(str(error)), failed=True)
        except asyncio.CancelledError:
            finish(Display("interrupted", CommandOutput(line, printed)), failed=True)
            raise
        finish(result.display, result.failed)
        if _changes_only_its_shell(line) and not result.failed:
            emit(Notice(_SHELL_HAS_ENDED.format(folder=tilde(self.permissions.workspace.root))))
        if share:
            await self._share_output(f"{SHELL_NOTE}{line}\n{result.text}", emit)

    async def _is_confirmed(self, line: str, question_id: str, emit: Emit) -> bool:
        """Whether a line may run: it is harmless, or the user has answered `run` to the question."""
        reason = await asyncio.to_thread(self.permissions.find_danger, line)
        if not reason:
            return True
        question = Question(
            f"This line may not be undone: {reason}. Run it?", ("run", "do not run")
        )
        asked_event = QuestionAsked(question_id, question, of_turn=False)
        answer = await self.tasks.ask_user(asked_event, emit)
        return isinstance(answer, Reply) and answer.answers[:1] == ("run",)

    async def _share_output(self, text: str, emit: Emit) -> None:
        """Send the output of a line to the model: in a running turn after its next tool call, else
        with the next message.
        """
        if self.tasks.running:
            self.steering.add_output(text)
            return
        try:
            await self.memory.add(user(text))
        except SaveFailed as error:
            emit(Notice(str(error), "error"))


def _changes_only_its_shell(line: str) -> bool:
    """Whether a line is one command that has no effect after the shell of the line has ended, such
    as `cd src`.
    """
    words = line.split()
    is_one_command = not any(mark in line for mark in ";&|\n`(<>")
    return bool(words) and is_one_command and words[0] in _BUILTINS_FOR_LATER_LINES
