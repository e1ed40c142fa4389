"""A language server as a child process: messages with headers on its pipes, with limits."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from ouro.utils.json_object import JsonObject
from ouro.utils.processes import send_signal
from ouro.utils.server_processes import (
    CommandMissingError,
    exit_reason,
    forget_server,
    read_stderr,
    start_process,
    stop_server,
)
from ouro.utils.text import whole_number

MAX_HEADER = 256 * 1024
"""Maximum bytes of the headers of a message."""
MAX_UNREAD = 64 * 1024 * 1024
"""Bytes that may wait for a server which does not read; then it is ended."""
MAX_MESSAGE = 32 * 1024 * 1024
"""Maximum bytes of a message."""
MAX_GARBAGE = 200
"""After this number of headers without a length the server is ended."""
FLOOD_BYTES = 256 * 1024 * 1024
"""A server that sends more within `FLOOD_SECONDS` is ended."""
FLOOD_SECONDS = 10.0
LOGS_PER_SECOND = 20
"""Maximum lines of stderr that are logged in a second."""


class LanguageServerEnded(Exception):
    """The server ended, or was ended because of what it sent."""


class ServerProcess:
    """A running server.

    Args:
        on_message: called with each message.
        log: called with lines of stderr, at most LOGS_PER_SECOND.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        on_message: Callable[[JsonObject], None],
        log: Callable[[str], None],
    ) -> None:
        self.process = process
        self._on_message = on_message
        self._log = log
        self._received: list[tuple[float, int]] = []
        """Time and bytes of what was received, for each second."""
        self._tasks = [asyncio.create_task(self._read_stderr())]

    @property
    def pid(self) -> int:
        return self.process.pid

    async def read(self) -> str:
        """Read and deliver messages until the server ends or breaks the protocol. Returns the reason;
        the caller stops the process.
        """
        assert self.process.stdout is not None
        garbage = 0
        while True:
            try:
                header = await self.process.stdout.readuntil(b"\r\n\r\n")
                length = _length_in(header)
                if length is None:
                    garbage += 1
                    self._log(f"stdout: {header[:200].decode('utf-8', 'replace').strip()}")
                    if garbage > MAX_GARBAGE:
                        return "it printed what is not a message"
                    continue
                if length > MAX_MESSAGE:
                    return f"it sent a message of more than {MAX_MESSAGE // 1024 // 1024} MB"
                body = await self.process.stdout.readexactly(length)
            except asyncio.LimitOverrunError:
                return "it printed what is not a message"
            except asyncio.IncompleteReadError:
                return await exit_reason(self.process, "it closed its output")
            if self._count_bytes(length):
                return f"it sent more than {FLOOD_BYTES // 1024 // 1024} MB in {FLOOD_SECONDS:g} s"
            self._deliver(body)
            await asyncio.sleep(0)  # other servers must not wait for a full buffer

    def send(self, message: JsonObject) -> None:
        """Send a message. It is lost if the server has ended. If more than MAX_UNREAD bytes wait,
        the server does not read, and is killed.
        """
        assert self.process.stdin is not None
        data = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode()
        if self.process.stdin.transport.get_write_buffer_size() > MAX_UNREAD:
            send_signal(self.process.pid, signal.SIGKILL, group=True)
            return
        with suppress(OSError, RuntimeError):
            self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)

    async def stop(self) -> None:
        """End the process group."""
        await stop_server(self.process)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await forget_server(self.process)

    def _deliver(self, body: bytes) -> None:
        """Pass on the message in a body. A body that is not JSON is logged. JSON that is not an
        object cannot be a message, and is ignored.
        """
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            self._log(f"not JSON: {body[:200].decode('utf-8', 'replace')}")
            return
        if isinstance(message, dict):
            self._on_message(message)

    def _count_bytes(self, length: int) -> bool:
        """Count the bytes of a message; returns whether too many came in the last FLOOD_SECONDS."""
        now = time.monotonic()
        self._received = [item for item in self._received if now - item[0] < FLOOD_SECONDS]
        # What comes within a second is one item, so that there are never many.
        if self._received and now - self._received[-1][0] < 1:
            start, size = self._received[-1]
            self._received[-1] = start, size + length
        else:
            self._received.append((now, length))
        return sum(received for _start, received in self._received) > FLOOD_BYTES

    async def _read_stderr(self) -> None:
        """Log the lines of stderr, at most LOGS_PER_SECOND."""
        second, logged = 0, 0
        async for lines in read_stderr(self.process):
            now = int(time.monotonic())
            if now != second:
                second, logged = now, 0
            for line in lines[: LOGS_PER_SECOND - logged]:
                logged += 1
                self._log(line[:500])


async def start_server(
    command: Sequence[str],
    environment: Mapping[str, str],
    cwd: str,
    on_message: Callable[[JsonObject], None],
    log: Callable[[str], None],
) -> ServerProcess:
    """Start a server.

    Raises:
        LanguageServerEnded: the command does not exist.
        OSError: it cannot be started.
    """
    try:
        process = await start_process(command, environment, cwd, MAX_HEADER)
    except CommandMissingError as error:
        raise LanguageServerEnded(str(error)) from error
    return ServerProcess(process, on_message, log)


def _length_in(header: bytes) -> int | None:
    """The length of the message, in bytes, that a header names; None if it names none. Text that the
    server printed before the name of the header is ignored.
    """
    for line in reversed(header.split(b"\r\n")):
        name, _, value = line.rpartition(b":")
        if name.strip().lower().endswith(b"content-length"):
            length = whole_number(value.strip().decode("latin-1"))
            if length is not None:
                return length
    return None
