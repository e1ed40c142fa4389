"""The wire to Ollama's own API: the only one that sets the context of a model (`num_ctx`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from ouro.llm.adaptive_model import ModelRequest
from ouro.llm.event_stream import JsonLineDecoder
from ouro.llm.model import CallChunk, Chunk, Effort, Endpoint, ModelSpec, ToolSpec, UsageChunk
from ouro.llm.openai import format_tools
from ouro.llm.portable import (
    arguments_of,
    base64_of,
    calls_of,
    describe_hidden,
    reply_text,
    texts_of,
    thinking_in,
)
from ouro.llm.server_facts import ServerFacts
from ouro.llm.wire import ChunkReader, Wire, make_usage
from ouro.messages import Image, Message, PerMessage, Thinking, ToolCall, ToolReply
from ouro.utils.lenient_json import dictionaries, dictionary, string, text_or_json

LEVELS: Mapping[Effort, str | bool] = {
    "off": False,
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
"""Effort -> the level of thinking in a request; False: none."""
Json = dict[str, Any]


class OllamaFormat:
    """Messages in the format of Ollama: images are beside the text, arguments are objects, and
    calls have no ids.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._formatted = PerMessage(lambda message: tuple(self._format_message(message)))

    def messages(self, messages: Sequence[Message]) -> list[Json]:
        """The messages in this format. Those that were formatted before are not formatted again."""
        return list(chain.from_iterable(self._formatted(messages)))

    def _format_message(self, message: Message) -> Iterator[Json]:
        """Yield the message in this format; for a message of tool results, one message for each of
        them; for an answer without text and calls, none.
        """
        match message.role:
            case "tool":
                for reply in message.parts_of(ToolReply):
                    text = reply_text(reply, self._spec.images)
                    result = {"role": "tool", "content": text, "tool_name": reply.name}
                    yield self._with_images(result, reply.images)
            case "assistant":
                yield from self._format_answer(message)
            case role:
                formatted = {"role": role, "content": "\n\n".join(texts_of(message))}
                yield self._with_images(formatted, message.parts_of(Image))

    def _format_answer(self, message: Message) -> Iterator[Json]:
        """Yield an answer with its calls; nothing if it has neither text nor calls."""
        calls, text = calls_of(message), "\n\n".join(texts_of(message))
        if not calls and not text:
            return
        answer: Json = {"role": "assistant", "content": text}
        if calls:
            answer["tool_calls"] = [_format_call(call) for call in calls]
            # Between calls a model continues its own thinking; later its template drops it.
            is_own = message.model in ("", self._spec.name)
            thinking = "".join(part.text for part in message.parts_of(Thinking))
            if thinking and is_own:
                answer["thinking"] = thinking
        yield answer

    def _with_images(self, message: Json, images: Sequence[Image]) -> Json:
        """The message with its images; they are described if the model cannot see them."""
        if not images:
            return message
        if self._spec.images:
            return {**message, "images": [base64_of(image) for image in images]}
        if message["role"] == "tool":  # `reply_text` has described them
            return message
        texts = [message["content"], *map(describe_hidden, images)]
        return {**message, "content": "\n\n".join(filter(None, texts))}


def _format_call(call: ToolCall) -> Json:
    return {"function": {"name": call.name, "arguments": arguments_of(call)}}


class OllamaChunks(ChunkReader):
    """Reads the events of a streamed answer."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        self._call_count = 0
        """The number of calls so far; one event may have several."""

    def read(self, event: Json) -> Iterator[Chunk]:
        """Yield the chunks of one event: thinking, text and calls, and in the last one the usage."""
        message = dictionary(event.get("message"))
        yield from self._text_chunks(thinking_in(message), message.get("content"))
        for call in dictionaries(message.get("tool_calls")):
            yield self._read_call(call)
        if event.get("done"):
            usage = make_usage(
                self._spec, sent=event.get("prompt_eval_count"), answered=event.get("eval_count")
            )
            yield UsageChunk(usage)
            self.is_done = True
            self.reason = "tools" if self._call_count else "stop"
            if event.get("done_reason") == "length":
                self.reason = "length"

    def _read_call(self, call: Json) -> CallChunk:
        """A call; it is whole in one event."""
        function = dictionary(call.get("function"))
        name, arguments = string(function.get("name")), text_or_json(function.get("arguments"))
        self._call_count += 1
        return CallChunk(
            self._call_count, id=text_or_json(call.get("id")), name=name, arguments=arguments
        )


class OllamaWire(Wire):
    """A model that is reached by Ollama's own API."""

    def __init__(
        self,
        spec: ModelSpec,
        endpoint: Endpoint,
        *,
        effort: Effort = "off",
        facts: ServerFacts | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(spec, endpoint, effort=effort, facts=facts)
        self._schema = schema
        """What answers are constrained to; empty: free text at temperature 0. None: not constrained."""
        self._rebuild_format()

    def _rebuild_format(self) -> None:
        super()._rebuild_format()
        self._format = OllamaFormat(self.spec)

    def with_schema(self, schema: Mapping[str, Any]) -> OllamaWire:
        """The same model on the same connection, at temperature 0, with answers that fit the
        schema, which is sent as `format`. An empty schema means free text.
        """
        constrained = OllamaWire(
            self._configured_spec,
            self._endpoint,
            effort=self._effort,
            facts=self.facts,
            schema=schema,
        )
        constrained.share_connections(self)
        return constrained

    def _make_decoder(self) -> JsonLineDecoder:
        return JsonLineDecoder()

    def _events_of_whole(self, answer: Json) -> list[Json]:
        return [answer] if "message" in answer else []

    def _make_reader(self) -> OllamaChunks:
        return OllamaChunks(self.spec)

    def _request(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> ModelRequest:
        """The request. It names the context that the model is to be loaded with."""
        options: Json = {"num_ctx": self.spec.window, "num_predict": self.spec.max_output}
        if self._schema is not None:
            options["temperature"] = 0
        body: Json = {"model": self._model, "messages": self._format.messages(messages)}
        if tools and self.spec.tools:
            body["tools"] = format_tools(tools)
        if self.spec.thinking:
            body["think"] = LEVELS[self._effort]
        if self._schema:
            body["format"] = dict(self._schema)
        key = self._endpoint.api_key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return ModelRequest("/api/chat", headers, {**body, "options": options, "stream": True})
