"""Session: send a prompt, answer a question, steer, interrupt, close."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ouro.agent.project_instructions import ProjectInstructions
from ouro.display import Todo
from ouro.errors import UsageError
from ouro.events import Event, Permit, UserAnswer
from ouro.llm import Effort, ModelChoice, ModelSource, ModelSpec
from ouro.memory.long_term import SessionMemory
from ouro.memory.manager import MemoryManager
from ouro.memory.sessions.session_catalog import SessionCatalog
from ouro.messages import Image, Usage
from ouro.safety import Mode, Permissions
from ouro.session.agent_turn import AgentTurn
from ouro.session.attachments import Attachment
from ouro.session.background_work import BackgroundWork
from ouro.session.budget import Budget
from ouro.session.context_window import ContextWindow
from ouro.session.plan_approval import PlanApproval
from ouro.session.session_labels import SessionLabels
from ouro.session.turn_queue import Draft
from ouro.session.wake import Wake
from ouro.settings import SettingsSources
from ouro.utils.git import git_branch

if TYPE_CHECKING:
    from ouro.extensions import CommandRegistry, Hooks, OutputStyles, Skills, StatusScript
    from ouro.lsp import LanguageServers
    from ouro.mcp import McpServers
    from ouro.session.resume import Resumed
    from ouro.session.rewind import Rewind
    from ouro.session.scrollback import Scrollback


class SessionExtensions(msgspec.Struct, frozen=True, eq=False):
    """What users and projects set up for a session, for commands and front ends."""

    commands: CommandRegistry
    servers: McpServers
    language_servers: LanguageServers
    skills: Skills
    instructions: ProjectInstructions
    settings: SettingsSources
    styles: OutputStyles
    hooks: Hooks
    status_script: StatusScript | None = None
    """Writes the status line, if the user has set one."""


class StandingStatus(msgspec.Struct, frozen=True):
    """What continues when a turn ends."""

    jobs: int = 0
    goal: str = ""
    """How far it is: `goal 3/20 4/60 min`; empty without a goal."""
    loops: int = 0
    """Repeated messages."""


class Status(msgspec.Struct, frozen=True):
    """What a status line shows of a session."""

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
    standing: StandingStatus = StandingStatus()
    sandbox: str = ""
    """The tier that confines commands, `none`, or `off`; empty before the first command has tested
    it.
    """
    is_saved: bool = True
    """Whether it is on disk, and can be resumed."""
    spec: ModelSpec | None = None
    """The facts about the model; None if they are not known, so that no effort can be set."""

    @property
    def jobs(self) -> int:
        return self.standing.jobs

    @property
    def can_think(self) -> bool:
        """Whether the model is known to think, so that an effort can be set."""
        return self.spec is not None and self.spec.thinking


class Session(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One live session. It owns every task that is started for it."""

    memory: MemoryManager
    turn: AgentTurn
    background: BackgroundWork
    model_source: ModelSource
    permissions: Permissions
    extensions: SessionExtensions
    session_memory: SessionMemory
    """Long-term memory; exists also if memory is off."""
    session_catalog: SessionCatalog
    """The saved sessions, including this one."""
    rewind: Rewind
    window: ContextWindow
    budget: Budget
    resumed: Resumed | None
    """None for a new session."""

    @property
    def id(self) -> str:
        return self.memory.session_id

    @property
    def title(self) -> str:
        return self.memory.title

    @property
    def cwd(self) -> Path:
        return self.turn.environment.cwd

    @property
    def scrollback(self) -> Scrollback:
        from ouro.session.scrollback import Scrollback

        return Scrollback(self.memory, self.turn.commands.tools.title)

    @property
    def todos(self) -> tuple[Todo, ...]:
        return self.turn.plan.todos.items

    @property
    def running(self) -> bool:
        return self.turn.tasks.running

    @property
    def waiting(self) -> tuple[str, ...]:
        """The steering messages that were not delivered yet."""
        return self.turn.steering.texts

    def status(self) -> Status:
        """The present status. Reads the git branch from the disk."""
        models, memory = self.model_source, self.memory
        spec = models.main.spec
        standing = self.background.standing
        return Status(
            model=spec.name,
            effort=models.effort if spec.thinking else "off",
            mode=self.permissions.mode,
            branch=git_branch(self.cwd),
            context=memory.tokens,
            window=spec.window,
            usage=memory.usage,
            memories=self.session_memory.recalled_count,
            standing=StandingStatus(
                jobs=sum(
                    task.is_running and task.outlives_turn for task in self.background.list_work()
                ),
                goal=standing.goal.status,
                loops=len(standing.repeated.list()),
            ),
            sandbox=self.background.shell.confinement.known_tier,
            is_saved=self.session_catalog.store.is_on_disk,
            spec=spec,
        )

    def events(self) -> AsyncGenerator[Event, None]:
        """Yields background events (notices of the start, a title, a change of memory) until
        `close`. Only one caller may read them.
        """
        return self.turn.tasks.events()

    def send(self, text: str, images: Sequence[Image] = ()) -> AsyncGenerator[Event, None]:
        """Run a turn with a message; yields its events. TurnFinished comes last, exactly once.
        Raises UsageError if a turn runs.
        """
        self.wake.on_user_message()
        run = partial(self.turn.run, text, images)
        # Also without a goal, because the user may set one while the turn runs. `run_turn` checks
        # the goal that there is when the turn has ended; without one it only runs the turn.
        return self.turn.tasks.run(partial(self.background.standing.goal.run_turn, run))

    @property
    def labels(self) -> SessionLabels:
        return self.turn.titles.labels

    @property
    def plan(self) -> PlanApproval:
        return self.turn.plan

    @property
    def wake(self) -> Wake:
        return self.turn.wake

    def wake_up(self) -> AsyncGenerator[Event, None]:
        """Run a turn without a message of the user; yields its events. With an active goal the
        model continues to work for it; otherwise it reads what has happened in the background.
        """
        goal = self.background.standing.goal
        run = self.turn.run_woken
        if goal.is_active:
            run = partial(self.turn.run_without_message, goal.next_context())
        # Also without an active goal: see `send`.
        return self.turn.tasks.run(partial(goal.run_turn, run))

    def answer(self, question_id: str, answer: UserAnswer) -> None:
        """Answer an open question, also one about a permission; an answer to a closed one is
        ignored. The choice `edits` also changes the mode from `ask` to `edit`.
        """
        if isinstance(answer, Permit) and answer.choice == "edits":
            self._allow_edits()
        self.turn.tasks.answer(question_id, answer)

    def _allow_edits(self) -> None:
        """Change from the mode `ask` to `edit`; another mode stays."""
        if self.permissions.mode == "ask":
            self.set_mode("edit")

    def steer(self, text: str, images: Sequence[Image] = ()) -> None:
        """Send a message while a turn runs. It is delivered after the next tool call, as Prompted."""
        self.wake.on_user_message()
        self.turn.steering.add(text, images)

    def withdraw(self) -> Draft | None:
        """Remove the last steering message that was not delivered yet, and return it for editing;
        None if there is none.
        """
        steering = self.turn.steering
        if not steering.texts:
            return None
        prompt = steering.remove(-1)
        return Draft(prompt.text, prompt.images)

    def interrupt(self) -> bool:
        """End the turn and the user's own shell lines; return whether there were any."""
        return self.turn.tasks.interrupt()

    def set_mode(self, mode: Mode) -> None:
        """Change the permission mode; it is saved with the session."""
        self.permissions.mode = mode
        self.memory.set_mode(mode)

    async def set_model(self, name: str = "", effort: Effort | None = None) -> None:
        """Change the model, or how long it thinks, from the next request on. An empty name keeps
        the model, an effort of None the effort.

        Raises:
            NoModelError: the model is unknown or has no key; the present model stays in use.
            UsageError: the model in use does not think.
        """
        models = self.model_source
        spec = models.main.spec
        if not name and effort not in (None, "off") and not spec.thinking:
            raise UsageError(
                f"{spec.name} is not known to think: there is no effort to set.",
                "If it does, write `thinking: true` for it into models.yaml.",
            )
        models.change(name or spec.name, effort or models.effort)
        if not self.running and not self.background.subagents.has_running:
            await models.release()  # no request uses the replaced model; else the turn does this
        if name:  # an effort changes neither the tools of a request nor their size
            self.window.compactor.measure()
            self.memory.set_model(models.main.spec.name)

    async def models(self) -> tuple[ModelChoice, ...]:
        return await self.model_source.choices()

    def rename(self, title: str) -> None:
        self.memory.set_title(title)

    async def attachments_of(self, text: str) -> tuple[Attachment, ...]:
        """What a message would attach, and what would be refused, in the order of the message."""
        return await self.turn.attachments.preview(text)

    def find_files(self) -> Iterator[list[str]]:
        """Yields lists of names that `@` completes, as they are found: files and folders of the
        project, and last the resources of MCP servers (`server:uri`). Blocks.
        """
        # Imported late: only a front end that completes names needs them.
        from ouro.mcp import resource_names
        from ouro.utils.project_files import stream_completed_names

        yield from stream_completed_names(self.cwd)
        yield resource_names(self.extensions.servers)

    async def close(self, on_released: Callable[[], Awaitable[None]] | None = None) -> None:
        """End everything that runs, save, and release the session file. Then close the search index
        of memory. Raises SaveFailed if a message is lost.

        Args:
            on_released: called when all is saved and the session can be resumed, before the index is
                closed; no event is shown after it.
        """
        # First the turn, then what works outside of turns and may still run commands or ask models.
        await self.turn.tasks.close_turns()
        await asyncio.to_thread(self.background.standing.save)
        await self.turn.hooks.close()
        if self.extensions.status_script is not None:
            await self.extensions.status_script.close()
        await self.background.close()
        await self.extensions.servers.close()
        await self.extensions.language_servers.close()
        await self.session_memory.close()
        await self.turn.tasks.close()

        # Then what all of this has used; the transcript last, because the others record their cost.
        await asyncio.to_thread(self.background.shell.confinement.close)
        if self.turn.files is not None:
            await self.turn.files.close()
        await self.model_source.close()
        await self.memory.close()

        # The session can be resumed now. No new one needs to wait for the search index.
        if on_released is not None:
            await on_released()
        if self.session_memory.lookup is not None:
            await self.session_memory.lookup.close()
