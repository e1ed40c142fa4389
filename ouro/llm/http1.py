"""HTTP/1.1 to a model server: streamed answers over connections that are kept.

httpx and its parts are 120 modules, a fifth of a headless run. They still serve what is not here:
proxies, passwords in addresses, and synchronous requests (`http_client.new_client`).
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from ouro.utils.late_pattern import late_pattern

FailureKind = Literal["connect timeout", "timeout", "connect", "lost"]
"""What failed: `connect timeout`, `timeout` (no answer), `connect` (refused or unknown), `lost`
(the answer ended early or is not HTTP).
"""
MAX_HEAD = 1 << 18
"""Maximum bytes of a line, and of all headers."""
READ_SIZE = 1 << 16
MAX_IDLE = 60.0
"""Seconds after which a kept connection is not used again: after a sleep or a change of the network it
may be dead without a sign, and a request on it would wait for `first` seconds.
"""
SECOND_ADDRESS = 0.25
"""Seconds until the next address of a host is tried beside the first one (RFC 8305)."""
UNKNOWN_ISSUER = (18, 19, 20, 21)
"""The codes of OpenSSL for a certificate whose issuer is not known."""
_PLAIN_ADDRESS = late_pattern(
    r"https?://(?:[A-Za-z0-9._-]{1,253}|\[[0-9a-fA-F:.]{2,45}\])(?::[0-9]{1,5})?"
    r"(?:[/?][A-Za-z0-9._~:/?=&@!$'()*+,;%-]{0,4000})?"
)
"""Matches an address without a password, and with nothing that must be quoted."""
_STATUS_LINE = late_pattern(rb"HTTP/1\.([01]) ([0-9]{3})(?: [^\r\n]*)?\r?\n")
"""Matches `HTTP/1.1 200 OK`."""
_CHUNK_SIZE_LINE = late_pattern(rb"[ \t]*([0-9a-fA-F]{1,15})[ \t]*(?:;[^\r\n]*)?\r?\n")
"""Matches the line before a chunk: its size in hexadecimal digits, and extensions."""
_HEADER_LINE = late_pattern(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n]*?)[ \t]*\r?\n")
"""Matches `Name: value`."""
_ERRNO_IN_TEXT = late_pattern(r"\[Errno (\d{1,5})\]")
"""Matches the number of an error in the text of another one."""
_FORBIDDEN_IN_HEADERS = late_pattern(r"[\r\n\0]")
_STATUSES_WITHOUT_BODY = (204, 304)


def is_plain(address: str) -> bool:
    """Whether an address is one that this module can request: no password, nothing to quote."""
    return _PLAIN_ADDRESS.fullmatch(address) is not None


class HttpFailure(Exception):
    """A request that failed, or an answer that ended early. Its cause is the error of the system."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class HttpHead(msgspec.Struct, frozen=True):
    """The first lines of an answer."""

    status: int
    headers: Mapping[str, str]
    """Names in small letters; several values of a name are joined by commas."""
    may_stay_open: bool
    """Whether the connection can be used again after the body."""


