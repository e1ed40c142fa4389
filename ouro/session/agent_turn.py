"""AgentTurn: one turn of the agent: the context sent with the user's message, the loop, and the work after it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext

import msgspec
from msgspec.structs import replace

from ouro.agent.environment import Environment
from ouro.agent.loop import LoopAgent, Prompt
from ouro.errors import OuroError, PromptRefused
from ouro.events import Emit, Event, Notice, Prompted, TodosChanged, TurnFinished
from ouro.memory.long_term import SessionMemory
from ouro.messages import Image
from ouro.session.custom_commands import CommandRunner
from ouro.session.file_undo import FileUndo
from ouro.session.session_hooks import SessionHooks
from ouro.session.session_tasks import SessionTasks
from ouro.tools.todo import Plan


class Steering(msgspec.Struct, eq=False):
    """What the user has sent since the turn began."""

    environment: Environment
    warn: Callable[[str], None]
    """Tells the user why an image that a message names cannot be sent."""
    messages: list[Prompt] = msgspec.field(default_factory=list)
    outputs: list[Prompt] = msgspec.field(default_factory=list)
    """Of shell lines that the user ran: these are never moved back to the input."""

    def take(self) -> list[Prompt]:
        """The next of them, outputs first, a message with the images that it names; empty if there is none."""
        if self.outputs:
            return [self.outputs.pop(0)]
        if not self.messages:
            return []
        prompt = self.messages.pop(0)
        images, problems = self.environment.images(prompt.text)
        for problem in problems:
            self.warn(problem)
        return [replace(prompt, images=(*prompt.images, *images))]


class AgentTurn(msgspec.Struct, frozen=True, eq=False):
    agent: LoopAgent
    steering: Steering
    environment: Environment
    """Where the agent works: the model is sent what has changed."""
    memory: SessionMemory
    """Adds to the message, and receives the events of the turn."""
    plan: Plan
    tasks: SessionTasks
    files: FileUndo | None
    """Checkpoints of the files; None where they are off."""
    reports: Callable[[], Sequence[Prompt]]
    """Returns the reports of subagents that ended since the last turn."""
    after_turn: Callable[[], Awaitable[None]]
    """Is awaited when a turn was not interrupted."""
    commands: CommandRunner
    attached: Callable[[str], Awaitable[str]]
    """Returns the content of resources of MCP servers that a message names."""
    hooks: SessionHooks

    async def run(self, text: str, images: Sequence[Image], emit: Emit) -> TurnFinished:
        """Run one turn, of a message or of a custom command; emit what happens, return how it ended."""
        if self.files is not None:
            self.files.turn_began()
        try:
            if "@" in text:
                named, problems = await asyncio.to_thread(self.environment.images, text)
                images = (*images, *named)
                for problem in problems:
                    emit(Notice(problem, "warning"))
            hooked = await self.hooks.before_turn(text)
            command = await self.commands.prompt(text, emit)
            with self.commands.in_force(command, emit) if command else nullcontext():
                if command:
                    emit(Prompted(text, tuple(images)))  # before its inserts run; not a second time by the agent
                added = [await self.commands.context(text, command, emit)] if command else []
                finished = await self._run_agent(text, images, added, hooked, emit)
        except PromptRefused as refusal:
            finished = TurnFinished("refused", str(refusal))
        except OuroError as error:
            finished = TurnFinished("failed", str(error))
        finally:
            if self.files is not None:
                await self.files.turn_ended()
        await self.after_turn()
        return finished

    async def _run_agent(
        self, text: str, images: Sequence[Image], added: Sequence[str], hooked: str, emit: Emit
    ) -> TurnFinished:
        context = [await self.environment.changes(), await self.memory.before_turn(text), *added, hooked]
        context.append(await self.attached(text))
        context += [report.context for report in self.reports()]
        prompt = Prompt(text, tuple(images), "\n\n".join(filter(None, context)))
        todos, is_shown = self.plan.items, bool(added)
        missing = self.environment.missing_files(text)

        def on_event(event: Event) -> None:
            nonlocal todos, is_shown
            if self.plan.items != todos:
                todos = self.plan.items
                emit(TodosChanged(todos))
            if isinstance(event, Prompted) and is_shown:
                is_shown = False
            else:
                emit(event)
            if self.files is not None and isinstance(event, Prompted):
                self.files.message_added()
            if missing and isinstance(event, Prompted):
                emit(Notice(f"There is no file {', '.join(missing)}. The message was sent as it is.", "warning"))
                missing.clear()
            for recalled in self.memory.on_event(event):
                emit(recalled)

        await self.agent.admit(prompt, on_event)
        try:
            return await self.agent.run_checked(prompt, on_event, self.hooks.turn_ended)
        finally:
            self.memory.turn_ended()
            self.tasks.start("index", self.memory.update_index())
