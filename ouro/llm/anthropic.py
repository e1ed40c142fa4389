"""The wire to Anthropic's messages API: request format with cache marks, and the parser of its
stream.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

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
from ouro.llm.paused_answers import AnswerContent
from ouro.llm.portable import (
    arguments_of,
    base64_of,
    calls_of,
    describe_hidden,
    portable_id,
    portable_name,
    reply_text,
    texts_of,
)
from ouro.llm.server_facts import ServerFacts
from ouro.llm.wire import ChunkReader, Wire, make_usage, require_room_in_window
from ouro.messages import Image, Message, PerMessage, Text, Thinking, ToolCall, ToolReply
from ouro.utils.lenient_json import count, dictionaries, dictionary, string, text_or_json
from ouro.utils.text import one_line

MAX_ID = 64
"""Maximum characters of the id of a call."""
CACHE_MARK = {"type": "ephemeral"}
MAX_DETAIL = 400
"""Maximum characters that are shown of what a provider says about a refusal."""
MARKED_MESSAGES = 2
"""Cache marks are set at the newest message, and at the one that was newest when the cache was last
written.
"""


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def thinking_block(part: Thinking) -> dict[str, Any]:
    """A block of thinking as it is sent back, with its signature or its encrypted data."""
    if part.redacted:
        return {"type": "redacted_thinking", "data": part.signature}
    return {"type": "thinking", "thinking": part.text, "signature": part.signature}


def signed_thinking(message: Message, model: str) -> list[dict[str, Any]]:
    """The thinking of this model with its signatures, as blocks. Empty for an answer that was cut,
    and for one of another model, whose signatures are not valid for this one.
    """
    if message.cut or message.model != model:
        return []
    return [thinking_block(part) for part in message.parts_of(Thinking) if part.signature]


def mark_for_cache(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks with a cache mark at the last one."""
    return [*blocks[:-1], {**blocks[-1], "cache_control": CACHE_MARK}] if blocks else []


PAUSED = "pause_turn"
"""The reason of an answer that stopped while a tool of the server runs, such as one that a gateway adds:
it is continued by sending it back.
"""
_MAX_PAUSES = 10
REASONS: dict[str, Reason] = {
    "tool_use": "tools",
    "max_tokens": "length",
    "refusal": "filtered",
}
"""Why an answer ended, in the words of Anthropic -> of ouro; any other reason is `stop`."""


COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
"""The fields of a usage: tokens that were not cached, read from the cache, written to it, and
answered.
"""


def _refusal_detail(details: dict[str, Any]) -> str:
    """What the provider says about a refusal: the category and its explanation; empty if nothing."""
    category, explanation = string(details.get("category")), string(details.get("explanation"))
    label = f"Category: {category}." if category else ""
    return one_line(f"{explanation} {label}".strip(), MAX_DETAIL)


