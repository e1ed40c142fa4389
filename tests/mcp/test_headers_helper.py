"""The program that prints the headers of a server, and certificates of other programs, with a server
on HTTP that wants a token.
"""

import json
import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest
from fakes.local_servers import certificate
from fakes.mcp_bench import Bench
from fakes.ouro_program import runs
from fakes.waiting import until

from ouro.errors import ToolError
from ouro.extensions.trust_summary import programs_in
from ouro.mcp import Registry, headers_helper
from ouro.mcp.configuration import to_entry, usable_servers
from ouro.mcp.servers import McpServers
from ouro.settings import McpServerSettings


class TokenServer(BaseHTTPRequestHandler):
    """Answers requests that have the token of today; the tool `expire` changes it."""

    protocol_version = "HTTP/1.1"
    token = "one"
    seen: ClassVar[list[dict]] = []

    def log_message(self, *_):
        pass

    def do_GET(self):
        self._answer(405, None)

    def do_POST(self):
        kind = type(self)
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, number = message["method"], message.get("id")
        kind.seen.append(dict(self.headers))
        if self.headers.get("Authorization") != f"Bearer {kind.token}":
            self._answer(401, None)
        elif method == "initialize":
            version = message["params"]["protocolVersion"]
            info = {"capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
            self._answer(200, {"id": number, "result": {"protocolVersion": version, **info}})
        elif method == "tools/list":
            tools = [
                {"name": name, "inputSchema": {"type": "object"}} for name in ("say", "expire")
            ]
            self._answer(200, {"id": number, "result": {"tools": tools}})
        elif method == "tools/call":
            if message["params"]["name"] == "expire":
                kind.token = "two"
            content = [{"type": "text", "text": f"with {self.headers['Authorization']}"}]
            self._answer(200, {"id": number, "result": {"content": content}})
        else:
            self._answer(202, None)

    def _answer(self, status, message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode() if message else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Served:
    def __init__(self, folder, tls: bool) -> None:
        self.kind = type("Tokens", (TokenServer,), {"seen": [], "token": "one"})
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self.kind)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate(folder))
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self.http.server_port}/mcp"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def settings(self, helper: str = "", **more) -> McpServerSettings:
        return McpServerSettings(url=self.url, timeout_seconds=20, headers_helper=helper, **more)


@pytest.fixture
def serve(tmp_path):
    made: list[Served] = []

    def start(tls: bool = False) -> Served:
        made.append(Served(tmp_path, tls))
        return made[-1]

    yield start
    for server in made:
        server.http.shutdown()
        server.http.server_close()


def token_program(folder, token: str) -> str:
    (folder / "token").write_text(token)
    return """printf '{"authorization": "Bearer %s", "X-Who": "%s"}' "$(cat token)" "$CLAUDE_CODE_MCP_SERVER_NAME" """


async def call(server, tool: str) -> str:
    return (await server.call(tool, {}, lambda _: None)).text


async def test_headers_of_the_program_are_sent_and_replace_others(bench: Bench, serve, tmp_path):
    server = serve()
    settings = server.settings(token_program(tmp_path, "one"), headers={"Authorization": "no"})
    remote = await bench.open(remote=settings).connect("remote")
    assert await call(remote, "say") == "with Bearer one"
    assert server.kind.seen[-1]["X-Who"] == "remote"


async def test_the_program_runs_again_when_its_headers_have_expired(bench: Bench, serve, tmp_path):
    server = serve()
    remote = await bench.open(remote=server.settings(token_program(tmp_path, "one"))).connect(
        "remote"
    )
    await call(remote, "expire")
    (tmp_path / "token").write_text("two")
    assert await call(remote, "say") == "with Bearer two"


