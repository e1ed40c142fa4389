"""AgentTurn: one turn of the agent: the context sent with the user's message, the loop, and the work after it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from ouro.agent.instructions import Environment
from ouro.agent.loop import LoopAgent, Prompt
from ouro.events import Emit, Event, TodosChanged, TurnFinished
from ouro.memory.long_term import SessionMemory
from ouro.messages import Image
from ouro.session.background import Background
from ouro.tools.todo import Plan


class Steering(msgspec.Struct):
    """What the user has sent since the turn began."""

    messages: list[Prompt] = msgspec.field(default_factory=list)
    outputs: list[Prompt] = msgspec.field(default_factory=list)
    """Of shell lines that the user ran: these are never moved back to the input."""

    def take(self) -> list[Prompt]:
        """The next of them, outputs first; empty if there is none."""
        waiting = self.outputs or self.messages
        return [waiting.pop(0)] if waiting else []


class AgentTurn:
    """Runs turns of the agent.

    Args:
        agent: the loop.
        steering: what the agent is sent during the turn.
        environment: what the model is sent about where it works.
        memory: adds to the message, and receives the events of the turn.
        plan: the agent's todos.
        background: runs the update of the index.
        after_turn: is awaited when a turn was not interrupted.
    """

    def __init__(
        self,
        agent: LoopAgent,
        steering: Steering,
        environment: Environment,
        memory: SessionMemory,
        plan: Plan,
        background: Background,
        after_turn: Callable[[], Awaitable[None]],
    ) -> None:
        self.steering = steering
        self._agent = agent
        self._environment = environment
        self._memory = memory
        self._plan = plan
        self._background = background
        self._after_turn = after_turn

    async def run(self, text: str, images: Sequence[Image], emit: Emit) -> TurnFinished:
        """Run one turn; emit what happens, return how it ended."""
        context = [await self._environment.changes(), await self._memory.before_turn(text)]
        prompt = Prompt(text, tuple(images), "\n\n".join(filter(None, context)))
        todos = self._plan.items

        def on_event(event: Event) -> None:
            nonlocal todos
            if self._plan.items != todos:
                todos = self._plan.items
                emit(TodosChanged(todos))
            emit(event)
            for recalled in self._memory.on_event(event):
                emit(recalled)

        try:
            finished = await self._agent.run(prompt, on_event)
        finally:
            self._memory.turn_ended()
            self._background.start("index", self._memory.update_index())
        await self._after_turn()
        return finished
