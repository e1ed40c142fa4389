"""The HTTP/1.1 client of streamed answers, against servers that speak it as servers do."""

import asyncio
import socket
import ssl
import sys
import time
from contextlib import aclosing, asynccontextmanager
from types import SimpleNamespace

import certifi
import httpx
import pytest
from fakes.local_servers import tls_server

from ouro.errors import ModelError, ModelUnavailable, RequestRefused, ServerUnreachable, StreamCut
from ouro.llm import ModelCall, ModelSpec, http1
from ouro.llm.http1 import HttpClient, is_plain
from ouro.llm.http_client import new_client, new_streaming_client, translate_http_errors
from ouro.llm.model import Endpoint, Timeouts
from ouro.llm.openai import OpenAIWire
from ouro.messages import user
from ouro.utils.certificates import OTHER_CERTIFICATES

OK = b"HTTP/1.1 200 OK\r\n"


class Server:
    """Answers each request with the next of `answers`; `None` closes the connection instead."""

    def __init__(self, *answers, closes=False):
        self.answers = list(answers)
        self.closes = closes
        self.requests = []
        self.connections = 0

    @asynccontextmanager
    async def running(self, host="127.0.0.1"):
        server = await asyncio.start_server(self._serve, host, 0)
        self.port = server.sockets[0].getsockname()[1]
        self.url = f"http://{host}:{self.port}/v1/x?a=b"
        try:
            yield self
        finally:
            server.close()  # `async with` waits for kept connections since Python 3.12

    async def _serve(self, reader, writer):
        self.connections += 1
        while self.answers:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except EOFError:
                break
            size = next(
                (
                    int(line[15:])
                    for line in head.split(b"\r\n")
                    if line.startswith(b"Content-Length")
                ),
                0,
            )
            self.requests.append((head, await reader.readexactly(size)))
            answer = self.answers.pop(0)
            if answer is None:
                break
            writer.write(answer)
            await writer.drain()
            if self.closes:
                break
        writer.close()


def client():
    return HttpClient({"User-Agent": "t"}, 5.0, 5.0, verify=False)


async def ask(http, url, content=b"{}", **headers):
    async with (
        http.stream("POST", url, content=content, headers=headers) as answer,
        aclosing(answer.aiter_raw()) as pieces,
    ):
        return answer.status_code, b"".join([piece async for piece in pieces]), answer.headers


@pytest.fixture
def closed_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


BODIES = {
    "a length": OK + b"Content-Length: 5\r\n\r\nhello",
    "a repeated length": OK + b"Content-Length: 5, 5\r\n\r\nhello",
    "chunks": OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    "chunks with extensions and trailers": OK
    + b"transfer-encoding: Chunked\r\n\r\n5 ; name=value\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n",
    "hints before the answer": b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue"
    b"\r\n\r\n" + OK + b"Content-Length: 5\r\n\r\nhello",
    "no reason, and line feeds alone": b"HTTP/1.1 200 \ncontent-length:5\n\nhello",
}


@pytest.mark.parametrize("name", BODIES)
async def test_a_body_is_read_to_its_end_and_its_connection_is_used_again(name):
    async with Server(BODIES[name], BODIES[name]).running() as server:
        http = client()
        for _ in range(2):
            status, body, _ = await ask(http, server.url)
            assert (status, body) == (200, b"hello")
        assert server.connections == 1
        await http.aclose()


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"\r\nhello",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello",
    ],
    ids=["up to the end", "HTTP/1.0", "close"],
)
async def test_a_connection_that_the_server_closes_is_not_kept(answer):
    async with Server(answer, answer, closes=True).running() as server:
        http = client()
        for _ in range(2):
            assert (await ask(http, server.url))[1] == b"hello"
        assert server.connections == 2


async def test_a_kept_connection_that_the_server_has_closed_is_replaced():
    answer = BODIES["a length"]
    async with Server(answer, answer, closes=True).running() as server:
        http = client()
        assert (await ask(http, server.url))[1] == b"hello"
        [(kept, _)] = http._idle
        await kept.reader.read()  # until the server's end has arrived
        assert (await ask(http, server.url))[1] == b"hello"
        assert server.connections == 2