class HttpConnection(msgspec.Struct, frozen=True):
    """A connection to a server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def is_usable(self) -> bool:
        """Whether the server has neither closed a kept connection nor sent anything on it."""
        # asyncio has no public way to ask for bytes that were received and not read.
        has_data = bool(getattr(self.reader, "_buffer", b""))
        is_closed = self.writer.transport.is_closing() or self.reader.at_eof()
        return not is_closed and not has_data

    def abort(self) -> None:
        """Close the connection at once."""
        self.writer.transport.abort()


class HttpAnswer:
    """An answer whose body is read by `aiter_raw`."""

    def __init__(self, head: HttpHead, reader: asyncio.StreamReader) -> None:
        self.status_code = head.status
        self.headers = head.headers
        self.is_success = head.status // 100 == 2
        self.is_read = False
        """Whether the whole body was read, so that the connection can be used again."""
        self._reader = reader
        self._has_end = True
        """Whether the body ends before the connection does."""
        self._body = self._read_body()

    def aiter_raw(self) -> AsyncGenerator[bytes, None]:
        """The bytes of the body as they arrive. Raises HttpFailure if they end early."""
        return self._body

    async def _read_body(self) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of the body. After them the connection can be used again, if the body has
        an end of its own.
        """
        try:
            async with aclosing(self._read_by_length()) as pieces:
                async for piece in pieces:
                    yield piece
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            raise HttpFailure("lost", "the answer is incomplete") from error
        self.is_read = self._has_end

    def _read_by_length(self) -> AsyncGenerator[bytes, None]:
        """The bytes of the body, read to its end as the status and headers define it: no bytes,
        chunks, a known length, or up to the end of the connection. Raises HttpFailure for a length
        or encoding that is not valid.
        """
        if self.status_code in _STATUSES_WITHOUT_BODY:
            return self._read_exactly(size=0)
        encoding = self.headers.get("transfer-encoding", "").lower()
        if encoding == "chunked":
            return self._read_chunks()
        if encoding:
            raise HttpFailure("lost", "an unknown transfer encoding")
        length = self.headers.get("content-length")
        if length is None:
            return self._read_to_end()
        return self._read_exactly(_parse_length(length))

    async def _read_exactly(self, size: int) -> AsyncGenerator[bytes, None]:
        """Yield this number of bytes, in pieces. Raises HttpFailure if the connection ends before."""
        while size:
            data = await self._reader.read(min(size, READ_SIZE))
            if not data:
                raise HttpFailure("lost", "the server closed the connection")
            size -= len(data)
            yield data

    async def _read_to_end(self) -> AsyncGenerator[bytes, None]:
        """Yield the bytes up to the end of the connection, which then cannot be used again."""
        self._has_end = False
        while data := await self._reader.read(READ_SIZE):
            yield data

    async def _read_chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a body in chunks. The trailers after them are dropped."""
        while True:
            line = _CHUNK_SIZE_LINE.fullmatch(await self._reader.readuntil(b"\n"))
            if line is None:
                raise HttpFailure("lost", "an invalid chunk")
            size = int(line[1], 16)
            if size == 0:
                break
            async for data in self._read_exactly(size):
                yield data
            await self._reader.readuntil(b"\n")  # the line break after the chunk
        await _read_headers(self._reader)


class HttpClient:
    """Sends requests to one server. Connections are kept for the next requests.

    Blocks while it is made: certificates are read. Raises OSError if they cannot be.

    Args:
        headers: those of every request.
        connect: seconds until there must be a connection.
        first: seconds until an answer must begin.
        verify: whether certificates are read; https needs them.
    """

    def __init__(
        self, headers: Mapping[str, str], connect: float, first: float, *, verify: bool
    ) -> None:
        self._headers = headers
        self._connect_limit = connect
        """Seconds until there must be a connection."""
        self._first_limit = first
        """Seconds until an answer must begin."""
        self._tls: ssl.SSLContext | None = None
        self._may_trust_system = False
        """Whether the certificates of the system may be added to those of certifi."""
        if verify:
            # Imported late: most local servers speak plain http.
            from ouro.utils.certificates import names_certificates, tls_context

            self._tls = tls_context()
            self._may_trust_system = not names_certificates()
        self._idle: list[tuple[HttpConnection, float]] = []
        """The kept connections that no request uses, and when each was used last: the time of day,
        which goes on while a computer sleeps.
        """
        self.is_closed = False

    @asynccontextmanager
    async def stream(
        self, method: str, url: str, *, content: bytes | None, headers: Mapping[str, str]
    ) -> AsyncIterator[HttpAnswer]:
        """Send a request; yields its answer when that has begun. At the end of the block the
        connection is kept if the whole body was read, else closed. `content` is the body of the
        request; None: it has none. Raises HttpFailure.
        """
        connection = await self._take_connection(url)
        is_reusable = False
        try:
            request = _encode_request(method, url, content, headers={**self._headers, **headers})
            head = await self._exchange(connection, request)
            answer = HttpAnswer(head, connection.reader)
            async with aclosing(answer.aiter_raw()):
                yield answer
            is_reusable = answer.is_read and head.may_stay_open
        finally:
            if is_reusable and not self.is_closed:
                self._idle.append((connection, time.time()))
            else:
                connection.abort()
                await asyncio.sleep(0)  # now it is closed: the server stops its work

    async def aclose(self) -> None:
        """Close all kept connections; those in use are closed after their answer."""
        self.is_closed = True
        while self._idle:
            self._idle.pop()[0].writer.close()

    async def _take_connection(self, url: str) -> HttpConnection:
        """A kept connection that still works, or a new one. Raises HttpFailure."""
        if self._idle:  # a server may have closed one: two rounds of the loop show it
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        while self._idle:
            connection, last_use = self._idle.pop()
            is_recent = 0 <= time.time() - last_use < MAX_IDLE
            if is_recent and connection.is_usable():
                return connection
            connection.abort()
        return await self._open_connection(url)

    async def _open_connection(self, url: str) -> HttpConnection:
        """Connect to the server of an address. Raises HttpFailure."""
        parts = urlsplit(url)
        tls = self._tls if parts.scheme == "https" else None
        port = parts.port or (443 if tls else 80)
        try:
            async with asyncio.timeout(self._connect_limit):
                reader, writer = await _connect(parts.hostname or "", port, tls)
        except TimeoutError as error:
            raise HttpFailure("connect timeout", "no connection") from error
        except ssl.SSLCertVerificationError as error:
            if not (tls and self._may_trust_system and error.verify_code in UNKNOWN_ISSUER):
                raise HttpFailure("connect", "no connection") from error
            from ouro.utils.certificates import complete_tls_context

            self._may_trust_system = False
            self._tls = await asyncio.to_thread(complete_tls_context)
            return await self._open_connection(url)
        except OSError as error:
            raise HttpFailure("connect", "no connection") from _restore_errno(error)
        return HttpConnection(reader, writer)

    async def _exchange(self, connection: HttpConnection, request: Sequence[bytes]) -> HttpHead:
        """Send a request, and read the head of its answer. Raises HttpFailure."""
        try:
            async with asyncio.timeout(self._first_limit):
                connection.writer.writelines(request)
                # A server may refuse before it has read everything: its answer is read.
                with suppress(ConnectionError):
                    await connection.writer.drain()
                return await _read_head(connection.reader)
        except TimeoutError as error:
            raise HttpFailure("timeout", "no answer") from error
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            raise HttpFailure("lost", "the server closed the connection") from error


async def _connect(
    host: str, port: int, tls: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first address of a host that answers, over TLS if there is a context. Raises
    OSError.
    """
    if _is_ip_address(host):
        return await asyncio.open_connection(host, port, limit=MAX_HEAD, ssl=tls)

    # Not the `happy_eyeballs_delay` of asyncio: it fails in Python 3.12.0 to 3.12.7 and 3.13.0 if
    # tasks start eagerly, as Textual sets it.
    from aiohappyeyeballs import start_connection  # imported late: an IP address does not need it

    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    connected = await start_connection(addresses, happy_eyeballs_delay=SECOND_ADDRESS)
    return await asyncio.open_connection(
        sock=connected, limit=MAX_HEAD, ssl=tls, server_hostname=host if tls else None
    )


