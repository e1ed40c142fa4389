"""LocalModel: a model on a server of the user, which is asked for its window and abilities."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any

from msgspec.structs import replace

from ouro.errors import ModelError
from ouro.llm.model import (
    Chunk,
    Effort,
    Endpoint,
    Model,
    ModelSpec,
    NoticeChunk,
    ToolSpec,
    UsageChunk,
    constrain,
)
from ouro.llm.openai_model import OpenAIModel
from ouro.llm.request_shape import request_size
from ouro.llm.served_model import LARGER_WINDOW_HINTS, ServedModel, ask_server
from ouro.llm.server_facts import ServerFacts
from ouro.llm.wire import Wire
from ouro.messages import Message, Usage

ASK_TIMEOUT = 5.0
"""Seconds for all questions to the server."""
PATIENCE = 1.0
"""Seconds that a first request waits for answers that are on their way: a server on this machine
answers within milliseconds, and a wrong context costs Ollama another load of the model.
"""
NOT_FITTING = (
    "This request has about {size:,} tokens, and {address} holds {window:,} for {name}: it may cut"
    " the beginning silently. {advice}"
)
"""The warning about a request that is larger than the window."""


READ_TOO_LITTLE = 3
"""A server that reports fewer tokens than the request has, divided by this, has cut it: the size is only
estimated.
"""
MIN_CONTEXT = 500
"""Tokens: a server that reports fewer counts in another way, such as without what is in its cache."""
MIN_CUT_SIZE = 2_000
"""Tokens: a smaller request fits into every context."""
CUT = (
    "{address} has read {read:,} of about {size:,} tokens: it seems to cut what is longer than its"
    " context. {advice}"
)
"""The warning about a request of which a server has read only a part."""
DEFAULT_ADVICE = (
    "Load the model with a larger context there, or set its `window` in models.yaml to what it has."
)


class LocalModel:
    """A model on a server of the user. The server is asked for its window and abilities in the
    background while the session starts. Ollama is then used by its own API, all others by `chat`.

    Args:
        chat: the model by OpenAI's formats.
        fixed: the fields of the spec that the user has set; the server does not change them.
    """

    def __init__(
        self,
        spec: ModelSpec,
        endpoint: Endpoint,
        chat: OpenAIModel,
        *,
        effort: Effort,
        facts: ServerFacts,
        fixed: Collection[str] = (),
    ) -> None:
        self._configured_spec = spec
        self._endpoint = endpoint
        self._chat = chat
        self._effort = effort
        self._facts = facts
        self._fixed = fixed
        self._ollama: Wire | None = None
        """The wire to Ollama's own API; None for another server."""
        self._served: ServedModel | None = None
        """What the server has answered so far."""
        self._asking: asyncio.Task[None] | None = None
        """The task that asks the server, or the last one that did."""
        self._is_answered = False
        """Whether the server has answered all questions; else it is asked again with the next
        request: it may be starting, or loading the model.
        """
        self._warned_at = 0
        """The window about which the user was warned."""
        self._has_warned_of_cut = False
        """Whether the user was told that the server has read only a part of a request."""

    @property
    def spec(self) -> ModelSpec:
        """The facts about the model, with what the server has answered."""
        return self._facts.spec(self._configured_spec)

    @property
    def _model(self) -> OpenAIModel | Wire:
        """The model by the API that is used."""
        return self._ollama or self._chat

    async def warm(self) -> None:
        """Connect, and start to ask the server."""
        await self._chat.warm()
        self._start_asking()

    async def close(self) -> None:
        """Stop asking the server, and close its connections."""
        if self._asking:
            self._asking.cancel()
            await asyncio.wait({self._asking})
        await self._model.close()

    def with_schema(self, schema: Mapping[str, Any]) -> Model:
        return constrain(self._model, schema)

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()
    ) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of an answer. Before that, the server is asked for the window of the
        model, for at most PATIENCE seconds. If the request does not fit into the window, a notice
        comes first.
        """
        await self._chat.warm()
        await asyncio.wait({self._start_asking()}, timeout=PATIENCE)
        notice = self._find_notice(messages, tools)
        if notice:
            yield NoticeChunk(notice)
        async with aclosing(self._model.stream(messages, tools)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, UsageChunk) and chunk.usage:
                    cut = self._find_cut(chunk.usage, messages, tools)
                    if cut:
                        yield NoticeChunk(cut)
                yield chunk

    def _start_asking(self) -> asyncio.Task[None]:
        """Start to ask the server, unless it is being asked or has answered all questions. Returns
        the task that asks, or has asked.
        """
        if self._asking is not None and (self._is_answered or not self._asking.done()):
            return self._asking
        self._asking = asyncio.create_task(self._ask_about_model())
        return self._asking

    async def _ask_about_model(self) -> None:
        """Ask the server for window and abilities, and use Ollama's own API if it is Ollama. A
        server that does not answer is asked again later.
        """
        provider, _, model = self._configured_spec.name.partition("/")
        with suppress(TimeoutError, ModelError):
            async with asyncio.timeout(ASK_TIMEOUT):
                self._served = await ask_server(self._chat.wire.fetch_json, provider, model)
                self._is_answered = True
        if self._served is None:
            return
        self._facts.report(self._served.changes(self._configured_spec, self._fixed))
        if self._served.server == "ollama":
            self._ollama = self._make_ollama()

    def _make_ollama(self) -> Wire:
        """The wire to Ollama's own API, over the connections that are open."""
        from ouro.llm.ollama import OllamaWire  # only for Ollama

        root_endpoint = replace(self._endpoint, base_url=self._endpoint.root)
        wire = OllamaWire(
            self._configured_spec, root_endpoint, effort=self._effort, facts=self._facts
        )
        wire.share_connections(self._chat.wire)
        return wire

    def _find_notice(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
        """A warning about a request that the server would cut. Empty if it fits, or if the user was
        warned about this window before.
        """
        window = self.spec.window
        if self._served is None or self._warned_at == window:
            return ""
        size = _size_of(messages, tools)
        if size <= window:
            return ""
        self._warned_at = window
        return NOT_FITTING.format(
            size=size,
            window=window,
            address=self._endpoint.address,
            name=self._configured_spec.name,
            advice=LARGER_WINDOW_HINTS[self._served.server],
        )

    def _find_cut(
        self, usage: Usage, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> str:
        """A warning about a request of which the server has read only a part, by its own report. Empty
        if it has read all or does not say it, or if the user was warned before.
        """
        if self._has_warned_of_cut or usage.input < MIN_CONTEXT:
            return ""
        size = _size_of(messages, tools)
        if size < MIN_CUT_SIZE or usage.input * READ_TOO_LITTLE > size:
            return ""
        self._has_warned_of_cut = True
        advice = LARGER_WINDOW_HINTS[self._served.server] if self._served else DEFAULT_ADVICE
        return CUT.format(
            address=self._endpoint.address, read=usage.input, size=size, advice=advice
        )


def _size_of(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> int:
    """About how many tokens a request with these messages and tools has."""
    tool_fields = {"tools": [[tool.name, tool.description, tool.parameters] for tool in tools]}
    return request_size(messages, tool_fields)
