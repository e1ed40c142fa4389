"""ScriptedModel: replays given replies; for tests, for `ouro demo`, and if no model is usable."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec

from ouro.errors import ModelError, OuroError, RequestRefused
from ouro.llm.model import (
    CallChunk,
    Chunk,
    EndChunk,
    ModelSpec,
    Reason,
    TextChunk,
    ThinkingChunk,
    ToolSpec,
    UsageChunk,
)
from ouro.messages import Message, ToolCall, Usage

PIECE = re.compile(r"\S+\s*|\s+")
"""Matches a word with the space after it."""
MAX_PIECES = 500
"""The maximum pieces of a text; a longer text has several words in a piece."""
ARGUMENT_PIECE = 24
"""Characters of a call's arguments per chunk: few, so that they come in several chunks as from a
provider.
"""
SCRIPTED = ModelSpec("scripted")
"""The facts about a scripted model."""
SMALL_USAGE = Usage(input=100, output=10)


class ScriptedReply(msgspec.Struct, frozen=True):
    """One answer of the model: thinking, then words, then tool calls."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    thinking: str = ""
    signature: str = ""
    """The seal that closes the thinking."""
    usage: Usage = SMALL_USAGE
    error: ModelError | None = None
    """Raised after the text and calls, instead of an end, to simulate a broken stream."""
    cut: bool = False
    """Whether the stream stops without an end."""
    reason: Reason | None = None
    """Why the answer ends; None: it is complete."""
    hold: Callable[[], Awaitable[Any]] | None = None
    """Awaited between text and calls: stops a reply in the middle until the test continues."""


Step = (
    ScriptedReply
    | ToolCall
    | OuroError
    | str
    | Callable[[Sequence[Message]], "ScriptedReply | ToolCall | str"]
)
"""A reply; only a call or text; an error to raise; or a function from the messages to a reply."""


class ScriptedRequest(msgspec.Struct, frozen=True):
    """A request that a scripted model got."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]


class ScriptedModel:
    """A model that streams the replies of its script, one for each request; `requests` holds the
    requests.

    Args:
        script: the replies, in order.
        spec: the properties of the model.
        pace: seconds between two words.
    """

    def __init__(
        self, script: Iterable[Step], *, spec: ModelSpec = SCRIPTED, pace: float = 0.0
    ) -> None:
        self.spec = spec
        self.requests: list[ScriptedRequest] = []
        self.closed = False
        self._steps = iter(script)
        self._pace = pace
        self._calls = 0

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()
    ) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of the next reply of the script."""
        self.requests.append(ScriptedRequest(tuple(messages), tuple(tools)))
        reply = self._next_reply(messages)
        for chunk in _text_chunks(reply):
            await asyncio.sleep(self._pace)
            yield chunk
        if reply.hold:
            await reply.hold()
        for index, call in enumerate(reply.calls):
            self._calls += 1
            yield CallChunk(index, call.id or f"call_{self._calls}", call.name)
            arguments = call.malformed or json.dumps(dict(call.arguments))
            for start in range(0, len(arguments), ARGUMENT_PIECE):
                yield CallChunk(index, arguments=arguments[start : start + ARGUMENT_PIECE])
        if reply.error:
            raise reply.error
        if not reply.cut:
            yield UsageChunk(reply.usage)
            yield EndChunk(reply.reason or ("tools" if reply.calls else "stop"))

    async def close(self) -> None:
        self.closed = True

    def _next_reply(self, messages: Sequence[Message]) -> ScriptedReply:
        """The next reply of the script. Raises the error that the script has there, or
        RequestRefused at its end.
        """
        step = next(self._steps, None)
        if step is None:
            raise RequestRefused("The script of the scripted model has no more replies.")
        if callable(step):
            step = step(messages)
        if isinstance(step, str):
            return ScriptedReply(step)
        if isinstance(step, ToolCall):
            return ScriptedReply(calls=(step,))
        if isinstance(step, OuroError):
            raise step
        return step


def _text_chunks(reply: ScriptedReply) -> list[Chunk]:
    """The thinking and the text of a reply as chunks of a few words."""
    chunks: list[Chunk] = [ThinkingChunk(piece) for piece in _split_text(reply.thinking)]
    if reply.signature:
        chunks.append(ThinkingChunk(text="", signature=reply.signature))
    chunks += [TextChunk(piece) for piece in _split_text(reply.text)]
    return chunks


def _split_text(text: str) -> list[str]:
    """A text as pieces of one word, or of several if it has more than MAX_PIECES words."""
    words = PIECE.findall(text)
    words_per_piece = len(words) // MAX_PIECES + 1
    return [
        "".join(words[start : start + words_per_piece])
        for start in range(0, len(words), words_per_piece)
    ]


def call(name: str, /, **arguments: Any) -> ToolCall:
    """A tool call whose id is set when it is streamed: `call_1`, `call_2`, …"""
    return ToolCall(id="", name=name, arguments=arguments)


def calls(*tool_calls: ToolCall, text: str = "") -> ScriptedReply:
    """A reply with several calls."""
    return ScriptedReply(text, tool_calls)
