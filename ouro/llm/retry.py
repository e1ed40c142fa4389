"""Ask again when a model fails, then ask the next one: the only place where anything is asked twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing

import msgspec

from ouro.errors import TransientModelError
from ouro.llm.model import Chunk, Model, ToolSpec
from ouro.llm.streaming import ReplyBuilder
from ouro.messages import Message

ATTEMPTS = 5
FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0
"""Seconds. Who is asked to wait longer is better told than kept waiting."""


class Attempt(msgspec.Struct, frozen=True):
    """What was streamed so far is void: after `wait` seconds `model` is asked, for the `number`th time."""

    model: str
    number: int
    reason: str
    wait: float


async def stream_with_retries(
    models: Sequence[Model],
    messages: Sequence[Message],
    tools: Sequence[ToolSpec] = (),
    *,
    attempts: int = ATTEMPTS,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> AsyncGenerator[Chunk | Attempt, None]:
    """The chunks of a whole answer: of the first model, or of the next ones once its attempts are spent.

    Raises:
        TransientModelError: the last model failed the last time.
        ModelError: a model failed in a way that asking again does not mend.
    """
    failure: TransientModelError | None = None
    for place, model in enumerate(models):
        if failure is not None:
            yield Attempt(model.spec.name, 1, _first_line(failure), 0.0)
        for number in range(1, attempts + 1):
            try:
                async with aclosing(_whole(model, messages, tools)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                return
            except TransientModelError as error:
                failure = error
            wait = _wait(failure, number)
            if number == attempts or wait > LONGEST_WAIT:
                break
            yield Attempt(model.spec.name, number + 1, _first_line(failure), wait)
            await sleep(wait)
        if place == len(models) - 1 and failure is not None:
            raise _told(failure, model.spec.name, number)


async def _whole(model: Model, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> AsyncGenerator[Chunk, None]:
    """The chunks of one attempt; what turns out to be no answer raises at its end."""
    seen = ReplyBuilder()
    async with aclosing(model.stream(messages, tools)) as chunks:
        async for chunk in chunks:
            seen.add(chunk)
            yield chunk
    seen.check()


def _wait(failure: TransientModelError, number: int) -> float:
    """Seconds to wait: what the provider asked for, else twice as long each time, never the same for all who wait."""
    if failure.retry_after is not None:
        return failure.retry_after
    longest: float = min(LONGEST_WAIT, FIRST_WAIT * 2 ** (number - 1))
    return longest * random.uniform(0.5, 1)  # noqa: S311 (no secret hangs on it)


def _told(failure: TransientModelError, model: str, number: int) -> TransientModelError:
    """The failure with what was tried, as it is told at last."""
    wait = failure.retry_after
    if wait is not None and wait > LONGEST_WAIT:
        message = f"{failure.message} {model} asks to wait {wait:.0f} s, longer than ouro does ({LONGEST_WAIT:.0f} s)."
        hint = "Try again later, or choose another model: `/model`."
    else:
        message = f"{failure.message} ({model} was asked {number} times.)" if number > 1 else failure.message
        hint = failure.hint
    return type(failure)(message, hint, wait)


def _first_line(failure: TransientModelError) -> str:
    return failure.message.partition("\n")[0]
