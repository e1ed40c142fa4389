"""The common part of the wires: a model behind HTTP that adapts to refusals, its stream, and the
HTTP client.
"""

from __future__ import annotations

import asyncio
import codecs
import io
import json
import ssl
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from ouro import __version__
from ouro.errors import ModelError, ModelUnavailable, RequestRefused, StreamCut
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
from ouro.llm.portable import SurrogateJoiner, encode_json
from ouro.llm.provider_errors import (
    causes_of,
    describe_connection_error,
    error_from_status,
    error_from_stream,
    redact,
)
from ouro.messages import Message, Usage
from ouro.utils.json_types import amount, count

if TYPE_CHECKING:
    import httpx

MAX_ADAPTATIONS = 5
"""Changes to a request after refusals."""
MAX_ERROR_BODY = 64_000
MAX_ANSWER = 64_000_000
"""Maximum bytes of a stream; only a broken server sends more."""
MAX_PIECE = 1 << 16
"""Bytes that are decompressed at once."""
MAX_LINE = 16_000_000
"""Maximum characters of a line: a line without an end must not fill the memory."""
STREAM_TYPES = (
    "text/event-stream",
    "text/plain",
    "application/octet-stream",
    "application/x-ndjson",
)
DONE = "[DONE]"
LAST = ("message_stop", "response.completed", "response.incomplete")
"""The types of the last event of Anthropic's protocol and of OpenAI's Responses."""
USAGE_TIMEOUT = 2.0
"""Seconds to wait for the usage after a complete answer: some servers never close the connection.
"""
END_TIMEOUT = 0.1
"""Seconds to read the rest of the body after the last event."""


