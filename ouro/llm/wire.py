"""The common part of the wires: a model behind HTTP, and its stream."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ouro.errors import (
    AnswerUnfinished,
    ContextTooLong,
    ModelError,
    ModelUnavailable,
    NotAStream,
    RequestRefused,
    StreamCut,
)
from ouro.llm.adaptive_model import AdaptiveModel, ModelRequest
from ouro.llm.event_stream import (
    EventDecoder,
    ServerEvent,
    error_in,
    is_end,
    make_decoder,
    parse_event,
)
from ouro.llm.http_client import failure_of, new_streaming_client, translate_http_errors
from ouro.llm.model import (
    CallChunk,
    Chunk,
    Effort,
    EndChunk,
    Endpoint,
    ModelSpec,
    NoticeChunk,
    Reason,
    TextChunk,
    ThinkingChunk,
    UsageChunk,
)
from ouro.llm.portable import SurrogateJoiner, encode_json, parse_object
from ouro.llm.server_facts import ServerFacts
from ouro.llm.think_tags import ThinkTags
from ouro.messages import Usage
from ouro.utils.event_loop import RepeatedTimeout
from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import amount, count, dictionary

if TYPE_CHECKING:
    import httpx

    from ouro.llm.http1 import HttpAnswer, HttpClient

NO_END = "The server closed the answer without saying that it is complete."
"""The notice about an answer without an end."""
LOADING = 503
"""The status of a server that is loading its model, among others."""
MAX_ERROR_BODY = 64_000
"""Maximum bytes of the body of an error that are read."""
MAX_MODEL_INFO = 4_000_000
"""Maximum bytes of an answer about the models of a server; Ollama lists every tensor."""
MAX_ANSWER = 64_000_000
"""Maximum bytes of a stream; only a broken server sends more."""
STREAM_TYPES = (
    "text/event-stream",
    "text/plain",
    "application/octet-stream",
    "application/x-ndjson",
)
"""The content types of a stream."""
_STREAM_START = late_pattern(rb"(?:\xef\xbb\xbf)?\s*(?:data|event|id|retry)?:")
"""Matches the beginning of server-sent events: some relays send them as `application/json`."""
LAST_EVENTS = ("message_stop", "response.completed", "response.incomplete")
"""The types of the last event of Anthropic's protocol and of OpenAI's Responses."""
USAGE_TIMEOUT = 2.0
"""Seconds to wait for the usage after a complete answer: some servers never close the connection.
"""
END_TIMEOUT = 0.1
"""Seconds to read the rest of the body after the last event."""


class _StreamedCall(msgspec.Struct):
    """What has come of a call."""

    name: str = ""
    arguments: str = ""


class ChunkReader(ABC):
    """Reads the events of one answer. `reason` is set once the provider has said that the answer is
    complete.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._text = SurrogateJoiner()
        self._thinking = SurrogateJoiner()
        self._tags = ThinkTags()
        self._calls: dict[int, _StreamedCall] = {}
        """The calls so far, by their index in the answer."""
        self._has_text = False
        """Whether the answer has text that is not blank."""
        self.reason: Reason | None = None
        """Why the answer ended; None as long as the provider has not said it."""
        self.reason_detail = ""
        """What the provider says about the reason, if it refuses to answer."""
        self.is_done = False
        """Whether the provider sent its last event, with or without a reason."""
        self.failure = ""
        """Why the answer ended early, in the words of the provider; empty if it did not say so."""

    @property
    def has_calls(self) -> bool:
        """Whether a call has come."""
        return bool(self._calls)

    @property
    def is_complete(self) -> bool:
        """Whether the provider has said that the answer is complete."""
        return self.reason is not None or (self.is_done and not self.failure)

    @abstractmethod
    def read(self, event: dict[str, Any]) -> Iterator[Chunk]:
        """Yield the chunks of one streamed object. Raises ContextTooLong if it says that the window
        is full.
        """

    def observe(self, chunk: Chunk) -> None:
        """Record a chunk, to know at the end whether the answer is complete even if the provider
        did not say so.
        """
        if isinstance(chunk, TextChunk):
            self._has_text = self._has_text or bool(chunk.text.strip())
        elif isinstance(chunk, CallChunk):
            call = self._calls.setdefault(chunk.index, _StreamedCall())
            call.name += chunk.name
            call.arguments += chunk.arguments

    def end(self) -> Iterator[Chunk]:
        """Yield the last chunks: text that was held back, and the end if the answer is complete.
        Raises AnswerUnfinished if the provider said that it ended the answer early.
        """
        thinking = self._thinking.end()
        if thinking:
            yield ThinkingChunk(thinking)
        # Thinking whose closing tag is missing becomes the answer, if the answer is complete and
        # has no calls: a server may leave out the tag.
        is_answer = self.reason == "stop" or (self.reason is None and self.is_complete)
        tags = self._tags.end(is_answer=is_answer and not self._calls)
        for chunk in (*self._tags.feed(self._text.end()), *tags):
            self.observe(chunk)
            yield chunk
        # An answer that looks complete, although the provider did not say so, gets a notice. An
        # incomplete one gets no end.
        reason = self.reason or self._implied_reason()
        if reason and not self.is_complete:
            yield NoticeChunk(NO_END)
        if reason:
            yield EndChunk(reason, self.reason_detail)
        elif self.failure:
            raise AnswerUnfinished(f"The provider ended the answer early: {self.failure}.")

    def take_continuation(self, body: dict[str, Any]) -> dict[str, Any] | None:  # noqa: ARG002
        """Returns the body of the request that continues the answer, if the server has paused it;
        else None. `body` is that of the request before.
        """
        return None

    def _implied_reason(self) -> Reason | None:
        """The reason of an answer whose server named none: it counts as complete if all calls are
        whole, or there is text and no call, or the server sent its last event. None if it is not
        complete.
        """
        if self.failure:
            return None
        if not self._calls:
            return "stop" if self._has_text or self.is_done else None
        are_whole = all(
            call.name and parse_object(call.arguments) is not None for call in self._calls.values()
        )
        return "tools" if are_whole or self.is_done else None

    def _text_chunks(self, thinking: object, *texts: object) -> Iterator[Chunk]:
        """Yield the chunks of a piece of thinking and of pieces of text, as an event has them: what is
        not a string is skipped. Thinking between tags in a text is split off.
        """
        if isinstance(thinking, str):
            certain = self._thinking.feed(thinking)
            if certain:
                yield ThinkingChunk(certain)
        for text in texts:
            if isinstance(text, str):
                certain = self._text.feed(text)
                if certain:
                    yield from self._tags.feed(certain)


