"""Server-sent events: decoded from bytes, and read as objects."""

from __future__ import annotations

import codecs
import io
import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ouro.errors import RequestRefused, StreamCut
from ouro.llm.model import Endpoint
from ouro.utils.lenient_json import dictionary

if TYPE_CHECKING:
    import httpx

    from ouro.llm.http1 import HttpAnswer

MAX_PIECE = 1 << 16
"""Bytes that are decompressed at once."""
MAX_LINE = 16_000_000
"""Maximum characters of a line: a line without an end must not fill the memory."""
DONE = "[DONE]"
"""The data of the last event in OpenAI's protocol."""


class ServerEvent(msgspec.Struct, frozen=True):
    """One server-sent event: its type (empty if the server names none) and its data."""

    event: str
    data: str


class EventDecoder:
    """Decodes bytes into events. Comments, ids and retry times are left out."""

    def __init__(self) -> None:
        self._decoder = io.IncrementalNewlineDecoder(
            codecs.getincrementaldecoder("utf-8")(), translate=True
        )
        self._is_at_start = True
        """Whether no text was decoded yet: the mark of UTF-8 may come first."""
        self._rest = io.StringIO()
        """The beginning of an incomplete line."""
        self._event = ""
        """The type of the event that is incomplete."""
        self._data: list[str] = []
        """The lines of its data."""

    def feed(self, data: bytes) -> Iterator[ServerEvent]:
        """Yield the events that these bytes complete. Raises StreamCut if the bytes are not UTF-8,
        or a line has more than MAX_LINE characters.
        """
        try:
            text = self._decoder.decode(data)
        except UnicodeDecodeError as error:
            raise StreamCut("The answer cannot be read: it is not UTF-8.") from error
        if self._is_at_start and text:
            text, self._is_at_start = text.removeprefix("\ufeff"), False
        *lines, rest = text.split("\n")
        if lines:
            lines[0] = self._rest.getvalue() + lines[0]
            self._rest = io.StringIO()
        self._rest.write(rest)
        if self._rest.tell() > MAX_LINE:
            raise StreamCut(
                f"The answer cannot be read: a line has more than {MAX_LINE:,} characters."
            )
        for line in lines:
            name, _, value = line.partition(":")
            if name == "data":
                self._data.append(value.removeprefix(" "))
            elif name == "event":
                self._event = value.removeprefix(" ")
            elif not line:
                event_type, data_lines = self._event, self._data
                self._event, self._data = "", []
                if data_lines:
                    yield ServerEvent(event_type, "\n".join(data_lines))

    def end(self) -> Iterator[ServerEvent]:
        """Yield the incomplete event at the end of the stream: not every server sends the last
        empty line.
        """
        yield from self.feed(b"\n\n")


class JsonLineDecoder(EventDecoder):
    """Decodes lines of JSON: each becomes the data of an event."""

    def __init__(self) -> None:
        super().__init__()
        self._has_begun = False
        """Whether bytes were decoded before."""

    def feed(self, data: bytes) -> Iterator[ServerEvent]:
        """Yield an event for each line of JSON that these bytes complete; empty lines are skipped."""
        # Each line becomes an event: `data:` in front, and an empty line after it.
        as_events = data.replace(b"\n", b"\n\ndata:")
        if not self._has_begun:
            self._has_begun = True
            as_events = b"data:" + as_events
        for event in super().feed(as_events):
            if event.data.strip():
                yield event


def is_end(event: ServerEvent) -> bool:
    """Whether an event only says that the answer is complete: its type is `done`, or its data is
    `[DONE]`, with or without quotes, or empty.
    """
    data = event.data.strip().strip('"')
    return event.event == "done" or data in (DONE, "")


def parse_event(event: ServerEvent, endpoint: Endpoint) -> dict[str, Any]:
    """The object in an event. Raises ModelError if there is none, or the event is an error."""
    try:
        data = json.loads(event.data)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        from ouro.llm.provider_errors import redact

        excerpt = redact(event.data[:1_000], *endpoint.secrets)[:80]
        raise StreamCut(f"The answer cannot be read: an event is not a JSON object: {excerpt}")
    error = error_in(data)
    if event.event == "error" or data.get("type") == "error" or error:
        from ouro.llm.provider_errors import error_from_stream

        raise error_from_stream(error or data, endpoint)
    return data


def error_in(data: Mapping[str, Any]) -> Any:
    """The error in an object of an answer; empty if there is none. MiniMax has it in `base_resp`, beside
    a status of success.
    """
    base = dictionary(data.get("base_resp"))
    if base.get("status_code"):
        return {"code": str(base["status_code"]), "message": str(base.get("status_msg") or base)}
    return data.get("error")


def make_decoder(
    response: HttpAnswer | httpx.Response, endpoint: Endpoint
) -> Callable[[bytes], Iterator[bytes]]:
    """Make a decoder of an answer's bytes: it yields at most MAX_PIECE bytes at once. httpx would
    decode 60 KB of gzip to 60 MB at once. The decoder raises StreamCut for damaged bytes.

    Raises:
        RequestRefused: the encoding is one that ouro cannot decode, and did not request.
    """
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return lambda data: iter((data,))
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise RequestRefused(
            f"{endpoint.address} sent the encoding {encoding[:40]!r}, which was not requested.",
            "A proxy or gateway before the model seems to compress answers: switch that off there.",
        )
    import zlib

    # With 32 it detects whether the data has the header of gzip or of zlib.
    inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)

    def inflate(data: bytes) -> Iterator[bytes]:
        """Decompress a piece of the answer."""
        while data:
            try:
                piece = inflater.decompress(data, MAX_PIECE)
            except zlib.error as error:
                raise StreamCut(
                    f"The answer cannot be read: {endpoint.address} sent invalid {encoding}."
                ) from error
            data = inflater.unconsumed_tail
            if not piece:
                return
            yield piece

    return inflate
