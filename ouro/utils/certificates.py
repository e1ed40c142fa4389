"""Certificates: which servers are trusted over TLS. It is the same for models, MCP servers and the web."""

from __future__ import annotations

import os
import ssl
import sys
from contextlib import suppress
from functools import lru_cache

CHOSEN_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""The variables that name the only certificates that count: a file and a folder."""
OTHER_CERTIFICATES = ("NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""The variables that name further certificates for other programs: files."""


def names_certificates() -> bool:
    """Whether the user has chosen which certificates count."""
    return any(map(os.environ.get, CHOSEN_CERTIFICATES))


def tls_context() -> ssl.SSLContext:
    """How servers are verified: by the certificates of certifi, unless the environment names
    others. It is what httpx does. Raises OSError if those cannot be read.
    """
    file, folder = map(os.environ.get, CHOSEN_CERTIFICATES)
    if file:
        context = ssl.create_default_context(cafile=file)
    elif folder:
        context = ssl.create_default_context(capath=folder)
    else:
        import certifi  # imported late: the chosen ones do not need it

        context = ssl.create_default_context(cafile=certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context


def complete_tls_context() -> ssl.SSLContext:
    """How servers are verified if certifi does not know an issuer, as with the proxies of companies,
    which sign connections: also by the certificates of the system, and by those that the
    environment names for other programs. Files of these that cannot be read are left out. If the
    user has chosen the certificates, only those count. Blocks for up to 0.1 s the first time.

    Raises:
        OSError: the chosen certificates cannot be read.
    """
    return _complete_context(*map(os.environ.get, (*CHOSEN_CERTIFICATES, *OTHER_CERTIFICATES)))


@lru_cache(maxsize=1)
def _complete_context(
    file: str | None, folder: str | None, *other_files: str | None
) -> ssl.SSLContext:
    """The context for these values of the variables; web_fetch needs it for each page."""
    if file or folder:
        return tls_context()
    context = _system_context()
    for path in filter(None, other_files):
        with suppress(OSError):
            context.load_verify_locations(cafile=path)
    return context


def _system_context() -> ssl.SSLContext:
    """A context that trusts the certificates of the system, and those of certifi. On a Mac the
    keychain decides, which OpenSSL does not know.
    """
    if sys.platform == "darwin":
        with suppress(ImportError):
            import truststore

            return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context = tls_context()
    context.load_default_certs()
    return context