def require_room_in_window(reason: object) -> None:
    """Raises ContextTooLong if a provider ended an answer because the window is full."""
    if isinstance(reason, str) and re.search(r"context|model_length", reason, re.IGNORECASE):
        raise ContextTooLong(f"The answer filled the window of the model ({reason[:60]}).")


def make_usage(
    spec: ModelSpec,
    *,
    sent: object,
    answered: object,
    cached: object = 0,
    cache_written: object = 0,
    cost: object = None,
) -> Usage | None:
    """The usage from a provider's figures, in which None counts as 0. None if one of them is not a
    number of tokens.

    Args:
        sent: the tokens of the request, also those from the cache and those written to it.
        answered: the tokens of the answer.
        cached, cache_written: the tokens of the request that were read from the cache, and written
            to it.
        cost: in US dollars; it only counts if the prices of the model are not known.
    """
    figures = (sent, cached, cache_written, answered)
    counts = [0 if figure is None else count(figure) for figure in figures]
    if None in counts:
        return None
    read, from_cache, written, output = (number or 0 for number in counts)
    usage = Usage(
        input=read,
        cached=from_cache,
        cache_written=written,
        output=output,
        cost=amount(cost),
    )
    if spec.prices is None:
        return usage
    return replace(usage, cost=spec.prices.cost(usage))


