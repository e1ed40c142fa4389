"""The MCP SDK in a separate process (`utils/worker_process.py`), for all servers of a session.

`open` sends the events of a server until it is cancelled, which disconnects: `ready` with its
lists, `log`, `ask` (answered by `answer`), `login`. `call`, `read` and `prompt` need an open
server. `ping` ends at once.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from typing import Any

from ouro.utils.json_object import JsonObject
from ouro.utils.server_processes import end_groups
from ouro.utils.worker_process import Handler, run_worker

_VALIDATION_ERRORS = re.compile(r": \d+ validation errors? for union\[JSONRPC.*", re.DOTALL)
"""Matches the error of pydantic for an answer that is not an MCP message: it has a paragraph for
each field.
"""
NICE = 10
"""A lower priority for the worker (from the import of the SDK on) and its servers: the first
request is urgent.
"""


def main() -> None:
    """Answer requests until standard input ends; then end all servers."""
    os.nice(NICE)
    # The SDK logs each bad message with its traceback.
    logging.getLogger().addHandler(logging.NullHandler())
    run_worker(_load, _error_fields, end_groups)


def _load() -> Handler:
    """Returns the function that answers requests. It is called in the worker only, because it
    imports the SDK, which is heavy.
    """
    from ouro.mcp.connection import Connection

    connections: dict[str, Connection] = {}

    async def answer(name: str, request: JsonObject, emit: Callable[[JsonObject], None]) -> None:
        """Answer the request `name`: `open` connects a server and emits its events until it ends,
        `ping` does nothing, any other is passed on to an open server. Raises LookupError if that
        one is not open.
        """
        if name == "open":
            connection = connections[request["name"]] = Connection(request, emit)
            try:
                await connection.run()
            finally:
                # The server may have been opened again meanwhile.
                if connections.get(request["name"]) is connection:
                    del connections[request["name"]]
        elif name != "ping":
            if request["server"] not in connections:
                raise LookupError("The server is not connected.")
            await connections[request["server"]].handle(name, request, emit)

    return answer


def _error_fields(error: BaseException) -> dict[str, Any]:
    """The kind (the name of the class) and the message of an error, as the session gets them. If it
    is a group of errors, the first one counts.
    """
    import httpx2

    from ouro.llm import describe_connection_error

    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    kind = type(error).__name__
    message = str(error)
    if isinstance(error, httpx2.NetworkError):
        message = describe_connection_error(error)
    if not message:
        message = "It did not answer in time." if kind == "TimeoutError" else kind
    message = _VALIDATION_ERRORS.sub(": the answer is not a message of MCP.", message)
    return {"kind": kind, "message": message[:2_000]}


if __name__ == "__main__":
    main()
