"""Runs a command, and opens ports on loopback that lead to ouro's proxy. Run inside the sandbox, as
a file, without ouro.

Usage: python -I -S relay.py SOCKET PLACES COMMAND [ARGUMENT…]

Example of PLACES: `localhost:5432,127.0.0.1:8000`. These are servers of the machine; inside they
have the same ports.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import subprocess
import sys
import threading
from typing import cast

_PROXY_VARIABLES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_WITHOUT_PROXY = "localhost,127.0.0.1,::1"


def main(path: str, places: str, *command: str) -> int:
    """Run a command with ports that lead to the proxy, and with variables that name the first of
    these ports. Returns the exit code of the command, or 128 plus the number of the signal that
    ended it.

    Args:
        path: the socket of the proxy.
        places: servers of this machine, separated by commas, each of which gets a port of its own.
    """
    server = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_serve, args=(server, path), daemon=True).start()
    for place in filter(None, places.split(",")):
        with contextlib.suppress(OSError):  # a port below 1024
            port_server = socket.create_server(("127.0.0.1", int(place.rpartition(":")[2])))
            threading.Thread(target=_serve, args=(port_server, path, place), daemon=True).start()
    proxy = f"http://127.0.0.1:{server.getsockname()[1]}"
    environment = {**os.environ, **dict.fromkeys(_PROXY_VARIABLES, proxy)}
    environment |= {"NO_PROXY": _WITHOUT_PROXY, "no_proxy": _WITHOUT_PROXY}
    code = subprocess.call(command, env=environment)
    return 128 - code if code < 0 else code


def _serve(server: socket.socket, path: str, place: str = "") -> None:
    """Join each client of a port with the proxy, without end.

    Without a `place` the client itself sends requests to the proxy. With one, such as
    `localhost:5432`, the proxy first gets a request to open that address.
    """
    while True:
        client, _ = server.accept()
        proxy = socket.socket(socket.AF_UNIX)
        proxy.connect(path)
        if place:
            proxy.sendall(f"OPEN {place} -\r\n\r\n".encode())
        threading.Thread(target=join, args=(client, proxy), daemon=True).start()


def join(one: socket.socket, two: socket.socket, timeout: float | None = None) -> None:
    """Forward bytes between two sockets until both ends have finished, or no bytes came for
    `timeout` seconds (None: without a limit). Closes both.
    """
    other = {one: two, two: one}
    with one, two, selectors.DefaultSelector() as selector, contextlib.suppress(OSError):
        for end in other:
            selector.register(end, selectors.EVENT_READ)
        while selector.get_map() and (ready := selector.select(timeout)):
            for key, _ in ready:
                end = cast("socket.socket", key.fileobj)
                data = end.recv(65_536)
                if data:
                    other[end].sendall(data)
                else:
                    selector.unregister(end)
                    other[end].shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
