"""HTTP for MCP servers: a client with a limit on each answer, and OAuth with a loopback redirect."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import MCP_SESSION_ID
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, BaseModel

from ouro.mcp.tokens import Tokens
from ouro.utils.json_object import JsonObject

MAX_BODY = 32 * 1024 * 1024
"""Maximum bytes of an answer that is not a stream of events; the SDK limits each event itself."""
LOGIN_SECONDS = 300.0
"""The time limit for a login in the browser."""
DONE = "Signed in. You can close this page and return to ouro."
"""What the browser shows after the login."""


class LoginNeeded(Exception):
    """The server wants an OAuth login."""


def http_timeout(seconds: float) -> httpx2.Timeout:
    """The time limits for requests to a server: a stream of events may be silent for minutes."""
    return httpx2.Timeout(30.0, read=max(seconds, 300.0))


def http_client(
    headers: dict[str, str] | None = None,
    timeout: httpx2.Timeout | None = None,
    auth: httpx2.Auth | None = None,
    *,
    tls: ssl.SSLContext,
    on_refused: Callable[[], None],
    on_unknown_session: Callable[[], None],
    log: Callable[[str], None],
) -> httpx2.AsyncClient:
    """An HTTP client for one server, which limits the size of answers.

    Args:
        tls: how the server, and that of its login, are verified.
        on_refused: is called if the server answers 401 and the client has no `auth`.
        on_unknown_session: is called if the server answers 404 to a request of a session.
        log: gets a line for each failed request, because the SDK does not report its status.
    """

    async def check_response(response: httpx2.Response) -> None:
        """Called with each answer before its body is read: limit the body, and log a failed
        request.
        """
        if response.status_code == httpx2.codes.UNAUTHORIZED and auth is None:
            on_refused()
        is_of_session = MCP_SESSION_ID in response.request.headers
        if response.status_code == httpx2.codes.NOT_FOUND and is_of_session:
            on_unknown_session()
        # A stream of events has no end: its body is not limited.
        if "text/event-stream" not in response.headers.get("content-type", ""):
            if response.headers.get("content-encoding", "identity") != "identity":
                raise httpx2.DecodingError("the answer is compressed, which was not asked for")
            response.stream = _LimitedStream(response.stream)
        # A 405 only says that the server has no stream of events.
        if response.is_error and response.status_code != httpx2.codes.METHOD_NOT_ALLOWED:
            path, method = response.url.path, response.request.method
            log(f"{method} {path} was answered by {response.status_code} {response.reason_phrase}")

    headers = {**(headers or {}), "Accept-Encoding": "identity"}  # 32 MB of gzip may be 32 GB
    return httpx2.AsyncClient(
        verify=tls,
        headers=headers,
        timeout=timeout,
        auth=auth,
        event_hooks={"response": [check_response]},
    )


class _LimitedStream(httpx2.AsyncByteStream):
    """The body of an answer. It raises ReadError after MAX_BODY bytes."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._stream:
            size += len(piece)
            if size > MAX_BODY:
                raise httpx2.ReadError(f"the answer is larger than {MAX_BODY // 1024 // 1024} MB")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