async def test_a_connection_from_before_a_sleep_is_not_used_again(monkeypatch):
    """CommandCodeAI/command-code#819: it is dead without a sign, and a request on it waits for minutes."""
    answer = BODIES["a length"]
    begin = time.time()
    async with Server(*[answer] * 4).running() as server:
        http = client()
        for minutes, connections in ((0, 1), (0.9, 1), (1.8, 1), (2.9, 2)):
            now = begin + 60 * minutes
            monkeypatch.setattr(http1, "time", SimpleNamespace(time=lambda now=now: now))
            assert (await ask(http, server.url))[1] == b"hello"
            assert server.connections == connections


async def test_two_requests_at_once_have_two_connections():
    answer = BODIES["a length"]
    async with Server(answer, answer).running() as server:
        http = client()
        await asyncio.gather(ask(http, server.url), ask(http, server.url))
        assert server.connections == 2


async def test_the_request_names_its_host_path_and_length():
    async with Server(OK + b"Content-Length: 0\r\n\r\n").running() as server:
        await ask(client(), server.url, b"12345", Authorization="Bearer k")
        [(head, body)] = server.requests
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /v1/x?a=b HTTP/1.1"
    assert f"Host: 127.0.0.1:{server.port}" in lines
    assert {"Authorization: Bearer k", "Content-Length: 5", "User-Agent: t"} <= set(lines)
    assert body == b"12345"


