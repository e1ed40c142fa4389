"""The events of Anthropic's messages, as chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from ouro.llm.model import CallChunk, Chunk, ModelSpec, TextChunk, ThinkingChunk, UsageChunk
from ouro.llm.surrogates import SurrogateJoiner
from ouro.messages import Usage

Reason = Literal["stop", "tools", "length", "filtered"]
REASONS: dict[str, Reason] = {
    "tool_use": "tools",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "filtered",
}


class AnthropicChunks:
    """Reads one answer; `reason` is set once the provider has said that it is complete."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._text = SurrogateJoiner()
        self._thinking = SurrogateJoiner()
        self._counts: dict[str, int] = {}
        self.reason: Reason | None = None

    def read(self, event: dict[str, Any]) -> Iterator[Chunk]:
        """The chunks of one event; kinds that are not known are passed over."""
        match event.get("type"):
            case "message_start":
                yield from self._count((event.get("message") or {}).get("usage"))
            case "content_block_start":
                yield from self._start(event.get("index", 0), event.get("content_block") or {})
            case "content_block_delta":
                yield from self._delta(event.get("index", 0), event.get("delta") or {})
            case "message_delta":
                if reason := (event.get("delta") or {}).get("stop_reason"):
                    self.reason = REASONS.get(reason, "stop")
                yield from self._count(event.get("usage"))

    def rest(self) -> Iterator[Chunk]:
        """What was held back until the end."""
        if thinking := self._thinking.end():
            yield ThinkingChunk(thinking)
        if text := self._text.end():
            yield TextChunk(text)

    def _start(self, index: int, block: dict[str, Any]) -> Iterator[Chunk]:
        match block.get("type"):
            case "tool_use":
                yield CallChunk(index, str(block.get("id") or ""), str(block.get("name") or ""))
            case "redacted_thinking":
                yield ThinkingChunk("", block.get("data", ""), redacted=True)
            case "text" | "thinking":
                yield from self._said(block)

    def _delta(self, index: int, delta: dict[str, Any]) -> Iterator[Chunk]:
        match delta.get("type"):
            case "input_json_delta":
                yield CallChunk(index, arguments=delta.get("partial_json") or "")
            case "signature_delta":
                yield ThinkingChunk(self._thinking.end(), delta.get("signature") or "")
            case _:
                yield from self._said(delta)

    def _said(self, block: dict[str, Any]) -> Iterator[Chunk]:
        if thinking := self._thinking.feed(block.get("thinking") or ""):
            yield ThinkingChunk(thinking)
        if text := self._text.feed(block.get("text") or ""):
            yield TextChunk(text)

    def _count(self, usage: dict[str, Any] | None) -> Iterator[Chunk]:
        """What was used: the second report adds to the first, or corrects it."""
        if not usage:
            return
        self._counts |= {name: count for name, count in usage.items() if isinstance(count, int)}
        counts = self._counts
        cached = counts.get("cache_read_input_tokens", 0)
        written = counts.get("cache_creation_input_tokens", 0)
        used = Usage(counts.get("input_tokens", 0) + cached + written, cached, written, counts.get("output_tokens", 0))
        cost = self._spec.prices.cost(used) if self._spec.prices else None
        yield UsageChunk(Usage(used.input, cached, written, used.output, cost))
