"""OpenAI-compatible chat completions, spoken directly: httpx and server-sent events."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from ouro.errors import RequestRefused
from ouro.llm.endpoint import Endpoint, Timeouts, timeouts_for
from ouro.llm.http_stream import HttpStream
from ouro.llm.model import Chunk, Effort, EndChunk, ModelSpec, ToolSpec
from ouro.llm.openai_chunks import OpenAIChunks
from ouro.llm.openai_format import OpenAIFormat, tools_as_openai
from ouro.llm.wire_events import objects_of, read_to_end
from ouro.messages import Message

WANT_THINKING_BACK = ("moonshot", "deepseek")
"""Hosts that refuse a tool loop whose thinking is not sent along."""
LEAST_EFFORT = ("none", "minimal", "low", None)
"""What "off" is called: which word a model knows depends on its age. None: say nothing."""
MAX_LESSONS = 5


class OpenAIWire:
    """A model behind an OpenAI-compatible server."""

    def __init__(
        self,
        spec: ModelSpec,
        endpoint: Endpoint,
        *,
        model: str = "",
        effort: Effort = "off",
        timeouts: Timeouts | None = None,
    ) -> None:
        """`model` is the name on the wire; empty: that of the spec without its provider."""
        self._spec = spec
        self._endpoint = endpoint
        self._model = model or spec.name.partition("/")[2] or spec.name
        self._http = HttpStream(endpoint, timeouts or timeouts_for(endpoint))
        self._format = OpenAIFormat(
            spec, returns_thinking=any(name in endpoint.host for name in WANT_THINKING_BACK) and spec.thinking
        )
        self._efforts: list[str | None] = list(LEAST_EFFORT) if effort == "off" else [effort, None]
        self._usage_asked = True
        newest = endpoint.host.endswith(("openai.com", "openai.azure.com"))
        self._limit_name = "max_completion_tokens" if newest else "max_tokens"

    @property
    def spec(self) -> ModelSpec:
        """What is known of the model."""
        return self._spec

    async def warm(self) -> None:
        """Make ready, so that the first request does not wait."""
        await self._http.warm()

    async def stream(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> AsyncGenerator[Chunk, None]:
        """See `Model.stream`. A server that does not know one of our fields is asked again without it."""
        begun, lessons = False, 0
        while True:
            try:
                async with aclosing(self._attempt(self._body(messages, tools))) as chunks:
                    async for chunk in chunks:
                        begun = True
                        yield chunk
                return
            except RequestRefused as refusal:
                lessons += 1
                if begun or lessons > MAX_LESSONS or not self._learn(str(refusal)):
                    raise

    async def close(self) -> None:
        """Let go of the connections."""
        await self._http.close()

    async def _attempt(self, body: dict[str, Any]) -> AsyncGenerator[Chunk, None]:
        reader = OpenAIChunks(self._spec)
        key = self._endpoint.api_key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with (
            aclosing(self._http.post("/chat/completions", headers, body)) as events,
            aclosing(objects_of(events, lambda: reader.reason is not None, self._endpoint)) as objects,
        ):
            async for data in objects:
                for chunk in reader.read(data):
                    yield chunk
            await read_to_end(events)
        for chunk in reader.rest():
            yield chunk
        if reader.reason is not None:
            yield EndChunk(reader.reason)

    def _body(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self._model, "messages": self._format.messages(messages)}
        if tools and self._spec.tools:
            body["tools"] = tools_as_openai(tools)
        body[self._limit_name] = self._spec.max_output
        if self._spec.thinking and self._efforts[0]:
            body["reasoning_effort"] = self._efforts[0]
        body["stream"] = True
        if self._usage_asked:
            body["stream_options"] = {"include_usage": True}
        return body

    def _learn(self, refusal: str) -> bool:
        """Change what the server has just refused; False when it was something else."""
        if self._usage_asked and "stream_options" in refusal:
            self._usage_asked = False
        elif re.search(r"\bmax_tokens\b.*max_completion_tokens", refusal) and self._limit_name == "max_tokens":
            self._limit_name = "max_completion_tokens"
        elif self._limit_name != "max_tokens" and "max_completion_tokens" in refusal:
            self._limit_name = "max_tokens"
        elif re.search(r"reasoning[_ .]?effort", refusal, re.IGNORECASE) and self._spec.thinking and self._efforts[0]:
            del self._efforts[0]
        else:
            return False
        return True
