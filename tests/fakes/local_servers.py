"""Ollama, vLLM and similar servers: real HTTP on loopback, one answer to every GET."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from fakes.loopback import Listener


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
