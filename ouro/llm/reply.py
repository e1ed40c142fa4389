"""ReplyBuilder: makes the message of one answer from its chunks."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec

from ouro.errors import EmptyAnswer, ModelError, RequestRefused, StreamCut
from ouro.llm.model import CallChunk, Chunk, EndChunk, Reason, RevisedText, TextChunk, ThinkingChunk, UsageChunk
from ouro.llm.portable import healed, parse_object
from ouro.messages import Incomplete, Message, Part, Text, Thinking, ToolCall, Usage

MAX_CHARACTERS = 4_000_000
"""Characters of one answer with thinking and arguments: about a million tokens, more than any model writes."""
TOO_LARGE = "The answer was stopped: it is longer than any model's may be."
MAX_CALLS = 200
_USABLE_ID = re.compile(r"\S{1,4000}")
_INCOMPLETE: Mapping[Reason | None, Incomplete] = {"length": "length", "filtered": "filtered"}
CUT_SHORT = "(no text: the answer reached max_output)"


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
        """`taken` are the ids of calls that the transcript has already."""
        self._model = model
        self._taken = frozenset(taken)
        self._new_id = new_id
        self._blocks: list[_Block] = []
        self._calls: dict[int, _Block] = {}
        self._call_count = 0
        self._size = 0
        self._usage: Usage | None = None
        self.reason: Reason | None = None
        """Why the provider ended the answer; None before."""

    def add(self, chunk: Chunk) -> None:
        """Add the next chunk. Raises ModelError if the answer is too large."""
        match chunk:
            case TextChunk(text) if text:
                self._grow(self._open("text"), text)
            case ThinkingChunk():
                self._add_thinking(chunk)
            case CallChunk():
                self._add_call(chunk)
            case RevisedText(text):
                self._open("text").pieces[:] = [text]
            case UsageChunk(usage):
                self._usage = usage
            case EndChunk(reason):
                self.reason = reason

    def message(self, cut: bool = False) -> Message:
        """The message so far; with `cut`, without the tool calls."""
        parts: list[Part] = []
        taken = set(self._taken)
        for block in self._blocks:
            if block.kind == "call" and not cut:
                parts.append(self._call(block, taken))
            elif block.kind == "thinking" and (block.signature or block.text):
                parts.append(Thinking(block.text, block.signature, block.redacted))
            elif block.kind == "text" and block.text.strip():
                parts.append(Text(block.text))
        return Message("assistant", tuple(parts), self._usage, self._model, cut, _INCOMPLETE.get(self.reason, ""))

    def finish(self) -> Message:
        """The whole answer.

        Raises:
            StreamCut: the provider sent no end.
            EmptyAnswer: there is no text and no tool call.
            RequestRefused: there is no text, and a retry will not change it.
        """
        if self.reason is None:
            raise StreamCut("The answer broke off: the provider closed the stream before its end.")
        if self._calls or any(block.kind == "text" and block.text.strip() for block in self._blocks):
            return self.message()
        if self.reason == "length":
            hint = "Choose less effort (`/effort`), or set a larger `max_output` for it in models.yaml."
            raise RequestRefused("The model reached max_output before producing any text.", hint)
        if self.reason == "filtered":
            hint = "Rephrase the message, or use another model."
            raise RequestRefused("The provider's filter stopped the answer.", hint)
        raise EmptyAnswer("The model returned no text and no tool call.")

    def _open(self, kind: Literal["text", "thinking"]) -> _Block:
        """The block that is being written, or a new one."""
        if not self._blocks or self._blocks[-1].kind != kind or self._blocks[-1].closed:
            self._blocks.append(_Block(kind))
        return self._blocks[-1]

    def _grow(self, block: _Block, text: str) -> None:
        block.pieces.append(text)
        self._size += len(text)
        if self._size > MAX_CHARACTERS:
            raise ModelError(TOO_LARGE)

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
            # Some servers send every parallel call with the same index; only the ids differ.
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