class ChunkReader(ABC):
    """Reads one answer; `reason` is set once the provider has said that it is complete."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._text = SurrogateJoiner()
        self._thinking = SurrogateJoiner()
        self.reason: Reason | None = None

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
    """The usage from a provider's figures (input, cached, cache_written, output); None if one of
    them is impossible.

    The prices of the model count; if they are unknown, the provider's own `cost`.
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
    """The chunks of an answer. Raises StreamCut after `silence` seconds without text, thinking or a
    call.

    Comments and pings keep a connection open, but do not count as an answer.
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
                try:
                    found = list(reader.read(event))
                except RecursionError as error:
                    raise StreamCut(
                        "The answer cannot be read: an event is nested too deep."
                    ) from error
                for chunk in found:
                    if not isinstance(chunk, UsageChunk):
                        deadline = clock() + silence
                    yield chunk
    except TimeoutError as error:
        raise StreamCut(
            f"The model sent no text, thinking or tool call for {silence:g} s."
        ) from error
    for chunk in reader.end():
        yield chunk


class Wire(ABC):
    """A model behind a server; the subclass knows the protocol."""

    def __init__(self, spec: ModelSpec, endpoint: Endpoint, *, effort: Effort = "off") -> None:
        self.spec = spec
        self._endpoint = endpoint
        self._effort = effort
        self._model = spec.name.partition("/")[2] or spec.name
        """Its name on the wire."""
        self._clients: list[httpx.AsyncClient] = []
        """No client or one, which keeps its connections between requests; a list that copies of a
        model share.
        """
        self._making = asyncio.Lock()

    async def warm(self) -> None:
        """Make the client before the first request, in a thread: it takes 0.1 s."""
        async with self._making:  # a first request that arrives meanwhile waits for this client
            if not self._clients:
                self._clients.append(
                    await asyncio.to_thread(new_client, "AsyncClient", self._endpoint)
                )

    async def close(self) -> None:
        while self._clients:
            await self._clients.pop().aclose()

    def share_connections(self, other: Wire) -> None:
        """Use the client of another wire to the same endpoint."""
        self._clients, self._making = other._clients, other._making

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()
    ) -> AsyncGenerator[Chunk, None]:
        begun, adaptations = False, 0
        while True:
            reader = self._reader()
            path, headers, body = self._request(messages, tools)
            try:
                events = self._post(path, headers, body, reader)
                async with aclosing(
                    read_chunks(events, reader, self._endpoint.timeouts.content)
                ) as chunks:
                    async for chunk in chunks:
                        begun = True
                        yield chunk
                return
            except RequestRefused as refusal:
                adaptations += 1
                if begun or adaptations > MAX_ADAPTATIONS or not self._adapt(str(refusal)):
                    raise

    @abstractmethod
    def _reader(self) -> ChunkReader: ...

    @abstractmethod
    def _request(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> tuple[str, Mapping[str, str], dict[str, Any]]:
        """The path, headers and body of a request."""

    @abstractmethod
    def _adapt(self, refusal: str) -> bool:
        """Change the request feature that the server has just refused; returns False if there was
        another reason.
        """

    async def _post(
        self, path: str, headers: Mapping[str, str], body: Any, reader: ChunkReader
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Send `body` as JSON and yield the objects of the answer up to its end.

        Once the answer is complete, errors are ignored.

        Raises:
            ModelError: the server does not answer, refuses, or ends early; or an event cannot be read.
        """
        async with aclosing(self._read_events(path, headers, body)) as events:
            while True:
                try:
                    async with asyncio.timeout(USAGE_TIMEOUT if reader.reason else None):
                        event = await anext(events, None)
                    if event is None or event.data.strip() == DONE:
                        break
                    data = _parse_event(event, self._endpoint)
                except (TimeoutError, ModelError):
                    if reader.reason:
                        break
                    raise
                yield data
                if data.get("type") in LAST:
                    break
            # Only a connection that was read to its end can be reused.
            with suppress(TimeoutError, ModelError):
                async with asyncio.timeout(END_TIMEOUT):
                    async for _ in events:
                        pass

    async def _read_events(
        self, path: str, headers: Mapping[str, str], body: Any
    ) -> AsyncGenerator[ServerEvent, None]:
        await self.warm()
        [client] = self._clients
        url = self._endpoint.base_url.rstrip("/") + path
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream", **headers}
        with translate_http_errors(self._endpoint):
            async with client.stream(
                "POST", url, content=encode_json(body), headers=headers
            ) as response:
                if not response.is_success:
                    head = await self._read_head(response)
                    raise error_from_status(
                        response.status_code, head, response.headers, self._endpoint
                    )
                await self._check_kind(response)
                decoder, size = EventDecoder(), 0
                async with aclosing(self._read_pieces(response)) as pieces:
                    async for data in pieces:
                        size += len(data)
                        if size > MAX_ANSWER:
                            raise ModelError(
                                "The answer was stopped: it is longer than"
                                f" {MAX_ANSWER // 1_000_000} MB."
                            )
                        for event in decoder.feed(data):
                            yield event
                for event in decoder.end():
                    yield event

    async def _read_pieces(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        """The bytes of the answer; silence between two of them is an error."""
        limit = self._endpoint.timeouts.first
        pieces, decoded = response.aiter_raw(), make_decoder(response, self._endpoint)
        while True:
            try:
                async with asyncio.timeout(limit):
                    data = await anext(pieces, None)
            except TimeoutError as error:
                raise StreamCut(
                    f"{self._endpoint.address} sent no data for {limit:g} s."
                ) from error
            if data is None:
                return
            limit = self._endpoint.timeouts.idle
            for piece in decoded(data):
                yield piece

    async def _check_kind(self, response: httpx.Response) -> None:
        """Raise an error for a web page or a JSON object instead of a stream, with any status."""
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind in STREAM_TYPES or not kind:
            return
        body = await self._read_head(response)
        if kind == "application/json" and '"error"' in body:
            with suppress(msgspec.DecodeError, KeyError, TypeError):
                raise error_from_stream(msgspec.json.decode(body)["error"], self._endpoint)
        hint = f"Is {self._endpoint.base_url} the address of a model server?"
        error = RequestRefused if body.strip() else ModelUnavailable
        raise error(f"{self._endpoint.address} answered with {kind} instead of a stream.", hint)

    async def _read_head(self, response: httpx.Response) -> str:
        import httpx

        body = b""
        # The status is enough if the body is incomplete.
        with suppress(StreamCut, httpx.HTTPError):
            async with aclosing(self._read_pieces(response)) as pieces:
                async for data in pieces:
                    body += data
                    if len(body) > MAX_ERROR_BODY:
                        break
        return body[:MAX_ERROR_BODY].decode("utf-8", "replace")


def make_decoder(
    response: httpx.Response, endpoint: Endpoint
) -> Callable[[bytes], Iterator[bytes]]:
    """Make a decoder of an answer's bytes, piece by piece: httpx would decode 60 KB of gzip to 60
    MB at once.

    Raises ModelUnavailable for an encoding that was not requested; the decoder raises StreamCut for
    damaged bytes.
    """
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return lambda data: iter((data,))
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ModelUnavailable(
            f"{endpoint.address} sent the encoding {encoding[:40]!r}, which was not requested."
        )
    import zlib

    # Detects which of the two headers there is.
    inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)

    def decoded(data: bytes) -> Iterator[bytes]:
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

    return decoded


class ServerEvent(msgspec.Struct, frozen=True):
    """One server-sent event: its type (empty if the server names none) and its data."""

    event: str
    data: str


