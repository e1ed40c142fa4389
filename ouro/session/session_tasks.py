"""The work of a session: turns and questions (SessionTasks); shell lines, jobs, subagents, goal and
repeated messages (BackgroundWork).
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from ouro.agent.environment import Environment
from ouro.agent.loop import Prompt
from ouro.agent.subagents import Subagents
from ouro.display import CommandOutput, Display, Question
from ouro.errors import SaveFailed, ToolError, UsageError
from ouro.events import (
    Emit,
    Event,
    Notice,
    PermissionAsked,
    QuestionAsked,
    QuestionClosed,
    Reply,
    ToolFinished,
    ToolProgress,
    ToolRunning,
    ToolStarted,
    TurnFinished,
    UserAnswer,
)
from ouro.memory.manager import MemoryManager
from ouro.messages import SHELL_NOTE, ToolCall, user
from ouro.safety import Permissions
from ouro.session.standing_work import StandingWork
from ouro.tools.shell import Shell
from ouro.tools.shell_jobs import Job, ShellJobs, exit_status
from ouro.tools.tool import ToolResult
from ouro.utils.log import log

_MAX_INTERRUPTED = 20_000
"""Characters at the end of the output of an interrupted line that stay shown."""

Work = Callable[[Emit], Awaitable[TurnFinished | None]]
"""Emits what happens; returns how it ended, None: as it should."""


class TurnWatcher(Protocol):
    """Sees the events of turns when they happen. Neither method may wait."""

    def add(self, event: Event) -> None: ...

    def close(self) -> None: ...


class SessionTasks:
    """Runs one turn at a time, and other work at the same time. Owned by one Session, which closes
    it.
    """

    def __init__(self, watcher: TurnWatcher | None = None) -> None:
        self._watcher = watcher
        self.running = False
        self._turns: set[asyncio.Task[TurnFinished]] = set()
        self._background: set[asyncio.Task[None]] = set()
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._questions: dict[str, asyncio.Future[UserAnswer]] = {}

    async def run(self, work: Work) -> AsyncGenerator[Event, None]:
        """The events of a turn; TurnFinished comes last, exactly once. Closing the stream
        interrupts the turn.

        Raises UsageError if a turn runs already.
        """
        if self.running:
            raise UsageError("The agent is still at work.", "Steer it, or interrupt it first.")
        self.running = True
        try:
            async with aclosing(self._stream_events(work, self._watcher)) as events:
                async for event in events:
                    yield event
        finally:
            self.running = False

    async def run_alongside(self, work: Work) -> AsyncGenerator[Event, None]:
        """The events of other work that may run during a turn."""
        async with aclosing(self._stream_events(work)) as events:
            async for event in events:
                if not isinstance(event, TurnFinished):
                    yield event

    async def _stream_events(
        self, work: Work, watcher: TurnWatcher | None = None
    ) -> AsyncGenerator[Event, None]:
        """Run work in a task, and yield its events, TurnFinished last. The task is cancelled if the
        reader stops.
        """
        events: asyncio.Queue[Event] = asyncio.Queue()

        def emit(event: Event) -> None:
            if watcher is not None:
                watcher.add(event)
            events.put_nowait(event)

        async def finish() -> TurnFinished:
            try:
                return await work(emit) or TurnFinished("answered")
            except Exception as error:  # noqa: BLE001  # a defect ends the turn, not the program
                log.exception("the turn failed")
                return TurnFinished(
                    "failed", f"ouro failed: {type(error).__name__}: {error}. See `ouro.log`."
                )

        def on_end(task: asyncio.Task[TurnFinished]) -> None:
            emit(TurnFinished("interrupted") if task.cancelled() else task.result())

        task = asyncio.create_task(finish())
        # Not in `finish`, which a task that is cancelled early never reaches.
        task.add_done_callback(on_end)
        self._turns.add(task)
        try:
            while True:
                event = await events.get()
                yield event
                if isinstance(event, TurnFinished):
                    return
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._turns.discard(task)

    def interrupt(self) -> bool:
        """Cancel the turn and the shell lines; returns whether there were any."""
        for task in self._turns:
            task.cancel()
        return bool(self._turns)

    async def ask_user(self, question: PermissionAsked | QuestionAsked, emit: Emit) -> UserAnswer:
        """Emit a question, wait for its answer, emit that it is closed."""
        waiting = self._questions[question.question_id] = asyncio.get_running_loop().create_future()
        emit(question)
        try:
            answer: UserAnswer = await waiting
            return answer
        finally:
            self._questions.pop(question.question_id, None)
            emit(QuestionClosed(question.question_id))

    def answer(self, question_id: str, answer: UserAnswer) -> None:
        """Answer an open question; an answer to a closed one is ignored."""
        waiting = self._questions.get(question_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run a background task; a failure is logged under `name`."""
        task = asyncio.create_task(work, name=name)
        self._background.add(task)
        task.add_done_callback(self._on_background_end)

    def _on_background_end(self, task: asyncio.Task[None]) -> None:
        """Forget a task that has ended, and log its failure."""
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("%s: %s", task.get_name(), error, exc_info=error)

    def emit(self, event: Event) -> None:
        """Show an event outside of turns."""
        self._events.put_nowait(event)

    def warn(self, text: str) -> None:
        self.emit(Notice(text, "warning"))

    async def ask(self, question_id: str, question: Question) -> UserAnswer:
        """Ask the user outside of a turn, and wait for the answer."""
        return await self.ask_user(QuestionAsked(question_id, question, of_turn=False), self.emit)

    async def events(self) -> AsyncGenerator[Event, None]:
        while (event := await self._events.get()) is not None:
            yield event

    async def close_turns(self) -> None:
        """End the turn and the shell lines, and wait until they have cleaned up: a turn saves what
        was streamed.
        """
        if self.interrupt():
            await asyncio.wait(self._turns)

    async def close(self) -> None:
        """End the background work and the stream of events."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._watcher is not None:
            self._watcher.close()
        self._events.put_nowait(None)


class Steering(msgspec.Struct, eq=False):
    environment: Environment
    warn: Callable[[str], None]
    """Shows the user why an image that a message names cannot be sent."""
    messages: list[Prompt] = msgspec.field(default_factory=list)
    outputs: list[Prompt] = msgspec.field(default_factory=list)
    """The outputs of the user's shell lines: these are never moved back to the input."""

    def take(self) -> list[Prompt]:
        """Take the next one, outputs first; a message comes with the images that it names. Empty if
        there is none.
        """
        if self.outputs:
            return [self.outputs.pop(0)]
        if not self.messages:
            return []
        prompt = self.messages.pop(0)
        images, problems = self.environment.images(prompt.text)
        for problem in problems:
            self.warn(problem)
        return [replace(prompt, images=(*prompt.images, *images))]


