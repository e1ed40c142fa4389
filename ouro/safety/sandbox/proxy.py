"""A proxy for HTTP and HTTPS through which sandboxed commands reach the hosts in the settings.

It listens on a Unix socket. Inside the sandbox, `relay.py` offers it as a port on loopback, the
only place that a command without a network can connect to. The proxy never decrypts TLS: it checks
the host that a command asks for.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import socketserver
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from ouro.safety.sandbox.relay import join
from ouro.utils.addresses import is_on_internet

_MAX_HEAD = 65_536
"""Bytes of the head of a request."""
_CONNECT_TIMEOUT = 20.0
_IDLE_TIMEOUT = 300.0
"""Seconds without a byte after which a connection is closed."""
_USUAL_PORTS = (80, 443)


class NetworkProxy:
    """Serves from construction until `close`, in its own threads.

    Args:
        hosts: the allowed hosts: `example.com` (with its subdomains) on the ports of the web,
            `host:port` on another port. `*.example.com` means the same as `example.com`. Addresses
            of this machine and of local networks are allowed only if they are named themselves.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        # Without `*.`: a name stands for its subdomains, too.
        self._hosts = frozenset(host.lower().removeprefix("*.") for host in hosts)
        self._folder = Path(tempfile.mkdtemp(prefix="ouro-net-"))
        self.socket = self._folder / "proxy"
        """The path of the socket on which it listens."""
        self._refused: list[str] = []
        """Why hosts were refused since the last call of `take_refusals`."""
        self._server = _Server(str(self.socket), _Connection)
        self._server.proxy = self
        self._is_open = True
        """False as soon as `close` is called."""
        self._thread = threading.Thread(target=self._serve, name="network proxy", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving; connections end with the commands that opened them."""
        self._is_open = False
        # The thread waits for a connection: this one lets it see that it has to end.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.socket))
            self._thread.join()
        self._server.server_close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _serve(self) -> None:
        """Serve until `close` is called, which makes a last connection. `serve_forever` would check
        only every 0.5 s whether it should end.
        """
        while self._is_open:
            self._server.handle_request()

    def take_refusals(self) -> str:
        """Returns why hosts were refused since the last call, separated by semicolons; empty if
        none was.
        """
        refused, self._refused = self._refused, []
        return "; ".join(dict.fromkeys(refused))

    def connect(self, host: str, port: int) -> socket.socket:
        """Connect to an allowed host, at the first of its addresses that answers; returns the
        socket.

        Raises:
            PermissionError: the settings do not name the host, or it is an address of a local
                network that they do not name itself.
            OSError: it cannot be reached.
        """
        host = host.lower().rstrip(".")
        if not self._is_allowed(host, port):
            raise self._refusal(f"{host}:{port} is not in sandbox.hosts")
        addresses = [
            str(place[0]) for *_, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        ]
        is_named = not self._hosts.isdisjoint((host, f"{host}:{port}"))
        # A host that is among its own addresses is written as an address, not as a name.
        is_local_and_named = is_named and host in ("localhost", *addresses)
        # A local address is used only if the settings name it, or `localhost`, itself: a name on
        # the internet must not lead to a server of this machine.
        usable = [name for name in addresses if is_local_and_named or is_on_internet(name)]
        if not usable:
            raise self._refusal(f"{host} is an address of a local network")
        *earlier, last = usable
        for address in earlier:
            with contextlib.suppress(OSError):
                return socket.create_connection((address, port), _CONNECT_TIMEOUT)
        return socket.create_connection((last, port), _CONNECT_TIMEOUT)  # its error is raised

    def _is_allowed(self, host: str, port: int) -> bool:
        """Whether the settings name the host with this port. At a usual port of the web it is
        enough that they name the host, or a domain above it.
        """
        if f"{host}:{port}" in self._hosts:
            return True
        if port not in _USUAL_PORTS:
            return False
        return host in self._hosts or any(host.endswith(f".{above}") for above in self._hosts)

    def _refusal(self, reason: str) -> PermissionError:
        """Returns the error for a refused host, and notes the reason for `take_refusals`."""
        self._refused.append(reason)
        return PermissionError(reason)


def _parse_target(target: str, *, is_tunnel: bool) -> tuple[SplitResult, str]:
    """Returns the URL that the first line of a request names, and its host.

    Args:
        target: the second word of that line: `host:port` of a tunnel, otherwise a URL.

    Raises:
        ValueError: it is not a URL that a proxy serves, which must be `http` and have a host.
    """
    url = urlsplit(f"//{target}" if is_tunnel else target)
    is_served = is_tunnel or url.scheme == "http"
    if not is_served or not url.hostname or not url.hostname.isprintable():
        raise ValueError("not a request to a proxy")
    return url, url.hostname


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Accepts the connections of commands, each in a thread."""

    daemon_threads = True
    proxy: NetworkProxy

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore broken connections: both ends notice them."""


class _Connection(socketserver.BaseRequestHandler):
    """One connection of a command."""

    def handle(self) -> None:
        """Read a request, connect to its host, and forward bytes until both ends have finished."""
        server, client = self.server, self.request
        assert isinstance(server, _Server)
        assert isinstance(client, socket.socket)

        client.settimeout(_IDLE_TIMEOUT)
        head, _, rest = _read_head(client).partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        # Words that are missing are empty: such a request is refused below.
        method, target, version = (*lines[0].split(" "), "", "", "")[:3]
        # OPEN is the request of the relay: no answer is mixed with the bytes.
        is_tunnel = method in ("CONNECT", "OPEN")

        # Refuse the request, or connect to its host.
        try:
            url, host = _parse_target(target, is_tunnel=is_tunnel)
            upstream = server.proxy.connect(host, url.port or 80)
        except PermissionError as error:
            _answer(client, "403 Forbidden", f"ouro's sandbox refused this: {error}.")
            return
        except ValueError as error:
            _answer(client, "400 Bad Request", f"{error}.")
            return
        except OSError as error:
            _answer(client, "502 Bad Gateway", f"{target}: {error}.")
            return

        # Answer a tunnel, or pass the request on; then forward all that follows (`rest`).
        with upstream:
            if method == "CONNECT":
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            elif not is_tunnel:
                upstream.sendall(_forwarded_head(method, url, version, headers=lines[1:]))
            upstream.sendall(rest)
            join(client, upstream, _IDLE_TIMEOUT)


def _forwarded_head(method: str, url: SplitResult, version: str, headers: Sequence[str]) -> bytes:
    """Returns the head of a request as it is sent to the host of `url`, which was checked. It asks
    for the end of the connection: a further request could be for another host.

    Args:
        headers: the header lines of the command; those about the proxy, the connection and the host
            are left out.
    """
    dropped = ("proxy-", "connection:", "host:")
    kept_headers = [line for line in headers if not line.lower().startswith(dropped)]
    path = f"{url.path or '/'}{'?' if url.query else ''}{url.query}"
    host = f"Host: {url.netloc.rpartition('@')[2]}"
    lines = [f"{method} {path} {version}", host, *kept_headers, "Connection: close"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _read_head(client: socket.socket) -> bytes:
    """Returns the bytes of a request up to the end of its head; bytes after the head may follow. If
    the client closes the connection, or after `_MAX_HEAD` bytes, the end of the head is missing.
    """
    head = b""
    while b"\r\n\r\n" not in head and len(head) < _MAX_HEAD:
        data = client.recv(_MAX_HEAD)
        if not data:
            break
        head += data
    return head


def _answer(client: socket.socket, status: str, text: str) -> None:
    """Send a response of plain text."""
    body = f"{text}\n".encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length:"
        f" {len(body)}\r\nConnection: close\r\n\r\n"
    )
    client.sendall(head.encode() + body)