class EventDecoder:
    """Decodes bytes into events; ignores comments, ids and retry times."""

    def __init__(self) -> None:
        self._decoder = io.IncrementalNewlineDecoder(
            codecs.getincrementaldecoder("utf-8-sig")(), translate=True
        )
        self._rest = io.StringIO()
        """The beginning of an incomplete line."""
        self._event = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> Iterator[ServerEvent]:
        """The events that these bytes complete. Raises StreamCut if the bytes are not UTF-8, or a
        line has no end.
        """
        try:
            *lines, rest = self._decoder.decode(data).split("\n")
        except UnicodeDecodeError as error:
            raise StreamCut("The answer cannot be read: it is not UTF-8.") from error
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
                event, texts = self._event, self._data
                self._event, self._data = "", []
                if texts:
                    yield ServerEvent(event, "\n".join(texts))

    def end(self) -> Iterator[ServerEvent]:
        """The incomplete event at the end of the stream: not every server sends the last empty
        line.
        """
        yield from self.feed(b"\n\n")


def _parse_event(event: ServerEvent, endpoint: Endpoint) -> dict[str, Any]:
    """The object in an event. Raises ModelError if there is none, or it is an error."""
    try:
        data = json.loads(event.data)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        shown = redact(event.data[:1_000], endpoint.api_key)[:80]
        raise StreamCut(f"The answer cannot be read: an event is not a JSON object: {shown}")
    if event.event == "error" or data.get("type") == "error" or data.get("error"):
        raise error_from_stream(data.get("error") or data, endpoint)
    return data


@contextmanager
def translate_http_errors(endpoint: Endpoint) -> Iterator[None]:
    """Raise the errors of httpx as ModelErrors, without keys."""
    httpx, timeouts = load_httpx(), endpoint.timeouts
    host = endpoint.address or endpoint.base_url
    try:
        yield
    except httpx.ConnectTimeout as error:
        raise ModelUnavailable(
            f"{host} cannot be reached: no connection within {timeouts.connect:g} s."
        ) from error
    except httpx.TimeoutException as error:
        raise ModelUnavailable(f"{host} did not answer within {timeouts.first:g} s.") from error
    except httpx.ConnectError as error:
        from urllib.request import getproxies  # httpx has imported it already

        proxy = " Is the proxy of HTTPS_PROXY right?" if getproxies() else ""
        hint = "Is the server running?" if endpoint.is_local else f"Are you online?{proxy}"
        kind: type[ModelError] = ModelUnavailable
        if any(
            isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError)
            for cause in causes_of(error)
        ):
            kind, hint = (
                RequestRefused,
                "Use http:// for a server without TLS; see SSL_CERT_FILE.",
            )
        raise kind(
            f"{host} cannot be reached: {describe_connection_error(error)}.", hint
        ) from error
    except (httpx.NetworkError, httpx.RemoteProtocolError) as error:
        raise StreamCut(
            f"The connection to {host} was lost: {describe_connection_error(error)}."
        ) from error
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        message = f"{endpoint.base_url!r} is not an address of a server."
        raise RequestRefused(
            message, "Correct `api_base` in models.yaml: http://HOST:PORT/v1."
        ) from error
    except httpx.ProxyError as error:
        raise ModelUnavailable(
            f"The proxy in front of {host} does not answer.", "See HTTPS_PROXY."
        ) from error
    except (httpx.HTTPError, ValueError) as error:
        message = (
            f"The request to {host} cannot be made: the key has a character that HTTP does not"
            " allow."
        )
        raise RequestRefused(
            message, f"Correct it: it is from {endpoint.key_source or 'the settings'}."
        ) from error


def new_client(kind: Literal["AsyncClient", "Client"], endpoint: Endpoint) -> Any:
    """A client of httpx. Raises RequestRefused: the proxy or the certificates of the environment
    cannot be used.
    """
    httpx = load_httpx()
    try:
        return getattr(httpx, kind)(
            timeout=httpx.Timeout(endpoint.timeouts.first, connect=endpoint.timeouts.connect),
            headers={"User-Agent": f"ouro/{__version__}", "Accept-Encoding": "identity"},
            follow_redirects=False,
            # Loading the certificates takes as long as everything else, and plain http needs none.
            verify=endpoint.base_url.startswith("https:"),
            # Local servers are not reached through the proxy of the environment.
            trust_env=not endpoint.is_local,
        )
    except (ValueError, ImportError) as error:
        reason = "ouro does not support SOCKS" if isinstance(error, ImportError) else error
        hint = "See HTTPS_PROXY, HTTP_PROXY and ALL_PROXY."
        raise RequestRefused(f"The proxy cannot be used: {reason}.", hint) from error
    except OSError as error:
        message = f"The certificates cannot be read: {error.strerror or error}."
        raise RequestRefused(message, "See SSL_CERT_FILE and SSL_CERT_DIR.") from error


def load_httpx() -> Any:
    """httpx, without its command line (it would import click and rich), and without HTTP/2 (not
    used here).
    """
    hidden = [
        name
        for name in ("httpx._main", "h2")
        if name not in sys.modules and "httpx" not in sys.modules
    ]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        import httpcore
        import httpx
    finally:
        for name in hidden:
            del sys.modules[name]
    assert httpcore
    return httpx
