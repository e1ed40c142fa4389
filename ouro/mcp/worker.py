"""The MCP SDK in a separate process (`utils/worker.py`), for all servers of a session.

`open` sends the events of a server until it is cancelled, which disconnects: `ready` with its lists, `log`, `ask`
(answered by `answer`), `login`. `call`, `read` and `prompt` need an open server. `ping` ends at once.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ouro.utils.worker import Handler, JsonObject, run_worker

if TYPE_CHECKING:
    from ouro.mcp.connection import Connection

_DUMP = re.compile(r": \d+ validation errors? for union\[JSONRPC.*", re.DOTALL)
"""pydantic's error for an answer that is not an MCP message: a paragraph for each field."""
NICE = 10
"""A lower priority for the worker (from the import of the SDK on) and its servers: the first request is urgent."""


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

    async def answer(self, name: str, request: JsonObject, emit: Callable[[JsonObject], None]) -> None:
        match name:
            case "ping":
                pass
            case "open":
                await self._open(request, emit)
            case "answer":
                self._find_connection(request).answer(request["number"], request["value"])
            case "call":
                await self._find_connection(request).call(request["tool"], request["arguments"], emit)
            case "read":
                emit({"result": await self._find_connection(request).read(request["uri"])})
            case "prompt":
                emit({"result": await self._find_connection(request).prompt(request["name"], request["arguments"])})

    async def _open(self, request: JsonObject, emit: Callable[[JsonObject], None]) -> None:
        name = request["name"]
        connection = self._connections[name] = self._connect(request, emit)
        try:
            await connection.run()
        finally:
            if self._connections.get(name) is connection:
                del self._connections[name]

    def _find_connection(self, request: JsonObject) -> Connection:
        connection = self._connections.get(request["server"])
        if connection is None:
            raise LookupError("The server is not connected.")
        return connection


def _error_fields(error: BaseException) -> dict[str, Any]:
    """The first error inside of exception groups: its kind and message."""
    import httpx2

    from ouro.llm import reason_of

    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    kind = type(error).__name__
    text = reason_of(error) if isinstance(error, httpx2.NetworkError) else str(error)
    message = text or {"TimeoutError": "It did not answer in time."}.get(kind, kind)
    message = _DUMP.sub(": the answer is not a message of MCP.", message)
    return {"kind": kind, "message": message[:2_000]}


if __name__ == "__main__":
    main()
