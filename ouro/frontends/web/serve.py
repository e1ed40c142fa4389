"""run_serve: `ouro serve`, from the port to Ctrl+C."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import signal
import socket
import sys
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from importlib.util import find_spec

import msgspec

from ouro.errors import OuroError, UsageError
from ouro.frontends.headless.input import handle_signals
from ouro.frontends.web.guard import Guard
from ouro.frontends.web.server import Sessions, WebServer
from ouro.utils.text import clean

CLOSE_TIMEOUT = 1.0
"""Seconds for open requests to end."""
_PROBE_TIMEOUT = 1.0
_BACKLOG = 64
_END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LINK_WARNING = "The link is a key: who opens it can answer, and so run commands as you."
NETWORK_WARNING = (
    "Every machine that reaches this address can try, and nothing is encrypted: who reads the"
    " traffic can read the link and use it."
)


class ServeOptions(msgspec.Struct, frozen=True):
    host: str
    port: int
    """0: a free one."""
    allow_hosts: Sequence[str] = ()
    """Names of the user's proxies."""
    allow_network: bool = False


def run_serve(options: ServeOptions, sessions: Sessions) -> int:
    """Serve until Ctrl+C; returns the exit code.

    Raises:
        UsageError: the address is not of this machine alone, and that was not allowed; or the name
            of a proxy is not valid.
        OuroError: the port is in use.
    """
    guard = Guard(options.allow_hosts, any_address=options.allow_network)
    listening = bind(options)
    try:
        return asyncio.run(_serve(options, listening, guard, sessions))
    finally:
        listening.close()


def bind(options: ServeOptions) -> socket.socket:
    """The socket on which the server listens, bound to the host and port of the options.

    Raises:
        UsageError: the address is not of this machine alone, and that was not allowed.
        OuroError: the port is in use.
    """
    family, address = _resolve(options)
    if not ipaddress.ip_address(address).is_loopback and not options.allow_network:
        raise UsageError(
            f"{options.host} is an address of the network. {NETWORK_WARNING}",
            "Serve 127.0.0.1 and use `ssh -L`, Tailscale or a proxy (`ouro help serve`), or add"
            " --allow-network.",
        )
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Otherwise connections of a server that has just ended block the port for a minute. On
        # Linux, a port on which another process listens is still refused.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address, options.port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise _listen_error(options, address, error) from error
    return listening


def _resolve(options: ServeOptions) -> tuple[socket.AddressFamily, str]:
    """The family and the first address of the host. Raises UsageError if it has none."""
    try:
        addresses = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--host {options.host} is not an address: {error}.") from error
    family, _kind, _protocol, _name, socket_address = addresses[0]
    return family, str(socket_address[0])


def _listen_error(options: ServeOptions, address: str, error: OSError) -> OuroError:
    """The error for an address on which this process cannot listen. For a port in use, it says whether
    another `ouro serve` uses it.
    """
    if error.errno != errno.EADDRINUSE:
        reason = error.strerror or str(error)
        return OuroError(f"Cannot listen on {options.host}, port {options.port}: {reason}.")
    who = "Another `ouro serve`" if _is_ouro(address, options.port) else "Another program"
    return OuroError(
        f"{who} uses port {options.port} of {options.host}.",
        "Use it, or another port: `ouro serve --port 0` finds a free one.",
    )


def _is_ouro(address: str, port: int) -> bool:
    """Whether an `ouro serve` answers at this address."""
    connection = HTTPConnection(address, port, timeout=_PROBE_TIMEOUT)
    try:
        connection.request("HEAD", "/files/icon.svg")
        return connection.getresponse().headers.get("Server") == "ouro"
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


async def _serve(
    options: ServeOptions, listening: socket.socket, guard: Guard, sessions: Sessions
) -> int:
    """Answer browsers on a socket that listens, until a signal ends it; returns the exit code."""
    from aiohttp import web

    port = listening.getsockname()[1]
    server = WebServer(guard, sessions, f"ouro_{port}")
    runner = web.AppRunner(
        server.build_app(),
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=CLOSE_TIMEOUT,
    )
    await runner.setup()
    ending = asyncio.Event()
    try:
        await web.SockSite(runner, listening).start()
        with handle_signals(lambda _number: ending.set(), *_END_SIGNALS):
            _print_links(options, port, guard.token)
            await ending.wait()
    finally:
        await server.close()
        await runner.cleanup()
    print("ouro serve has ended. The sessions continue: ouro agents")  # noqa: T201
    return 0


def _print_links(options: ServeOptions, port: int, token: str) -> None:
    """Print the links with the token, and warnings. The token is after the `#`: a browser does not send
    that part, so nobody logs it. If other machines can connect, the last link is also a QR code.
    """
    links = [f"http://{_link_host(options.host)}:{port}/#{token}"]
    links += [f"https://{name}/#{token}" for name in options.allow_hosts]
    lines = [*links, "", LINK_WARNING]
    if options.allow_network:
        lines.append(NETWORK_WARNING)
    if find_spec("textual_serve") is None:
        lines.append("The full screen needs a package: pip install ouro[serve]")
    lines.append("From a phone: ouro help serve. Ctrl+C ends it; the sessions continue.")
    print(clean("\n".join(lines)), flush=True)  # noqa: T201
    if options.allow_hosts or options.allow_network:
        _print_qr_code(links[-1])


def _link_host(host: str) -> str:
    """The host for a link. For `0.0.0.0` and `::`, which no browser can open, it is the address
    that this machine has in its network.
    """
    if host in ("0.0.0.0", "::"):  # noqa: S104 (asked for by a flag)
        host = _network_address(socket.AF_INET6 if ":" in host else socket.AF_INET) or host
    return f"[{host}]" if ":" in host else host


def _network_address(family: socket.AddressFamily) -> str:
    """The address with which this machine reaches others; empty if it has none. Nothing is sent."""
    # Addresses for documentation: `connect` only chooses the network card that would be used.
    elsewhere = "2001:db8::1" if family is socket.AF_INET6 else "192.0.2.1"
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((elsewhere, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def _print_qr_code(link: str) -> None:
    """Print the link as a QR code for the camera of a phone, on a terminal."""
    if not sys.stdout.isatty():
        return
    try:
        import segno
    except ModuleNotFoundError:
        return
    print()  # noqa: T201
    segno.make(link, error="l", micro=False).terminal(compact=True, border=2)
