"""HostConnection: the end of a socket from which a viewer talks to the host of a session."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from ouro.errors import HostGone, OuroError
from ouro.frontends.background import extension_methods as methods
from ouro.frontends.background.state import SessionState, state_from
from ouro.session.background_record import BackgroundPlace, BackgroundRecord
from ouro.utils.lenient_json import dump_json
from ouro.utils.private_socket import connect

MAX_LINE = 256 * 1024 * 1024
"""Bytes of one message of the host: a page of the transcript may have diffs."""
ANSWER_TIMEOUT = 15.0
"""Seconds for an answer: the first viewer waits until the host has loaded the protocol."""
_VERSION = 1

Notification = tuple[str, dict[str, Any]]


class HostRefused(OuroError):
    """The host has refused a request; the message is its own."""


class HostConnection:
    """One connection to a host. Only one task may read `notifications`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.notifications: asyncio.Queue[Notification | None] = asyncio.Queue()
        """What the host sends by itself; None at its end."""
        self.session_id = ""
        self._reader = reader
        self._writer = writer
        self._numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[dict[str, Any]]] = {}
        """The requests without an answer, by their numbers."""
        self._sent_texts: dict[int, str] = {}
        """The requests of `send` that have no answer yet, by their numbers."""
        self._is_over = False
        """Whether the host has ended, or the connection to it."""
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, record: BackgroundRecord) -> HostConnection:
        """Connect to the host of this session, as a viewer of ouro.

        Raises:
            HostGone: its process has ended, or does not answer.
            SocketRefused: the socket, or the process behind it, is not of this user.
        """
        place = BackgroundPlace(record.id)
        socket = await asyncio.to_thread(connect, place.socket)
        reader, writer = await asyncio.open_unix_connection(sock=socket, limit=MAX_LINE)
        connection = cls(reader, writer)
        connection.session_id = record.id
        try:
            await connection.call(
                "initialize",
                protocolVersion=_VERSION,
                clientCapabilities={"_meta": {methods.META: True}},
            )
        except BaseException:
            await connection.close()
            raise
        return connection

    async def call(
        self, method: str, *, timeout: float | None = ANSWER_TIMEOUT, **params: Any
    ) -> dict[str, Any]:
        """Send a request; returns its result.

        Raises:
            HostRefused: the host refuses it.
            HostGone: it has ended, or does not answer within `timeout` seconds.
        """
        if self._is_over:
            raise HostGone("The process of this session has ended.")
        number = next(self._numbers)
        future = self._pending[number] = asyncio.get_running_loop().create_future()
        self._write({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        try:
            async with asyncio.timeout(timeout):
                result = await future
        except TimeoutError as error:
            raise HostGone(
                f"The process of this session did not answer in {timeout:g} s."
            ) from error
        finally:
            self._pending.pop(number, None)
        return result or {}

    def send(self, method: str, text: str = "", **params: Any) -> None:
        """Send a request without waiting for its answer. If it is refused, a notification
        `methods.REFUSED` comes.

        Args:
            text: what the user has written and the request sends, so that it can be shown again.
        """
        number = next(self._numbers)
        self._sent_texts[number] = text
        self._write({"jsonrpc": "2.0", "id": number, "method": method, "params": params})

    def notify(self, method: str, **params: Any) -> None:
        """Send a notification: a message that has no answer."""
        self._write({"jsonrpc": "2.0", "method": method, "params": params})

    async def state(self) -> SessionState:
        """The state of the session. Raises HostGone if it has ended, or is of another version."""
        result = await self.call("session/list")
        try:
            return state_from(result["sessions"][0]["_meta"][methods.META])
        except (KeyError, IndexError, TypeError, msgspec.ValidationError) as error:
            raise HostGone(
                f"The process of this session is of another version of ouro: {error}."
            ) from error

    async def answer(self, question_id: str, **fields: Any) -> None:
        """Answer a question. The fields are `choice` and `comment`, or `answers`."""
        await self.call(methods.extension_method(methods.ANSWER), questionId=question_id, **fields)

    async def attach(self, cwd: str) -> None:
        """Ask the host to send the whole session, and all that happens from now on."""
        await self.call(
            "session/load", timeout=60.0, sessionId=self.session_id, cwd=cwd, mcpServers=[]
        )

    async def close(self) -> None:
        """Close the connection. The session continues."""
        self._writer.close()
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    def _write(self, message: dict[str, Any]) -> None:
        line = dump_json(message, is_ascii=True, separators=(",", ":")).encode() + b"\n"
        self._writer.write(line)

    async def _read(self) -> None:
        """Handle the messages of the host until it ends, or sends what is not JSON."""
        try:
            while line := await self._reader.readline():
                self._receive(json.loads(line))
        except (OSError, ValueError):
            pass
        finally:
            self._end()

    def _receive(self, message: Any) -> None:
        """Handle a message of the host: an answer goes to the request that waits for it, and a
        notification into the queue. A request of the host is ignored.
        """
        if not isinstance(message, dict):
            return
        if "method" in message:
            if "id" not in message:
                method = str(message["method"]).removeprefix("_")
                self.notifications.put_nowait((method, message.get("params") or {}))
            return
        self._receive_answer(message)

    def _receive_answer(self, message: dict[str, Any]) -> None:
        """End the request that this answers, with its result or with the error of the host."""
        number, error = message.get("id", 0), message.get("error")
        problem = str(error.get("message", error)) if isinstance(error, dict) else ""
        text = self._sent_texts.pop(number, None)
        if text is not None and problem:
            self._report_refusal(problem, text)
        request = self._pending.get(number)
        if request is None or request.done():
            return
        if problem:
            request.set_exception(HostRefused(problem))
        else:
            request.set_result(message.get("result") or {})

    def _report_refusal(self, message: str, text: str) -> None:
        """Notify the reader of `notifications` that a request was not carried out."""
        self.notifications.put_nowait((methods.REFUSED, {"message": message, "text": text}))

    def _end(self) -> None:
        """Note the end of the connection. Requests without an answer fail with HostGone, those of
        `send` that had a text are reported, and None is the last notification.
        """
        self._is_over = True
        for text in filter(None, self._sent_texts.values()):
            self._report_refusal("The process of this session ended before it took this.", text)
        for request in self._pending.values():
            if not request.done():
                request.set_exception(HostGone("The process of this session has ended."))
        self.notifications.put_nowait(None)


@asynccontextmanager
async def host_connection(record: BackgroundRecord) -> AsyncIterator[HostConnection]:
    """A connection to a host, which is closed at the end of the `async with` block. Raises what
    `HostConnection.open` raises.
    """
    connection = await HostConnection.open(record)
    try:
        yield connection
    finally:
        await connection.close()
