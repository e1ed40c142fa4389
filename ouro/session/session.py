"""Session: send a prompt, answer a question, steer, interrupt, close."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ouro.agent.loop import Prompt
from ouro.agent.project_instructions import ProjectInstructions
from ouro.agent.subagents import Subagents
from ouro.display import CommandOutput, Display, Question, Todo
from ouro.errors import SaveFailed, ToolError, UsageError
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
    UserAnswer,
)
from ouro.extensions import CommandRegistry, Skills
from ouro.llm import Effort, ModelChoice, ModelSource
from ouro.mcp import McpServers, resource_names
from ouro.memory.long_term import SessionMemory
from ouro.memory.manager import MemoryManager
from ouro.memory.sessions.session_catalog import SessionCatalog
from ouro.messages import SHELL_NOTE, Image, ToolCall, Usage, user
from ouro.safety import Mode, Permissions
from ouro.session.agent_turn import AgentTurn
from ouro.session.budget import Budget
from ouro.session.context_window import ContextWindow
from ouro.session.resume import Resumed
from ouro.session.rewind import Rewind
from ouro.session.scrollback import Scrollback
from ouro.session.titles import Titles
from ouro.session.turn_queue import Draft
from ouro.tools.shell import Shell, ShellJobs, exit_status
from ouro.tools.tool import ToolResult
from ouro.utils.git import git_branch
from ouro.utils.project_files import list_project_files

_MAX_INTERRUPTED = 20_000
"""Characters at the end of the output of an interrupted line that stay shown."""


class SessionExtensions(msgspec.Struct, frozen=True, eq=False):
    """What users and projects added to a session, for commands and front ends."""

    commands: CommandRegistry
    servers: McpServers
    skills: Skills
    instructions: ProjectInstructions


class Status(msgspec.Struct, frozen=True):
    model: str
    effort: Effort
    mode: Mode
    branch: str
    context: int
    """Tokens of the next request."""
    window: int
    usage: Usage
    memories: int = 0
    """Notes that were sent with the last message."""
    jobs: int = 0
    sandbox: str = ""
    """The tier that confines commands, `none`, or `off`; empty before the first command has tested it."""
    is_saved: bool = True
    can_think: bool = False
    """Whether the model is known to think, so that an effort can be set."""


class BackgroundTask(msgspec.Struct, frozen=True):
    """A background job, or a subagent; it may have ended."""

    id: str
    title: str
    """The command, or the task in a few words."""
    state: str
    is_running: bool
    outlives_turn: bool
    output: str
    """The end of its output, or what the subagent does now."""


class Session(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One live session. It owns every task that is started for it."""

    cwd: Path
    transcript: MemoryManager
    turn: AgentTurn
    model_source: ModelSource
    permissions: Permissions
    shell: Shell
    jobs: ShellJobs
    subagents: Subagents
    extensions: SessionExtensions
    memory: SessionMemory
    """Long-term memory; exists also if memory is off."""
    session_catalog: SessionCatalog
    """The saved sessions, including this one."""
    scrollback: Scrollback
    rewind: Rewind
    window: ContextWindow
    budget: Budget
    titles: Titles
    resumed: Resumed | None
    """None for a new session."""
    notices: tuple[str, ...]
    """Notices for the user at the start; later ones come as events."""
    is_saved: bool
    """Whether it is on disk, and can be resumed."""
    project: Path | None
    """The root of the repository if its settings are in use, because it is trusted."""
    flags: Mapping[str, Any]
    """Settings from the command line or the program, by dotted name."""

    @property
    def id(self) -> str:
        return self.transcript.session_id

    @property
    def title(self) -> str:
        return self.transcript.title

    @property
    def todos(self) -> tuple[Todo, ...]:
        return self.turn.plan.items

    @property
    def running(self) -> bool:
        return self.turn.tasks.running

    @property
    def waiting(self) -> tuple[str, ...]:
        """The steering messages that were not delivered yet."""
        return tuple(prompt.text for prompt in self.turn.steering.messages)

    def status(self) -> Status:
        models, transcript = self.model_source, self.transcript
        spec = models.current()[0].spec
        return Status(
            spec.name,
            models.effort if spec.thinking else "off",
            self.permissions.mode,
            git_branch(self.cwd),
            transcript.tokens,
            spec.window,
            transcript.usage,
            self.memory.recalled_count,
            sum(task.is_running and task.outlives_turn for task in self.tasks()),
            self.shell.confinement.known_tier,
            self.is_saved,
            spec.thinking,
        )

    def events(self) -> AsyncGenerator[Event, None]:
        """Background events (a title, a note, a change of memory), until `close`; for one reader."""
        return self.turn.tasks.events()

    def send(self, text: str, images: Sequence[Image] = ()) -> AsyncGenerator[Event, None]:
        """The events of one turn; TurnFinished comes last, exactly once. Raises UsageError if a turn runs."""
        return self.turn.tasks.run(lambda emit: self.turn.run(text, images, emit))

    def answer(self, question_id: str, answer: UserAnswer) -> None:
        """Answer a permission or question; an answer to a closed one is ignored."""
        self.turn.tasks.answer(question_id, answer)

    def steer(self, text: str, images: Sequence[Image] = ()) -> None:
        """Send a message while a turn runs: delivered at the next tool boundary, as Prompted."""
        self.turn.steering.messages.append(Prompt(text, tuple(images)))

    def withdraw(self) -> Draft | None:
        """Remove the last steering message that was not delivered yet, and return it."""
        messages = self.turn.steering.messages
        if not messages:
            return None
        prompt = messages.pop()
        return Draft(prompt.text, prompt.images)

    def interrupt(self) -> bool:
        """End the turn and the user's own shell lines; return whether there were any."""
        return self.turn.tasks.interrupt()

    def kill_children(self) -> None:
        """Kill every running shell line at once, except background jobs."""
        self.shell.kill_all()

    def run_shell(self, line: str, share: bool) -> AsyncGenerator[Event, None]:
        """The events of the user's own shell line; with `share` its output is sent to the model."""
        return self.turn.tasks.run_alongside(lambda emit: self._run_line(line, share, emit))

    def tasks(self) -> tuple[BackgroundTask, ...]:
        """The subagents since the session was opened, then the background jobs."""
        tasks = []
        for agent in self.subagents.started():
            state = f"{agent.state}{agent.activity and f': {agent.activity}'} ({agent.figures})"
            tasks.append(
                BackgroundTask(agent.id, agent.task, state, not agent.is_over, agent.background, agent.activity)
            )
        for job in self.jobs.list():
            state = f"{exit_status(job.process.exit_code)}, {job.process.seconds:.0f} s"
            tasks.append(BackgroundTask(job.id, job.command, state, job.running, True, job.tail))
        return tuple(tasks)

    async def kill_task(self, task_id: str) -> None:
        """End a background job or a subagent. Raises ToolError if it is not running."""
        jobs = self.jobs
        is_job = any(job.id == task_id for job in jobs.list())
        await (jobs.find(task_id).process.end() if is_job else self.subagents.kill(task_id))

    def set_mode(self, mode: Mode) -> None:
        """Change the permission mode; it is saved with the session."""
        self.permissions.mode = mode
        self.transcript.set_mode(mode)

    async def set_model(self, name: str = "", effort: Effort | None = None) -> None:
        """Change the model, or how long it thinks, from the next request on.

        Raises:
            NoModelError: the model is unknown or has no key; the present model stays in use.
            UsageError: the model in use does not think.
        """
        models = self.model_source
        spec = models.current()[0].spec
        if not name and effort not in (None, "off") and not spec.thinking:
            raise UsageError(
                f"{spec.name} is not known to think: there is no effort to set.",
                "If it does, write `thinking: true` for it into models.yaml.",
            )
        models.change(name or spec.name, effort or models.effort)
        if not self.running and not self.subagents.has_running:
            await models.release()
        if name:
            self.window.compactor.measure()
            self.transcript.set_model(self.status().model)

    async def models(self) -> tuple[ModelChoice, ...]:
        return await self.model_source.choices()

    def rename(self, title: str) -> None:
        self.transcript.set_title(title)

    def project_files(self) -> list[str]:
        """What `@` completes: folders and files, outer ones first, and resources of MCP servers (`server:uri`)."""
        names = set(list_project_files(self.cwd))
        for folder in [name.rpartition("/")[0] for name in names]:
            while folder and f"{folder}/" not in names:
                names.add(f"{folder}/")
                folder = folder.rpartition("/")[0]  # noqa: PLW2901
        outer_first = sorted(names, key=lambda name: (name.rstrip("/").count("/"), name))
        return [*outer_first, *resource_names(self.extensions.servers)]

    async def close(self) -> None:
        """End everything that runs, and release the session file; raises SaveFailed if a message is lost."""
        await self.turn.tasks.close_turns()
        await self.turn.hooks.close()
        await self.subagents.close()
        await self.extensions.servers.close()
        await self.memory.close()
        await self.turn.tasks.close()
        if self.memory.lookup is not None:
            await self.memory.lookup.close()
        await self.jobs.close()
        await asyncio.to_thread(self.shell.confinement.close)
        await self.model_source.close()
        await self.transcript.close()

    async def _run_line(self, line: str, share: bool, emit: Emit) -> None:
        call = ToolCall(f"own_{uuid.uuid4().hex[:12]}", "shell", {"command": line})
        began = time.monotonic()
        if reason := await asyncio.to_thread(self.permissions.find_danger, line):
            question = Question(f"This line may not be undone: {reason}. Run it?", ("run", "do not run"))
            answer = await self.turn.tasks.ask_user(QuestionAsked(call.id, question, of_turn=False), emit)
            if not (isinstance(answer, Reply) and answer.answers[:1] == ("run",)):
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
            result = await self.shell.run_line(line, report)
        except ToolError as error:
            result = ToolResult(str(error), Display(str(error)), failed=True)
        except asyncio.CancelledError:
            finish(Display("interrupted", CommandOutput(line, printed)), True)
            raise
        finish(result.display, result.failed)
        text = f"{SHELL_NOTE}{line}\n{result.text}"
        if share and self.running:  # the model reads it at the next tool boundary
            self.turn.steering.outputs.append(Prompt(text))
        elif share:
            try:
                await self.transcript.add(user(text))
            except SaveFailed as error:
                emit(Notice(str(error), "error"))