class AnthropicChunks(ChunkReader):
    """Reads the events of a streamed answer."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        self._counts: dict[str, Any] = {}
        """The fields of the usage so far."""
        self._earlier_counts = [0] * len(COUNTS)
        """The usage of the parts of the answer before the last pause, in the order of COUNTS."""
        self._content = AnswerContent()
        self._pauses = 0
        self._is_paused = False
        self._index = 0
        """The number of the block that is streamed."""
        self._server_calls: set[int] = set()
        """The numbers of the blocks that call a tool of the server, such as one that a gateway adds."""

    def read(self, event: dict[str, Any]) -> Iterator[Chunk]:
        """Yield the chunks of one event. An event without an index belongs to the block before it.
        Raises ContextTooLong if the answer ended because the window is full.
        """
        self._content.add(event)
        match event.get("type"):
            case "message_start":
                yield from self._update_usage(dictionary(event.get("message")).get("usage"))
            case "content_block_start" | "content_block_delta":
                index = count(event.get("index"))
                if index is not None:
                    self._index = index
                block = dictionary(event.get("content_block")) or dictionary(event.get("delta"))
                yield from self._read_block(block)
            case "message_delta":
                delta = dictionary(event.get("delta"))
                reason = delta.get("stop_reason")
                if reason == PAUSED:
                    self._pauses += 1
                    self._is_paused = self._pauses <= _MAX_PAUSES
                    self.failure = "" if self._is_paused else PAUSED
                elif reason:
                    require_room_in_window(reason)
                    self.reason_detail = _refusal_detail(dictionary(delta.get("stop_details")))
                    self.reason = REASONS.get(str(reason), "stop")
                yield from self._update_usage(event.get("usage"))

    def end(self) -> Iterator[Chunk]:
        if not self._is_paused:  # else more follows
            yield from super().end()

    def take_continuation(self, body: dict[str, Any]) -> dict[str, Any] | None:
        if not self._is_paused:
            return None
        content = self._content.blocks()
        self._earlier_counts = self._valid_counts() or self._earlier_counts
        self._counts, self._content = {}, AnswerContent()
        self._server_calls.clear()
        self._is_paused = self.is_done = False
        return {**body, "messages": [*body["messages"], {"role": "assistant", "content": content}]}

    def _read_block(self, block: dict[str, Any]) -> Iterator[Chunk]:
        """Yield the chunks of the beginning of a block, or of a piece of it."""
        match block.get("type"):
            case "server_tool_use" | "mcp_tool_use":
                self._server_calls.add(self._index)
            case "input_json_delta" if self._index in self._server_calls:
                pass  # the server runs it, and its result is in a later block
            case "tool_use":
                # Some servers send the whole input here, and no deltas.
                whole = json.dumps(block["input"]) if block.get("input") else ""
                yield CallChunk(
                    self._index,
                    id=text_or_json(block.get("id")),
                    name=string(block.get("name")),
                    arguments=whole,
                )
            case "input_json_delta":
                yield CallChunk(self._index, arguments=text_or_json(block.get("partial_json")))
            case "redacted_thinking":
                yield ThinkingChunk(text="", signature=string(block.get("data")), redacted=True)
            case "signature_delta":
                yield ThinkingChunk(self._thinking.end(), string(block.get("signature")))
            case _:
                yield from self._text_chunks(block.get("thinking"), block.get("text"))

    def _update_usage(self, usage: object) -> Iterator[Chunk]:
        """Yield the usage so far, from a report in an event; nothing if the event has none. The
        figures of a later report replace those of the same name.

        If a figure is not a number of tokens, the usage in the chunk is None: it is not known.
        """
        if not usage:
            return
        # Anything but an object is taken as a figure, which is refused below.
        figures = usage if isinstance(usage, dict) else {COUNTS[0]: usage}
        self._counts |= {name: figure for name, figure in figures.items() if figure is not None}
        valid_counts = self._valid_counts()
        if not valid_counts:
            yield UsageChunk(usage=None)
            return
        uncached, cached, written, answered = valid_counts  # in the order of COUNTS
        sent = uncached + cached + written
        yield UsageChunk(
            make_usage(
                self._spec, sent=sent, cached=cached, cache_written=written, answered=answered
            )
        )

    def _valid_counts(self) -> list[int]:
        """The usage so far, in the order of COUNTS; empty if a figure is not a number of tokens."""
        counts = [count(self._counts.get(name, 0)) for name in COUNTS]
        valid_counts = [number for number in counts if number is not None]
        if len(valid_counts) < len(COUNTS):
            return []
        return [sum(pair) for pair in zip(valid_counts, self._earlier_counts, strict=True)]


VERSION = "2023-06-01"
"""The version of the API, which each request names."""
INTERLEAVED = "interleaved-thinking-2025-05-14"
"""Enables thinking between tool calls for models with a thinking budget; newer models do not need
it.
"""
BUDGETS = {
    "minimal": 1_024,
    "low": 4_000,
    "medium": 10_000,
    "high": 32_000,
    "xhigh": 48_000,
    "max": 64_000,
}
"""Effort -> the tokens of thinking that a request allows."""
MIN_BUDGET = 1_024
"""The least budget that the API accepts."""
FIRST_ADAPTIVE = (4, 6)
"""The first version of Claude that chooses its own budget."""
Style = Literal["adaptive", "budget", "none"]
"""How thinking is requested: the model chooses the budget, the request names one, or not at all."""


class AnthropicWire(Wire):
    """A model of Anthropic's, or of a server with the same API."""

    def __init__(
        self,
        spec: ModelSpec,
        endpoint: Endpoint,
        *,
        effort: Effort = "off",
        facts: ServerFacts | None = None,
    ) -> None:
        super().__init__(spec, endpoint, effort=effort, facts=facts)
        self._rebuild_format()

    def _rebuild_format(self) -> None:
        super()._rebuild_format()
        self._sends_thinking = not self.facts.refuses_signatures
        self._sends_unsigned = self.facts.get("thinking_back") in ("yes", "all")
        """Whether thinking without a signature is sent back: vendors with this protocol want it."""
        self._contents = PerMessage(self._content_blocks)

    def _remaining_thinking_styles(self) -> tuple[Style, ...]:
        """The styles that the server has not refused, the likely one first; only `none` if the model
        is not to think.
        """
        if self._effort == "off" or not self.spec.thinking:
            return ("none",)
        styles = _list_thinking_styles(self._model)
        accepted = self.facts.get("thinking_style")
        if accepted in styles:  # those before it were refused
            return tuple(styles[styles.index(accepted) :])
        return tuple(styles)

    def _events_of_whole(self, answer: dict[str, Any]) -> list[dict[str, Any]]:
        blocks = dictionaries(answer.get("content"))
        if not blocks:
            return []
        events: list[dict[str, Any]] = [{"type": "message_start", "message": answer}]
        for index, block in enumerate(blocks):
            start = {"type": "content_block_start", "index": index, "content_block": block}
            events.append(start)
            if block.get("type") == "thinking" and block.get("signature"):
                signature = {"type": "signature_delta", "signature": block["signature"]}
                delta = {"type": "content_block_delta", "index": index, "delta": signature}
                events.append(delta)
        end = {"type": "message_delta", "delta": {"stop_reason": answer.get("stop_reason")}}
        return [*events, end, {"type": "message_stop"}]

    def _make_reader(self) -> AnthropicChunks:
        return AnthropicChunks(self.spec)

    def _request(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> ModelRequest:
        """The request. Tools, system prompt and newest messages have cache marks."""
        body: dict[str, Any] = {"model": self._model, "max_tokens": self.spec.max_output}
        if tools and self.spec.tools:
            body["tools"] = mark_for_cache(
                [
                    {
                        "name": tool.name,
                        "description": tool.description,
                        "input_schema": dict(tool.parameters),
                    }
                    for tool in tools
                ]
            )
        prompt: list[dict[str, Any]] = []
        for message in messages:
            if message.role == "system":
                prompt += map(_text_block, texts_of(message))
        if prompt:
            body["system"] = mark_for_cache(prompt)
        body["messages"] = self._format_messages(messages)
        body |= self._thinking_fields(messages)
        body["stream"] = True
        headers = {"anthropic-version": VERSION}
        if self._endpoint.api_key:
            headers["x-api-key"] = self._endpoint.api_key
        if body.get("thinking", {}).get("type") == "enabled":
            headers["anthropic-beta"] = INTERLEAVED
        has_version = self._endpoint.base_url.rstrip("/").endswith("/v1")
        path = "/messages" if has_version else "/v1/messages"
        return ModelRequest(path, headers, body)

    def _thinking_fields(self, messages: Sequence[Message]) -> dict[str, Any]:
        """The fields that ask for thinking, in the first style that the server has not refused:
        `adaptive` sends the effort, `budget` a maximum of tokens, `none` nothing. Empty if the
        model is not to think, or if the server would refuse a budget for these messages.
        """
        style = self._remaining_thinking_styles()[0]
        if style == "adaptive":
            thinking = {"type": "adaptive", "display": "summarized"}
            effort = "low" if self._effort == "minimal" else self._effort  # the least that it has
            return {"thinking": thinking, "output_config": {"effort": effort}}
        budget = min(BUDGETS.get(self._effort, 0), self.spec.max_output // 2)
        if style == "none" or budget < MIN_BUDGET:
            return {}
        if self._has_open_calls_without_thinking(messages):
            return {}
        return {"thinking": {"type": "enabled", "budget_tokens": budget}}

    def _has_open_calls_without_thinking(self, messages: Sequence[Message]) -> bool:
        """Whether the last answer has calls, and no thinking is sent before them. The API then
        refuses a budget until the next message of the user.
        """
        newest = next(
            (message for message in reversed(messages) if message.role in ("assistant", "user")),
            None,
        )
        if newest is None or newest.role == "user" or not newest.tool_calls:
            return False
        is_signed = self._sends_thinking and bool(signed_thinking(newest, self.spec.name))
        begins_with_thinking = isinstance(newest.parts[0], Thinking)
        return not (begins_with_thinking and is_signed)

    def _format_messages(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """All messages except the system prompt, as the API takes them; messages without content are
        left out. The same messages give the same bytes, except for the cache marks.
        """
        dialog = [message for message in messages if message.role != "system"]
        formatted: list[dict[str, Any]] = [
            {"role": "assistant" if message.role == "assistant" else "user", "content": content}
            for message, content in zip(dialog, self._contents(dialog), strict=True)
            if content
        ]
        user_indexes = [index for index, item in enumerate(formatted) if item["role"] == "user"]
        for index in user_indexes[-MARKED_MESSAGES:]:
            content = list(formatted[index]["content"])
            formatted[index] = {**formatted[index], "content": mark_for_cache(content)}
        return formatted

    def _content_blocks(self, message: Message) -> list[dict[str, Any]]:
        """A message as blocks; none for an answer that was cut before any text or call."""
        match message.role:
            case "assistant":
                return self._assistant_blocks(message)
            case "tool":
                return [self._result_block(reply) for reply in message.parts_of(ToolReply)]
            case _:
                return [_text_block(text) for text in texts_of(message)] + [
                    self._image_block(image) for image in message.parts_of(Image)
                ]

    def _assistant_blocks(self, message: Message) -> list[dict[str, Any]]:
        """An answer as blocks; none if it has no text and no call. Thinking is sent back only to the
        model that wrote it. A cut answer is sent without its calls.
        """
        is_own = not message.cut and message.model == self.spec.name
        calls = calls_of(message)
        blocks: list[dict[str, Any]] = []
        for part in message.parts:
            if isinstance(part, Text) and part.text.strip():
                blocks.append(_text_block(part.text))
            elif isinstance(part, Thinking) and is_own and self._is_sent_back(part):
                blocks.append(thinking_block(part))
            elif isinstance(part, ToolCall) and calls:
                call_id, name = portable_id(part.id, MAX_ID), portable_name(part.name)
                blocks.append(
                    {"type": "tool_use", "id": call_id, "name": name, "input": arguments_of(part)}
                )
        return blocks if any(block["type"] in ("text", "tool_use") for block in blocks) else []

    def _is_sent_back(self, part: Thinking) -> bool:
        """Whether thinking of this model is sent back: with its signature, or because the server wants
        it without one.
        """
        return self._sends_thinking if part.signature else self._sends_unsigned

    def _result_block(self, reply: ToolReply) -> dict[str, Any]:
        """The result of a call, with its images."""
        images = reply.images if self.spec.images else ()
        content = [
            _text_block(reply_text(reply, self.spec.images)),
            *map(self._image_block, images),
        ]
        block = {
            "type": "tool_result",
            "tool_use_id": portable_id(reply.call_id, MAX_ID),
            "content": content,
        }
        return {**block, "is_error": True} if reply.failed else block

    def _image_block(self, image: Image) -> dict[str, Any]:
        """An image, or its description if the model cannot see it."""
        if not self.spec.images:
            return _text_block(describe_hidden(image))
        source = {"type": "base64", "media_type": image.media_type, "data": base64_of(image)}
        return {"type": "image", "source": source}


def _list_thinking_styles(model: str) -> list[Style]:
    """The ways to request thinking, the most likely first; models since Claude 4.6 choose their own
    budget.
    """
    # `claude-opus-4-6-20260115`: 4 and 6; the date is not part of the version.
    version = re.search(r"claude-[a-z]+-(\d+)(?:[-.](\d{1,2})(?!\d))?", model)
    is_new = version is not None and (int(version[1]), int(version[2] or 0)) >= FIRST_ADAPTIVE
    return ["adaptive", "budget", "none"] if is_new else ["budget", "adaptive", "none"]
