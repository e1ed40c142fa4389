"""The wire to OpenAI's chat completions; their format also for litellm."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from ouro.llm.adaptive_model import ModelRequest
from ouro.llm.model import (
    CallChunk,
    Chunk,
    Effort,
    Endpoint,
    ModelSpec,
    Reason,
    ToolSpec,
    UsageChunk,
)
from ouro.llm.portable import (
    SEAL,
    arguments_of,
    base64_of,
    calls_of,
    describe_hidden,
    portable_id,
    portable_name,
    reply_text,
    texts_of,
    thinking_in,
)
from ouro.llm.server_facts import ServerFacts
from ouro.llm.wire import ChunkReader, Wire, check_window, make_usage
from ouro.messages import Image, Message, PerMessage, Thinking, ToolCall, ToolReply, Usage
from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import count, dictionaries, dictionary, string, text_or_json


class OpenAIFormat:
    def __init__(
        self, spec: ModelSpec, *, returns_thinking: str = "", longest_id: int = 40
    ) -> None:
        """`returns_thinking`: `yes` with calls, `all` with each answer, otherwise not at all."""
        self._spec = spec
        self._returns_thinking = returns_thinking
        self._longest_id = longest_id
        self._formatted = PerMessage(lambda message: tuple(self._format_message(message)))

    def messages(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        return list(chain.from_iterable(self._formatted(messages)))

    def _format_message(self, message: Message) -> Iterator[dict[str, Any]]:
        """A message, or a message for each tool result."""
        match message.role:
            case "system":
                yield {"role": "system", "content": message.text}
            case "user":
                yield {"role": "user", "content": self._format_content(message)}
            case "assistant":
                yield from self._format_answer(message)
            case "tool":
                yield from self._format_results(message.parts_of(ToolReply))

    def _format_content(self, message: Message) -> str | list[dict[str, Any]]:
        """The content of a user message: a text, or parts if it has pictures that the model sees."""
        images = message.parts_of(Image)
        words = texts_of(message)
        if not images or not self._spec.images:
            return "\n\n".join([*words, *map(describe_hidden, images)])
        return [{"type": "text", "text": text} for text in words] + [
            _image_part(image) for image in images
        ]

    def _format_answer(self, message: Message) -> Iterator[dict[str, Any]]:
        """An answer with its calls; nothing if it has neither text nor calls."""
        calls = calls_of(message)
        words = "\n\n".join(texts_of(message))
        if not calls and not words:
            return
        sent: dict[str, Any] = {"role": "assistant", "content": words or None}
        if self._returns_thinking == "all" or (self._returns_thinking == "yes" and calls):
            # Kimi refuses an empty text.
            sent["reasoning_content"] = self._own_thinking(message) or " "
        if calls:
            sent["tool_calls"] = [self._format_call(call) for call in calls]
        yield sent

    def _own_thinking(self, message: Message) -> str:
        """The thinking of this model; that of another one never goes to its server."""
        if message.model not in ("", self._spec.name):
            return ""
        return "".join(part.text for part in message.parts_of(Thinking))

    def _format_call(self, call: ToolCall) -> dict[str, Any]:
        """A call with its arguments as JSON, and with the signature that Gemini wants back."""
        function = {
            "name": portable_name(call.name),
            "arguments": json.dumps(arguments_of(call), ensure_ascii=False),
        }
        sent: dict[str, Any] = {
            "id": self._portable_id(call.id),
            "type": "function",
            "function": function,
        }
        _, seal, signature = call.id.partition(SEAL)
        if seal and self._longest_id:
            sent["extra_content"] = {"google": {"thought_signature": signature}}
        return sent

    def _portable_id(self, call_id: str) -> str:
        """The id of a call in a form that the server accepts; litellm makes its own."""
        if not self._longest_id:
            return call_id
        return portable_id(call_id.partition(SEAL)[0], self._longest_id)

    def _format_results(self, replies: Sequence[ToolReply]) -> Iterator[dict[str, Any]]:
        """A message for each tool result, and a message of the user with all their pictures."""
        for reply in replies:
            content = reply_text(reply, self._spec.images)
            yield {
                "role": "tool",
                "tool_call_id": self._portable_id(reply.call_id),
                "content": content,
            }
        seen = (
            [(reply, image) for reply in replies for image in reply.images]
            if self._spec.images
            else []
        )
        if seen:
            # Only a user message may hold images, and it may not come between tool results.
            names = ", ".join(
                f"{reply.name} ({image.name})" if image.name else reply.name
                for reply, image in seen
            )
            text = {"type": "text", "text": f"Pictures from the tool results above: {names}"}
            yield {"role": "user", "content": [text, *(_image_part(image) for _, image in seen)]}


def format_tools(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """The tools in the format of chat completions."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
            },
        }
        for tool in tools
    ]


def _image_part(image: Image) -> dict[str, Any]:
    """An image as a part of a content."""
    return {
        "type": "image_url",
        "image_url": {"url": f"data:{image.media_type};base64,{base64_of(image)}"},
    }


