"""MCP over HTTP: both transports, the protocol of 2026, OAuth with the user's tokens."""

import asyncio
import json
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from fakes.mcp_bench import Bench
from fakes.mcp_http_server import HttpServer, Logins
from fakes.waiting import until

from ouro.errors import ToolError
from ouro.mcp import Tokens
from ouro.mcp.servers import LoginRequired, ServerFailed
from ouro.settings import McpServerSettings
from ouro.utils.ouro_paths import get_home


@pytest.fixture
def start_server():
    opened = []

    def serve(*given, **more) -> HttpServer:
        opened.append(HttpServer(*given, **more))
        return opened[-1]

    yield serve
    for server in opened:
        server.close()


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch):
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")


def at(server: HttpServer, seconds: int = 20, **more) -> McpServerSettings:
    kind = "sse" if server.url.endswith("sse") else "http"
    return McpServerSettings(url=server.url, transport=kind, timeout_seconds=seconds, **more)


@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_tools_work_over_http_and_sse(bench: Bench, start_server, kind):
    server = start_server(kind)
    servers = bench.open(remote=at(server, headers={"X-Team": "core"}))
    remote = await servers.connect("remote")
    assert remote.listing.protocol == "2026-07-28"
    assert (await remote.call("add", {"a": 1, "b": 2}, lambda _: None)).text == "3"
    reported: list[str] = []
    assert (await remote.call("count", {"to": 3}, reported.append)).text == "counted"
    assert reported[0] == "0 of 3"
    assert {headers.get(b"x-team") for headers in server.headers} == {b"core"}


async def test_f4_an_answer_of_40_mb_ends_the_call_only(bench: Bench, start_server):
    servers = bench.open(remote=at(start_server()))
    remote = await servers.connect("remote")
    with pytest.raises(ServerFailed):
        await remote.call("big", {}, lambda _: None)
    assert (
        await (await servers.connect("remote")).call("add", {"a": 1, "b": 2}, lambda _: None)
    ).text == "3"


async def test_e2_server_hanging_after_a_cancelled_call_is_reported(bench: Bench, start_server):
    server = start_server()
    servers = bench.open(remote=at(server, seconds=6))
    remote = await servers.connect("remote")
    call = asyncio.create_task(remote.call("block", {}, lambda _: None))
    await asyncio.to_thread(server.entered.wait, 20)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    with pytest.raises(ServerFailed, match="does not answer since a call was cancelled"):
        await remote.call("add", {"a": 1, "b": 2}, lambda _: None)
    server.released.set()
    assert (await remote.call("add", {"a": 1, "b": 2}, lambda _: None)).text == "3"


class SessionServer(BaseHTTPRequestHandler):
    """A server of 2025, whose session `end` ends. Other sessions get 404."""

    protocol_version = "HTTP/1.1"
    sessions: ClassVar[list[str]] = []
    calls: ClassVar[list[str]] = []

    def log_message(self, *_given):
        pass

    def do_GET(self):
        self._answer(405, None)

    def do_DELETE(self):
        self._answer(405, None)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, number = message["method"], message.get("id")
        if method == "initialize":
            self.sessions[:] = [str(len(self.calls))]
            version = message["params"]["protocolVersion"]
            info = {"capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
            self._answer(200, {"id": number, "result": {"protocolVersion": version, **info}})
        elif self.headers.get("Mcp-Session-Id") not in self.sessions:
            self._answer(404, {"id": number, "error": {"code": -32001, "message": "Who?"}})
        elif method == "tools/list":
            schema = {"type": "object"}
            tools = [{"name": name, "inputSchema": schema} for name in ("say", "end", "lack")]
            self._answer(200, {"id": number, "result": {"tools": tools}})
        elif method == "tools/call":
            self._call(number, message["params"]["name"])
        else:
            self._answer(202, None)

    def _call(self, number, tool):
        self.calls.append(tool)
        if tool == "lack":  # as a gateway answers a method that it does not have
            error = {"code": -32601, "message": "Method not found"}
            self._answer(404, {"id": number, "error": error})
            return
        if tool == "end":
            self.sessions.clear()
        content = [{"type": "text", "text": f"{tool} ran"}]
        self._answer(200, {"id": number, "result": {"content": content}})

    def _answer(self, status, message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode() if message else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for session in self.sessions:
            self.send_header("Mcp-Session-Id", session)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def session_server():
    SessionServer.calls.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), SessionServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield McpServerSettings(
            url=f"http://127.0.0.1:{server.server_port}/mcp", timeout_seconds=20
        )
        server.shutdown()


async def test_a_call_is_sent_again_when_the_server_has_ended_the_session(
    bench: Bench, session_server
):
    remote = await bench.open(remote=session_server).connect("remote")
    for _ in range(5):
        assert (await remote.call("end", {}, lambda _: None)).text == "end ran"
        assert (await remote.call("say", {}, lambda _: None)).text == "say ran"
    with pytest.raises(ServerFailed, match="Method not found"):
        await remote.call("lack", {}, lambda _: None)
    assert SessionServer.calls == [*["end", "say"] * 5, "lack"]


async def test_changed_tool_list_is_noticed(bench: Bench, start_server):
    servers = bench.open(remote=at(start_server()))
    remote = await servers.connect("remote")
    await remote.call("grow", {}, lambda _: None)
    await until(remote.unapproved_tools)
    assert [tool.name for tool in remote.unapproved_tools()] == ["grown"]


async def test_unreachable_server_is_reported(bench: Bench, start_server):
    server = start_server()
    server.close()
    with pytest.raises(
        ToolError, match=f"remote cannot be used: {server.url}: the connection was refused"
    ):
        await bench.open(remote=at(server)).connect("remote")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("403 Forbidden", "403 Forbidden"),
        ("200 OK\r\nContent-Type: application/json", "the answer is not a message of MCP."),
        ("200 OK\r\nContent-Encoding: gzip", "the answer is compressed, which was not asked for."),
    ],
)
async def test_server_without_mcp_is_reported_with_its_address(bench: Bench, answer, says):
    async def refuse(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            f"HTTP/1.1 {answer}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}".encode()
        )
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        servers = bench.open(remote=McpServerSettings(url=url))
        with pytest.raises(ToolError) as failed:
            await servers.connect("remote")
        with pytest.raises(ServerFailed, match=f"The login to remote failed: {url}"):
            await servers.by_name["remote"].login(print)
    assert failed.value.message.startswith(f"The MCP server remote cannot be used: {url}: ")
    assert failed.value.message.endswith(says)


