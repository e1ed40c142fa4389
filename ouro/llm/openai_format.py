"""Messages and tools as OpenAI's chat completions take them; litellm takes the same."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
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
from ouro.messages import Image, Message, Thinking, ToolCall, ToolReply

SEAL = "__thought__"
"""Between a call's id and the seal that Gemini wants to see again with the call; litellm writes it so, too."""


class OpenAIFormat:
    """How one model is given messages."""

    def __init__(self, spec: ModelSpec, *, returns_thinking: bool = False, longest_id: int = 40) -> None:
        self._spec = spec
        self._returns_thinking = returns_thinking
        self._longest_id = longest_id

    def messages(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """All messages, in order."""
        return [sent for message in messages for sent in self._message(message)]

    def _message(self, message: Message) -> Iterator[dict[str, Any]]:
        match message.role:
            case "system":
                yield {"role": "system", "content": message.text}
            case "user":
                yield {"role": "user", "content": self._content(message)}
            case "assistant":
                yield from self._assistant(message)
            case "tool":
                yield from self._tool(message.parts_of(ToolReply))

    def _content(self, message: Message) -> str | list[dict[str, Any]]:
        images = message.parts_of(Image)
        words = words_of(message)
        if not images or not self._spec.images:
            return "\n\n".join([*words, *map(unseen, images)])
        return [{"type": "text", "text": text} for text in words] + [_image(image) for image in images]

    def _assistant(self, message: Message) -> Iterator[dict[str, Any]]:
        calls = calls_of(message)
        words = "\n\n".join(words_of(message))
        if not calls and not words:
            return
        sent: dict[str, Any] = {"role": "assistant", "content": words or None}
        thinking = "".join(part.text for part in message.parts_of(Thinking))
        if self._returns_thinking and calls:
            sent["reasoning_content"] = thinking
        if calls:
            sent["tool_calls"] = [self._call(call) for call in calls]
        yield sent

    def _call(self, call: ToolCall) -> dict[str, Any]:
        function = {
            "name": portable_name(call.name),
            "arguments": json.dumps(arguments_of(call), ensure_ascii=False),
        }
        sent: dict[str, Any] = {"id": self._id(call.id), "type": "function", "function": function}
        _, seal, signature = call.id.partition(SEAL)
        if seal and self._longest_id:
            sent["extra_content"] = {"google": {"thought_signature": signature}}
        return sent

    def _id(self, call_id: str) -> str:
        if not self._longest_id:
            return call_id
        return portable_id(call_id.partition(SEAL)[0], self._longest_id)

    def _tool(self, replies: Sequence[ToolReply]) -> Iterator[dict[str, Any]]:
        for reply in replies:
            content = reply_text(reply, self._spec.images)
            yield {"role": "tool", "tool_call_id": self._id(reply.call_id), "content": content}
        seen = [(reply, image) for reply in replies for image in reply.images] if self._spec.images else []
        if seen:
            # Only a user's message may hold pictures, and it may not come between the replies.
            names = ", ".join(f"{reply.name} ({image.name})" if image.name else reply.name for reply, image in seen)
            text = {"type": "text", "text": f"Pictures from the tool results above: {names}"}
            yield {"role": "user", "content": [text, *(_image(image) for _, image in seen)]}


def tools_as_openai(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """The tools, in the order given."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
        }
        for tool in tools
    ]


def _image(image: Image) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{image.media_type};base64,{base64_of(image)}"}}
