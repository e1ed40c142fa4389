"""The wire to OpenAI's chat completions; their format also for litellm."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    ThinkingChunk,
    ToolSpec,
    UsageChunk,
)
from ouro.llm.portable import (
    DETAILS,
    SEAL,
    THINKING_NAMES,
    arguments_of,
    base64_of,
    calls_of,
    describe_hidden,
    portable_id,
    portable_name,
    reply_text,
    texts_of,
    thinking_in,
    thinking_name,
)
from ouro.llm.server_facts import ServerFacts
from ouro.llm.wire import ChunkReader, Wire, make_usage, require_room_in_window
from ouro.messages import Image, Message, PerMessage, Thinking, ToolCall, ToolReply, Usage
from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import count, dictionaries, dictionary, string, text_or_json


class OpenAIFormat:
    """Messages in the format of chat completions."""

    def __init__(
        self,
        spec: ModelSpec,
        *,
        returns_thinking: str = "",
        thinking_name: str = "",
        longest_id: int = 40,
        address: str = "",
    ) -> None:
        """Keep the choices that depend on the provider.

        Args:
            returns_thinking: `yes`: thinking is sent back with calls; `all`: with each answer;
                `own`: as `yes`, but a call without thinking gets none; otherwise not at all.
            thinking_name: the field of thinking; empty: `reasoning_content`.
            longest_id: the maximum length of the id of a call; 0: ids are not changed.
            address: the server that gets the reasoning details back which it has sent; empty:
                none are sent.
        """
        self._spec = spec
        self._returns_thinking = returns_thinking
        self._thinking_name = thinking_name or THINKING_NAMES[0]
        self._longest_id = longest_id
        self._address = address
        self._formatted = PerMessage(lambda message: tuple(self._format_message(message)))

    def messages(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """The messages in this format. Those that were formatted before are not formatted again."""
        return list(chain.from_iterable(self._formatted(messages)))

    def _format_message(self, message: Message) -> Iterator[dict[str, Any]]:
        """Yield the message in this format. A message of tool results becomes several messages. For
        an answer without text and calls nothing is yielded.
        """
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
        """The content of a user message: a text, or parts if it has images that the model sees."""
        images = message.parts_of(Image)
        texts = texts_of(message)
        if not images or not self._spec.images:
            return "\n\n".join([*texts, *map(describe_hidden, images)])
        return [{"type": "text", "text": text} for text in texts] + [
            _image_part(image) for image in images
        ]

    def _format_answer(self, message: Message) -> Iterator[dict[str, Any]]:
        """Yield an answer with its calls; nothing if it has neither text nor calls."""
        calls = calls_of(message)
        text = "\n\n".join(texts_of(message))
        if not calls and not text:
            return
        answer: dict[str, Any] = {"role": "assistant", "content": text or None}
        is_wanted_with_calls = self._returns_thinking in ("yes", "own")
        if self._returns_thinking == "all" or (is_wanted_with_calls and calls):
            self._add_thinking(answer, message)
        details = self._own_details(message)
        if details:
            answer[DETAILS] = details
        if calls:
            answer["tool_calls"] = [self._format_call(call) for call in calls]
        yield answer

    def _add_thinking(self, answer: dict[str, Any], message: Message) -> None:
        """Add the thinking of a message to its answer."""
        thinking = self._own_thinking(message)
        if not thinking and self._returns_thinking != "own":
            thinking = " "  # Kimi refuses an empty text.
        if thinking:
            answer[self._thinking_name] = thinking

    def _own_thinking(self, message: Message) -> str:
        """The thinking in a message of this model; empty for another model, whose thinking never
        goes to this server. A message without the name of a model was made by the present one.
        """
        if message.model not in ("", self._spec.name):
            return ""
        return "".join(part.text for part in message.parts_of(Thinking))

    def _own_details(self, message: Message) -> list[dict[str, Any]]:
        """The reasoning details that this model sent with a whole answer."""
        if not self._address or message.cut or message.model != self._spec.name:
            return []
        if not message.parts_of(Thinking):
            return []
        from ouro.llm.sealed_items import details_in  # only relays send details

        return details_in(message, self._address)

    def _format_call(self, call: ToolCall) -> dict[str, Any]:
        """A call, with its arguments as JSON, and with the signature that Gemini wants back."""
        function = {
            "name": portable_name(call.name),
            "arguments": json.dumps(arguments_of(call), ensure_ascii=False),
        }
        formatted: dict[str, Any] = {
            "id": self._portable_id(call.id),
            "type": "function",
            "function": function,
        }
        _, seal, signature = call.id.partition(SEAL)
        if seal and self._longest_id:
            formatted["extra_content"] = {"google": {"thought_signature": signature}}
        return formatted

    def _portable_id(self, call_id: str) -> str:
        """The id of a call in a form that the server accepts, without the signature of Gemini that
        may follow it. Unchanged for litellm, which makes its own.
        """
        if not self._longest_id:
            return call_id
        return portable_id(call_id.partition(SEAL)[0], self._longest_id)

    def _format_results(self, replies: Sequence[ToolReply]) -> Iterator[dict[str, Any]]:
        """Yield a message for each tool result, then a message of the user with all their images."""
        for reply in replies:
            content = reply_text(reply, self._spec.images)
            yield {
                "role": "tool",
                "tool_call_id": self._portable_id(reply.call_id),
                "content": content,
            }
        if not self._spec.images:
            return
        names: list[str] = []
        images: list[dict[str, Any]] = []
        for reply in replies:
            for image in reply.images:
                names.append(f"{reply.name} ({image.name})" if image.name else reply.name)
                images.append(_image_part(image))
        if images:
            # Only a user message may hold images, and it may not come between tool results.
            text = f"Pictures from the tool results above: {', '.join(names)}"
            yield {"role": "user", "content": [{"type": "text", "text": text}, *images]}


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
"""Why an answer ended, in the words of servers -> of ouro; other words are searched."""
_FAILURE_REASON = late_pattern(
    r"error|abort|insufficient|network|timeout|interrupt|cancel|fail|malformed|unavailable",
    re.IGNORECASE,
)
"""Matches a reason which says that the server failed."""
_FILTER_REASON = late_pattern(
    r"filter|safety|sensitive|refus|block|prohibit|recitation|policy", re.IGNORECASE
)
"""Matches a reason which says that a filter stopped the answer."""


class OpenAIChunks(ChunkReader):
    """Reads the events of a streamed answer."""

    def __init__(
        self,
        spec: ModelSpec,
        address: str = "",
        note_thinking_name: Callable[[str], None] | None = None,
    ) -> None:
        """Begin an answer.

        Args:
            address: the server that wants reasoning details back; empty: none.
            note_thinking_name: called with the field in which thinking comes.
        """
        super().__init__(spec)
        self._note_thinking_name = note_thinking_name
        self._address = address
        self._details: list[dict[str, Any]] = []
        """The pieces of reasoning details that were not yielded yet."""
        self._last_index = -1
        """The index of the call to which the last piece belonged; -1 before the first one."""
        self._indexes: set[int] = set()
        """The indexes of all calls so far."""

    def read(self, event: dict[str, Any]) -> Iterator[Chunk]:
        """Yield the chunks of one event: those of its deltas, and the usage if it has one. A usage
        that cannot be right is yielded as None.
        """
        for choice in dictionaries(event.get("choices")):
            # A server that does not stream sends the whole `message`.
            delta = dictionary(choice.get("delta")) or dictionary(choice.get("message"))
            yield from self._read_delta(delta)
            reason = choice.get("finish_reason")
            if reason:
                self._record_end(str(reason), string(choice.get("native_finish_reason")))
        usage = event.get("usage")
        if usage:
            # An event with only the usage is the last one. This tells the end of an answer from a
            # server that names no reason for it.
            has_only_usage = not event.get("choices")
            self.is_done = has_only_usage and self._implied_reason() is not None
            yield UsageChunk(parse_usage(usage, self._spec) if isinstance(usage, dict) else None)

    def _record_end(self, reason: str, native_reason: str = "") -> None:
        """Record why the answer ended, in the words of the server and of the provider behind it; they
        have their own words for an early end. Raises ContextTooLong if the reason is that the
        window is full.
        """
        if _FAILURE_REASON.search(reason):
            words = dict.fromkeys((reason[:100], native_reason[:100]))
            self.failure = " ".join(filter(None, words))
            return
        require_room_in_window(reason)
        other_reason: Reason = "filtered" if _FILTER_REASON.search(reason) else "stop"
        self.reason = REASONS.get(reason.lower(), other_reason)

    def _read_delta(self, delta: dict[str, Any]) -> Iterator[Chunk]:
        """Yield the chunks of a piece of the answer. Reasoning details are yielded when something
        else than thinking follows.
        """
        self._details += dictionaries(delta.get(DETAILS))
        if delta.get("content") or delta.get("tool_calls"):
            yield from self._sealed_details()
        if self._note_thinking_name and (name := thinking_name(delta)):
            self._note_thinking_name(name)
            self._note_thinking_name = None  # the name is the same in the whole answer
        yield from self._text_chunks(
            thinking_in(delta), *_content_texts(delta.get("content")), delta.get("refusal")
        )
        for call in dictionaries(delta.get("tool_calls")):
            yield self._read_call(call)

    def end(self) -> Iterator[Chunk]:
        """Yield the last chunks; before them the reasoning details that came last."""
        yield from self._sealed_details()
        yield from super().end()

    def _sealed_details(self) -> Iterator[Chunk]:
        """Yield the reasoning details so far as one chunk; nothing if there are no new ones."""
        if self._details and self._address:
            from ouro.llm.sealed_items import join_details, seal_item  # only relays send details

            item = {DETAILS: join_details(self._details)}
            yield ThinkingChunk(self._thinking.end(), seal_item(item, self._address))
        self._details = []

    def _read_call(self, call: dict[str, Any]) -> CallChunk:
        """A piece of a call; Gemini's signature becomes a part of the id."""
        function = dictionary(call.get("function"))
        call_id, name = text_or_json(call.get("id")), string(function.get("name"))
        index = self._find_index(call, begins=bool(call_id or name))
        google = dictionary(dictionary(call.get("extra_content")).get("google"))
        signature = string(google.get("thought_signature"))
        if signature:
            call_id = f"{call_id}{SEAL}{signature}"
        return CallChunk(index, call_id, name, arguments=text_or_json(function.get("arguments")))

    def _find_index(self, call: dict[str, Any], *, begins: bool) -> int:
        """The index of the call to which a piece belongs. Some servers send no index, or a wrong one:
        a piece that begins no call then continues the last call.

        Args:
            begins: whether the piece has an id or a name.
        """
        index = count(call.get("index"))
        is_first = self._last_index < 0
        if index is None:
            index = self._last_index + 1 if begins or is_first else self._last_index
        elif not begins and not is_first and index not in self._indexes:
            index = self._last_index
        self._last_index = index
        self._indexes.add(index)
        return index


