"""ReplyBuilder: one answer of a model, built from its chunks."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec

from ouro.errors import AnswerUnfinished, EmptyAnswer, ModelError, RequestRefused
from ouro.llm.model import (
    MAX_CHARACTERS,
    TOO_LARGE,
    CallChunk,
    Chunk,
    EndChunk,
    Reason,
    RevisedText,
    RevisedThinking,
    TextChunk,
    ThinkingChunk,
    UsageChunk,
)
from ouro.llm.portable import join_surrogates, parse_object
from ouro.messages import Incomplete, Message, Part, Text, Thinking, ToolCall, Usage
from ouro.utils.late_pattern import late_pattern

MAX_CALLS = 200
"""Maximum tool calls of one answer."""
_USABLE_ID = late_pattern(r"\S{1,4000}")
_INCOMPLETE: Mapping[Reason | None, Incomplete] = {"length": "length", "filtered": "filtered"}
"""Why an answer ended -> why it is incomplete; other answers are complete."""
CUT_SHORT = "(no text: the answer reached max_output)"
"""What is kept instead of the arguments of a call, if the answer ended before them."""


class _Block(msgspec.Struct):
    """A text, thinking or a call, of which pieces have come so far."""

    kind: Literal["text", "thinking", "call"]
    pieces: list[str] = msgspec.field(default_factory=list)
    signature: str = ""
    redacted: bool = False
    closed: bool = False
    """Whether no further piece belongs to it."""
    id: str = ""
    name: str = ""

    @property
    def text(self) -> str:
        """The pieces joined."""
        return join_surrogates("".join(self.pieces))


def _new_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


class ReplyBuilder:
    """Builds one answer of a model from its chunks."""

    def __init__(
        self, model: str = "", taken: Iterable[str] = (), new_id: Callable[[], str] = _new_id
    ) -> None:
        """Begin an empty answer. `taken` are the ids of calls that are already in the transcript."""
        self._model = model
        self._taken = frozenset(taken)
        self._new_id = new_id
        self._blocks: list[_Block] = []
        self._calls: dict[int, _Block] = {}
        """The index of a call -> its block."""
        self._call_count = 0
        """The calls so far; more than `_calls`, if some have the same index."""
        self._size = 0
        """The characters so far."""
        self._usage: Usage | None = None
        """The usage that was reported last; None if none was, or its figures cannot be right."""
        self.reason: Reason | None = None
        """Why the provider ended the answer; None until then."""
        self._reason_detail = ""
        """What the provider says about it; see EndChunk."""

    def add(self, chunk: Chunk) -> None:
        """Add the next chunk. Raises ModelError if the answer is too large."""
        match chunk:
            case TextChunk(text) if text:
                self._append(self._open_block("text"), text)
            case ThinkingChunk(text, signature, redacted):
                if redacted:
                    self._blocks.append(
                        _Block("thinking", signature=signature, redacted=True, closed=True)
                    )
                elif text or signature:
                    block = self._open_block("thinking")
                    self._append(block, text)
                    block.signature, block.closed = signature, bool(signature)
            case CallChunk():
                self._add_call(chunk)
            case RevisedText(text):  # it replaces the text that was streamed last
                self._open_block("text").pieces[:] = [text]
            case RevisedThinking():
                self._drop_thinking()
            case UsageChunk(usage):
                self._usage = usage
            case EndChunk(reason, detail):
                self.reason, self._reason_detail = reason, detail

    def message(self, cut: bool = False) -> Message:
        """The message so far, without blank texts. With `cut` it has no tool calls, and is marked as
        cut. An answer that the provider refused to complete has no calls either.
        """
        has_calls = not cut and self.reason != "filtered"
        parts: list[Part] = []
        taken = set(self._taken)
        for block in self._blocks:
            if block.kind == "call" and has_calls:
                parts.append(self._make_call(block, taken))
            elif block.kind == "thinking" and (block.signature or block.text):
                parts.append(Thinking(block.text, block.signature, block.redacted))
            elif block.kind == "text" and block.text.strip():
                parts.append(Text(block.text))
        return Message(
            "assistant",
            tuple(parts),
            usage=self._usage,
            model=self._model,
            cut=cut,
            incomplete=_INCOMPLETE.get(self.reason, ""),
        )

    def finish(self) -> Message:
        """The whole answer.

        Raises:
            AnswerUnfinished: the provider did not send the end.
            EmptyAnswer: there is no text and no tool call.
            RequestRefused: there is no text, and a retry will not change it.
        """
        if self.reason is None:
            raise AnswerUnfinished("The provider closed the stream before the answer was complete.")
        has_text = any(block.kind == "text" and block.text.strip() for block in self._blocks)
        has_calls = bool(self._calls) and self.reason != "filtered"
        if has_calls or has_text:
            return self.message()
        if self.reason == "length":
            hint = (
                "Choose less effort (`/effort`), or set a larger `max_output` for it in"
                " models.yaml."
            )
            raise RequestRefused("The model reached max_output before producing any text.", hint)
        if self.reason == "filtered":
            hint = "Rephrase the message, or use another model."
            message = "The provider's filter stopped the answer."
            raise RequestRefused(f"{message} {self._reason_detail}".rstrip(), hint)
        raise EmptyAnswer("The model returned no text and no tool call.")

    def _open_block(self, kind: Literal["text", "thinking"]) -> _Block:
        """The block of this kind that is being written, or a new one."""
        if not self._blocks or self._blocks[-1].kind != kind or self._blocks[-1].closed:
            self._blocks.append(_Block(kind))
        return self._blocks[-1]

    def _drop_thinking(self) -> None:
        """Remove the last block if it is thinking without a signature."""
        if self._blocks and self._blocks[-1].kind == "thinking" and not self._blocks[-1].closed:
            self._blocks.pop()

    def _append(self, block: _Block, text: str) -> None:
        """Add text to a block. Raises ModelError if the answer is too large."""
        block.pieces.append(text)
        self._size += len(text)
        if self._size > MAX_CHARACTERS:
            raise ModelError(TOO_LARGE)

    def _add_call(self, chunk: CallChunk) -> None:
        """Add a piece of a call, in a new block if it begins a call. Raises ModelError if there are
        too many calls.
        """
        block = self._calls.get(chunk.index)
        # Some servers send every parallel call with the same index; only the ids differ.
        begins_call = bool(chunk.id and chunk.name)
        if block is None or (begins_call and block.id and chunk.id != block.id):
            block = self._calls[chunk.index] = _Block("call")
            self._blocks.append(block)
            self._call_count += 1
            if self._call_count > MAX_CALLS:
                raise ModelError(
                    f"The answer was stopped: it asks for more than {MAX_CALLS} tool calls at once."
                )
        block.id = block.id or chunk.id
        block.name = block.name or chunk.name
        self._append(block, chunk.arguments)

    def _make_call(self, block: _Block, taken: set[str]) -> ToolCall:
        """The tool call of a block. It keeps its id if that is usable and not in `taken`; otherwise
        it gets a new one. The id is added to `taken`.

        Arguments that are not a JSON object are kept as `malformed`. If the answer reached max_output
        (the reason `length`) before any arguments, `malformed` is CUT_SHORT.
        """
        call_id = join_surrogates(block.id)
        while call_id in taken or not _USABLE_ID.fullmatch(call_id):
            call_id = self._new_id()
        taken.add(call_id)
        text = block.text
        is_cut = self.reason == "length" and block is self._blocks[-1]
        if is_cut and not text.strip():
            return ToolCall(call_id, join_surrogates(block.name), arguments={}, malformed=CUT_SHORT)
        arguments = parse_object(text)
        malformed = text if arguments is None else ""
        return ToolCall(
            call_id,
            name=join_surrogates(block.name),
            arguments=arguments or {},
            malformed=malformed,
        )