async def test_a_server_that_refuses_without_reading_is_understood():
    async def refuse(reader, writer):
        await reader.readuntil(b"\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
        await writer.drain()
        await reader.read(1 << 20)
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        status, body, _ = await ask(client(), f"http://127.0.0.1:{port}/", b"x" * 400_000)
    assert (status, body) == (413, b"big")


BROKEN = {
    "no answer": None,
    "not HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "an end in the headers": OK + b"Content-Le",
    "an end in the body": OK + b"Content-Length: 9\r\n\r\nhello",
    "an end in a chunk": OK + b"Transfer-Encoding: chunked\r\n\r\n9\r\nhello",
    "no last chunk": OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "a size that is no number": OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n",
    "two lengths": OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "a negative length": OK + b"Content-Length: -5\r\n\r\nhello",
    "an unknown encoding": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\nhello",
    "a header without a name": OK + b": x\r\n\r\n",
    "a header without an end": OK + b"X: " + b"x" * 400_000,
    "headers without an end": OK + b"X: x\r\n" * 60_000,
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_answer_is_a_lost_connection(name):
    async with Server(BROKEN[name], closes=True).running() as server:
        endpoint = Endpoint(server.url)
        with pytest.raises(StreamCut, match="was lost"), translate_http_errors(endpoint):
            await ask(client(), server.url)


async def test_a_request_that_is_cancelled_closes_its_connection():
    closed = asyncio.Event()
    began = asyncio.Event()

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n")
        began.set()
        await reader.read()
        closed.set()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        http = client()
        asking = asyncio.create_task(ask(http, f"http://127.0.0.1:{port}/", b""))
        await began.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await closed.wait()
        assert not http._idle


async def test_a_silent_server_is_left_after_the_timeout():
    async def wait(reader, _writer):
        await reader.read()

    async with await asyncio.start_server(wait, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        http = HttpClient({}, 5.0, 0.05, verify=False)
        endpoint = Endpoint(f"http://127.0.0.1:{port}", limits=Timeouts(first=0.05))
        with (
            pytest.raises(ModelUnavailable, match="did not answer within"),
            translate_http_errors(endpoint),
        ):
            await ask(http, f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_a_refused_connection_says_so_also_for_several_addresses(host, closed_port):
    url = f"http://{host}:{closed_port}"
    with pytest.raises(ServerUnreachable, match="refused"), translate_http_errors(Endpoint(url)):
        await ask(client(), url)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks cannot start eagerly before 3.12")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_server_is_reached_where_tasks_start_eagerly_as_on_the_screen(host):
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    async with Server(BODIES["a length"]).running() as server:
        status, _, _ = await ask(client(), server.url.replace("127.0.0.1", host))
    assert status == 200


async def test_a_name_without_an_address_is_named():
    url = "http://nothing.invalid:1/v1"
    with (
        pytest.raises(ModelUnavailable, match="no such host"),
        translate_http_errors(Endpoint(url)),
    ):
        await ask(client(), url)


@pytest.mark.parametrize("value", ["a\r\nX: y", "a\nb", "a\0b", "schlüssel", "ключ"])
async def test_a_key_that_http_does_not_allow_is_refused_before_it_is_sent(value):
    async with Server(BODIES["a length"]).running() as server:
        endpoint = Endpoint(server.url, key_source="MY_KEY")
        with pytest.raises(RequestRefused) as failure, translate_http_errors(endpoint):
            await ask(client(), server.url, Authorization=value)
        assert "MY_KEY" in failure.value.hint
        assert not server.requests


@pytest.mark.parametrize(
    ("address", "plain"),
    [
        ("http://127.0.0.1:8080/v1", True),
        ("https://api.example.com", True),
        ("http://[::1]:11434/v1", True),
        ("https://host/openai/deployments/gpt-4.1?api-version=2", True),
        ("http://user:secret@host/v1", False),
        ("http://host/ä", False),
        ("http://bücher.example/v1", False),
        ("ftp://host/v1", False),
        ("http://host/a b", False),
        ("http://host\r\nX: y/", False),
        ("host:80/v1", False),
        ("", False),
    ],
)
def test_only_plain_addresses_are_requested_directly(address, plain):
    assert is_plain(address) is plain


@pytest.mark.parametrize(
    ("address", "proxy", "is_own"),
    [
        ("https://api.example.com/v1", "", True),
        ("https://api.example.com/v1", "http://127.0.0.1:9", False),
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:9", True),
        ("http://me:secret@127.0.0.1:8080/v1", "", False),
    ],
)
def test_httpx_serves_proxies_and_passwords(monkeypatch, address, proxy, is_own):
    for name in (
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "ALL_PROXY",
        "https_proxy",
        "http_proxy",
        "all_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    assert isinstance(new_streaming_client(Endpoint(address)), HttpClient) is is_own


async def test_a_proxy_that_refuses_is_asked_once(monkeypatch):
    """The status of a wrong password does not change by itself; before, it was repeated for minutes."""
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
    async with Server(refusal, closes=True).running() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        model = OpenAIWire(ModelSpec("openai/m"), Endpoint("https://model.example.invalid/v1"))
        with pytest.raises(RequestRefused, match=r"refuses the connection \(407\)"):
            await ModelCall([model], [user("hi")], attempts=3).run()
        await model.close()
        assert proxy.connections == 1


def test_certificates_that_cannot_be_read_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    with pytest.raises(RequestRefused, match="certificates cannot be read"):
        new_streaming_client(Endpoint("https://api.example.com/v1"))


def test_servers_are_checked_with_certificates_and_names():
    http = new_streaming_client(Endpoint("https://api.example.com/v1"))
    assert http._tls.verify_mode is ssl.CERT_REQUIRED
    assert http._tls.check_hostname


@pytest.mark.parametrize("variable", ["NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", ""])
async def test_certificates_for_other_programs_count_if_no_issuer_is_known(
    variable, tmp_path, monkeypatch
):
    """CherryHQ/cherry-studio#15807: the proxy of a company signs connections."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    for name in OTHER_CERTIFICATES:
        monkeypatch.setenv(name, str(tmp_path / "missing.pem"))
    with tls_server(tmp_path) as server:
        if variable:
            monkeypatch.setenv(variable, str(tmp_path / "certificate.pem"))
        expected = None if variable else "certificate is not valid"
        model = OpenAIWire(ModelSpec("openai/m"), Endpoint(server.url))
        with pytest.raises(ModelError, match=expected):  # it answers nothing
            await ModelCall([model], [user("hi")], attempts=1).run()
        await model.close()
        assert server.received.startswith(b"POST /v1" if variable else b"")
        assert bool(server.received) is bool(variable)


async def test_chosen_certificates_are_the_only_ones(tmp_path, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", certifi.where())
    with tls_server(tmp_path) as server:
        monkeypatch.setenv("NODE_EXTRA_CA_CERTS", str(tmp_path / "certificate.pem"))
        model = OpenAIWire(ModelSpec("openai/m"), Endpoint(server.url))
        with pytest.raises(ModelError, match="certificate is not valid"):
            await ModelCall([model], [user("hi")], attempts=1).run()
        await model.close()
        assert server.received == b""


def test_httpx_trusts_certificates_for_other_programs(tmp_path, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with tls_server(tmp_path) as server:
        monkeypatch.setenv("NODE_EXTRA_CA_CERTS", str(tmp_path / "certificate.pem"))
        client = new_client("Client", Endpoint(server.url))
        with client, pytest.raises(httpx.HTTPError):  # it answers nothing
            client.get(f"{server.url}/models")
        assert server.received.startswith(b"GET /v1/models")
