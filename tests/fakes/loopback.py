"""A threaded HTTP server on loopback that starts fast and ignores clients that go away."""

from __future__ import annotations

import socket
import sys
from http.server import ThreadingHTTPServer
from typing import Any


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
