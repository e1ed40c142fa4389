"""ModelCall: request one answer, with retries and fallbacks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from ouro.errors import TransientModelError
from ouro.llm.model import Chunk, Model, ToolSpec, constrain
from ouro.llm.reply import ReplyBuilder
from ouro.llm.text_tools import TextToolsModel
from ouro.messages import Message

ATTEMPTS = 5
"""For background work, and where another model is asked next."""
PATIENT_ATTEMPTS = 11
"""Where a user waits and no other model is left: two to five minutes outlast a restart or a short outage."""
FIRST_WAIT = 1.0
MAX_WAIT = 60.0
"""Seconds. A longer wait is reported instead."""


class Retry(msgspec.Struct, frozen=True):
    """Discard what was streamed: `model` gets its `number`th attempt after `wait` seconds."""

    model: str
    number: int
    reason: str
    wait: float


class ModelCall:
    """One answer of the first of `models`, or of the next ones once its attempts are used up.

    This is the only place that retries. `taken` are the ids of tool calls that the transcript has already.
    """

    def __init__(
        self,
        models: Sequence[Model],
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        *,
        attempts: int = ATTEMPTS,
        taken: Iterable[str] = (),
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._models = [
            TextToolsModel(model) if tools and model.spec.text_tools != "off" else model for model in models
        ]
        self._messages = messages
        self._tools = tools
        self._attempts = attempts
        self._taken = frozenset(taken)
        self._sleep = sleep
        self._builder = ReplyBuilder(models[0].spec.name, self._taken)

    def partial(self) -> Message:
        """The answer so far of the current attempt, without tool calls, marked as cut."""
        return self._builder.message(cut=True)

    async def run(
        self,
        on_chunk: Callable[[Chunk], None] | None = None,
        on_retry: Callable[[Retry], Awaitable[None]] | None = None,
    ) -> Message:
        """Return the whole answer. When `on_retry` is called, `partial` still returns the text of the failed attempt.

        Raises:
            TransientModelError: the last attempt of the last model failed.
            ModelError: a model failed in a way that another attempt does not fix.
        """
        failure: TransientModelError | None = None
        wait = 0.0
        for model in self._models:
            attempts = self._attempts if model is self._models[-1] else min(self._attempts, ATTEMPTS)
            for number in range(1, attempts + 1):
                if failure is not None:
                    wait = wait if number > 1 else 0.0
                    if on_retry:
                        reason = f"{failure.message.partition(chr(10))[0]} {failure.hint}".rstrip()
                        await on_retry(Retry(model.spec.name, number, reason, wait))
                    self._builder = ReplyBuilder(model.spec.name, self._taken)
                    if number > 1:
                        await self._sleep(wait)
                try:
                    return await self._answer(model, on_chunk or (lambda _chunk: None))
                except TransientModelError as error:
                    failure = error
                wait = _wait(failure, number)
                if wait > MAX_WAIT:
                    break
        assert failure is not None, "no model was given"
        raise _with_attempts(failure, model.spec.name, number)

    async def _answer(self, model: Model, on_chunk: Callable[[Chunk], None]) -> Message:
        async with aclosing(model.stream(self._messages, self._tools)) as chunks:
            async for chunk in chunks:
                self._builder.add(chunk)
                on_chunk(chunk)
        return self._builder.finish()


async def ask(
    models: Sequence[Model],
    messages: Sequence[Message],
    tools: Sequence[ToolSpec] = (),
    *,
    attempts: int = ATTEMPTS,
    schema: Mapping[str, Any] | None = None,
) -> Message:
    """One answer for background work, in a JSON schema where the server can do that.

    Raises ModelError if no model answered.
    """
    if schema is not None:
        models = [constrain(model, schema) for model in models]
    return await ModelCall(models, messages, tools, attempts=attempts).run()


def _wait(failure: TransientModelError, number: int) -> float:
    """Seconds to wait: what the provider asked for, else twice as long each time, with jitter."""
    if failure.retry_after is not None:
        return failure.retry_after
    longest: float = min(MAX_WAIT, FIRST_WAIT * 2 ** (number - 1))
    return longest * random.uniform(0.5, 1)  # noqa: S311 (no secret depends on it)


def _with_attempts(failure: TransientModelError, model: str, number: int) -> TransientModelError:
    """The error with the number of attempts or the requested wait."""
    wait = failure.retry_after
    if wait is not None and wait > MAX_WAIT:
        message = f"{failure.message} {model} asks to wait {wait:.0f} s; ouro waits at most {MAX_WAIT:.0f} s."
        hint = "Try again later, or choose another model: `/model`."
    else:
        message = f"{failure.message} ({model} was asked {number} times.)" if number > 1 else failure.message
        hint = failure.hint
    return type(failure)(message, hint, wait)
