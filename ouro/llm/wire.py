"""The common part of the wires: a model behind HTTP that learns from refusals, and the parser of its stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from ouro.errors import RequestRefused
from ouro.llm.http_stream import HttpStream
from ouro.llm.model import (
    Chunk,
    Effort,
    EndChunk,
    Endpoint,
    ModelSpec,
    Reason,
    TextChunk,
    ThinkingChunk,
    Timeouts,
    ToolSpec,
    timeouts_for,
)
from ouro.llm.portable import SurrogateJoiner
from ouro.messages import Message, Usage

MAX_LESSONS = 5
"""Changes to a request after refusals."""


class ChunkReader(ABC):
    """Reads one answer; `reason` is set once the provider has said that it is complete."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._text = SurrogateJoiner()
        self._thinking = SurrogateJoiner()
        self.reason: Reason | None = None

    def is_complete(self) -> bool:
        return self.reason is not None

    @abstractmethod
    def read(self, event: dict[str, Any]) -> Iterator[Chunk]:
        """The chunks of one streamed object."""

    def end(self) -> Iterator[Chunk]:
        """The text that was held back until the end, and the end."""
        if thinking := self._thinking.end():
            yield ThinkingChunk(thinking)
        if text := self._text.end():
            yield TextChunk(text)
        if self.reason is not None:
            yield EndChunk(self.reason)

    def _words(self, thinking: object, *texts: object) -> Iterator[Chunk]:
        if isinstance(thinking, str) and (piece := self._thinking.feed(thinking)):
            yield ThinkingChunk(piece)
        for text in texts:
            if isinstance(text, str) and (piece := self._text.feed(text)):
                yield TextChunk(piece)


def priced(usage: Usage, spec: ModelSpec) -> Usage:
    """`usage` with its cost, where the prices of the model are known."""
    return replace(usage, cost=spec.prices.cost(usage)) if spec.prices else usage


class Wire(ABC):
    """A model behind a server; the subclass knows the protocol."""

    def __init__(
        self, spec: ModelSpec, endpoint: Endpoint, *, effort: Effort = "off", timeouts: Timeouts | None = None
    ) -> None:
        self.spec = spec
        self._endpoint = endpoint
        self._effort = effort
        self._model = spec.name.partition("/")[2] or spec.name
        """Its name on the wire."""
        self._http = HttpStream(endpoint, timeouts or timeouts_for(endpoint))

    async def warm(self) -> None:
        await self._http.warm()

    async def close(self) -> None:
        await self._http.close()

    async def stream(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> AsyncGenerator[Chunk, None]:
        begun, lessons = False, 0
        while True:
            reader = self._reader()
            path, headers, body = self._request(messages, tools)
            try:
                async with aclosing(self._http.post(path, headers, body, reader.is_complete)) as events:
                    async for event in events:
                        for chunk in reader.read(event):
                            begun = True
                            yield chunk
                for chunk in reader.end():
                    yield chunk
                return
            except RequestRefused as refusal:
                lessons += 1
                if begun or lessons > MAX_LESSONS or not self._learn(str(refusal)):
                    raise

    @abstractmethod
    def _reader(self) -> ChunkReader: ...

    @abstractmethod
    def _request(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> tuple[str, Mapping[str, str], dict[str, Any]]:
        """Path, headers and body."""

    @abstractmethod
    def _learn(self, refusal: str) -> bool:
        """Change the request feature that the server has just refused; False if it refused for another reason."""
