"""Halves of characters that some servers send apart, joined; those that stay alone, replaced."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from ouro.errors import EmptyAnswer, ModelError, RequestRefused, StreamCut
from ouro.llm.model import CallChunk, Chunk, EndChunk, TextChunk, ThinkingChunk, UsageChunk
from ouro.llm.portable import healed
from ouro.llm.sse import parse_object
from ouro.messages import Message, Part, Text, Thinking, ToolCall, Usage

MAX_CHARACTERS = 4_000_000
"""Of one answer, with thinking and arguments: about a million tokens, more than any model may say."""
MAX_CALLS = 200
_USABLE_ID = re.compile(r"\S{1,4000}")
CUT_SHORT = "(nothing: the answer reached the longest length that was allowed)"


class _Block(msgspec.Struct):
    kind: Literal["text", "thinking", "call"]
    pieces: list[str] = msgspec.field(default_factory=list)
    signature: str = ""
    redacted: bool = False
    closed: bool = False
    id: str = ""
    name: str = ""

    @property
    def text(self) -> str:
        return healed("".join(self.pieces))


def _new_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


class ReplyBuilder:
    def __init__(self, model: str = "", taken: Iterable[str] = (), new_id: Callable[[], str] = _new_id) -> None:
        """`model` is the name kept with the message, `taken` are the ids of calls that the transcript has already."""
        self._model = model
        self._taken = frozenset(taken)
        self._new_id = new_id
        self._blocks: list[_Block] = []
        self._calls: dict[int, _Block] = {}
        self._call_count = 0
        self._size = 0
        self._usage: Usage | None = None
        self.reason: Literal["stop", "tools", "length", "filtered"] | None = None
        """Why the provider ended the answer; None while it has not."""

    def add(self, chunk: Chunk) -> None:
        """Take the next piece.

        Raises:
            ModelError: the answer is larger than any may be.
        """
        match chunk:
            case TextChunk(text):
                self._grow(self._open("text"), text)
            case ThinkingChunk():
                self._add_thinking(chunk)
            case CallChunk():
                self._add_call(chunk)
            case UsageChunk(usage):
                self._usage = usage
            case EndChunk(reason):
                self.reason = reason

    def check(self) -> None:
        """See that what came is an answer.

        Raises:
            StreamCut: the provider did not say that it is complete.
            EmptyAnswer: nothing was said and nothing called.
            RequestRefused: nothing was said, and asking the same again will not change it.
        """
        if self.reason is None:
            raise StreamCut("The answer broke off: the provider closed the stream before its end.")
        if self._calls or any(block.kind == "text" and block.text.strip() for block in self._blocks):
            return
        if self.reason == "length":
            hint = "Choose less effort (`/effort`), or set a larger `max_output` for it in models.yaml."
            raise RequestRefused("The model used up the longest answer allowed before it said a word.", hint)
        if self.reason == "filtered":
            raise RequestRefused(
                "The provider's filter stopped the answer.", "Say it in other words, or use another model."
            )
        raise EmptyAnswer("The model said nothing and called no tool.")

    def message(self, cut: bool = False) -> Message:
        """What came so far as a message; with `cut`, without the tool calls."""
        parts: list[Part] = []
        taken = set(self._taken)
        for block in self._blocks:
            if block.kind == "call" and not cut:
                parts.append(self._call(block, taken))
            elif block.kind == "thinking" and (block.signature or block.text):
                parts.append(Thinking(block.text, block.signature, block.redacted))
            elif block.kind == "text" and block.text.strip():
                parts.append(Text(block.text))
        return Message("assistant", tuple(parts), self._usage, self._model, cut)

    def finish(self) -> Message:
        """The whole answer.

        Raises:
            StreamCut, EmptyAnswer, RequestRefused: as `check`.
        """
        self.check()
        return self.message()

    def _open(self, kind: Literal["text", "thinking"]) -> _Block:
        """The block that is being written, or a new one."""
        if not self._blocks or self._blocks[-1].kind != kind or self._blocks[-1].closed:
            self._blocks.append(_Block(kind))
        return self._blocks[-1]

    def _grow(self, block: _Block, text: str) -> None:
        block.pieces.append(text)
        self._size += len(text)
        if self._size > MAX_CHARACTERS:
            raise ModelError("The answer was stopped: it is longer than any model's may be.")

    def _add_thinking(self, chunk: ThinkingChunk) -> None:
        if chunk.redacted:
            self._blocks.append(_Block("thinking", signature=chunk.signature, redacted=True, closed=True))
        elif chunk.text or chunk.signature:
            block = self._open("thinking")
            self._grow(block, chunk.text)
            block.signature = chunk.signature
            block.closed = bool(chunk.signature)

    def _add_call(self, chunk: CallChunk) -> None:
        block = self._calls.get(chunk.index)
        if block is None or (chunk.id and chunk.name and block.id and chunk.id != block.id):
            # Some servers give every parallel call the same index, and only the ids tell them apart.
            block = self._calls[chunk.index] = _Block("call")
            self._blocks.append(block)
            self._call_count += 1
            if self._call_count > MAX_CALLS:
                raise ModelError(f"The answer was stopped: it asks for more than {MAX_CALLS} tool calls at once.")
        block.id = block.id or chunk.id
        block.name = block.name or chunk.name
        self._grow(block, chunk.arguments)

    def _call(self, block: _Block, taken: set[str]) -> ToolCall:
        call_id = healed(block.id)
        while call_id in taken or not _USABLE_ID.fullmatch(call_id):
            call_id = self._new_id()
        taken.add(call_id)
        text = block.text
        if not text.strip() and self.reason == "length" and block is self._blocks[-1]:
            return ToolCall(call_id, healed(block.name), {}, CUT_SHORT)
        arguments = parse_object(text)
        malformed = text if arguments is None else ""
        return ToolCall(call_id, healed(block.name), arguments or {}, malformed)
