"""The HTTP client of all wires, and its errors in words for users."""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from ouro import __version__
from ouro.errors import (
    ModelError,
    ModelUnavailable,
    RequestRefused,
    ServerUnreachable,
    StreamCut,
)
from ouro.llm.http1 import FailureKind, HttpClient, HttpFailure, is_plain
from ouro.llm.model import Endpoint

Failure = Literal[FailureKind, "address", "proxy", "request"]
"""What failed, in the words of both clients."""
_HEADERS = {"User-Agent": f"ouro/{__version__}", "Accept-Encoding": "identity"}
TLS_HINT = (
    "If a proxy of your company signs connections, set SSL_CERT_FILE to a file with its certificate."
    " Use http:// for a server without TLS."
)
"""The hint for a connection that TLS does not allow."""
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy")
"""The variables that name a proxy, in lower case."""


@contextmanager
def translate_http_errors(endpoint: Endpoint) -> Iterator[None]:
    """Raise the errors of HTTP in the block as ModelErrors, without keys; other errors unchanged."""
    try:
        yield
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            raise
        raise _model_error(failure, error, endpoint) from error


def failure_of(error: Exception) -> Failure | None:
    """What failed, if the error is one of `http1`, of httpx or of time, or says that a request
    cannot be made; None for any other error.
    """
    if isinstance(error, HttpFailure):
        return error.kind
    if isinstance(error, TimeoutError):
        return "timeout"
    for kind, failure in _failures_of_httpx():
        if isinstance(error, kind):
            return failure
    return "request" if isinstance(error, ValueError) else None


def _failures_of_httpx() -> Sequence[tuple[type[Exception], Failure]]:
    """The errors of httpx, with what failed; the first that fits counts. Empty if httpx is not
    loaded.
    """
    httpx = sys.modules.get("httpx")
    if httpx is None:
        return ()
    return (
        (httpx.ConnectTimeout, "connect timeout"),
        (httpx.TimeoutException, "timeout"),
        (httpx.ConnectError, "connect"),
        (httpx.NetworkError, "lost"),
        (httpx.RemoteProtocolError, "lost"),
        (httpx.InvalidURL, "address"),
        (httpx.UnsupportedProtocol, "address"),
        (httpx.ProxyError, "proxy"),
        (httpx.HTTPError, "request"),
    )


def _model_error(failure: Failure, error: Exception, endpoint: Endpoint) -> ModelError:
    """The error for the user about what failed."""
    from ouro.llm.provider_errors import describe_connection_error

    host, timeouts = endpoint.address or endpoint.base_url, endpoint.timeouts
    match failure:
        case "connect timeout":
            return ModelUnavailable(
                f"{host} cannot be reached: no connection within {timeouts.connect:g} s."
            )
        case "timeout":
            return ModelUnavailable(f"{host} did not answer within {timeouts.first:g} s.")
        case "connect":
            return _unreachable_error(error, host, endpoint)
        case "lost":
            return StreamCut(
                f"The connection to {host} was lost: {describe_connection_error(error)}."
            )
        case "address":
            return RequestRefused(
                f"{endpoint.base_url!r} is not an address of a server.",
                "Correct `api_base` in models.yaml: http://HOST:PORT/v1.",
            )
        case "proxy":
            return _proxy_error(error, host)
        case _:
            return RequestRefused(
                f"The request to {host} cannot be made: the key has a character that HTTP does"
                " not allow.",
                f"Correct it: it is from {endpoint.key_source or 'the settings'}.",
            )


def _proxy_error(error: Exception, host: str) -> ModelError:
    """The error for a proxy that makes no connection. A status of 4xx does not change by itself."""
    status = str(error)[:3]
    if status.isdecimal() and status.startswith("4"):
        return RequestRefused(
            f"The proxy in front of {host} refuses the connection ({status}).",
            "See HTTPS_PROXY, which may need a user and a password (http://USER:PASSWORD@HOST:PORT),"
            " and NO_PROXY.",
        )
    return ModelUnavailable(f"The proxy in front of {host} does not answer.", "See HTTPS_PROXY.")


