"""Hosts that confined commands can reach: real commands in bubblewrap, a real proxy, a server on
loopback.
"""

import http.server
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ouro.safety import Confinement
from ouro.safety.sandbox.proxy import NetworkProxy
from ouro.settings import SandboxSettings
from ouro.utils.addresses import is_on_internet

FETCH = (
    "import os, sys, urllib.request as u\nos.environ['no_proxy'] = os.environ['NO_PROXY'] = ''  #"
    " they keep a command's own servers in reach\ntry: print(u.urlopen(sys.argv[1],"
    " timeout=10).read().decode())\nexcept OSError as error: print(error)"
)


class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        hosts = ",".join(self.headers.get_all("Host"))
        self.wfile.write(f"{hosts}{self.path} {self.headers['Connection']}".encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def port():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_port
        server.shutdown()


def spoken(proxy: NetworkProxy, request: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(proxy.socket))
        client.sendall(request)
        answer = b""
        while data := client.recv(4096):
            answer += data
    return answer


@pytest.fixture
def proxy(port):
    proxy = NetworkProxy([f"127.0.0.1:{port}", "example.invalid", "*.other.invalid"])
    yield proxy
    proxy.close()
    assert not proxy.socket.exists()


def test_plain_request_is_forwarded_without_proxy_headers(proxy, port):
    head = (
        f"GET http://127.0.0.1:{port}/a?b HTTP/1.1\r\nHost: here\r\nProxy-Connection:"
        " keep-alive\r\n"
    )
    assert spoken(proxy, f"{head}Connection: keep-alive\r\n\r\n".encode()).endswith(
        f"\r\n\r\n127.0.0.1:{port}/a?b close".encode()
    )


def test_connect_tunnels_bytes_in_both_directions(proxy, port):
    answer = spoken(
        proxy,
        f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nGET /t HTTP/1.1\r\nHost: h\r\nConnection:"
        " x\r\n\r\n".encode(),
    )
    assert answer.startswith(b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.0 200 OK")
    assert answer.endswith(b"h/t x")


@pytest.mark.parametrize(
    "target",
    ["127.0.0.1:1", "localhost:80", "evil.invalid:443", "notexample.invalid:443", "example.invalid.evil:443",
     "example.invalid:22", "[::1]:80", "EVIL.invalid.:443", "example.invalid@evil.invalid:443"],
)  # fmt: skip
def test_b7_host_not_in_the_settings_is_refused_and_recorded(proxy, target):
    answer = spoken(proxy, f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 403 Forbidden")
    assert proxy.take_refusals()
    assert not proxy.take_refusals()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"GET / HTTP/1.1",
        b"GET ftp://a/ HTTP/1.1",
        b"CONNECT a\0b:80 x",
        b"CONNECT a:b HTTP/1.1",
        b"x",
    ],
)
def test_malformed_proxy_request_is_refused(proxy, line):
    assert b" 400 " in spoken(proxy, line + b"\r\n\r\n")


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "::1",
        "fd00::1",
        "::ffff:127.0.0.1",
        "168.63.129.16",
        "192.0.0.192",
        "192.88.99.1",
        "2620:4f:8000::1",
        "3fff::1",
    ],
)
@pytest.mark.parametrize("host", ["example.invalid", "a.other.invalid"])
def test_b7_name_resolving_to_a_local_network_is_refused(proxy, monkeypatch, host, address):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", (address, 443))])
    assert b"is an address of a local network" in spoken(
        proxy, f"CONNECT {host}:443 HTTP/1.1\r\n\r\n".encode()
    )


def test_addresses_of_a_name_are_tried_until_one_connects(proxy, monkeypatch):
    places = [
        (0, 0, 0, "", ("2606:2800::1", 443)),
        (0, 0, 0, "", ("10.0.0.1", 443)),
        (0, 0, 0, "", ("93.184.216.34", 443)),
    ]
    tried = []

    def connect(address, _timeout):
        tried.append(address[0])
        if ":" in address[0]:
            raise OSError("unreachable")
        return socket.socket()

    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: places)
    monkeypatch.setattr(socket, "create_connection", connect)
    proxy.connect("example.invalid", 443).close()
    assert tried == ["2606:2800::1", "93.184.216.34"]


@pytest.fixture
def confinement(repository, tmp_path, port):
    confinement = Confinement(
        repository, tmp_path / "sandbox", SandboxSettings(hosts=(f"127.0.0.1:{port}",))
    )
    if confinement.chosen().sandbox.tier != "bubblewrap":
        pytest.skip("needs bubblewrap")
    yield confinement
    confinement.close()


def run(confinement, *argv: str, limits="workspace") -> subprocess.CompletedProcess:
    command = confinement.wrap(argv, limits)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_b7_a_confined_command_reaches_the_hosts_of_the_settings_and_no_other(confinement, port):
    assert run(confinement, "python3", "-c", FETCH, f"http://127.0.0.1:{port}/x").stdout.startswith(
        "127.0.0.1"
    )
    assert "403" in run(confinement, "python3", "-c", FETCH, "http://example.invalid/").stdout
    assert confinement.find_denial("") == "example.invalid:80 is not in sandbox.hosts"
    assert confinement.find_denial("") == ""
    direct = "import socket; socket.create_connection(('127.0.0.1', 1), 5)"
    assert "refused" in run(confinement, "python3", "-c", direct).stderr


def test_configured_local_port_is_reachable_inside_the_sandbox(confinement, port):
    """For programs that support no proxy, such as those of a database."""
    fetch = (
        f"exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'GET /raw HTTP/1.0\\r\\nHost: h\\r\\n\\r\\n'"
        " >&3; cat <&3"
    )
    assert run(confinement, "bash", "-c", fetch).stdout.endswith("h/raw None")
    other = run(confinement, "bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port - 1}")
    assert "Connection refused" in other.stderr


def test_concurrent_commands_share_one_proxy_and_tmp(confinement):
    with ThreadPoolExecutor(8) as pool:
        wrapped = list(pool.map(lambda _: confinement.wrap(["true"], "workspace"), range(16)))
    assert len({tuple(command) for command in wrapped}) == 1


def test_read_only_commands_get_no_proxy(confinement):
    assert "HTTPS_PROXY=" not in run(confinement, "env", limits="read").stdout
    assert "HTTPS_PROXY=" in run(confinement, "env").stdout


@pytest.mark.parametrize(("line", "code"), [("exit 3", 3), ("kill -9 $$", 137), ("true", 0)])
def test_the_exit_code_is_that_of_the_command(confinement, line, code):
    assert run(confinement, "sh", "-c", line).returncode == code


@pytest.mark.parametrize(
    "address", ["64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b::a00:1", "64:ff9b:1::808:808"]
)
def test_b1_an_address_of_nat64_for_a_local_one_is_not_on_the_internet(address):
    assert not is_on_internet(address)
    assert is_on_internet("64:ff9b::808:808")
