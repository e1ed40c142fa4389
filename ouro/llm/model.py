"""Model: the protocol of all models, and the chunks that they stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from ouro.messages import Message, Usage

Effort = Literal["off", "low", "medium", "high"]
"""How much a thinking model is asked to think."""
Reason = Literal["stop", "tools", "length", "filtered"]
"""Why the provider ended an answer."""


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars for a million tokens."""

    input: float
    output: float
    cached: float | None = None
    """Reading from the cache; None: as `input`."""
    cache_written: float | None = None
    """Writing to the cache; None: as `input`."""

    def cost(self, usage: Usage) -> float:
        cached = self.input if self.cached is None else self.cached
        written = self.input if self.cache_written is None else self.cache_written
        plain = max(0, usage.input - usage.cached - usage.cache_written)
        spent = plain * self.input + usage.cached * cached
        spent += usage.cache_written * written + usage.output * self.output
        return spent / 1_000_000


class ModelSpec(msgspec.Struct, frozen=True):
    name: str
    """By the litellm name: `anthropic/claude-sonnet-5`, `openai/gpt-5`, `ollama_chat/qwen3`."""
    window: int = 128_000
    """Tokens of request and answer together."""
    max_output: int = 8_192
    prices: Prices | None = None
    images: bool = False
    tools: bool = True
    thinking: bool = False
    patches: bool = False
    """Trained on the `*** Begin Patch` format: is given `apply_patch` in place of `edit`."""


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as the model is given it; `parameters` is a JSON schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class TextChunk(msgspec.Struct, frozen=True):
    text: str


class ThinkingChunk(msgspec.Struct, frozen=True):
    """A piece of thinking; a signature or redacted data closes the block."""

    text: str
    signature: str = ""
    redacted: bool = False


class CallChunk(msgspec.Struct, frozen=True):
    """A piece of a tool call. `index` tells parallel calls apart; arguments come as pieces of JSON text."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class UsageChunk(msgspec.Struct, frozen=True):
    """The usage of the call so far; the last chunk counts."""

    usage: Usage


class EndChunk(msgspec.Struct, frozen=True):
    """The provider said that the answer is complete. A stream that ends without it was cut."""

    reason: Reason


Chunk = TextChunk | ThinkingChunk | CallChunk | UsageChunk | EndChunk


class Model(Protocol):
    @property
    def spec(self) -> ModelSpec: ...

    def stream(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> AsyncGenerator[Chunk, None]:
        """Send the request and stream the answer.

        Makes one attempt (`retry.py` repeats). Closing the generator cancels the request at once.

        Raises:
            ModelError: the model did not answer; the subclass tells whether a retry may help.
        """
        ...

    async def close(self) -> None: ...


@runtime_checkable
class Warmable(Protocol):
    """A model that can prepare before its first request."""

    async def warm(self) -> None: ...