def _content_texts(content: object) -> Sequence[object]:
    """The texts of a delta's content; some servers send a list of parts."""
    if isinstance(content, list):
        return [part.get("text") for part in dictionaries(content)]
    return [content]


def parse_usage(usage: dict[str, Any], spec: ModelSpec) -> Usage | None:
    """Tokens and cost of an answer. The cost that the server names counts if the spec has no prices.
    None if a figure cannot be right.
    """
    details = dictionary(usage.get("prompt_tokens_details"))
    return make_usage(
        spec,
        sent=usage.get("prompt_tokens"),
        cached=details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens"),
        cache_written=details.get("cache_write_tokens") or usage.get("cache_creation_input_tokens"),
        answered=usage.get("completion_tokens"),
        cost=usage.get("cost"),
    )


class OpenAIWire(Wire):
    """A model that is reached by chat completions."""

    usual_path = "v1"
    limit_names = ("max_tokens", "max_completion_tokens")
    """The names of the field that limits an answer, the usual one first."""

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
        self._format = OpenAIFormat(
            self.spec,
            returns_thinking=self._returns_thinking(),
            thinking_name=self.facts.get("thinking_name"),
            address="" if self._refuses_details() else self._endpoint.address,
        )

    def _returns_thinking(self) -> str:
        """How thinking is sent back, as `OpenAIFormat` takes it.

        A server of the user that streams thinking in a field of its own gets it back, unless it has
        refused that: gpt-oss, MiniMax and others think on after a tool call, and a prompt that
        begins like the answer is in the server's cache.
        """
        wanted = self.facts.get("thinking_back")
        if wanted == "no":
            return ""
        is_own_server = self._endpoint.is_local and self.facts.has("thinking_name")
        return wanted or ("own" if is_own_server else "")

    def _note_thinking_name(self, name: str) -> None:
        """Record the field in which this server streams thinking: it wants it back there. vLLM
        ignores `reasoning_content` since 2026.
        """
        if self.facts.get("thinking_name") != name:
            self.facts.try_changes({"thinking_name": name}, f"thinking came as `{name}`")

    def _refuses_details(self) -> bool:
        """Whether the server has refused reasoning details, or signatures in them."""
        return self.facts.refuses_signatures or self.facts.get("thinking_back") == "no"

    def with_schema(self, schema: Mapping[str, Any]) -> OpenAIWire:
        """The same model on the same connection, at temperature 0, with answers that fit the
        schema. It is sent as `response_format`. If the server refuses that field, it is left out,
        and the answers are free text.
        """
        constrained = OpenAIWire(
            self._configured_spec,
            self._endpoint,
            effort=self._effort,
            facts=self.facts,
            schema=schema,
        )
        constrained.share_connections(self)
        return constrained

    def _events_of_whole(self, answer: dict[str, Any]) -> list[dict[str, Any]]:
        return [answer] if dictionaries(answer.get("choices")) else []

    def _make_reader(self) -> OpenAIChunks:
        return OpenAIChunks(self.spec, self._endpoint.address, self._note_thinking_name)

    def _request(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> ModelRequest:
        """The request in the format of chat completions."""
        body: dict[str, Any] = {"model": self._model, "messages": self._format.messages(messages)}
        if tools and self.spec.tools:
            body["tools"] = format_tools(tools)
        body["max_tokens"] = self.spec.max_output
        if self.spec.thinking:
            body["reasoning_effort"] = "none" if self._effort == "off" else self._effort
        if self._schema is not None:
            body["temperature"] = 0
        if self._schema:
            schema = {"name": "answer", "strict": True, "schema": dict(self._schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
        key = self._endpoint.api_key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return ModelRequest("/chat/completions", headers, body)
