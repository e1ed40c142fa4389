"""What background work of a session uses: a channel to the user, and model calls whose cost is
recorded in the session.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Protocol

from ouro.display import Question
from ouro.events import Emit, Event, UserAnswer
from ouro.llm import Model, ModelCall, ModelSource, Role, constrain
from ouro.memory.manager import MemoryManager
from ouro.messages import Message


class SessionChannel(Protocol):
    """How work in the background reaches the user of a live session."""

    def emit(self, event: Event) -> None: ...

    async def ask(self, question_id: str, question: Question) -> UserAnswer: ...

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run a task in the background; a failure is logged under `name`."""
        ...

    def run(self, work: Callable[[Emit], Awaitable[None]]) -> AsyncGenerator[Event, None]:
        """Run work as a turn, for the user to see and to interrupt."""
        ...


class AskModel(Protocol):
    """Asks a model; returns the text of its answer. Raises ModelError."""

    async def __call__(
        self, messages: list[Message], schema: Mapping[str, Any] | None = None
    ) -> str: ...


def ask_in_background(
    models: ModelSource,
    memory: MemoryManager,
    role: Role,
    purpose: str,
    busy: asyncio.Lock | None = None,
) -> AskModel:
    """Returns a function that asks the models of a role, and records the cost in the session under
    `purpose`. While it asks it holds the lock `busy`, if there is one.
    """

    async def ask(messages: list[Message], schema: Mapping[str, Any] | None = None) -> str:
        async with busy or nullcontext():
            return await ask_and_record(
                models.models_for(role), memory, purpose, messages, schema=schema
            )

    return ask


async def ask_and_record(
    models: Sequence[Model],
    memory: MemoryManager,
    purpose: str,
    messages: Sequence[Message],
    schema: Mapping[str, Any] | None = None,
    **options: Any,
) -> str:
    """Ask the first of the models that answers; returns the text of the answer. Its cost is
    recorded in the session.

    Args:
        purpose: what the call is for, as in `CostRecord`.
        schema: the JSON schema of the answer, where the server can do that; None: any text.
        options: those of `ModelCall`.

    Raises:
        ModelError: no model answered.
    """
    if schema is not None:
        models = [constrain(model, schema) for model in models]
    answer = await ModelCall(models, messages, **options).run()
    memory.note_cost(purpose, answer.model, answer.usage)
    return answer.text
