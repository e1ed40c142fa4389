"""ask: one plain answer, for work beside the conversation (summaries, titles, capture)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing

from ouro.llm.model import Model, ToolSpec
from ouro.llm.retry import ATTEMPTS, Attempt, stream_with_retries
from ouro.llm.streaming import ReplyBuilder
from ouro.messages import Message


async def ask(
    models: Sequence[Model], messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, attempts: int = ATTEMPTS
) -> Message:
    """What the first of `models`, or when it fails one of the next, answers to `messages`; with its usage and model.

    Raises:
        ModelError: none of them answered.
    """
    builder = ReplyBuilder(models[0].spec.name)
    async with aclosing(stream_with_retries(models, messages, tools, attempts=attempts)) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, Attempt):
                builder = ReplyBuilder(chunk.model)
            else:
                builder.add(chunk)
    return builder.finish()
