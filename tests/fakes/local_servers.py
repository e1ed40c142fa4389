"""Servers on loopback that start fast: Ollama, vLLM and similar ones, with one answer to every GET or
with their own API beside OpenAI's, and one whose certificate is signed by itself.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import socket
import ssl
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Server:
    """The address and the requests."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.requests: list[tuple[str, dict[str, str]]] = []


@contextmanager
def local_server(answer: Any, status: int = 200, key: str = "") -> Iterator[Server]:
    """Answer every GET with `answer`: JSON, raw bytes, or None: no answer. With `key`, only
    requests that have it.
    """
    silence = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.requests.append((self.path, dict(self.headers)))
            if answer is None:
                silence.wait(30)
                return
            body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            is_allowed = not key or self.headers["Authorization"] == f"Bearer {key}"
            self.send_response(status if is_allowed else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    httpd = Listener(("127.0.0.1", 0), Handler)
    server = Server(f"127.0.0.1:{httpd.server_address[1]}")
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        silence.set()
        httpd.shutdown()
        httpd.server_close()


def models(*names: str, **more: Any) -> dict[str, Any]:
    """The body of GET /v1/models."""
    return {"object": "list", "data": [{"id": name, "object": "model", **more} for name in names]}


class GoneError(Exception):
    """The client has closed the connection."""


class Listener(ThreadingHTTPServer):
    """Binds without looking up the name of this machine; each request has its own thread."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def server_bind(self) -> None:
        # HTTPServer would look up this machine's name here.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.server_address[:2]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report errors, except of clients that go away."""
        if not isinstance(sys.exception(), OSError | GoneError):
            super().handle_error(request, client_address)


class OwnApi:
    """`answers`: path -> JSON; `chats`: the lines of each answer of /api/chat and of the events of
    each answer of /chat/completions, in their order.
    """

    def __init__(self, answers: Mapping[str, Any], chats: Sequence[Sequence[Any]] = ()) -> None:
        self.answers = dict(answers)
        self.chats = list(chats)
        self.requests: list[tuple[str, Any]] = []
        self.hold: threading.Event | None = None
        """Everything but chats waits for it."""
        self.url = ""

    @property
    def bodies(self) -> list[Any]:
        """The bodies of the chats."""
        return [body for path, body in self.requests if "chat" in path]

    def answer(self, path: str, body: Any) -> tuple[int, str, bytes]:
        self.requests.append((path, body))
        if "chat" not in path:
            if self.hold:
                self.hold.wait(30)
            if path not in self.answers:
                return 404, "text/plain", b"404 page not found"
            return 200, "application/json", json.dumps(self.answers[path]).encode()
        lines = self.chats.pop(0)
        if isinstance(lines, str):  # the way in which Ollama refuses
            return 400, "application/json", json.dumps({"error": lines}).encode()
        if path == "/api/chat":
            sent = "".join(json.dumps(line) + "\n" for line in lines)
            return 200, "application/x-ndjson", sent.encode()
        sent = "".join(f"data: {json.dumps(line)}\n\n" for line in lines) + "data: [DONE]\n\n"
        return 200, "text/event-stream", sent.encode()


@contextmanager
def own_api(answers: Mapping[str, Any], *chats: Sequence[Any]) -> Iterator[OwnApi]:
    server = OwnApi(answers, chats)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(None)

        def do_POST(self) -> None:
            self._send(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _send(self, body: Any) -> None:
            status, kind, data = server.answer(self.path, body)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    httpd = Listener(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{httpd.server_address[1]}"
    threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        if server.hold:
            server.hold.set()
        httpd.shutdown()
        httpd.server_close()


def ollama(model: str = "qwen3:8b", *abilities: str, **more: Any) -> dict[str, Any]:
    """What Ollama says; `longest`, `num_ctx` and `loaded` are contexts."""
    shown: dict[str, Any] = {
        "model_info": {
            "general.architecture": "qwen3",
            "qwen3.context_length": more.get("longest", 40_960),
        },
        "capabilities": ["completion", *abilities],
    }
    if "num_ctx" in more:
        shown["parameters"] = f"temperature 0.6\nnum_ctx                        {more['num_ctx']}\n"
    running = [{"name": model, "model": model, "context_length": more.get("loaded")}]
    return {
        "/v1/models": {"data": [{"id": model, "object": "model", "owned_by": "library"}]},
        "/api/show": shown,
        "/api/ps": {"models": running if "loaded" in more else []},
    }


def said(*texts: str, calls: Sequence[Mapping[str, Any]] = (), **last: Any) -> list[dict[str, Any]]:
    """The lines of an answer of Ollama."""
    lines: list[dict[str, Any]] = [
        {"model": "m", "message": {"role": "assistant", "content": text}, "done": False}
        for text in texts
    ]
    for call in calls:
        message = {"role": "assistant", "content": "", "tool_calls": [{"function": call}]}
        lines.append({"model": "m", "message": message, "done": False})
    end = {"done": True, "done_reason": "stop", "prompt_eval_count": 26, "eval_count": 7}
    return [*lines, {"message": {"role": "assistant", "content": ""}, **end, **last}]


class TlsServer:
    """`connections`: how many were tried; `received`: the bytes after a handshake."""

    def __init__(self) -> None:
        self.url = ""
        self.connections = 0
        self.received = b""


@contextmanager
def tls_server(folder: Path) -> Iterator[TlsServer]:
    server = TlsServer()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(folder))
    listener = socket.create_server(("127.0.0.1", 0))
    server.url = f"https://127.0.0.1:{listener.getsockname()[1]}/v1"

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                server.connections += 1
                connection.settimeout(5)
                with (
                    suppress(OSError),
                    context.wrap_socket(connection, server_side=True) as wrapped,
                ):
                    server.received += wrapped.recv(4096)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def certificate(folder: Path) -> Path:
    """A certificate that is signed by itself, with its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([address, x509.DNSName("docs.example")]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    secret = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain)
    path.write_bytes(made.public_bytes(encoding) + secret)
    return path
