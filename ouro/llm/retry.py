"""ModelCall: one answer of a model, with retries and fallback models."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing

import msgspec

from ouro.errors import TransientModelError
from ouro.llm.model import Chunk, Model, ToolSpec
from ouro.llm.streaming import ReplyBuilder
from ouro.messages import Message

ATTEMPTS = 5
FIRST_WAIT = 1.0
MAX_WAIT = 60.0
"""Seconds. A longer wait is reported instead."""


class Retry(msgspec.Struct, frozen=True):
    """Discard what was streamed: `model` gets its `number`th attempt after `wait` seconds."""

    model: str
    number: int
    reason: str
    wait: float


def _ignore(_chunk: Chunk) -> None:
    pass


async def _retry_silently(_retry: Retry) -> None:
    pass


class ModelCall:
    """One answer of the first of `models`, or of the next ones once its attempts are used up.

    The answer is built here, once. This is the only place that retries.

    Args:
        models: the model to ask, then its fallbacks.
        messages: the request.
        tools: what the model may call.
        attempts: how often each model is asked.
        taken: the ids of tool calls that the transcript has already.
        sleep: waits between attempts; takes seconds.
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
        self._models = models
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
        on_chunk: Callable[[Chunk], None] = _ignore,
        on_retry: Callable[[Retry], Awaitable[None]] = _retry_silently,
    ) -> Message:
        """Return the whole answer.

        Args:
            on_chunk: gets every chunk as it comes.
            on_retry: is called before an attempt is repeated; `partial` still returns the text of the failed one.

        Raises:
            TransientModelError: the last attempt of the last model failed.
            ModelError: a model failed in a way that another attempt does not fix.
        """
        failure: TransientModelError | None = None
        for place, model in enumerate(self._models):
            if failure is not None:
                await self._begin(Retry(model.spec.name, 1, _first_line(failure), 0.0), on_retry)
            for number in range(1, self._attempts + 1):
                try:
                    return await self._attempt(model, on_chunk)
                except TransientModelError as error:
                    failure = error
                wait = _wait(failure, number)
                if number == self._attempts or wait > MAX_WAIT:
                    break
                await self._begin(Retry(model.spec.name, number + 1, _first_line(failure), wait), on_retry)
                await self._sleep(wait)
            if place == len(self._models) - 1 and failure is not None:
                raise _with_attempts(failure, model.spec.name, number)
        raise AssertionError("no model was given")

    async def _attempt(self, model: Model, on_chunk: Callable[[Chunk], None]) -> Message:
        builder = self._builder
        async with aclosing(model.stream(self._messages, self._tools)) as chunks:
            async for chunk in chunks:
                builder.add(chunk)
                on_chunk(chunk)
        return builder.finish()

    async def _begin(self, retry: Retry, on_retry: Callable[[Retry], Awaitable[None]]) -> None:
        await on_retry(retry)
        self._builder = ReplyBuilder(retry.model, self._taken)


async def ask(
    models: Sequence[Model], messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, attempts: int = ATTEMPTS
) -> Message:
    """One answer with its usage and model, for background work (summaries, titles, capture).

    Raises:
        ModelError: no model answered.
    """
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


def _first_line(failure: TransientModelError) -> str:
    return failure.message.partition("\n")[0]
