"""An MCP server on HTTP with the SDK, both protocols, in a thread: streamable HTTP or SSE, with
OAuth if wanted.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time

import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.auth import OAuthToken


class Logins:
    """An authorization server that agrees immediately."""

    def __init__(self) -> None:
        self.clients: dict = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.tokens: dict[str, AccessToken] = {}
        self.refresh_tokens: dict[str, RefreshToken] = {}
        """Each is valid once."""
        self.refused = False

    async def get_client(self, client_id):
        return self.clients.get(client_id)

    async def register_client(self, client_info):
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client, params):
        if self.refused:
            return construct_redirect_uri(
                str(params.redirect_uri), error="access_denied", state=params.state
            )
        code = AuthorizationCode(
            code=secrets.token_urlsafe(16), client_id=client.client_id, scopes=params.scopes or [],
            expires_at=time.time() + 60,
            code_challenge=params.code_challenge, redirect_uri=params.redirect_uri, resource=params.resource,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
        )  # fmt: skip
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(self, client, authorization_code):
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client, authorization_code):
        del self.codes[authorization_code.code]
        return self._issue(client.client_id, authorization_code.scopes)

    async def load_refresh_token(self, client, refresh_token) -> RefreshToken | None:
        return self.refresh_tokens.get(refresh_token)

    async def exchange_refresh_token(self, client, refresh_token, scopes):
        del self.refresh_tokens[refresh_token.token]
        return self._issue(client.client_id, scopes)

    def _issue(self, client_id: str, scopes: list[str]) -> OAuthToken:
        token, refresh = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
        self.tokens[token] = AccessToken(
            token=token, client_id=client_id, scopes=scopes, expires_at=None
        )
        self.refresh_tokens[refresh] = RefreshToken(
            token=refresh, client_id=client_id, scopes=scopes
        )
        return OAuthToken(
            access_token=token, token_type="Bearer", expires_in=3600, refresh_token=refresh
        )

    def allow(self, headers: dict[bytes, bytes], scope: str) -> bool:
        token = headers.get(b"authorization", b"").decode().removeprefix("Bearer ")
        return token in self.tokens and scope in self.tokens[token].scopes

    async def load_access_token(self, token):
        return self.tokens.get(token)


class HttpServer:
    """Serves until `close`. `kind` is `http` or `sse`. With logins, the tool `count` needs the
    scope `count`.
    """

    def __init__(self, kind: str = "http", logins: Logins | None = None) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.origin = f"http://127.0.0.1:{self.port}"
        self.url = f"{self.origin}/{'sse' if kind == 'sse' else 'mcp'}"
        self.entered, self.released = threading.Event(), threading.Event()
        """Events of the tool `block`, which blocks the whole server."""
        server = MCPServer("remote", version="2.0", log_level="CRITICAL", **self._auth(logins))
        self._add_tools(server)
        self.headers: list[dict[bytes, bytes]] = []
        inner = server.sse_app() if kind == "sse" else server.streamable_http_app()

        async def app(scope, receive, send):
            headers = dict(scope.get("headers", ()))
            if scope["type"] == "http":
                self.headers.append(headers)
            if (
                headers.get(b"mcp-name") == b"count"
                and logins
                and not logins.allow(headers, "count")
            ):
                why = b'Bearer error="insufficient_scope", scope="count"'
                await send(
                    {
                        "type": "http.response.start",
                        "status": 403,
                        "headers": [(b"www-authenticate", why)],
                    }
                )
                await send({"type": "http.response.body"})
                return
            await inner(scope, receive, send)

        config = uvicorn.Config(
            app, host="127.0.0.1", port=self.port, log_level="critical", timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)

    def close(self) -> None:
        self.released.set()
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(5)

    def _auth(self, logins: Logins | None) -> dict:
        if logins is None:
            return {}
        settings = AuthSettings(
            issuer_url=self.origin, resource_server_url=self.url, validate_token_resource=False,
            client_registration_options=ClientRegistrationOptions(enabled=True, default_scopes=["count"]),
        )  # fmt: skip
        return {"auth": settings, "auth_server_provider": logins}

    def _add_tools(self, server: MCPServer) -> None:
        @server.tool()
        async def block() -> str:
            """Block the server."""
            self.entered.set()
            self.released.wait(60)
            return "released"

        @server.tool()
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        @server.tool()
        async def count(to: int, context: Context) -> str:
            """Count."""
            for number in range(to):
                await context.report_progress(number, to)
            return "counted"

        @server.tool()
        def big() -> str:
            """Return 40 MB."""
            return "x" * (40 * 1024 * 1024)

        @server.tool()
        async def grow(context: Context) -> str:
            """Get another tool."""
            server.add_tool(lambda: "new", name="grown", description="A new tool.")
            await context.notify_tools_changed()
            return "grown"
