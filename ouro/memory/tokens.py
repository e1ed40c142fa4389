"""Tokens of messages: the figures of the provider, and estimates from characters."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain

from ouro.messages import Context, Image, Message, Part, Text, Thinking, ToolCall, ToolReply

CHARACTERS_A_TOKEN = 3.5
TOKENS_A_PICTURE = 1_500


def estimate(text: str) -> int:
    """The approximate tokens of a text."""
    return int(len(text) / CHARACTERS_A_TOKEN)


def estimate_messages(messages: Iterable[Message]) -> int:
    """The approximate tokens of messages."""
    parts = chain.from_iterable(message.parts for message in messages)
    return int(sum(map(_characters, parts)) / CHARACTERS_A_TOKEN)


def reported_tokens(message: Message) -> int:
    """The provider's token count of the request and this answer; 0 if unknown, or if it counts
    something else.
    """
    usage = message.usage
    if message.role != "assistant" or usage is None or not usage.input or _is_step(message):
        return 0
    return usage.input + usage.output


def _is_step(message: Message) -> bool:
    """Whether a message is a step of a very small model. Each step is a request of its own, without
    the others, so its token count says nothing about the session.
    """
    if not message.tool_calls:
        return False
    from ouro.llm import is_step  # imported late: it is known to very small models only

    return any(map(is_step, message.tool_calls))


def _characters(part: Part) -> float:
    """The characters of a part as it is sent; a picture counts as many as its tokens."""
    match part:
        case Text() | Context():
            return len(part.text)
        case Thinking():
            return len(part.text) + len(part.signature)
        case Image():
            return TOKENS_A_PICTURE * CHARACTERS_A_TOKEN
        case ToolCall():
            return (
                len(part.name) + len(part.malformed) + len(json.dumps(part.arguments, default=str))
            )
        case ToolReply():
            return len(part.text) + len(part.images) * TOKENS_A_PICTURE * CHARACTERS_A_TOKEN
