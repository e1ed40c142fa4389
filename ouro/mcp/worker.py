"""The MCP SDK in a process of its own (`utils/worker.py`): all servers of a session.

`open` yields what happens with a server until it is cancelled, which disconnects: `ready` with its lists, `log`,
`ask` (answered by `answer`), `login`. `call`, `read` and `prompt` need an open server. `ping` answers at once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from ouro.utils.worker import Handler, Line, run_worker

if TYPE_CHECKING:
    from ouro.mcp.connection import Connection

NICE = 10
"""Lower priority for the worker, from the import of the SDK on, and for its servers: the first request comes first."""


def main() -> None:
    os.nice(NICE)
    logging.getLogger().addHandler(logging.NullHandler())  # the SDK logs each bad message with its traceback
    run_worker(_load, _error_fields, _on_end)


def _load() -> Handler:
    from ouro.mcp.connection import Connection

    return _Requests(Connection).answer


def _on_end() -> None:
    from ouro.mcp.stdio import end_groups

    end_groups()


class _Requests:
    def __init__(self, connect: type[Connection]) -> None:
        self._connect = connect
        self._connections: dict[str, Connection] = {}

    async def answer(self, name: str, request: Line) -> AsyncGenerator[Line, None]:
        if name == "ping":
            yield {}
            return
        async with aclosing(self._open(request) if name == "open" else self._ask(name, request)) as events:
            async for event in events:
                yield event

    async def _ask(self, name: str, request: Line) -> AsyncGenerator[Line, None]:
        connection = self._connections.get(request["server"])
        if connection is None:
            raise LookupError("The server is not connected.")
        match name:
            case "call":
                async with aclosing(connection.call(request["tool"], request["arguments"])) as events:
                    async for event in events:
                        yield event
            case "read":
                yield await connection.read(request["uri"])
            case "prompt":
                yield await connection.prompt(request["name"], request["arguments"])
            case "answer":
                connection.answer(request["number"], request["value"])

    async def _open(self, request: Line) -> AsyncGenerator[Line, None]:
        name = request["name"]
        connection = self._connections[name] = self._connect(request)
        try:
            async with aclosing(connection.events()) as events:
                async for event in events:
                    yield event
        finally:
            if self._connections.get(name) is connection:
                del self._connections[name]


def _error_fields(error: BaseException) -> dict[str, Any]:
    """The first error inside of groups, by its kind and message."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    kind = type(error).__name__
    message = str(error) or {"TimeoutError": "It did not answer in time."}.get(kind, kind)
    return {"kind": kind, "message": message[:2_000]}


if __name__ == "__main__":
    main()