async def test_headers_that_the_server_refuses_are_no_missing_login(bench: Bench, serve, tmp_path):
    servers = bench.open(remote=serve().settings(token_program(tmp_path, "wrong")))
    with pytest.raises(ToolError, match=r"does not accept its `headers_helper` \(401\)"):
        await servers.connect("remote")


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("echo no vault >&2; exit 3", "ended with exit code 3: no vault"),
        ("echo token-in-clear", "must print a JSON object"),
        ("echo '[1]'", "must print a JSON object"),
        ("""echo '{"A": 3}'""", "a text of one line for the header A"),
        (r"""echo '{"A": "x\r\nB: y"}'""", "a text of one line for the header A"),
        ("""echo '{"A b": "x"}'""", "not one of a header: `A b`"),
        ("""echo '{"A": "Bearer provider-key-1234"}'""", "the key of a model provider"),
        ("sleep 30", "ran longer than 0.3 s"),
    ],
)
async def test_a_program_that_fails_is_named_without_its_output(
    bench: Bench, serve, program, says, monkeypatch
):
    if "sleep" in program:
        monkeypatch.setattr(headers_helper, "HELPER_SECONDS", 0.3)
    servers = bench.open(remote=serve().settings(program))
    with pytest.raises(ToolError, match=says) as raised:
        await servers.connect("remote")
    assert "token-in-clear" not in str(raised.value)
    assert "provider-key" not in str(raised.value)


async def test_a_process_that_the_program_leaves_does_not_delay_it(bench: Bench, serve, tmp_path):
    program = f"{token_program(tmp_path, 'one')}; sleep 60 & echo $! > left"
    await bench.open(remote=serve().settings(program)).connect("remote")
    left = int((tmp_path / "left").read_text())
    await until(lambda: not runs(left))


async def test_f2_the_program_of_a_project_gets_no_variable_that_looks_secret(
    bench: Bench, serve, tmp_path, monkeypatch
):
    monkeypatch.setenv("MY_API_KEY", "k" * 20)
    monkeypatch.setenv("PROVIDER", "provider-key-1234")
    root = tmp_path / "project"
    root.mkdir()
    program = """env > seen; echo '{"Authorization": "Bearer one"}'"""
    settings = {"remote": serve().settings(program)}
    for projects, folder in ((frozenset({"remote"}), root), (frozenset(), tmp_path)):
        registry = Registry(settings, projects=projects, project_root=root)
        servers = McpServers(registry, bench.host())
        bench.opened.append(servers)
        await servers.connect("remote")
        seen = (folder / "seen").read_text()
        assert ("MY_API_KEY" in seen) is not bool(projects)
        assert "provider-key" not in seen
        assert f"CLAUDE_PROJECT_DIR={folder}\n" in seen


async def test_the_program_runs_in_the_sandbox_if_the_server_should(bench: Bench, serve, tmp_path):
    bench.confine = lambda argv: [
        sys.executable,
        "-c",
        'print(\'{"Authorization": "Bearer one"}\')',
    ]
    settings = serve().settings("exit 9", sandbox=True)
    remote = await bench.open(remote=settings).connect("remote")
    assert await call(remote, "say") == "with Bearer one"


def test_the_key_of_claude_code_is_read_and_written():
    entry = {"type": "http", "url": "http://x", "headersHelper": "./token.sh"}
    servers, problems = usable_servers({"api": entry}, "here")
    assert servers["api"].headers_helper == "./token.sh"
    assert problems == []
    assert to_entry(servers["api"]) == {"url": "http://x", "headersHelper": "./token.sh"}


@pytest.mark.parametrize("key", ["headersHelper", "headers_helper"])
def test_f1_the_question_of_trust_shows_the_program(key):
    entry = {"url": "http://x", key: "./token.sh --all"}
    lines = list(programs_in(json.dumps({"mcpServers": {"api": entry}}), ".mcp.json"))
    assert "mcpServers.api: runs for its headers: ./token.sh --all" in lines


@pytest.mark.parametrize("variable", ["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", ""])
async def test_certificates_for_other_programs_count(
    bench: Bench, serve, tmp_path, monkeypatch, variable
):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    server = serve(tls=True)
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "certificate.pem"))
    servers = bench.open(remote=server.settings(headers={"Authorization": "Bearer one"}))
    if variable:
        assert await call(await servers.connect("remote"), "say") == "with Bearer one"
        return
    with pytest.raises(ToolError, match="certificate is not valid"):
        await servers.connect("remote")
