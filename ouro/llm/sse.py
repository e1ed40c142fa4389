"""Server-sent events, read from bytes; strict about text, tolerant of everything else."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

import msgspec

from ouro.errors import StreamCut

MAX_LINE = 16_000_000
"""Characters. A server that never ends its line is not let fill the memory."""


class ServerEvent(msgspec.Struct, frozen=True):
    """One event: its type, empty where the server names none, and its data."""

    event: str
    data: str


class EventDecoder:
    """Bytes in, events out; comments, ids and retry times are left aside."""

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
        """The event that the end of the stream completes: not every server sends the last empty line."""
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
