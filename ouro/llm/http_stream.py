"""HttpStream: post a request and read the events of the answer; the only module that uses HTTP for answers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from ouro import __version__
from ouro.errors import ModelError, ModelUnavailable, RequestRefused, StreamCut
from ouro.llm.endpoint import Endpoint, Timeouts
from ouro.llm.provider_errors import error_from_status, error_from_stream, redact
from ouro.llm.sse import EventDecoder, ServerEvent, encoded

if TYPE_CHECKING:
    import httpx

MAX_ERROR_BODY = 64_000
MAX_ANSWER = 64_000_000
"""Bytes. Only a broken server sends more."""
EXPECTED = ("text/event-stream", "text/plain", "application/octet-stream", "application/x-ndjson")


class HttpStream:
    """Posts to one endpoint; connections are kept between requests."""

    def __init__(self, endpoint: Endpoint, timeouts: Timeouts) -> None:
        self._endpoint = endpoint
        self._timeouts = timeouts
        self._client: httpx.AsyncClient | None = None
        self._making = asyncio.Lock()

    async def warm(self) -> None:
        """Make the client before the first request, in a thread: it takes 0.1 s."""
        async with self._making:  # a first request that arrives meanwhile waits for this client
            if self._client is None:
                self._client = await asyncio.to_thread(_new_client, self._endpoint, self._timeouts)

    async def post(self, path: str, headers: Mapping[str, str], body: Any) -> AsyncGenerator[ServerEvent, None]:
        """Send `body` as JSON and yield the events of the answer.

        Raises:
            ModelError: the server does not answer, refuses, or breaks off.
        """
        await self.warm()
        async with self._errors_told(), self._answer(path, headers, body) as response:
            if not response.is_success:
                raise await self._refusal(response)
            await self._check_kind(response)
            decoder, size = EventDecoder(), 0
            async with aclosing(self._pieces(response)) as pieces:
                async for data in pieces:
                    size += len(data)
                    if size > MAX_ANSWER:
                        raise ModelError("The answer was stopped: it is longer than any model's may be.")
                    for event in decoder.feed(data):
                        yield event
            for event in decoder.end():
                yield event

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    @asynccontextmanager
    async def _answer(self, path: str, headers: Mapping[str, str], body: Any) -> AsyncIterator[httpx.Response]:
        assert self._client is not None
        request = self._client.build_request(
            "POST",
            self._endpoint.base_url.rstrip("/") + path,
            content=encoded(body),
            headers={
                "Content-Type": "application/json",
                "Accept": "text/event-stream",
                **headers,
                **self._endpoint.headers,
            },
        )
        response = await self._client.send(request, stream=True)
        try:
            yield response
        finally:
            await response.aclose()

    async def _pieces(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        """The bytes of the answer; silence between two of them is an error."""
        limit = self._timeouts.first
        pieces = response.aiter_bytes()
        while True:
            try:
                async with asyncio.timeout(limit):
                    data = await anext(pieces, None)
            except TimeoutError as error:
                raise StreamCut(f"The answer stopped: nothing came for {limit:g} s.") from error
            if data is None:
                return
            limit = self._timeouts.idle
            yield data

    async def _refusal(self, response: httpx.Response) -> ModelError:
        headers = {name.lower(): value for name, value in response.headers.items()}
        return error_from_status(response.status_code, await self._head(response), headers, self._endpoint)

    async def _check_kind(self, response: httpx.Response) -> None:
        """Raise an error for a web page or a JSON object in place of a stream, whatever its status."""
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind in EXPECTED or not kind:
            return
        body = await self._head(response)
        if kind == "application/json" and '"error"' in body:
            try:
                raise error_from_stream(msgspec.json.decode(body)["error"], self._endpoint)
            except (msgspec.DecodeError, KeyError, TypeError):
                pass
        hint = f"Is {self._endpoint.base_url} the address of a model server?"
        raise ModelUnavailable(f"{self._endpoint.host} answered with {kind} in place of a stream.", hint)

    async def _head(self, response: httpx.Response) -> str:
        import httpx

        body = b""
        # The status is enough if the body is incomplete.
        with suppress(StreamCut, httpx.HTTPError):
            async with aclosing(self._pieces(response)) as pieces:
                async for data in pieces:
                    body += data
                    if len(body) > MAX_ERROR_BODY:
                        break
        return body[:MAX_ERROR_BODY].decode("utf-8", "replace")

    @asynccontextmanager
    async def _errors_told(self) -> AsyncIterator[None]:
        import httpx

        host, limits = self._endpoint.host or self._endpoint.base_url, self._timeouts
        try:
            yield
        except httpx.ConnectTimeout as error:
            raise ModelUnavailable(f"{host} cannot be reached: no connection within {limits.connect:g} s.") from error
        except httpx.TimeoutException as error:
            raise ModelUnavailable(f"{host} is silent: nothing came for {limits.first:g} s.") from error
        except httpx.ConnectError as error:
            hint = "Is the server running?" if self._endpoint.is_local else "Are you online?"
            raise ModelUnavailable(f"{host} cannot be reached: {_reason(error)}.", hint) from error
        except (httpx.NetworkError, httpx.RemoteProtocolError, httpx.DecodingError) as error:
            raise StreamCut(f"The connection to {host} broke: {_reason(error)}.") from error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            reason = redact(_reason(error), self._endpoint.api_key)
            raise RequestRefused(f"The request to {host} cannot be made: {reason}.", "See models.yaml.") from error


def _reason(error: Exception) -> str:
    return str(error).strip().rstrip(".") or type(error).__name__


def _new_client(endpoint: Endpoint, timeouts: Timeouts) -> httpx.AsyncClient:
    httpx = load_httpx()
    return httpx.AsyncClient(  # type: ignore[no-any-return]
        timeout=httpx.Timeout(timeouts.first, connect=timeouts.connect),
        headers={"User-Agent": f"ouro/{__version__}"},
        follow_redirects=False,
        # Loading the certificates takes as long as everything else, and plain http needs none.
        verify=endpoint.base_url.startswith("https:"),
        # A proxy in the environment is not meant for local servers.
        trust_env=not endpoint.is_local,
    )


def load_httpx() -> Any:
    """httpx, without its command line (it would load click and rich), and without HTTP/2 (not spoken here)."""
    hidden = [name for name in ("httpx._main", "h2") if name not in sys.modules and "httpx" not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        import httpcore
        import httpx
    finally:
        for name in hidden:
            del sys.modules[name]
    assert httpcore
    return httpx