class BackgroundTask(msgspec.Struct, frozen=True):
    """A background job, a subagent (it may have ended), the goal, or a repeated message."""

    id: str
    title: str
    """The command, or the task in a few words."""
    state: str
    is_running: bool
    outlives_turn: bool
    output: str
    """The end of its output, or what the subagent does now."""


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
    transcript: MemoryManager
    standing: StandingWork

    def list(self) -> tuple[BackgroundTask, ...]:
        """The goal, the repeated messages, and the other work in the background."""
        return (*self._list_standing(), *self.work())

    def work(self) -> tuple[BackgroundTask, ...]:
        """The subagents since the session was opened, then the background jobs."""
        tasks = []
        for agent in self.subagents.list_progress():
            state = f"{agent.state}{agent.activity and f': {agent.activity}'} ({agent.figures})"
            tasks.append(
                BackgroundTask(
                    agent.id, agent.task, state, not agent.is_over, agent.background, agent.activity
                )
            )
        for job in self.jobs.list():
            state = f"{exit_status(job.process.exit_code)}, {job.process.seconds:.0f} s"
            tasks.append(BackgroundTask(job.id, job.command, state, job.running, True, job.tail))
        return tuple(tasks)

    def _list_standing(self) -> Iterator[BackgroundTask]:
        """The goal and the repeated messages as background tasks."""
        pursuit = self.standing.goal
        if goal := pursuit.goal:
            is_active = pursuit.is_active
            yield BackgroundTask("goal", goal.title, pursuit.state, is_active, True, goal.found)
        for message in self.standing.repeated.list():
            yield BackgroundTask(message.id, message.text, message.state, True, True, message.text)

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
        await (self.jobs.find(task_id).end() if is_job else self.subagents.kill(task_id))

    def move_running(self) -> int:
        """Move the running commands to the background; returns how many."""
        return self.shell.move_to_background()

    def kill_lines(self) -> None:
        """Kill every running shell line at once, except background jobs."""
        self.shell.kill_all()

    def run_line(
        self, line: str, share: bool, *, in_terminal: bool = False
    ) -> AsyncGenerator[Event, None]:
        """The events of the user's own shell line.

        Args:
            share: its output is sent to the model.
            in_terminal: it gets a terminal, into which the user can type.
        """
        in_pty = partial(self.shell.run_line_in_terminal, is_shared=share)
        run = in_pty if in_terminal else self.shell.run_line
        return self.tasks.run_alongside(lambda emit: self._run_users_line(line, share, run, emit))

    async def close(self) -> None:
        """End the subagents and the background jobs."""
        await self.subagents.close()
        await self.jobs.close()

    async def _run_users_line(self, line: str, share: bool, run: RunLine, emit: Emit) -> None:
        """Run a shell line of the user; a dangerous one only after a question. If `share`, its
        output is sent to the model.
        """
        call = ToolCall(f"own_{uuid.uuid4().hex[:12]}", "shell", {"command": line})
        began = time.monotonic()
        if not await self._is_confirmed(line, call.id, emit):
            emit(Notice("The line was not run."))
            return
        emit(ToolStarted(call, line))
        emit(ToolRunning(call.id))

        printed = ""

        def report(text: str) -> None:
            nonlocal printed
            printed = (printed + text)[-_MAX_INTERRUPTED:]
            emit(ToolProgress(call.id, text))

        def finish(display: Display, failed: bool) -> None:
            emit(ToolFinished(call.id, call.name, display, failed, time.monotonic() - began))

        try:
            result = await run(line, report)
        except ToolError as error:
            result = ToolResult(str(error), Display(str(error)), failed=True)
        except asyncio.CancelledError:
            finish(Display("interrupted", CommandOutput(line, printed)), True)
            raise
        finish(result.display, result.failed)
        if share:
            await self._share_output(f"{SHELL_NOTE}{line}\n{result.text}", emit)

    async def _is_confirmed(self, line: str, question_id: str, emit: Emit) -> bool:
        """Whether a line may run: the user is asked about one that may not be undone."""
        reason = await asyncio.to_thread(self.permissions.find_danger, line)
        if not reason:
            return True
        question = Question(
            f"This line may not be undone: {reason}. Run it?", ("run", "do not run")
        )
        asked = QuestionAsked(question_id, question, of_turn=False)
        answer = await self.tasks.ask_user(asked, emit)
        return isinstance(answer, Reply) and answer.answers[:1] == ("run",)

    async def _share_output(self, text: str, emit: Emit) -> None:
        """Send the output of a line to the model: with the running turn at its next tool call, else
        with the next message.
        """
        if self.tasks.running:
            self.steering.outputs.append(Prompt(text))
            return
        try:
            await self.transcript.add(user(text))
        except SaveFailed as error:
            emit(Notice(str(error), "error"))
