"""Server-sent events from bytes, and JSON in them: strict about encoding, tolerant of everything else."""

from __future__ import annotations

import asyncio
import codecs
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from ouro.errors import ModelError, StreamCut
from ouro.llm.endpoint import Endpoint
from ouro.llm.portable import healed
from ouro.llm.provider_errors import error_from_stream

MAX_LINE = 16_000_000
"""Characters. Limits the memory that a line without an end can take."""


class ServerEvent(msgspec.Struct, frozen=True):
    """One event: its type, empty where the server names none, and its data."""

    event: str
    data: str


class EventDecoder:
    """Decodes bytes into events; ignores comments, ids and retry times."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")()
        self._rest: list[str] = []
        self._rest_size = 0
        self._event = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> Iterator[ServerEvent]:
        """The events that these bytes complete.

        Raises:
            StreamCut: the bytes are not UTF-8, or a line has no end.
        """
        for line in self._lines(data):
            if not line:
                yield from self._complete()
                continue
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                self._data.append(value)
            elif name == "event":
                self._event = value

    def end(self) -> Iterator[ServerEvent]:
        """The event that is open at the end of the stream: not every server sends the last empty line."""
        yield from self.feed(b"\n\n")

    def _lines(self, data: bytes) -> list[str]:
        try:
            text = self._decode.decode(data)
        except UnicodeDecodeError as error:
            raise StreamCut("The answer broke off: the server sent bytes that are not text.") from error
        if self._rest and self._rest[-1].endswith("\r"):
            text = self._rest.pop() + text
        # A lone CR at the very end may be the first half of CRLF.
        held = "\r" if text.endswith("\r") else ""
        first, *others = text.removesuffix(held).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        if not others:
            self._keep(first + held)
            return []
        whole = "".join(self._rest) + first
        self._rest, self._rest_size = [], 0
        self._keep(others.pop() + held)
        return [whole, *others]

    def _keep(self, rest: str) -> None:
        if rest:
            self._rest.append(rest)
            self._rest_size += len(rest)
        if self._rest_size > MAX_LINE:
            raise StreamCut("The answer broke off: the server sent a line without an end.")

    def _complete(self) -> Iterator[ServerEvent]:
        event, data = self._event, self._data
        self._event, self._data = "", []
        if data:
            yield ServerEvent(event, "\n".join(data))


def encoded(value: Any) -> bytes:
    """`value` as JSON; the same bytes each time, for the provider's cache."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_healed_all(value))


def decoded(data: str) -> dict[str, Any]:
    """The object in an event.

    Raises:
        StreamCut: there is none.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StreamCut("The answer broke off: the server sent a line that cannot be read.") from error
    if not isinstance(value, dict):
        raise StreamCut("The answer broke off: the server sent invalid data in place of an event.")
    return value


def parse_object(text: str) -> dict[str, Any] | None:
    """The JSON object that a model wrote; newlines in strings are allowed. {} for empty text, else None."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text, strict=False)
        # NaN and infinity cannot be sent back as JSON.
        json.dumps(value, allow_nan=False)
        value = _healed_all(value)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _healed_all(value: Any) -> Any:
    if isinstance(value, str):
        return healed(value)
    if isinstance(value, Mapping):
        return {_healed_all(key): _healed_all(item) for key, item in value.items()}
    return [_healed_all(item) for item in value] if isinstance(value, list | tuple) else value


DONE = "[DONE]"
AFTERWORD = 2.0
"""Seconds to wait for the usage after a complete answer: some servers never close."""
FAREWELL = 0.1
"""Seconds that the end of the body may take after the last event."""


async def objects_of(
    events: AsyncGenerator[ServerEvent, None], is_complete: Callable[[], bool], endpoint: Endpoint
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the objects up to the end; errors after a complete answer are ignored.

    Raises:
        ModelError: an event cannot be read, is an error, or does not come.
    """
    while True:
        try:
            async with asyncio.timeout(AFTERWORD if is_complete() else None):
                event = await anext(events, None)
            if event is None or event.data.strip() == DONE:
                return
            data = decoded(event.data)
            if event.event == "error" or data.get("type") == "error" or data.get("error"):
                raise error_from_stream(data.get("error") or data, endpoint)
        except (TimeoutError, ModelError):
            if is_complete():
                return
            raise
        yield data


async def read_to_end(events: AsyncGenerator[ServerEvent, None]) -> None:
    """Read what follows the last event: only a connection that was read to its end can be reused."""
    with suppress(TimeoutError, ModelError):
        async with asyncio.timeout(FAREWELL):
            async for _ in events:
                pass
