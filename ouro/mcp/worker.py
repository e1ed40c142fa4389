"""The MCP SDK in a process of its own (`utils/worker.py`): all servers of a session.

`open` yields what happens with a server until it is cancelled, which disconnects: `ready` with its lists, `log`,
`ask` (answered by `answer`), `login`. `call`, `read` and `prompt` need an open server. `ping` answers at once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator
from typing import Any

from ouro.mcp.connection import Connection
from ouro.mcp.stdio import end_groups
from ouro.utils.worker import Handler, Line, run_worker

NICE = 10
"""Lower priority for the worker and its servers: the first prompt must not wait for ten of them to start."""


def main() -> None:
    os.nice(NICE)
    logging.getLogger().addHandler(logging.NullHandler())  # the SDK logs each bad message with its traceback
    run_worker(_handler, _error_fields, end_groups)


def _handler() -> Handler:
    return _Requests().answer


class _Requests:
    def __init__(self) -> None:
        self._connections: dict[str, Connection] = {}

    async def answer(self, name: str, request: Line) -> AsyncGenerator[Line, None]:
        if name == "ping":
            yield {}
        elif name == "open":
            async for event in self._open(request):
                yield event
        else:
            connection = self._connections.get(request["server"])
            if connection is None:
                raise LookupError("The server is not connected.")
            async for event in _ask(connection, name, request):
                yield event

    async def _open(self, request: Line) -> AsyncGenerator[Line, None]:
        name = request["name"]
        connection = self._connections[name] = Connection(request)
        events = connection.events()
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()
            if self._connections.get(name) is connection:
                del self._connections[name]


async def _ask(connection: Connection, name: str, request: Line) -> AsyncGenerator[Line, None]:
    match name:
        case "call":
            events = connection.call(request["tool"], request["arguments"])
            try:
                async for event in events:
                    yield event
            finally:
                await events.aclose()
        case "read":
            yield await connection.read(request["uri"])
        case "prompt":
            yield await connection.prompt(request["name"], request["arguments"])
        case "answer":
            connection.answer(request["number"], request["value"])


def _error_fields(error: BaseException) -> dict[str, Any]:
    """The first error inside of groups, by its kind and message."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    kind = type(error).__name__
    message = str(error) or {"TimeoutError": "It did not answer in time."}.get(kind, kind)
    return {"kind": kind, "message": message[:2_000]}


if __name__ == "__main__":
    main()