def _unreachable_error(error: Exception, host: str, endpoint: Endpoint) -> ModelError:
    """The error for a server to which there is no connection, with a hint about the cause."""
    from ouro.llm.provider_errors import causes_of, describe_connection_error

    message = f"{host} cannot be reached: {describe_connection_error(error)}."
    if any(_is_tls_error(cause) for cause in causes_of(error)):
        return RequestRefused(message, TLS_HINT)
    if endpoint.is_local:
        return ServerUnreachable(message, "Is the server running?")
    proxy = " Is the proxy of HTTPS_PROXY right?" if has_proxy() else ""
    return ServerUnreachable(message, f"Are you online?{proxy}")


def _is_tls_error(cause: BaseException) -> bool:
    """Whether TLS failed, and not only because the server closed the connection."""
    return isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError)


def has_proxy() -> bool:
    """Whether the environment, or on a Mac the system, names a proxy."""
    if sys.platform == "darwin":
        from urllib.request import getproxies  # imported late: it imports email and http

        return bool(getproxies())
    return any(value for name, value in os.environ.items() if name.lower() in _PROXY_VARIABLES)


def new_streaming_client(endpoint: Endpoint) -> Any:
    """A client for answers that are streamed: `http1`, or httpx if there is a proxy or an address
    that `http1` cannot request.

    Raises RequestRefused if the proxy or the certificates of the environment cannot be used.
    """
    is_direct = endpoint.is_local or not has_proxy()
    if not (is_direct and is_plain(endpoint.base_url)):
        return new_client("AsyncClient", endpoint)
    timeouts = endpoint.timeouts
    with _translate_setting_errors():
        return HttpClient(
            _HEADERS,
            timeouts.connect,
            timeouts.first,
            verify=_needs_certificates(endpoint),
        )


def new_client(kind: Literal["AsyncClient", "Client"], endpoint: Endpoint) -> Any:
    """A client of httpx. Raises RequestRefused if the proxy or the certificates of the environment
    cannot be used.
    """
    from ouro.utils.certificates import complete_tls_context

    httpx = load_httpx()
    with _translate_setting_errors():
        return getattr(httpx, kind)(
            timeout=httpx.Timeout(endpoint.timeouts.first, connect=endpoint.timeouts.connect),
            headers=_HEADERS,
            follow_redirects=False,
            # Without `trust_env`, httpx ignores the certificates that the environment names, too.
            verify=complete_tls_context() if _needs_certificates(endpoint) else False,
            # Local servers are not reached through the proxy of the environment.
            trust_env=not endpoint.is_local,
        )


def _needs_certificates(endpoint: Endpoint) -> bool:
    """Whether a client must load certificates: plain http needs none, and to load them takes as long as
    the rest of making a client.
    """
    return endpoint.base_url.startswith("https:")


@contextmanager
def _translate_setting_errors() -> Iterator[None]:
    """Raise RequestRefused for a proxy or certificates of the environment that cannot be used."""
    try:
        yield
    except (ValueError, ImportError) as error:
        reason = "ouro does not support SOCKS" if isinstance(error, ImportError) else error
        hint = "See HTTPS_PROXY, HTTP_PROXY and ALL_PROXY."
        raise RequestRefused(f"The proxy cannot be used: {reason}.", hint) from error
    except OSError as error:
        message = f"The certificates cannot be read: {error.strerror or error}."
        raise RequestRefused(message, "See SSL_CERT_FILE and SSL_CERT_DIR.") from error


def load_httpx() -> Any:
    """Import httpx without its command line (which would import click and rich) and without HTTP/2,
    which ouro does not use.
    """
    hidden: list[str] = []
    if "httpx" not in sys.modules:
        hidden = [name for name in ("httpx._main", "h2") if name not in sys.modules]
    # None as a module makes its import fail, as if it were not installed.
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        import httpcore  # here, because httpx imports it later, when nothing is hidden
        import httpx
    finally:
        for name in hidden:
            del sys.modules[name]
    assert httpcore
    return httpx