async def login_provider(
    request: JsonObject, emit: Callable[[JsonObject], None], on_refused: Callable[[], None]
) -> OAuthClientProvider | None:
    """The OAuth provider for a server. If the request has `login`, it lets the user log in with a
    browser. Otherwise it uses the stored tokens. If there are none, the result is None, because a
    client must not be registered without the user.

    Args:
        request: the request that opens the server.
        emit: gets the address for the browser, as an event.
        on_refused: is called if the server wants a login, and the request does not.
    """
    url = request["url"]
    client = request["client"]
    method: Any = "client_secret_basic" if client["secret"] else "none"
    is_interactive = request.get("login", False)
    tokens = Tokens(url)
    missing_scope = ""
    ignored: set[str] = set()
    if is_interactive:
        missing_scope = (await asyncio.to_thread(tokens.load)).get("scope", "")
        ignored.add("client")  # the redirect of the stored client has another port
    if missing_scope:
        ignored.add("tokens")  # they lack rights
    configured_client = None
    if client["id"]:
        configured_client = OAuthClientInformationFull(
            client_id=client["id"],
            client_secret=client["secret"] or None,
            token_endpoint_auth_method=method,
        )
    storage = _TokenStorage(tokens, configured_client, ignored)
    if not is_interactive and await storage.get_tokens() is None:
        return None
    redirect = _LoginRedirect(emit, missing_scope)
    if is_interactive:
        await redirect.start()

    async def refuse(url: str) -> None:
        """Called when the server wants a login at `url`: save the rights that it asks for, for the
        next login, and raise LoginNeeded.
        """
        scope = parse_qs(urlsplit(url).query).get("scope", [""])[0]
        await asyncio.to_thread(tokens.save, "scope", scope)
        on_refused()
        raise LoginNeeded("The login has expired, or lacks rights.")

    provider_class = OAuthClientProvider if is_interactive else _StoredLogin
    return provider_class(
        url,
        OAuthClientMetadata(
            client_name="ouro",
            redirect_uris=[AnyUrl(redirect.uri)],
            token_endpoint_auth_method=method,
        ),
        storage,
        redirect.show if is_interactive else refuse,
        redirect.wait,
    )


class _StoredLogin(OAuthClientProvider):
    """The OAuth provider of the SDK for a user who has logged in before.

    When a server answers 401, that of the SDK asks for a login, because it knows only the expiry of
    the tokens that it got itself. This one first gets new tokens for the stored refresh token.
    """

    _lacks_rights = False
    """Whether the last request was refused for missing rights: new tokens would not have them."""
    _is_refreshing = False
    """Whether the next answer with tokens is for a refresh token, not for a login."""

    async def _auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Yields what the SDK sends for a request, and notes how the request itself is answered."""
        async with aclosing(super()._auth_flow(request)) as flow:
            try:
                outgoing = await anext(flow)
                while True:
                    response = yield outgoing
                    if outgoing is request:
                        self._lacks_rights = response.status_code == httpx2.codes.FORBIDDEN
                    outgoing = await flow.asend(response)
            except StopAsyncIteration:
                return

    async def _perform_authorization(self) -> httpx2.Request:
        """The request for new tokens. Raises LoginNeeded if there is no refresh token."""
        stored = await self.context.storage.get_tokens()
        self._is_refreshing = bool(stored and stored.refresh_token) and not self._lacks_rights
        if not self._is_refreshing:
            return await super()._perform_authorization()
        return await self._refresh_token()

    async def _refresh_token(self) -> httpx2.Request:
        """The request for new tokens, with the stored refresh token: another session may have
        replaced the one that this session knows.
        """
        if stored := await self.context.storage.get_tokens():
            self.context.current_tokens = stored
        return await super()._refresh_token()

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        """Store the new tokens. Raises LoginNeeded if the server refuses the refresh token."""
        if not self._is_refreshing:
            await super()._handle_token_response(response)
        elif not await self._handle_refresh_response(response):
            redirect_to_login = self.context.redirect_handler
            assert redirect_to_login is not None
            await redirect_to_login("")  # raises LoginNeeded; no address: no rights are missing


class _LoginRedirect:
    """Listens on loopback for the redirect of the browser with the code. The SDK checks `state`."""

    def __init__(self, emit: Callable[[JsonObject], None], scope: str) -> None:
        self._emit = emit
        self._scope = scope
        """The rights that an earlier call lacked, separated by blanks; empty: none."""
        self._result: asyncio.Future[AuthorizationCodeResult] = (
            asyncio.get_running_loop().create_future()
        )
        """Gets the code from the browser, or an error."""
        self._server: asyncio.Server | None = None
        """Listens for the browser; None before `start`."""
        self.uri = "http://127.0.0.1/callback"
        """Where the browser is sent; the port is set by `start`."""

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._on_request, "127.0.0.1", 0)
        self.uri = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/callback"

    async def show(self, url: str) -> None:
        """Emit the address of the login page, for the user. It is `url`, and asks also for the
        rights in `self._scope`, which an earlier call lacked.
        """
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        scopes = dict.fromkeys([*query.get("scope", "").split(), *self._scope.split()])
        if scopes:
            query["scope"] = " ".join(scopes)
        self._emit({"login": parts._replace(query=urlencode(query)).geturl()})

    async def wait(self) -> AuthorizationCodeResult:
        """The code from the browser. Raises LoginNeeded if the login was refused, TimeoutError
        after LOGIN_SECONDS.
        """
        try:
            return await asyncio.wait_for(self._result, LOGIN_SECONDS)
        finally:
            if self._server is not None:
                self._server.close()

    async def _on_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a request of the browser. A request for `/callback` with the code, or with an
        error, ends the login. Any other request is answered with 404.
        """
        try:
            request_line = await asyncio.wait_for(reader.readline(), 10)
            words = request_line.decode("latin-1").split(" ")  # `GET /callback?code=… HTTP/1.1`
            parts = urlsplit(words[1] if len(words) > 1 else "")
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            is_ours = parts.path == "/callback" and ("code" in query or "error" in query)
            status, text = "404 Not Found", "Not found."
            if is_ours:
                status = "200 OK"
                text = DONE if "code" in query else "The login was refused."
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n"
                f"Connection: close\r\n\r\n{text}".encode()
            )
            await writer.drain()
            if is_ours and not self._result.done():
                self._finish(query)
        finally:
            writer.close()

    def _finish(self, query: Mapping[str, str]) -> None:
        """End the login: with the code in a query, or with LoginNeeded if the query has an error
        instead of a code.
        """
        if "code" in query:
            result = AuthorizationCodeResult(
                code=query["code"], state=query.get("state"), iss=query.get("iss")
            )
            self._result.set_result(result)
        else:
            refusal = f"The login was refused: {query['error'][:200]}"
            self._result.set_exception(LoginNeeded(refusal))


