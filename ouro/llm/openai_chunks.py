"""The events of OpenAI-compatible servers, as chunks; what sloppy servers leave out is filled in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from ouro.llm.model import CallChunk, Chunk, ModelSpec, TextChunk, ThinkingChunk, UsageChunk
from ouro.llm.openai_format import SEAL
from ouro.llm.surrogates import SurrogateJoiner
from ouro.messages import Usage

Reason = Literal["stop", "tools", "length", "filtered"]
REASONS: dict[str, Reason] = {
    "tool_calls": "tools",
    "function_call": "tools",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "filtered",
}


class OpenAIChunks:
    """Reads one answer; `reason` is set once the server has said that it is complete."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._text = SurrogateJoiner()
        self._thinking = SurrogateJoiner()
        self._last_index = -1
        self.reason: Reason | None = None

    def read(self, event: dict[str, Any]) -> Iterator[Chunk]:
        """The chunks of one event."""
        for choice in event.get("choices") or ():
            yield from self._delta(choice.get("delta") or choice.get("message") or {})
            finish = choice.get("finish_reason")
            # Some relays say "error" where the provider behind them broke off.
            if finish and finish != "error":
                self.reason = REASONS.get(str(finish), "stop")
        if usage := event.get("usage"):
            yield UsageChunk(usage_from_openai(usage, self._spec))

    def rest(self) -> Iterator[Chunk]:
        """What was held back until the end."""
        if thinking := self._thinking.end():
            yield ThinkingChunk(thinking)
        if text := self._text.end():
            yield TextChunk(text)

    def _delta(self, delta: dict[str, Any]) -> Iterator[Chunk]:
        thinking = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thinking, str) and (piece := self._thinking.feed(thinking)):
            yield ThinkingChunk(piece)
        for said in (delta.get("content"), delta.get("refusal")):
            if isinstance(said, str) and (piece := self._text.feed(said)):
                yield TextChunk(piece)
        for call in delta.get("tool_calls") or ():
            yield self._call(call)

    def _call(self, call: dict[str, Any]) -> CallChunk:
        function = call.get("function") or {}
        call_id, name = str(call.get("id") or ""), str(function.get("name") or "")
        index = call.get("index")
        if not isinstance(index, int):
            index = self._last_index + bool(call_id or name or self._last_index < 0)
        self._last_index = index
        arguments = function.get("arguments") or ""
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments)
        signature = ((call.get("extra_content") or {}).get("google") or {}).get("thought_signature")
        if signature:
            call_id = f"{call_id}{SEAL}{signature}"
        return CallChunk(index, call_id, name, arguments)


def usage_from_openai(usage: dict[str, Any], spec: ModelSpec) -> Usage:
    """Tokens and money; the server's own price counts where we know none."""
    details = usage.get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or 0
    used = Usage(
        input=usage.get("prompt_tokens") or 0,
        cached=cached,
        cache_written=details.get("cache_write_tokens") or usage.get("cache_creation_input_tokens") or 0,
        output=usage.get("completion_tokens") or 0,
    )
    cost = spec.prices.cost(used) if spec.prices else usage.get("cost")
    return Usage(used.input, used.cached, used.cache_written, used.output, cost)
