"""A stdio server as a child process: with its own process group, a limit for each line, and its
stderr.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from ouro.mcp.schemas import TOO_DEEP
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

MAX_LINE = 32 * 1024 * 1024
"""Maximum bytes of a message. The transport of the SDK has no limit, and copies its buffer for each
piece.
"""
MAX_GARBAGE = 20_000
"""After this number of lines on stdout without a message among them, the server is ended. One that logs
there prints some hundred lines for a call.
"""


class ServerEnded(Exception):
    """The server ended, or was ended because of what it printed."""


def is_too_deep(error: Exception) -> bool:
    """Whether the parser of JSON has refused a message for its depth (some 200 levels). Such a
    message gets no answer.
    """
    return "recursion limit exceeded" in str(error)


@asynccontextmanager
async def stdio_transport(
    command: Sequence[str],
    environment: Mapping[str, str],
    cwd: str,
    emit: Callable[[JsonObject], None],
    on_end: Callable[[str], None],
) -> AsyncGenerator[tuple[Any, Any], None]:
    """In this context a server runs as a child process; yields the two streams of a transport of
    the SDK, from the server and to it.

    Args:
        emit: gets the process group of the server, and each line of its stderr, as events.
        on_end: is called with the reason if the server ends before the context does.

    Raises:
        ServerEnded: the command does not exist.
        OSError: it cannot be started.
    """
    try:
        process = await start_process(command, environment, cwd, MAX_LINE)
    except CommandMissingError as error:
        raise ServerEnded(f"{error} Install it, or give its whole path.") from error
    emit({"group": process.pid})

    is_open = True

    def on_log(text: str) -> None:
        emit({"log": text[:500]})

    def on_own_end(reason: str) -> None:
        if is_open:
            on_end(reason)

    to_client, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, from_client = anyio.create_memory_object_stream[SessionMessage](0)
    tasks = [
        asyncio.create_task(_read(process, to_client, on_log, on_own_end)),
        asyncio.create_task(_write(process, from_client)),
        asyncio.create_task(_read_stderr(process, on_log)),
    ]
    try:
        yield incoming, outgoing
    finally:
        is_open = False
        await asyncio.shield(_stop(process, tasks))
        for stream in (to_client, incoming, outgoing, from_client):
            stream.close()


async def _read(
    process: asyncio.subprocess.Process,
    to_client: Any,
    on_log: Callable[[str], None],
    on_end: Callable[[str], None],
) -> None:
    """Read the stdout of the process to its end, and pass on each message to the client. Lines that
    are not messages are logged. Too many of them, or a message that is too long or too deep, end
    the server.
    """
    assert process.stdout is not None
    garbage, reason = 0, ""
    try:
        while True:
            line = await process.stdout.readuntil(b"\n")
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError as error:
                if is_too_deep(error):
                    reason = f"it sent a message that cannot be read: {TOO_DEEP}"
                    return
                if line.strip():
                    garbage += 1
                    on_log(f"stdout: {line[:200].decode('utf-8', 'replace').rstrip()}")
                if garbage >= MAX_GARBAGE:
                    reason = f"it printed {MAX_GARBAGE:,} lines that are not messages"
                    return
                await asyncio.sleep(0)  # otherwise a buffer full of lines is read without a pause
                continue
            garbage = 0
            await to_client.send(SessionMessage(message))
    except asyncio.IncompleteReadError:
        reason = await exit_reason(process, "it ended")
    except asyncio.LimitOverrunError:
        reason = f"it sent a message of more than {MAX_LINE // 1024 // 1024} MB"
    except (anyio.ClosedResourceError, anyio.BrokenResourceError):
        return  # the client has closed the stream
    finally:
        if reason:
            on_end(reason)
            send_signal(process.pid, signal.SIGKILL, group=True)
        to_client.close()


async def _write(process: asyncio.subprocess.Process, from_client: Any) -> None:
    """Write each message of the client to the stdin of the process, until either side closes."""
    assert process.stdin is not None
    with suppress(OSError, anyio.ClosedResourceError, anyio.BrokenResourceError):
        async for message in from_client:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode() + b"\n")
            await process.stdin.drain()


async def _read_stderr(process: asyncio.subprocess.Process, on_log: Callable[[str], None]) -> None:
    """Log the lines of stderr. If many come at once, only the last ones are logged."""
    async for lines in read_stderr(process):
        for line in lines[-20:]:
            on_log(line)


async def _stop(process: asyncio.subprocess.Process, tasks: Sequence[asyncio.Task[None]]) -> None:
    """End the process group of a server in the way that the protocol asks for, and the tasks that
    serve it.
    """
    await stop_server(process)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await forget_server(process)
