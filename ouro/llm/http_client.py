"""The HTTP client of all wires, and its errors in words for users."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Iterator
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
from ouro.llm.model import Endpoint
from ouro.llm.provider_errors import causes_of, describe_connection_error


@contextmanager
def translate_http_errors(endpoint: Endpoint) -> Iterator[None]:
    """Raise the errors of httpx as ModelErrors, without keys."""
    httpx, timeouts = load_httpx(), endpoint.timeouts
    host = endpoint.address or endpoint.base_url
    try:
        yield
    except httpx.ConnectTimeout as error:
        raise ModelUnavailable(
            f"{host} cannot be reached: no connection within {timeouts.connect:g} s."
        ) from error
    except httpx.TimeoutException as error:
        raise ModelUnavailable(f"{host} did not answer within {timeouts.first:g} s.") from error
    except httpx.ConnectError as error:
        from urllib.request import getproxies  # httpx has imported it already

        proxy = " Is the proxy of HTTPS_PROXY right?" if getproxies() else ""
        hint = "Is the server running?" if endpoint.is_local else f"Are you online?{proxy}"
        kind: type[ModelError] = ServerUnreachable
        if any(
            isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError)
            for cause in causes_of(error)
        ):
            kind, hint = (
                RequestRefused,
                "Use http:// for a server without TLS; see SSL_CERT_FILE.",
            )
        raise kind(
            f"{host} cannot be reached: {describe_connection_error(error)}.", hint
        ) from error
    except (httpx.NetworkError, httpx.RemoteProtocolError) as error:
        raise StreamCut(
            f"The connection to {host} was lost: {describe_connection_error(error)}."
        ) from error
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        message = f"{endpoint.base_url!r} is not an address of a server."
        raise RequestRefused(
            message, "Correct `api_base` in models.yaml: http://HOST:PORT/v1."
        ) from error
    except httpx.ProxyError as error:
        raise ModelUnavailable(
            f"The proxy in front of {host} does not answer.", "See HTTPS_PROXY."
        ) from error
    except (httpx.HTTPError, ValueError) as error:
        message = (
            f"The request to {host} cannot be made: the key has a character that HTTP does not"
            " allow."
        )
        raise RequestRefused(
            message, f"Correct it: it is from {endpoint.key_source or 'the settings'}."
        ) from error


def new_client(kind: Literal["AsyncClient", "Client"], endpoint: Endpoint) -> Any:
    """A client of httpx. Raises RequestRefused: the proxy or the certificates of the environment
    cannot be used.
    """
    httpx = load_httpx()
    try:
        return getattr(httpx, kind)(
            timeout=httpx.Timeout(endpoint.timeouts.first, connect=endpoint.timeouts.connect),
            headers={"User-Agent": f"ouro/{__version__}", "Accept-Encoding": "identity"},
            follow_redirects=False,
            # Loading the certificates takes as long as everything else, and plain http needs none.
            verify=endpoint.base_url.startswith("https:"),
            # Local servers are not reached through the proxy of the environment.
            trust_env=not endpoint.is_local,
        )
    except (ValueError, ImportError) as error:
        reason = "ouro does not support SOCKS" if isinstance(error, ImportError) else error
        hint = "See HTTPS_PROXY, HTTP_PROXY and ALL_PROXY."
        raise RequestRefused(f"The proxy cannot be used: {reason}.", hint) from error
    except OSError as error:
        message = f"The certificates cannot be read: {error.strerror or error}."
        raise RequestRefused(message, "See SSL_CERT_FILE and SSL_CERT_DIR.") from error


def load_httpx() -> Any:
    """httpx, without its command line (it would import click and rich), and without HTTP/2 (not
    used here).
    """
    hidden = [
        name
        for name in ("httpx._main", "h2")
        if name not in sys.modules and "httpx" not in sys.modules
    ]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        import httpcore
        import httpx
    finally:
        for name in hidden:
            del sys.modules[name]
    assert httpcore
    return httpx
