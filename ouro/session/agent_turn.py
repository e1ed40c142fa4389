"""AgentTurn: one turn of the agent, of a message or of a custom command, and the work after it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from ouro.agent.environment import Environment
from ouro.agent.loop import LoopAgent, Prompt
from ouro.errors import OuroError, PromptRefused, StoppedByUser
from ouro.events import (
    Emit,
    Event,
    Notice,
    Outcome,
    Prompted,
    TodosChanged,
    ToolStarted,
    TurnFinished,
)
from ouro.memory.long_term import SessionMemory
from ouro.messages import Image
from ouro.session.attachments import Attached, Attachments, notices_about
from ouro.session.command_runner import CommandRunner
from ouro.session.file_undo import FileUndo
from ouro.session.plan_approval import PlanApproval
from ouro.session.session_hooks import SessionHooks
from ouro.session.session_tasks import SessionTasks, Steering
from ouro.session.titles import Titles
from ouro.session.wake import Wake

_OUTCOME_OF_ERROR: Mapping[type[OuroError], Outcome] = {
    PromptRefused: "refused",
    StoppedByUser: "interrupted",
}


class AgentTurn(msgspec.Struct, frozen=True, eq=False):
    """Runs the turns of a session, one after another."""

    agent: LoopAgent
    steering: Steering
    environment: Environment
    """The environment of the agent; its changes are sent to the model."""
    session_memory: SessionMemory
    """Adds to the message, and receives the events of the turn."""
    plan: PlanApproval
    tasks: SessionTasks
    files: FileUndo | None
    """Checkpoints of the files; None if they are off."""
    titles: Titles
    commands: CommandRunner
    attachments: Attachments
    hooks: SessionHooks
    wake: Wake

    async def run(self, text: str, images: Sequence[Image], emit: Emit) -> TurnFinished:
        """Run one turn: `text` is a message for the agent, or calls a custom command. Returns how
        the turn ended. An OuroError is not raised: it becomes the outcome and the detail of the
        result.
        """
        finished = await self._run_within_checkpoints(
            partial(self._run_message, text, images, emit)
        )
        self.titles.after_turn()
        return finished

    async def run_woken(self, emit: Emit) -> TurnFinished:
        """Run a turn about what has happened in the background, without a message of the user."""
        self.wake.count_turn()
        emit(Notice(f"{', '.join(self.wake.reasons())}. The agent continues."))
        return await self.run_without_message("", emit)

    async def run_without_message(self, text: str, emit: Emit) -> TurnFinished:
        """Run a turn that no message of the user begins, and return how it ended. The model gets
        `text` and what has happened in the background.
        """
        return await self._run_within_checkpoints(partial(self._run_context, text, emit))

    async def _run_within_checkpoints(
        self, work: Callable[[], Awaitable[TurnFinished]]
    ) -> TurnFinished:
        """Do the work of a turn, and return how it ended; an OuroError becomes an outcome. The
        checkpoints of files begin before it and end after it. Then replaced models are released.
        """
        if self.files is not None:
            self.files.begin_turn()
        try:
            finished = await work()
        except OuroError as error:
            finished = TurnFinished(_OUTCOME_OF_ERROR.get(type(error), "failed"), str(error))
        finally:
            if self.files is not None:
                self.files.end_turn()
        if not self.wake.has_running_subagents:  # they may use models that were replaced meanwhile
            await self.commands.models.release()
        return finished

    async def _run_message(self, text: str, images: Sequence[Image], emit: Emit) -> TurnFinished:
        """Run the agent with a message; if the text calls a custom command, with the command's model
        and permissions. The images that the text names are added.
        """
        if "@" in text:
            named_images, problems = await asyncio.to_thread(self.environment.read_images, text)
            images = (*images, *named_images)
            for problem in problems:
                emit(Notice(problem, "warning"))
        hook_text = await self.hooks.before_turn(text)
        command = await self.commands.read_prompt(text, emit)
        if command is None:
            return await self._run_agent(text, images, [hook_text], emit)
        with self.commands.in_force(command, emit):
            # The prompt is shown before the shell lines in it run. The agent emits the same event
            # again, which is then left out.
            emit(Prompted(text, tuple(images)))
            command_text = await self.commands.make_context(text, command, emit)
            return await self._run_agent(
                text, images, [command_text, hook_text], emit, is_command=True
            )

    async def _run_context(self, text: str, emit: Emit) -> TurnFinished:
        """Run the agent with `text` and what has happened in the background."""
        changes = await self.environment.changes()
        prompt = Prompt(text="", context=_join_texts(changes, *self.wake.take_news(), text))
        return await self._run_prompt(prompt, self._make_events(emit))

    async def _attach(self, text: str, *, is_command: bool) -> Attached:
        """Read what a message names with `@`. If the message calls a custom command, only resources
        of MCP servers are read: the prompt of the command inserts the files itself.
        """
        if is_command:
            return Attached(await self.attachments.read_resources(text))
        return await self.attachments.read(text)

    async def _run_agent(
        self,
        text: str,
        images: Sequence[Image],
        other_context: Sequence[str],
        emit: Emit,
        *,
        is_command: bool = False,
    ) -> TurnFinished:
        """Send the message, with what it names, what memory recalls and what has changed in the
        environment. Returns how the turn ended. The user is asked first about a very long message;
        raises PromptRefused if they do not want to send it.

        Args:
            other_context: texts that are sent with the message; those that are empty are left out.
            is_command: whether the message calls a custom command, and is thus shown already.
        """
        # Collect what is sent with the message.
        recalled = await self.session_memory.before_turn(text)
        attached = await self._attach(text, is_command=is_command)
        prompt = Prompt(text, tuple(images), _join_texts(recalled, *other_context, attached.text))

        # Collect the notices about it for the user.
        notices = notices_about(attached, self.environment.missing_files(text))
        if problem := self.environment.folder_problem():
            notices.append(Notice(problem, "warning"))

        events = self._make_events(emit, notices, is_prompt_shown=is_command)
        await self.agent.confirm_long_message(prompt, events.on_event)

        # What is sent only once is taken last: a message that is refused must not take it along.
        changes = await self.environment.changes()
        instructions = self.attachments.take_instructions(attached)
        of_hooks, news = self.hooks.take_unsent(), self.wake.take_news()
        context = _join_texts(changes, of_hooks, prompt.context, instructions, *news)
        return await self._run_prompt(replace(prompt, context=context), events)

    async def _run_prompt(self, prompt: Prompt, events: TurnEvents) -> TurnFinished:
        """Run the turn, and return how it ended. Hooks may let the agent continue. In plan mode the
        user is then asked about the plan, and the answer may be the next prompt. At the end memory
        learns that the turn is over, even if it failed.
        """

        async def run(prompt: Prompt) -> TurnFinished:
            """Run one prompt. `plan.run` calls this again with each answer about a plan."""
            return await self.agent.run_with_checks(
                prompt, events.on_event, self.hooks.find_reason_to_continue
            )

        try:
            finished = await self.plan.run(prompt, run, events.on_event)
            for notice in await self.session_memory.broken_rules():
                events.on_event(notice)
            return finished
        finally:
            self.session_memory.turn_ended()
            self.tasks.start("index", self.session_memory.update_index())

    def _make_events(
        self, emit: Emit, notices: Sequence[Notice] = (), *, is_prompt_shown: bool = False
    ) -> TurnEvents:
        return TurnEvents(
            emit,
            plan=self.plan,
            files=self.files,
            session_memory=self.session_memory,
            notices=notices,
            is_prompt_shown=is_prompt_shown,
        )


def _join_texts(*texts: str) -> str:
    """The texts with an empty line between them; empty ones are left out."""
    return "\n\n".join(filter(None, texts))


class TurnEvents:
    """Emits the events of one turn of the agent, and those that follow from them: changed todos,
    notices about the message, notices of memory. It also starts checkpoints.

    Args:
        notices: are emitted after the message.
        is_prompt_shown: whether the prompt was emitted before, so that it is not emitted again.
    """

    def __init__(
        self,
        emit: Emit,
        plan: PlanApproval,
        files: FileUndo | None,
        session_memory: SessionMemory,
        notices: Sequence[Notice],
        *,
        is_prompt_shown: bool,
    ) -> None:
        self._emit = emit
        self._plan = plan
        self._files = files
        self._memory = session_memory
        self._notices = notices
        self._is_prompt_shown = is_prompt_shown
        self._todos = plan.todos.items

    def on_event(self, event: Event) -> None:
        """Emit an event of the agent, and what follows from it."""
        # First, because the call that changed the todos had ended before this event.
        self._show_changed_todos()
        if isinstance(event, Prompted):
            self._show_prompt(event)
        else:
            self._emit(event)
        if isinstance(event, ToolStarted) and self._files is not None:
            self._files.begin_checkpoint()
        for memory_event in self._memory.on_event(event):
            self._emit(memory_event)

    def _show_changed_todos(self) -> None:
        if self._plan.todos.items == self._todos:
            return
        self._todos = self._plan.todos.items
        self._emit(TodosChanged(self._todos))
        self._plan.tick_todos(self._emit)

    def _show_prompt(self, event: Prompted) -> None:
        """Emit the prompt, and after it the notices about the message."""
        if not self._is_prompt_shown:
            self._emit(event)
        self._is_prompt_shown = False  # further prompts are messages that steer the turn
        if self._files is not None:
            self._files.on_message_added()
        notices, self._notices = self._notices, ()
        for notice in notices:
            self._emit(notice)
