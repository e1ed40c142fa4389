"""The language servers of a session in a separate process (`utils/worker_process.py`).

`open` sends the events of a server until it is cancelled, which ends it: `group`, `log`, `ready`.
`check` and the questions about the code need an open server.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ouro.utils.json_object import JsonObject
from ouro.utils.server_processes import end_groups
from ouro.utils.worker_process import Handler, run_worker

NICE = 10
"""A lower priority for the worker and its servers: the session goes first."""


def main() -> None:
    """Answer requests until standard input ends; then end all servers."""
    os.nice(NICE)
    run_worker(_load, _error_fields, end_groups)


def _load() -> Handler:
    """The function that answers requests. The protocol is imported here, in the worker only."""
    from ouro.lsp.connection import LspConnection

    connections: dict[str, LspConnection] = {}

    async def answer(name: str, request: JsonObject, emit: Callable[[JsonObject], None]) -> None:
        """Open a server and emit its events until it ends, or pass a request on to an open server
        and emit its result. Raises LookupError if that server is not open.
        """
        if name == "open":
            connection = connections[request["name"]] = LspConnection(request, emit)
            try:
                await connection.run()
            finally:
                # The server may have been opened again meanwhile.
                if connections.get(request["name"]) is connection:
                    del connections[request["name"]]
            return
        if request["server"] not in connections:
            raise LookupError("The language server is not running.")
        emit({"result": await connections[request["server"]].handle(name, request)})

    return answer


def _error_fields(error: BaseException) -> dict[str, Any]:
    """The kind and the message of an error."""
    kind = type(error).__name__
    message = str(error) or {"TimeoutError": "It did not answer in time."}.get(kind, kind)
    return {"kind": kind, "message": message[:2_000]}


if __name__ == "__main__":
    main()