class _TokenStorage:
    """The `TokenStorage` of the SDK.

    Args:
        configured_client: a client that was registered by hand.
        ignored: stored values to ignore until they are replaced: `tokens`, `client`.
    """

    def __init__(
        self,
        tokens: Tokens,
        configured_client: OAuthClientInformationFull | None,
        ignored: set[str],
    ) -> None:
        self._tokens = tokens
        self._configured_client = configured_client
        """The client that the settings name; None: one is registered, and stored."""
        self._ignored = ignored
        """The stored values that are not used, by their names."""

    async def get_tokens(self) -> OAuthToken | None:
        """The stored tokens; None if there are none."""
        stored = await self._load("tokens")
        return OAuthToken.model_validate(stored) if stored else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store the tokens; no rights are missing now."""
        await self._save("tokens", tokens)
        await asyncio.to_thread(self._tokens.save, "scope", "")

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """The configured client, else the stored one; None if there is none."""
        if self._configured_client is not None:
            return self._configured_client
        stored = await self._load("client")
        return OAuthClientInformationFull.model_validate(stored) if stored else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        await self._save("client", client_info)

    async def _load(self, name: str) -> Any:
        """The stored value with this name; None if it is missing, or must be ignored."""
        if name in self._ignored:
            return None
        values = await asyncio.to_thread(self._tokens.load)
        return values.get(name)

    async def _save(self, name: str, value: BaseModel) -> None:
        """Store a value under a name; from now on it is not ignored."""
        data = value.model_dump(mode="json", exclude_none=True)
        await asyncio.to_thread(self._tokens.save, name, data)
        self._ignored.discard(name)
