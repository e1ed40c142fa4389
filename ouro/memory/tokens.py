"""How much of a model's window messages fill: the provider's figures where known, an estimate for what is newer."""

from __future__ import annotations

import json
from collections.abc import Iterable

from ouro.messages import Context, Image, Message, Part, Text, Thinking, ToolCall, ToolReply

CHARACTERS_A_TOKEN = 3.5
TOKENS_A_PICTURE = 1_500


def estimate(text: str) -> int:
    return int(len(text) / CHARACTERS_A_TOKEN)


def estimate_messages(messages: Iterable[Message]) -> int:
    """About how many tokens `messages` are."""
    return int(sum(_characters(part) for message in messages for part in message.parts) / CHARACTERS_A_TOKEN)


def told_tokens(message: Message) -> int:
    """What the provider says that the conversation up to this answer is, with all that goes by it; 0: nothing."""
    usage = message.usage
    return usage.input + usage.output if message.role == "assistant" and usage is not None and usage.input else 0


class TokenCount:
    """Tokens of the next request: what the last answer's usage says, and an estimate for what came after it.

    Kept up to date message by message: a status line asks for it more often than messages come.
    """

    def __init__(self) -> None:
        self._told = 0
        self._characters = 0.0

    @property
    def is_measured(self) -> bool:
        """Whether a provider's figure is among it, which counts the system prompt and the tools too."""
        return self._told > 0

    @property
    def tokens(self) -> int:
        return self._told + int(self._characters / CHARACTERS_A_TOKEN)

    def add(self, message: Message, *, is_measured: bool = True) -> None:
        """Add the next message; without `is_measured` the figures of its provider do not count."""
        told = told_tokens(message) if is_measured else 0
        if told:
            self._told, self._characters = told, 0.0
        else:
            self._characters += sum(map(_characters, message.parts))

    def reset(self, tokens: int) -> None:
        """So many they are now, whatever was counted."""
        self._told, self._characters = tokens, 0.0


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
