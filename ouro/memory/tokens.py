"""Tokens of messages: the figures of the provider, and estimates from characters."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain

from ouro.messages import Context, Image, Message, Part, Text, Thinking, ToolCall, ToolReply

CHARACTERS_A_TOKEN = 3.5
TOKENS_A_PICTURE = 1_500


def estimate(text: str) -> int:
    """Returns the approximate number of tokens of a text."""
    return int(len(text) / CHARACTERS_A_TOKEN)


def estimate_messages(messages: Iterable[Message]) -> int:
    """Returns the approximate number of tokens of messages, images included."""
    parts = chain.from_iterable(message.parts for message in messages)
    return int(sum(map(_characters, parts)) / CHARACTERS_A_TOKEN)


def reported_tokens(message: Message) -> int:
    """Returns the number of tokens that the provider reported for the request and this answer. 0 if
    it reported none, the message is not an answer, or the request did not have the other messages.
    """
    usage = message.usage
    if message.role != "assistant" or usage is None or not usage.input:
        return 0
    if _is_step(message):
        return 0
    return usage.input + usage.output


def _is_step(message: Message) -> bool:
    """Whether a message is a step of a very small model. Each step is a request of its own, without
    the other messages, so that its token count says nothing about the session.
    """
    if not message.tool_calls:
        return False
    from ouro.llm import is_step  # imported late: it is known to very small models only

    return any(map(is_step, message.tool_calls))


def _characters(part: Part) -> float:
    """Returns the number of characters of a part as it is sent. A picture counts as the text that
    has as many tokens.
    """
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
