"""LiteLLMModel and LiteLLMEmbeddings: all other providers, through litellm in a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Any

from ouro.errors import ContextTooLong, ModelError, ModelUnavailable, StreamCut
from ouro.llm import litellm_process
from ouro.llm.embeddings import Embedded, embedded
from ouro.llm.endpoint import Endpoint, Timeouts, timeouts_for, timeouts_for_vectors
from ouro.llm.model import Chunk, Effort, EndChunk, ModelSpec, ThinkingChunk, ToolSpec
from ouro.llm.openai import OpenAIChunks, OpenAIFormat, tools_as_openai
from ouro.llm.provider_errors import error_from_status, redact
from ouro.messages import Message, Thinking

TOO_LONG = "ContextWindowExceededError"
MARK = {"type": "ephemeral"}
MARKED_MESSAGES = 2


class LiteLLMModel:
    """A model behind litellm, which runs in one process shared by all such models."""

    def __init__(
        self,
        spec: ModelSpec,
        endpoint: Endpoint,
        *,
        model: str = "",
        effort: Effort = "off",
        timeouts: Timeouts | None = None,
    ) -> None:
        """`model` is the name for litellm; empty: that of the spec."""
        self._spec = spec
        self._endpoint = endpoint
        self._model = model or spec.name
        self._effort = effort
        self._timeouts = timeouts or timeouts_for(endpoint)
        self._is_claude = "claude" in self._model
        self._format = OpenAIFormat(spec, longest_id=0)
        self._seat = litellm_process.Seat()

    @property
    def spec(self) -> ModelSpec:
        return self._spec

    async def warm(self) -> None:
        """Start litellm in the background, so that the first request waits less for it."""
        self._seat.take()

    async def stream(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> AsyncGenerator[Chunk, None]:
        reader = _LiteLLMChunks(self._spec)
        async with aclosing(self._seat.take().ask(self._request(messages, tools), self._timeouts)) as lines:
            async for line in lines:
                if "error" in line:
                    raise error_of(line["error"], self._endpoint, self._model)
                for chunk in reader.read(line.get("event") or {}):
                    yield chunk
        for chunk in reader.rest():
            yield chunk
        if reader.reason is not None:
            yield EndChunk(reader.reason)

    async def close(self) -> None:
        self._seat.leave()

    def _request(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self._model,
            "messages": self._messages(messages),
            "max_tokens": self._spec.max_output,
            "first": self._timeouts.first,
            "connect": self._timeouts.connect,
        }
        if tools and self._spec.tools:
            request["tools"] = tools_as_openai(tools)
        if self._effort != "off" and self._spec.thinking:
            request["reasoning_effort"] = self._effort
        return request | reached(self._endpoint)

    def _messages(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        if not self._is_claude:
            return self._format.messages(messages)
        sent = [part for message in messages for part in self._with_thinking(message)]
        places = [place for place, message in enumerate(sent) if message["role"] == "system"][-1:]
        places += [place for place, message in enumerate(sent) if message["role"] in ("user", "tool")][
            -MARKED_MESSAGES:
        ]
        for place in places:
            sent[place] = _marked(sent[place])
        return sent

    def _with_thinking(self, message: Message) -> Iterator[dict[str, Any]]:
        """The message with the thinking and signatures of this model, which it requires in later requests."""
        blocks = [
            {"type": "redacted_thinking", "data": part.signature}
            if part.redacted
            else {"type": "thinking", "thinking": part.text, "signature": part.signature}
            for part in message.parts_of(Thinking)
            if part.signature and not message.cut and message.model == self._spec.name
        ]
        for sent in self._format.messages([message]):
            yield {**sent, "thinking_blocks": blocks} if blocks else sent


def reached(endpoint: Endpoint) -> dict[str, Any]:
    """The litellm arguments for URL and key; empty where litellm knows them."""
    given = {
        "api_key": endpoint.api_key,
        "api_base": endpoint.base_url,
        "extra_headers": dict(endpoint.headers),
    }
    return {name: value for name, value in given.items() if value}


def error_of(error: dict[str, Any], endpoint: Endpoint, model: str) -> ModelError:
    """The ModelError for a failure that the process reported; the key is removed."""
    message = redact(_plain(error["message"]), endpoint.api_key)
    if error["kind"] == TOO_LONG:
        return ContextTooLong(message)
    if error["begun"]:
        return StreamCut(f"The answer broke off: {message}")
    if error["status"] is None:
        return ModelUnavailable(f"{endpoint.host or model} cannot be reached: {message or 'no answer came'}.")
    return error_from_status(error["status"], message, error["headers"], endpoint)


class _LiteLLMChunks(OpenAIChunks):
    """Parses chat completions of litellm, where Anthropic's thinking has blocks of its own."""

    def _delta(self, delta: dict[str, Any]) -> Iterator[Chunk]:
        blocks = delta.pop("thinking_blocks", None) or ()
        yield from super()._delta(delta)
        for block in blocks:
            if block.get("type") == "redacted_thinking":
                yield ThinkingChunk("", block.get("data", ""), redacted=True)
            elif block.get("signature"):
                yield ThinkingChunk("", block["signature"])


def _marked(message: dict[str, Any]) -> dict[str, Any]:
    """The message with a cache mark."""
    content = message["content"]
    if message["role"] == "tool":
        return {**message, "cache_control": MARK}
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {**message, "content": [*blocks[:-1], {**blocks[-1], "cache_control": MARK}]}


def _plain(message: str) -> str:
    """litellm's error message without its class names."""
    head, _, rest = message.partition(" - ")
    return rest.strip() if rest and "litellm." in head else message


class LiteLLMEmbeddings:
    """An embedding model behind litellm. The first call starts the process."""

    def __init__(self, spec: ModelSpec, endpoint: Endpoint, model: str) -> None:
        """`model` is the name for litellm."""
        self._spec = spec
        self._endpoint = endpoint
        self._model = model
        self._seat = litellm_process.Seat()

    def embed(self, texts: Sequence[str]) -> Embedded:
        return asyncio.run(self._embed(list(texts)))

    def close(self) -> None:
        self._seat.leave()

    async def _embed(self, texts: list[str]) -> Embedded:
        limits = timeouts_for_vectors(self._endpoint)
        request = {"model": self._model, "input": texts, "first": limits.first, "connect": limits.connect}
        answer: Any = None
        async for line in self._seat.take().ask(request | reached(self._endpoint), limits, what="embed"):
            if "error" in line:
                raise error_of(line["error"], self._endpoint, self._model)
            answer = line.get("event", answer)
        if answer is None:
            raise ModelError(f"{self._model} gave no vectors.")
        return embedded(answer, len(texts), self._spec, self._model)
