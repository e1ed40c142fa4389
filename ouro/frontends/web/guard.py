"""Guard: which requests of a browser are answered. Everything else is refused with one line."""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
import time
from collections.abc import Collection, Mapping
from hashlib import sha256
from http import HTTPStatus
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from ouro.errors import OuroError, UsageError
from ouro.utils.text import one_line

LOCAL_NAME = "localhost"
KEY_HEADER = "X-Ouro-Key"
MAX_LOGINS = 64
"""Browsers that are logged in; a further one replaces the oldest."""
TICKET_SECONDS = 30.0
"""How long a ticket for one websocket is valid."""
_TOKEN_BYTES = 32
_MAX_QUOTED = 100
_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?")

Kind = Literal["page", "data", "change", "socket"]
"""`page`: files of ouro without any data; `data`: reads; `change`: acts; `socket`: a websocket."""

HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Robots-Tag": "noindex",
}
"""The headers of each answer."""
_CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self' data:;"
    " font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'; style-src 'self'"
)


def content_policy(*, has_terminal: bool) -> str:
    """The Content-Security-Policy. The terminal in the browser writes its own style elements."""
    return f"{_CONTENT_POLICY} 'unsafe-inline'" if has_terminal else _CONTENT_POLICY


class WebRefused(OuroError):
    """A request of a browser is refused; the message is for its user."""

    def __init__(self, message: str, status: HTTPStatus = HTTPStatus.FORBIDDEN) -> None:
        super().__init__(message)
        self.status = status


class Login(NamedTuple):
    """What one browser has after it has shown the token."""

    cookie: str
    key: str
    """The page keeps it in the storage of its origin, and sends it with each request. A cookie is
    also sent to other ports of the same host, and to the program that listens there.
    """


class _Ticket(NamedTuple):
    """The permission to open one websocket."""

    owner: str
    """The digest of the cookie."""
    valid_until: float


class Guard:
    """Decides about requests by their headers.

    Args:
        names: further names in the Host header, those of the user's own proxies.
        any_address: whether addresses other than those of this machine itself are served.

    Raises:
        UsageError: one of the names is not the name of a host.
    """

    def __init__(self, names: Collection[str] = (), *, any_address: bool = False) -> None:
        self.token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._names = frozenset(map(proxy_name, names)) | {LOCAL_NAME}
        """The names of the host that a request may have in its Host header."""
        self._any_address = any_address
        self._keys: dict[str, str] = {}
        """The key of each login, by the digest of its cookie; the oldest first."""
        self._tickets: dict[str, _Ticket] = {}
        """The tickets that were not used, by their words."""

    # Where a request comes from

    def check_source(self, method: str, headers: Mapping[str, str], kind: Kind) -> None:
        """Check where a request comes from. Raises WebRefused if it is for another host, or comes
        from another site. A link on another site may only lead to a page without data.
        """
        host = headers.get("Host", "")
        self._check_host(host)
        origin = headers.get("Origin")
        # A browser sends it with each change and websocket, but not when it only opens a page.
        if origin is None and kind in ("change", "socket"):
            raise WebRefused("A request without an Origin header is refused.")
        if origin is not None and not _is_same_origin(origin, host):
            raise WebRefused(f"A request of another site is refused: {_quotable(origin)}.")
        # Old browsers do not send it. `none`: the user has typed the address, or used a bookmark.
        site = headers.get("Sec-Fetch-Site", "same-origin")
        if site not in ("same-origin", "none") and not _is_visit(method, headers, kind):
            raise WebRefused(f"A request of another site is refused: it is {_quotable(site)}.")

    def _check_host(self, host: str) -> None:
        """Raises WebRefused if the Host header has neither a known name nor an address that is
        served. A hostile site may give a name of its own to the address of this machine.
        """
        name = _host_name(host)
        if name in self._names or self._is_own_address(name):
            return
        raise WebRefused(
            f"The host `{_quotable(host)}` is refused. If it is your proxy, start"
            f" `ouro serve --allow-host {_quotable(name)}`.",
            HTTPStatus.MISDIRECTED_REQUEST,
        )

    def _is_own_address(self, name: str) -> bool:
        """Whether a name is an IP address that this server answers for: a loopback address, or with
        `any_address` any address. False if the name is no address.
        """
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or self._any_address

    # Who sends it

    def log_in(self, token: str) -> Login:
        """Make a login for a browser that knows the token; the oldest one ends if there are too
        many. Raises WebRefused if the token is wrong.
        """
        if not _is_equal(token, self.token):
            raise WebRefused(
                "This link is not valid: the token is wrong, or of an earlier `ouro serve`."
                " Open the link that its terminal shows.",
                HTTPStatus.UNAUTHORIZED,
            )
        login = Login(secrets.token_urlsafe(_TOKEN_BYTES), secrets.token_urlsafe(_TOKEN_BYTES))
        self._keys[_digest(login.cookie)] = login.key
        while len(self._keys) > MAX_LOGINS:
            del self._keys[next(iter(self._keys))]
        return login

    def check_login(self, cookie: str, key: str) -> None:
        """Raises WebRefused if the browser is not logged in."""
        expected_key = self._keys.get(_digest(cookie), "")
        if not expected_key or not _is_equal(key, expected_key):
            raise _not_logged_in()

    def make_ticket(self, cookie: str) -> str:
        """Make a ticket: a word that opens one websocket. A browser cannot send the key of a login
        when it opens a websocket, so the ticket is in the address.
        """
        now = time.monotonic()
        self._tickets = {
            word: ticket for word, ticket in self._tickets.items() if ticket.valid_until > now
        }
        word = secrets.token_urlsafe(_TOKEN_BYTES)
        self._tickets[word] = _Ticket(_digest(cookie), now + TICKET_SECONDS)
        return word

    def use_ticket(self, ticket: str, cookie: str) -> None:
        """Use up a ticket. Raises WebRefused if it is not valid, or belongs to another browser."""
        owner, end = self._tickets.pop(ticket, _Ticket(owner="", valid_until=0.0))
        digest = _digest(cookie)
        is_valid = owner == digest and digest in self._keys and time.monotonic() < end
        if not is_valid:
            raise _not_logged_in()