async def test_a_login_whose_page_does_not_come_ends(bench: Bench):
    """The metadata of a server behind a VPN that is off is never answered."""

    unanswered = []

    async def refuse(reader, writer):
        request = await reader.readuntil(b"\r\n\r\n")
        if request.startswith(b"POST"):
            writer.write(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            writer.close()
        else:
            unanswered.append(writer)  # Python 3.13 closes a writer that nothing holds

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        servers = bench.open(remote=McpServerSettings(url=url, timeout_seconds=3))
        addresses: list[str] = []
        with pytest.raises(ServerFailed, match="has not named its login page for 3 s"):
            await servers.by_name["remote"].login(addresses.append)
        for writer in unanswered:
            writer.close()
    assert addresses == []


def browse(addresses: list[str], url: str) -> None:
    """Act as a browser: follow the redirects, in another thread."""
    addresses.append(url)
    threading.Thread(
        target=lambda: urllib.request.urlopen(url, timeout=10).read(), daemon=True
    ).start()


async def test_e3_login_is_per_server_and_tokens_are_private(bench: Bench, start_server):
    logins = Logins()
    server, other = start_server(logins=logins), start_server()
    servers = bench.open(remote=at(server))
    with pytest.raises(ToolError, match="ouro mcp login remote"):
        await servers.connect("remote")
    assert servers.by_name["remote"].state == "login"
    assert logins.clients == {}  # no registration without the user
    addresses: list[str] = []
    await servers.by_name["remote"].login(lambda url: browse(addresses, url))
    assert "code_challenge_method=S256" in addresses[0]
    assert "redirect_uri=http%3A%2F%2F127.0.0.1" in addresses[0]
    (file,) = (get_home() / "mcp" / "tokens").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    token = json.loads(file.read_text())["tokens"]["access_token"]
    assert token in logins.tokens
    again = bench.open(remote=at(server), other=at(other))
    remote = await again.connect("remote")
    assert (await remote.call("add", {"a": 1, "b": 2}, lambda _: None)).text == "3"
    await again.connect("other")
    assert not any(token.encode() in b"".join(headers.values()) for headers in other.headers)
    assert Tokens(server.url).delete()
    assert not file.exists()
    assert token not in "".join(path.read_text() for path in Path(bench.folder).rglob("*.json"))


async def log_in(remote) -> None:
    with pytest.raises(ToolError):
        await remote.wait_until_ready()
    await remote.login(lambda url: browse([], url))


async def test_tokens_that_the_server_no_longer_accepts_are_renewed(bench: Bench, start_server):
    """In the session, twice, and in the next one, which does not know when the tokens expire."""
    logins = Logins()
    server = start_server(logins=logins)
    remote = bench.open(remote=at(server)).by_name["remote"]
    await log_in(remote)
    for _ in range(2):
        logins.tokens.clear()
        assert (await remote.call("add", {"a": 1, "b": 2}, lambda _: None)).text == "3"
    logins.tokens.clear()
    again = await bench.open(remote=at(server)).connect("remote")
    assert (await again.call("add", {"a": 1, "b": 2}, lambda _: None)).text == "3"
    assert remote.state == "ready"


async def test_tokens_that_another_session_has_renewed_are_used(bench: Bench, start_server):
    logins = Logins()
    server = start_server(logins=logins)
    first = bench.open(remote=at(server)).by_name["remote"]
    await log_in(first)
    second = await bench.open(remote=at(server)).connect("remote")
    for remote in (second, first):
        logins.tokens.clear()
        assert (await remote.call("add", {"a": 1, "b": 2}, lambda _: None)).text == "3"


async def test_a_login_is_needed_when_the_refresh_token_is_refused(bench: Bench, start_server):
    logins = Logins()
    remote = bench.open(remote=at(start_server(logins=logins))).by_name["remote"]
    await log_in(remote)
    logins.tokens.clear()
    logins.refresh_tokens.clear()
    with pytest.raises(LoginRequired, match="ouro mcp login remote"):
        await remote.call("add", {"a": 1, "b": 2}, lambda _: None)
    await remote.login(lambda url: browse([], url))
    assert (await remote.call("add", {"a": 1, "b": 2}, lambda _: None)).text == "3"


async def test_a_call_that_needs_more_rights_is_allowed_after_another_login(
    bench: Bench, start_server
):
    servers = bench.open(remote=at(start_server(logins=Logins())))
    remote = servers.by_name["remote"]
    with pytest.raises(ToolError):
        await servers.connect("remote")
    addresses: list[str] = []
    await remote.login(lambda url: browse(addresses, url))
    with pytest.raises(
        LoginRequired, match="Run `ouro mcp login remote`, and `/mcp on remote` in open sessions"
    ):
        await remote.call("count", {"to": 3}, lambda _: None)
    await remote.login(lambda url: browse(addresses, url))
    assert (await remote.call("count", {"to": 3}, lambda _: None)).text == "counted"
    assert ["scope=count" in address for address in addresses] == [False, True]


async def test_e3_with_a_keyring_no_token_is_in_a_file(
    bench: Bench, start_server, monkeypatch, tmp_path
):
    """The keyring backend is configured as on a real system, for both the worker and ouro."""
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "fakes.file_keyring.FileKeyring")
    monkeypatch.setenv("FAKE_KEYRING", str(tmp_path / "ring.json"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.setattr("keyring.core._keyring_backend", None)
    servers = bench.open(remote=at(server := start_server(logins=Logins())))
    with pytest.raises(ToolError):
        await servers.connect("remote")
    await servers.by_name["remote"].login(lambda url: browse([], url))
    assert servers.by_name["remote"].state == "ready"
    assert (
        Tokens(server.url).load()["tokens"]["access_token"] in (tmp_path / "ring.json").read_text()
    )
    assert Tokens(server.url).place() == "the keyring (a file)"
    assert not (get_home() / "mcp" / "tokens").exists()
    assert Tokens(server.url).delete()
    assert Tokens(server.url).load() == {}


async def test_refused_login_is_reported(bench: Bench, start_server):
    logins = Logins()
    logins.refused = True
    servers = bench.open(remote=at(start_server(logins=logins)))
    with pytest.raises(ToolError):
        await servers.connect("remote")
    with pytest.raises(LoginRequired, match="access_denied"):
        await servers.by_name["remote"].login(lambda url: browse([], url))


async def test_e3_a_forged_answer_to_the_redirect_is_refused(bench: Bench, start_server):
    """Another program on this machine sends its own code, but with a wrong `state`."""
    servers = bench.open(remote=at(start_server(logins=Logins())))
    with pytest.raises(ToolError):
        await servers.connect("remote")

    def forge(url: str) -> None:
        redirect = (
            url.partition("redirect_uri=")[2]
            .partition("&")[0]
            .replace("%3A", ":")
            .replace("%2F", "/")
        )
        browse([], f"{redirect}?code=planted&state=guessed")

    with pytest.raises(ServerFailed, match="State parameter mismatch"):
        await servers.by_name["remote"].login(forge)
    assert Tokens(servers.by_name["remote"].settings.url).load().get("tokens") is None


def test_tokens_that_cannot_be_read_count_as_none(home, monkeypatch):
    monkeypatch.setattr("ouro.mcp.tokens.find_keyring", lambda _service: None)
    tokens = Tokens("https://mcp.example/")
    tokens._path.parent.mkdir(parents=True)
    tokens._path.write_bytes(b"\xff\xfe")
    assert tokens.load() == {}
    tokens.save("scope", "read")
    assert tokens.load() == {"scope": "read"}
