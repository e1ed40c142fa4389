"""Anthropic messages, spoken directly."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Literal

from ouro.errors import RequestRefused
from ouro.llm.anthropic_chunks import AnthropicChunks
from ouro.llm.anthropic_format import AnthropicFormat
from ouro.llm.endpoint import Endpoint, Timeouts, timeouts_for
from ouro.llm.http_stream import HttpStream
from ouro.llm.model import Chunk, Effort, EndChunk, ModelSpec, ToolSpec
from ouro.llm.wire_events import objects_of, read_to_end
from ouro.messages import Message, Thinking

VERSION = "2023-06-01"
INTERLEAVED = "interleaved-thinking-2025-05-14"
"""Thinking between tool calls, for models whose thinking has a budget; newer ones do it by themselves."""
BUDGETS = {"low": 4_000, "medium": 10_000, "high": 32_000}
LEAST_BUDGET = 1_024
FIRST_ADAPTIVE = (4, 6)
MAX_LESSONS = 4
Style = Literal["adaptive", "budget", "none"]


class AnthropicWire:
    """A model behind Anthropic's messages, or behind a server that speaks the same."""

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
        self._format = AnthropicFormat(spec)
        self._effort = effort
        self._styles: list[Style] = _styles(self._model) if effort != "off" and spec.thinking else ["none"]
        self._sends_thinking = True

    @property
    def spec(self) -> ModelSpec:
        """What is known of the model."""
        return self._spec

    async def warm(self) -> None:
        """Make ready, so that the first request does not wait."""
        await self._http.warm()

    async def stream(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> AsyncGenerator[Chunk, None]:
        """See `Model.stream`. A server that does not know our way of thinking is asked again in another."""
        begun, lessons = False, 0
        while True:
            try:
                async with aclosing(self._attempt(messages, tools)) as chunks:
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

    async def _attempt(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> AsyncGenerator[Chunk, None]:
        reader = AnthropicChunks(self._spec)
        path = "/messages" if self._endpoint.base_url.rstrip("/").endswith("/v1") else "/v1/messages"
        body = self._body(messages, tools)
        async with (
            aclosing(self._http.post(path, self._headers(body), body)) as events,
            aclosing(objects_of(events, lambda: reader.reason is not None, self._endpoint)) as objects,
        ):
            async for data in objects:
                for chunk in reader.read(data):
                    yield chunk
                if data.get("type") == "message_stop":
                    break
            await read_to_end(events)
        for chunk in reader.rest():
            yield chunk
        if reader.reason is not None:
            yield EndChunk(reader.reason)

    def _headers(self, body: dict[str, Any]) -> dict[str, str]:
        headers = {"anthropic-version": VERSION}
        if self._endpoint.api_key:
            headers["x-api-key"] = self._endpoint.api_key
        if body.get("thinking", {}).get("type") == "enabled":
            headers["anthropic-beta"] = INTERLEAVED
        return headers

    def _body(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self._model, "max_tokens": self._spec.max_output}
        if tools and self._spec.tools:
            body["tools"] = self._format.tools(tools)
        if prompt := self._format.system(messages):
            body["system"] = prompt
        body["messages"] = self._format.messages(messages, thinking=self._sends_thinking)
        body.update(self._thinking(messages))
        body["stream"] = True
        return body

    def _thinking(self, messages: Sequence[Message]) -> dict[str, Any]:
        style = self._styles[0]
        if style == "adaptive":
            thinking = {"type": "adaptive", "display": "summarized"}
            return {"thinking": thinking, "output_config": {"effort": self._effort}}
        budget = min(BUDGETS.get(self._effort, 0), self._spec.max_output // 2)
        if style == "none" or budget < LEAST_BUDGET or self._is_amid_unthought_calls(messages):
            return {}
        return {"thinking": {"type": "enabled", "budget_tokens": budget}}

    def _is_amid_unthought_calls(self, messages: Sequence[Message]) -> bool:
        """Whether the newest calls were made without thinking: a budget is then refused until they are answered."""
        newest = next((message for message in reversed(messages) if message.role in ("assistant", "user")), None)
        if newest is None or newest.role == "user" or not newest.tool_calls:
            return False
        return not (isinstance(newest.parts[0], Thinking) and self._sends_thinking and self._format.seals(newest))

    def _learn(self, refusal: str) -> bool:
        """Change what the server has just refused; False when it was something else."""
        if "signature" in refusal and self._sends_thinking:
            self._sends_thinking = False
        elif len(self._styles) > 1 and re.search(r"thinking|adaptive|budget_tokens|output_config|effort", refusal):
            del self._styles[0]
        else:
            return False
        return True


def _styles(model: str) -> list[Style]:
    """The ways of asking for thinking, the likeliest first; models since Claude 4.6 choose their own budget."""
    version = re.search(r"claude-[a-z]+-(\d+)(?:[-.](\d{1,2})(?!\d))?", model)
    is_new = version is not None and (int(version[1]), int(version[2] or 0)) >= FIRST_ADAPTIVE
    return ["adaptive", "budget", "none"] if is_new else ["budget", "adaptive", "none"]
