"""A LoopAgent as `assemble` makes it, with the parameters that tests set, and turns of a session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from ouro.agent.compactor import Compactor
from ouro.agent.loop import LoopAgent, Prompt
from ouro.agent.tool_runner import ToolRunner, without_checkpoint
from ouro.events import Event, Notice
from ouro.llm import Model
from ouro.memory.manager import MemoryManager
from ouro.messages import system
from ouro.safety import Permissions
from ouro.session import Session
from ouro.session.budget import check_calls
from ouro.session.session_tasks import SessionTasks
from ouro.settings import CompactionSettings, LimitSettings
from ouro.tools.tool import AnyTool


def make_runner(
    tools: Mapping[str, AnyTool], permissions: Permissions, tasks: SessionTasks | None = None
) -> ToolRunner:
    """A ToolRunner with nothing to do after a tool."""
    return ToolRunner(
        tools, permissions, (tasks or SessionTasks()).ask_user, without_checkpoint, _nothing
    )


def make_compactor(
    memory: MemoryManager,
    runner: ToolRunner,
    models: Sequence[Model],
    *,
    summarisers: Sequence[Model] = (),
    settings: CompactionSettings | None = None,
    carried: str = "",
    on_compacted=lambda: None,
) -> Compactor:
    """A Compactor; without `summarisers` the models write summaries themselves."""

    async def environment() -> str:
        return carried

    return Compactor(
        memory,
        lambda: models,
        lambda: summarisers or models,
        system("Be good."),
        runner,
        settings or CompactionSettings(),
        environment,
        on_compacted,
    )


def make_agent(
    memory: MemoryManager,
    runner: ToolRunner,
    models: Sequence[Model],
    *,
    compactor: Compactor | None = None,
    steering=lambda: (),
    instructions_for=lambda _: "",
    limits: LimitSettings | None = None,
    **options: Any,
) -> LoopAgent:
    """A LoopAgent whose system prompt is "Be good."."""

    async def after_tools(paths: Sequence[str]) -> Sequence[str]:
        return (instructions_for(paths),)

    async def before_call(calls_made: int) -> str:
        check_calls(limits or LimitSettings(), calls_made)
        return ""

    return LoopAgent(
        memory,
        lambda: models,
        system("Be good."),
        runner,
        compactor or make_compactor(memory, runner, models),
        steering,
        after_tools,
        before_call,
        **options,
    )


def turn_of(agent: LoopAgent, text: str = "hi") -> AsyncGenerator[Event, None]:
    """The events of one turn."""
    return SessionTasks().run(lambda emit: agent.run(Prompt(text), emit))


async def stream_events(work) -> list[Event]:
    """The events that `work` emits, run in this task."""
    events: list[Event] = []
    await work(events.append)
    return events


async def _nothing(_tool: str) -> None:
    await asyncio.sleep(0)


async def say(session: Session, text: str) -> list[Event]:
    """Send a message, and return all events of its turn."""
    return [event async for event in session.send(text)]


def notices_of(session: Session) -> list[str]:
    """The notices that nothing has read yet, such as those of the start; takes all background
    events.
    """
    queue = session.turn.tasks._events
    unread = [queue.get_nowait() for _ in range(queue.qsize())]
    return [event.text for event in unread if isinstance(event, Notice)]
