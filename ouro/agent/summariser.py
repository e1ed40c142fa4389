"""Summariser: has a conversation summed up: in one request over the cached prefix, or in steps where it is too long."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import msgspec
from msgspec.structs import replace

from ouro.agent.requests import Requests
from ouro.errors import ContextTooLong, ModelError
from ouro.events import Compacting, Retrying
from ouro.llm.model import Model, TextChunk, ToolSpec
from ouro.llm.retry import Attempt, stream_with_retries
from ouro.llm.streaming import ReplyBuilder
from ouro.memory.summary_request import (
    ask_for_part,
    ask_for_summary,
    cut_summary,
    is_summary,
    longest_part,
    parts_of,
    words_for,
)
from ouro.memory.tokens import CHARACTERS_A_TOKEN, estimate_messages
from ouro.messages import Message, Usage

ATTEMPTS = 3
HALVINGS = 3
"""How often the parts are made smaller when even one of them does not fit."""
LONGEST_SUMMARY = 8_000
"""Tokens; never more than an eighth of the window."""
THE_REQUEST = 600
"""Tokens of the request itself, and of what the estimate misses."""
PROGRESS = 400
"""Characters between two signs of life."""


def longest_summary(window: int) -> int:
    """The tokens of the longest summary that a model with this window may write."""
    return min(LONGEST_SUMMARY, window // 8)


class Summary(msgspec.Struct):
    """What has come so far; the money is spent also where nothing came of it."""

    text: str = ""
    model: str = ""
    usage: Usage | None = None


class Summariser:
    """Asks `models` for one summary; `summary` is what came.

    Args:
        models: the one to ask, then its fallbacks.
        requests: what goes with every request of the conversation.
        focus: what the person asks to keep.
    """

    def __init__(self, models: Sequence[Model], requests: Requests, focus: str) -> None:
        self.summary = Summary()
        self._models = models
        self._requests = requests
        self._focus = focus
        self._longest = longest_summary(models[0].spec.window)
        self._progress = Compacting()

    async def run(
        self, sent: Sequence[Message], tokens: int, window: int
    ) -> AsyncGenerator[Compacting | Retrying, None]:
        """Sum up what is `sent`: about `tokens`, to a model that holds `window`.

        Raises:
            ModelError: there is no summary; the message says why.
        """
        if tokens + THE_REQUEST + self._longest <= window:
            try:
                async with aclosing(self._at_once(sent)) as events:
                    async for event in events:
                        yield event
                return
            except ContextTooLong:
                window = min(window, tokens)
        for _ in range(HALVINGS):
            try:
                async with aclosing(self._in_steps(sent, window)) as events:
                    async for event in events:
                        yield event
                return
            except ContextTooLong:
                window //= 2
        raise ContextTooLong("The model takes not even a part of the conversation.")

    async def _at_once(self, sent: Sequence[Message]) -> AsyncGenerator[Compacting | Retrying, None]:
        """Behind the very bytes of the conversation, which the provider has in its cache."""
        messages = [*self._requests.messages(sent), ask_for_summary(self._focus, words_for(self._longest))]
        async with aclosing(self._ask(messages, self._requests.specs(self._models[0]))) as events:
            async for event in events:
                yield event

    async def _in_steps(self, sent: Sequence[Message], window: int) -> AsyncGenerator[Compacting | Retrying, None]:
        """Part by part, each with the summary of those before it."""
        self.summary.text = ""
        longest = min(self._longest, window // 8)
        parts = parts_of(sent, longest_part(window))
        for number, part in enumerate(parts, 1):
            self._progress = Compacting(0, number, len(parts))
            messages = ask_for_part(part, number, len(parts), self.summary.text, self._focus, words_for(longest))
            async with aclosing(self._ask(messages, ())) as events:
                async for event in events:
                    yield event

    async def _ask(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AsyncGenerator[Compacting | Retrying, None]:
        builder, written = ReplyBuilder(self._models[0].spec.name), 0
        yield self._progress
        async with aclosing(stream_with_retries(self._models, messages, tools, attempts=ATTEMPTS)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Attempt):
                    builder, written = ReplyBuilder(chunk.model), 0
                    yield Retrying(chunk.reason, chunk.number, chunk.wait, chunk.model)
                    continue
                builder.add(chunk)
                if isinstance(chunk, TextChunk):
                    before, written = written, written + len(chunk.text)
                    if written // PROGRESS > before // PROGRESS:
                        yield replace(self._progress, written=written)
        self._take(builder.finish(), messages)

    def _take(self, reply: Message, messages: Sequence[Message]) -> None:
        usage = reply.usage or Usage(estimate_messages(messages), output=estimate_messages([reply]))
        self.summary.usage = (self.summary.usage or Usage()) + usage
        self.summary.model = reply.model
        if not is_summary(reply.text):
            said = f": it said “{' '.join(reply.text.split())[:80]}”" if reply.text.strip() else ""
            raise ModelError(f"{reply.model} did not sum the conversation up{said}.")
        self.summary.text = cut_summary(reply.text, int(self._longest * CHARACTERS_A_TOKEN))