def _is_ip_address(host: str) -> bool:
    """Whether a host is an IPv4 or IPv6 address, so that there is no name to look up."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.inet_pton(family, host)
    except (OSError, ValueError):  # ValueError: a zero character
        return False
    return True


def _restore_errno(error: OSError) -> OSError:
    """An error of a connection with its number, which names the reason. If asyncio has tried several
    addresses, it raises an error without a number, and joins the texts of their errors: then the
    first number in it is taken. The error itself if there is none.
    """
    if error.errno is not None:
        return error
    match = _ERRNO_IN_TEXT.search(str(error))
    if match is None:
        return error
    number = int(match[1])
    return OSError(number, os.strerror(number))


def _encode_request(
    method: str, url: str, content: bytes | None, headers: Mapping[str, str]
) -> Sequence[bytes]:
    """The bytes of a request: its head, and its body, which is empty if `content` is None. Raises
    ValueError if a header has a character that HTTP does not allow.
    """
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    all_headers = {"Host": parts.netloc, "Accept": "*/*", **headers}
    if content is not None:
        all_headers["Content-Length"] = str(len(content))
    for name, value in all_headers.items():
        if _FORBIDDEN_IN_HEADERS.search(value):
            raise ValueError(f"{name} has a line break")
    lines = [
        f"{method} {target} HTTP/1.1",
        *(f"{name}: {value}" for name, value in all_headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii"), content or b""


async def _read_head(reader: asyncio.StreamReader) -> HttpHead:
    """The status and the headers of an answer; interim answers before it are skipped. Raises
    HttpFailure if it is not HTTP.
    """
    while True:
        line = _STATUS_LINE.fullmatch(await reader.readuntil(b"\n"))
        if line is None:
            raise HttpFailure("lost", "the answer is not HTTP")
        headers = await _read_headers(reader)
        minor_version, status = line[1], int(line[2])
        if status // 100 != 1:  # 100 Continue, 103 Early Hints: the answer comes after them
            break
    connection = headers.get("connection", "").lower()
    may_stay_open = "keep-alive" in connection
    if minor_version == b"1":  # HTTP/1.1 keeps it open, unless a header says otherwise
        may_stay_open = "close" not in connection
    return HttpHead(status, headers, may_stay_open)


async def _read_headers(reader: asyncio.StreamReader) -> dict[str, str]:
    """The headers, or the trailers, up to the empty line, as HttpHead has them. Raises HttpFailure if
    they are not valid or too long.
    """
    headers: dict[str, str] = {}
    size = 0
    while True:
        line = await reader.readuntil(b"\n")
        if line in (b"\r\n", b"\n"):
            return headers
        size += len(line)
        match = _HEADER_LINE.fullmatch(line)
        if match is None or size > MAX_HEAD:
            raise HttpFailure("lost", "invalid headers")
        name, value = match[1].decode().lower(), match[2].decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value


def _parse_length(text: str) -> int:
    """The value of Content-Length. Some proxies repeat it: then all values must be equal. Raises
    HttpFailure if they are not, or are no number.
    """
    [first, *others] = {value.strip() for value in text.split(",")}
    if others or not re.fullmatch(r"[0-9]{1,18}", first, re.ASCII):
        raise HttpFailure("lost", "an invalid length")
    return int(first)
