"""Messages and tools as Anthropic takes them, with marks up to where the provider shall keep them in its cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ouro.llm.model import ModelSpec, ToolSpec
from ouro.llm.portable import (
    arguments_of,
    base64_of,
    calls_of,
    portable_id,
    portable_name,
    reply_text,
    unseen,
    words_of,
)
from ouro.messages import Image, Message, Text, Thinking, ToolCall, ToolReply

LONGEST_ID = 64
MARK = {"type": "ephemeral"}
MARKED_MESSAGES = 2
"""The newest message, and the one that was newest when the last answer was written to the cache."""


class AnthropicFormat:
    """How one model is given messages. The same messages always give the same bytes, but for where the marks are."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec

    def system(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """The system prompt."""
        blocks = [_text(text) for message in messages if message.role == "system" for text in words_of(message)]
        return _marked(blocks)

    def tools(self, tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
        """The tools, in the order given."""
        return _marked(
            [
                {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
                for tool in tools
            ]
        )

    def messages(self, messages: Sequence[Message], *, thinking: bool = True) -> list[dict[str, Any]]:
        """All messages but the system prompt; without what was thought where `thinking` is false."""
        sent: list[dict[str, Any]] = [
            {"role": "assistant" if message.role == "assistant" else "user", "content": content}
            for message in messages
            if message.role != "system" and (content := self._content(message, thinking))
        ]
        asked = [place for place, each in enumerate(sent) if each["role"] == "user"]
        for place in asked[-MARKED_MESSAGES:]:
            sent[place] = {**sent[place], "content": _marked(list(sent[place]["content"]))}
        return sent

    def seals(self, message: Message) -> list[dict[str, Any]]:
        """What this very model thought, with its seals; another model's seals are worth nothing to it."""
        if message.cut or message.model != self._spec.name:
            return []
        return [_thinking(part) for part in message.parts_of(Thinking) if part.signature]

    def _content(self, message: Message, thinking: bool) -> list[dict[str, Any]]:
        match message.role:
            case "assistant":
                return self._assistant(message, thinking)
            case "tool":
                return [self._result(reply) for reply in message.parts_of(ToolReply)]
            case _:
                return [_text(text) for text in words_of(message)] + [
                    self._image(image) for image in message.parts_of(Image)
                ]

    def _assistant(self, message: Message, thinking: bool) -> list[dict[str, Any]]:
        sealed = thinking and bool(self.seals(message))
        calls = calls_of(message)
        blocks: list[dict[str, Any]] = []
        for part in message.parts:
            if isinstance(part, Text) and part.text.strip():
                blocks.append(_text(part.text))
            elif isinstance(part, Thinking) and part.signature and sealed:
                blocks.append(_thinking(part))
            elif isinstance(part, ToolCall) and calls:
                blocks.append(_call(part))
        return blocks if any(block["type"] in ("text", "tool_use") for block in blocks) else []

    def _result(self, reply: ToolReply) -> dict[str, Any]:
        images = reply.images if self._spec.images else ()
        content = [_text(reply_text(reply, self._spec.images)), *map(self._image, images)]
        sent = {
            "type": "tool_result",
            "tool_use_id": portable_id(reply.call_id, LONGEST_ID),
            "content": content,
        }
        return {**sent, "is_error": True} if reply.failed else sent

    def _image(self, image: Image) -> dict[str, Any]:
        if not self._spec.images:
            return _text(unseen(image))
        source = {"type": "base64", "media_type": image.media_type, "data": base64_of(image)}
        return {"type": "image", "source": source}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _thinking(part: Thinking) -> dict[str, Any]:
    if part.redacted:
        return {"type": "redacted_thinking", "data": part.signature}
    return {"type": "thinking", "thinking": part.text, "signature": part.signature}


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": portable_id(call.id, LONGEST_ID),
        "name": portable_name(call.name),
        "input": arguments_of(call),
    }


def _marked(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same, with a mark on the last."""
    return [*blocks[:-1], {**blocks[-1], "cache_control": MARK}] if blocks else []