async def read_chunks(
    events: AsyncGenerator[dict[str, Any], None], reader: ChunkReader, silence: float
) -> AsyncGenerator[Chunk, None]:
    """Yield the chunks of an answer. Raises StreamCut after `silence` seconds without text,
    thinking or a call.

    Comments and pings keep a connection open, but do not count as an answer.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + silence
    timeout = RepeatedTimeout()
    try:
        async with aclosing(events):
            while True:
                with timeout.until(deadline):
                    event = await anext(events, None)
                if event is None:
                    break
                try:
                    event_chunks = list(reader.read(event))
                except RecursionError as error:
                    raise StreamCut(
                        "The answer cannot be read: an event is nested too deep."
                    ) from error
                for chunk in event_chunks:
                    if not isinstance(chunk, UsageChunk):
                        deadline = clock() + silence
                    reader.observe(chunk)
                    yield chunk
    except TimeoutError as error:
        raise StreamCut(
            f"The model sent no text, thinking or tool call for {silence:g} s."
        ) from error
    finally:
        timeout.close()
    for chunk in reader.end():
        yield chunk


class Wire(AdaptiveModel):
    """A model behind an HTTP server; the subclass knows the protocol. Arguments as in
    `AdaptiveModel`.
    """

    def __init__(
        self,
        spec: ModelSpec,
        endpoint: Endpoint,
        *,
        effort: Effort = "off",
        facts: ServerFacts | None = None,
    ) -> None:
        super().__init__(spec, endpoint, effort=effort, facts=facts)
        self._clients: list[HttpClient | httpx.AsyncClient] = []
        """The client, which keeps its connections between requests; empty until it is made. Copies of
        the model share the list.
        """
        self._client_lock = asyncio.Lock()

    async def warm(self) -> None:
        """Make the client before the first request, in a thread: it takes 0.1 s."""
        # A first request that arrives meanwhile waits for this client.
        async with self._client_lock:
            if not self._clients:
                self._clients.append(await asyncio.to_thread(new_streaming_client, self._endpoint))

    async def close(self) -> None:
        """Close the connections."""
        while self._clients:
            await self._clients.pop().aclose()

    def share_connections(self, other: Wire) -> None:
        """Use the client of another wire to the same endpoint."""
        self._clients, self._client_lock = other._clients, other._client_lock

    async def _stream_answer(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of the answer to a request, and to those that continue it."""
        reader = self._make_reader()
        silence = self._endpoint.timeouts.content
        body: dict[str, Any] | None = request.body
        while body is not None:
            events = self._post(request.path, request.headers, body, reader)
            async with aclosing(read_chunks(events, reader, silence)) as chunks:
                async for chunk in chunks:
                    if self._is_for_user(chunk, reader):
                        yield chunk
            body = reader.take_continuation(body)

    def _is_for_user(self, chunk: Chunk, reader: ChunkReader) -> bool:
        """Whether a chunk is passed on. What it says about the ends of this server's answers is
        recorded. Raises AnswerUnfinished if a server that names the end has not done so.
        """
        if isinstance(chunk, EndChunk) and chunk.reason == "stop" and reader.is_complete:
            self.facts.names_end = True
        if not isinstance(chunk, NoticeChunk):
            return True
        if self.facts.names_end and not reader.has_calls:
            raise AnswerUnfinished("The provider closed the stream before the answer was complete.")
        # It says that the answer ended without a sign of its end. All answers of this server do
        # so: the notice is shown once.
        was_shown = self.facts.ends_silently
        self.facts.ends_silently = True
        return not was_shown

    async def fetch_json(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """The JSON at a path of the server's own API; None if the server refuses, or the answer is
        too long or not JSON. It is a GET, with a body a POST.

        Raises:
            ModelError: the server cannot be reached, or is loading a model.
        """
        await self.warm()
        [client] = self._clients
        key = self._endpoint.api_key
        headers = self._endpoint.add_headers({"Authorization": f"Bearer {key}"} if key else {})
        method, content = ("GET", None) if body is None else ("POST", encode_json(body))
        url = self._endpoint.root + path
        data = b""
        with translate_http_errors(self._endpoint):
            async with (
                asyncio.timeout(self._endpoint.timeouts.first),
                client.stream(method, url, content=content, headers=headers) as response,
            ):
                if response.status_code == LOADING:
                    raise ModelUnavailable(f"{self._endpoint.address} is not ready.")
                async for piece in response.aiter_raw():
                    data += piece
                    if not response.is_success or len(data) > MAX_MODEL_INFO:
                        return None
        try:
            return msgspec.json.decode(data)
        except (msgspec.MsgspecError, RecursionError):
            return None

    def _make_decoder(self) -> EventDecoder:
        """A new decoder of the stream."""
        return EventDecoder()

    @abstractmethod
    def _make_reader(self) -> ChunkReader:
        """A new reader of one answer."""

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
                    event = await self._next_event(events, reader)
                    if event is None or is_end(event):
                        reader.is_done = reader.is_done or event is not None
                        break
                    data = parse_event(event, self._endpoint)
                except (TimeoutError, ModelError):
                    if reader.is_complete:
                        break
                    raise
                yield data
                if data.get("type") in LAST_EVENTS:
                    reader.is_done = True
                    break
            # Only a connection that was read to its end can be reused.
            with suppress(TimeoutError, ModelError):
                async with asyncio.timeout(END_TIMEOUT):
                    async for _ in events:
                        pass

    async def _next_event(
        self, events: AsyncGenerator[ServerEvent, None], reader: ChunkReader
    ) -> ServerEvent | None:
        """The next event; None at the end. Once the answer is complete, raises TimeoutError after
        USAGE_TIMEOUT.
        """
        if not reader.is_complete:
            return await anext(events, None)
        async with asyncio.timeout(USAGE_TIMEOUT):
            return await anext(events, None)

    def _requests_url(self) -> str:
        """The URL to which requests are sent: the address as it is configured, with the path that its
        server turned out to need.
        """
        path = self.facts.get("path")
        return "/".join(filter(None, (self._endpoint.base_url.rstrip("/"), path)))

    async def _read_events(
        self, path: str, headers: Mapping[str, str], body: Any
    ) -> AsyncGenerator[ServerEvent, None]:
        """Send a request and yield the events of its answer. Raises ModelError if the server
        refuses, or sends no stream.
        """
        await self.warm()
        [client] = self._clients
        url = self._requests_url() + path
        headers = self._endpoint.add_headers(
            {"Content-Type": "application/json", "Accept": "text/event-stream", **headers}
        )
        with translate_http_errors(self._endpoint):
            async with client.stream(
                "POST", url, content=encode_json(body), headers=headers
            ) as response:
                if not response.is_success:
                    from ouro.llm.provider_errors import error_from_status

                    head = await _read_body(self._read_pieces(response), MAX_ERROR_BODY)
                    raise error_from_status(
                        response.status_code,
                        body=head,
                        headers=response.headers,
                        endpoint=self._endpoint,
                    )
                pieces = self._read_pieces(response)
                if not _has_stream_type(response):
                    first_piece, pieces = await _peek(pieces)
                    if not _STREAM_START.match(first_piece):
                        for event_text in await self._read_whole_answer(response, pieces):
                            yield ServerEvent(event="", data=event_text)
                        return
                decoder, size = self._make_decoder(), 0
                async with aclosing(pieces):
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

    async def _read_pieces(
        self, response: HttpAnswer | httpx.Response
    ) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of the answer, decoded. Raises StreamCut if the first byte, or later the next
        one, does not come in time.
        """
        timeouts = self._endpoint.timeouts
        limit = timeouts.first
        pieces, decode = response.aiter_raw(), make_decoder(response, self._endpoint)
        timeout = RepeatedTimeout()
        try:
            while True:
                with timeout.after(limit):
                    data = await anext(pieces, None)
                if data is None:
                    return
                limit = timeouts.idle
                for piece in decode(data):
                    yield piece
        except TimeoutError as error:
            raise StreamCut(f"{self._endpoint.address} sent no data for {limit:g} s.") from error
        finally:
            timeout.close()

    async def _read_whole_answer(
        self, response: HttpAnswer | httpx.Response, pieces: AsyncGenerator[bytes, None]
    ) -> list[str]:
        """The events of an answer that is one JSON object instead of a stream: some relays do not
        stream. `pieces` are the bytes of the answer.

        Raises ModelError if it is anything else, such as a web page, even if its status says success.
        If the object is an error, that error is raised.
        """
        content_type = _content_type(response)
        is_json = content_type == "application/json"
        body = await _read_body(pieces, MAX_ANSWER if is_json else MAX_ERROR_BODY)
        answer: dict[str, Any] = {}
        if is_json:
            with suppress(msgspec.DecodeError, RecursionError):
                answer = dictionary(msgspec.json.decode(body))
        error = error_in(answer)
        if error:
            from ouro.llm.provider_errors import error_from_stream

            raise error_from_stream(error, self._endpoint)
        events = self._events_of_whole(answer)
        if events:
            return [encode_json(event).decode() for event in events]
        hint = f"Is {self._endpoint.base_url} the address of a model server?"
        # A server that sends an empty body may answer later: the request is tried again.
        error_class = NotAStream if body.strip() else ModelUnavailable
        from ouro.llm.provider_errors import describe_body

        said = describe_body(body, self._endpoint)
        raise error_class(
            f"{self._endpoint.address} answered with {content_type} instead of a stream"
            + (f": {said}" if said else "."),
            hint,
        )

    @abstractmethod
    def _events_of_whole(self, answer: dict[str, Any]) -> list[dict[str, Any]]:
        """The events that would have streamed an answer; empty if the object is no answer."""


def _content_type(response: HttpAnswer | httpx.Response) -> str:
    """The content type that an answer names, without parameters; empty if it names none."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _has_stream_type(response: HttpAnswer | httpx.Response) -> bool:
    """Whether the content type of an answer is that of a stream, or there is none."""
    content_type = _content_type(response)
    return not content_type or content_type in STREAM_TYPES


async def _peek(
    pieces: AsyncGenerator[bytes, None],
) -> tuple[bytes, AsyncGenerator[bytes, None]]:
    """The first bytes of an answer, empty if it has none; and all its bytes."""
    first_piece = await anext(pieces, b"")

    async def replay() -> AsyncGenerator[bytes, None]:
        """Yield the first piece, then the others."""
        async with aclosing(pieces):
            yield first_piece
            async for piece in pieces:
                yield piece

    return first_piece, replay()


async def _read_body(pieces: AsyncGenerator[bytes, None], limit: int) -> str:
    """The beginning of a body as text, up to `limit` bytes; less if the body ends early or cannot be
    decoded.
    """
    body = b""
    try:
        async with aclosing(pieces):
            async for data in pieces:
                body += data
                if len(body) > limit:
                    break
    except Exception as error:
        # The status is enough if the body is incomplete.
        if not isinstance(error, StreamCut | RequestRefused) and failure_of(error) is None:
            raise
    return body[:limit].decode("utf-8", "replace")
