"""The common part of the wires: a model behind HTTP that learns from refusals, and the parser of its stream."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from ouro.errors import RequestRefused, StreamCut
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
    ToolSpec,
    UsageChunk,
)
from ouro.llm.portable import SurrogateJoiner
from ouro.messages import Message, Usage
from ouro.utils.json_types import amount, count

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
        """The last chunks: text that was held back, and the end."""
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


def make_usage(spec: ModelSpec, *figures: object, cost: object = None) -> Usage | None:
    """The usage from a provider's figures (input, cached, cache_written, output); None if one of them cannot be right.

    The prices of the model count; where they are unknown, the provider's own `cost`.
    """
    counts = [0 if figure is None else count(figure) for figure in figures]
    if None in counts:
        return None
    read, cached, written, output = (number or 0 for number in counts)
    usage = Usage(read, cached, written, output, amount(cost))
    return replace(usage, cost=spec.prices.cost(usage)) if spec.prices else usage


async def read_chunks(
    events: AsyncGenerator[dict[str, Any], None], reader: ChunkReader, silence: float
) -> AsyncGenerator[Chunk, None]:
    """The chunks of an answer. Raises StreamCut after `silence` seconds without text, thinking or a call.

    Comments and pings keep a connection open, but not a turn.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + silence
    try:
        async with aclosing(events):
            while True:
                async with asyncio.timeout_at(deadline):
                    event = await anext(events, None)
                if event is None:
                    break
                for chunk in _read(reader, event):
                    if not isinstance(chunk, UsageChunk):
                        deadline = clock() + silence
                    yield chunk
    except TimeoutError as error:
        raise StreamCut(f"The answer stopped: no content came for {silence:g} s.") from error
    for chunk in reader.end():
        yield chunk


def _read(reader: ChunkReader, event: dict[str, Any]) -> Iterator[Chunk]:
    try:
        yield from reader.read(event)
    except RecursionError as error:
        raise StreamCut("The answer broke off: the server sent an event that is nested too deep.") from error


class Wire(ABC):
    """A model behind a server; the subclass knows the protocol."""

    def __init__(self, spec: ModelSpec, endpoint: Endpoint, *, effort: Effort = "off") -> None:
        self.spec = spec
        self._endpoint = endpoint
        self._effort = effort
        self._model = spec.name.partition("/")[2] or spec.name
        """Its name on the wire."""
        self._http = HttpStream(endpoint)

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
                events = self._http.post(path, headers, body, reader.is_complete)
                async with aclosing(read_chunks(events, reader, self._endpoint.timeouts.content)) as chunks:
                    async for chunk in chunks:
                        begun = True
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