REASONS: dict[str, Reason] = {
    "tool_calls": "tools",
    "function_call": "tools",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
}
_FAILED = late_pattern(
    r"error|abort|insufficient|network|timeout|interrupt|cancel|fail|malformed|unavailable",
    re.IGNORECASE,
)
_FILTERED = late_pattern(
    r"filter|safety|sensitive|refus|block|prohibit|recitation|policy", re.IGNORECASE
)


class OpenAIChunks(ChunkReader):
    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        self._last_index = -1
        self._indexes: set[int] = set()

    def read(self, event: dict[str, Any]) -> Iterator[Chunk]:
        for choice in dictionaries(event.get("choices")):
            yield from self._read_delta(
                dictionary(choice.get("delta")) or dictionary(choice.get("message"))
            )
            finish = choice.get("finish_reason")
            if finish:
                self._note_end(str(finish))
        if usage := event.get("usage"):
            # The usage alone comes last, also from servers that name no reason.
            self.is_done = not event.get("choices") and self._implied_reason() is not None
            yield UsageChunk(parse_usage(usage, self._spec) if isinstance(usage, dict) else None)

    def _note_end(self, finish: str) -> None:
        """Note why the answer ended; relays and providers have their own words for an early end."""
        if _FAILED.search(finish):
            self.has_failed = True
            return
        check_window(finish)
        filtered: Reason = "filtered" if _FILTERED.search(finish) else "stop"
        self.reason = REASONS.get(finish.lower(), filtered)

    def _read_delta(self, delta: dict[str, Any]) -> Iterator[Chunk]:
        """The chunks of a piece of the answer."""
        yield from self._text_chunks(
            thinking_in(delta), *_content_texts(delta.get("content")), delta.get("refusal")
        )
        for call in dictionaries(delta.get("tool_calls")):
            yield self._read_call(call)

    def _read_call(self, call: dict[str, Any]) -> CallChunk:
        """A piece of a call; Gemini's signature becomes a part of the id."""
        function = dictionary(call.get("function"))
        call_id, name = text_or_json(call.get("id")), string(function.get("name"))
        index = self._find_index(call, begins=bool(call_id or name))
        google = dictionary(dictionary(call.get("extra_content")).get("google"))
        if signature := string(google.get("thought_signature")):
            call_id = f"{call_id}{SEAL}{signature}"
        return CallChunk(index, call_id, name, text_or_json(function.get("arguments")))

    def _find_index(self, call: dict[str, Any], *, begins: bool) -> int:
        """The index of a piece; one without id and name continues a call, whatever its index is."""
        index = count(call.get("index"))
        if index is None:
            index = self._last_index + (begins or self._last_index < 0)
        elif not begins and index not in self._indexes and self._indexes:
            index = self._last_index
        self._last_index = index
        self._indexes.add(index)
        return index


def _content_texts(content: object) -> Sequence[object]:
    """The texts of a delta's content; some servers send a list of parts."""
    return (
        [part.get("text") for part in dictionaries(content)]
        if isinstance(content, list)
        else [content]
    )


def parse_usage(usage: dict[str, Any], spec: ModelSpec) -> Usage | None:
    """Tokens and cost; the server's own price counts if the table has none. None if a figure is
    impossible.
    """
    details = dictionary(usage.get("prompt_tokens_details"))
    return make_usage(
        spec,
        usage.get("prompt_tokens"),
        details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens"),
        details.get("cache_write_tokens") or usage.get("cache_creation_input_tokens"),
        usage.get("completion_tokens"),
        cost=usage.get("cost"),
    )


class OpenAIWire(Wire):
    limit_names = ("max_tokens", "max_completion_tokens")

    def __init__(
        self,
        spec: ModelSpec,
        endpoint: Endpoint,
        *,
        effort: Effort = "off",
        facts: ServerFacts | None = None,
    ) -> None:
        super().__init__(spec, endpoint, effort=effort, facts=facts)
        self._schema: Mapping[str, Any] | None = None
        self._is_exact = False
        self._rebuild_format()

    def _rebuild_format(self) -> None:
        super()._rebuild_format()
        returns_thinking = self.facts.get("thinking_back")
        self._format = OpenAIFormat(self.spec, returns_thinking=returns_thinking)

    def with_schema(self, schema: Mapping[str, Any]) -> OpenAIWire:
        """The same model, on the same connection, at temperature 0, with `response_format`, unless
        the server refuses it.
        """
        made = copy.copy(self)
        made._schema, made._is_exact = schema, True
        return made

    def _make_reader(self) -> OpenAIChunks:
        return OpenAIChunks(self.spec)

    def _request(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> ModelRequest:
        """The request in the format of chat completions."""
        body: dict[str, Any] = {"model": self._model, "messages": self._format.messages(messages)}
        if tools and self.spec.tools:
            body["tools"] = format_tools(tools)
        body["max_tokens"] = self.spec.max_output
        if self.spec.thinking:
            body["reasoning_effort"] = "none" if self._effort == "off" else self._effort
        if self._is_exact:
            body["temperature"] = 0
        if self._schema:
            named = {"name": "answer", "strict": True, "schema": dict(self._schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
        key = self._endpoint.api_key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return ModelRequest("/chat/completions", headers, body)