def _not_logged_in() -> WebRefused:
    return WebRefused(
        "This browser is not logged in. Open the link that the terminal of `ouro serve` shows.",
        HTTPStatus.UNAUTHORIZED,
    )


def _is_equal(text: str, secret: str) -> bool:
    """Whether a text is the secret. The comparison takes the same time for any text, so nobody can
    measure how much of a guess is right.
    """
    return hmac.compare_digest(text.encode("utf-8", "replace"), secret.encode())


def _digest(cookie: str) -> str:
    return sha256(cookie.encode("utf-8", "replace")).hexdigest()


def _host_name(host: str) -> str:
    """The name in a Host header without its port; empty if the header is not a name with a port."""
    try:
        parts = urlsplit(f"//{host}")
        # A header with a path, a query or a user is not valid.
        is_only_host = parts.netloc == host and "@" not in host
        return (parts.hostname or "") if is_only_host else ""
    except ValueError:
        return ""


def proxy_name(text: str) -> str:
    """The name of a proxy without its port. Raises UsageError if the text is no name of a host."""
    name = _host_name(text.lower())
    if not _HOST_NAME.fullmatch(name):
        raise UsageError(
            f"`{_quotable(text)}` is not the name of a host.",
            "Give it as the browser has it: --allow-host box.example.org",
        )
    return name


def _is_same_origin(origin: str, host: str) -> bool:
    """Whether an Origin header names this host, so that the request comes from a page of ouro. The
    scheme may also be https, because a proxy may add TLS.
    """
    scheme, separator, origin_host = origin.lower().partition("://")
    return bool(separator) and scheme in ("http", "https") and origin_host == host.lower()


def _is_visit(method: str, headers: Mapping[str, str], kind: Kind) -> bool:
    """Whether a browser opens a page, which has no data, in a tab, such as when the user follows a
    link.
    """
    is_navigation = headers.get("Sec-Fetch-Mode") == "navigate"
    is_top = headers.get("Sec-Fetch-Dest") == "document"
    return kind == "page" and method == "GET" and is_navigation and is_top


def _quotable(text: str) -> str:
    """A text from a request, made safe for a message: one short line without backquotes."""
    return one_line(text, _MAX_QUOTED).replace("`", "'")
