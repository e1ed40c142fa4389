"""TokenCount: tokens of messages, from the provider's figures, with an estimate for newer messages."""

from __future__ import annotations

import json
from collections.abc import Iterable

from ouro.llm import is_step
from ouro.messages import Context, Image, Message, Part, Text, Thinking, ToolCall, ToolReply

CHARACTERS_A_TOKEN = 3.5
TOKENS_A_PICTURE = 1_500


def estimate(text: str) -> int:
    return int(len(text) / CHARACTERS_A_TOKEN)


def estimate_messages(messages: Iterable[Message]) -> int:
    return int(sum(_characters(part) for message in messages for part in message.parts) / CHARACTERS_A_TOKEN)


def reported_tokens(message: Message) -> int:
    """The provider's token count of the request and this answer; 0 if unknown, or not of the conversation."""
    usage = message.usage
    if message.role != "assistant" or usage is None or not usage.input or any(map(is_step, message.tool_calls)):
        return 0
    return usage.input + usage.output


class TokenCount:
    """Tokens of the next request: the usage of the last answer, plus an estimate for newer messages.

    Kept up to date message by message: a status line asks for it more often than messages come.
    """

    def __init__(self) -> None:
        self._reported = 0
        self._characters = 0.0

    @property
    def is_measured(self) -> bool:
        """Whether it includes a provider's figure, which also counts the system prompt and the tools."""
        return self._reported > 0

    @property
    def tokens(self) -> int:
        return self._reported + int(self._characters / CHARACTERS_A_TOKEN)

    def add(self, message: Message, *, is_measured: bool = True) -> None:
        """Add the next message; without `is_measured` the figures of its provider do not count."""
        reported = reported_tokens(message) if is_measured else 0
        if reported:
            self._reported, self._characters = reported, 0.0
        else:
            self._characters += sum(map(_characters, message.parts))

    def reset(self, tokens: int) -> None:
        self._reported, self._characters = tokens, 0.0


def _characters(part: Part) -> float:
    match part:
        case Text() | Context():
            return len(part.text)
        case Thinking():
            return len(part.text) + len(part.signature)
        case Image():
            return TOKENS_A_PICTURE * CHARACTERS_A_TOKEN
        case ToolCall():
            return len(part.name) + len(part.malformed) + len(json.dumps(part.arguments, default=str))
        case ToolReply():
            return len(part.text) + len(part.images) * TOKENS_A_PICTURE * CHARACTERS_A_TOKEN
