"""StdioTransport: JSON-RPC messages as lines on two file descriptors."""

from __future__ import annotations

import asyncio
import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from ouro.frontends.headless.input import read_lines
from ouro.utils.lenient_json import dump_json

PARSE_ERROR = {"code": -32700, "message": "This line is not a JSON-RPC message."}


class StdioTransport:
    """A transport for the SDK. It answers invalid lines with an error; the SDK's own transport
    drops them.
    """

    def __init__(self, stdin: int, stdout: int) -> None:
        self._input_lines = read_lines(stdin)
        self._stdout = stdout
        # A separate thread: all threads of the loop may be waiting for an answer of the editor.
        self._writer = ThreadPoolExecutor(1, "acp-output")

    async def send(self, message: dict[str, Any]) -> None:
        """Write one message. Raises OSError if the client is gone."""
        line = dump_json(message, is_ascii=True, separators=(",", ":")).encode() + b"\n"
        await asyncio.get_running_loop().run_in_executor(self._writer, self._write, line)

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None at the end of the input. A line that is not a message is answered with
        an error, and the next line is read.
        """
        async for line in self._input_lines:
            if not line.strip():
                continue
            message = None
            with suppress(ValueError, RecursionError):
                message = json.loads(line)
            if isinstance(message, dict) and isinstance(message.get("method", ""), str):
                _add_servers(message)
                return message
            await self.send({"jsonrpc": "2.0", "id": None, "error": PARSE_ERROR})
        return None

    async def close(self) -> None:
        await self._input_lines.aclose()
        self._writer.shutdown(wait=False)

    def _write(self, line: bytes) -> None:
        """Write a whole line. The client may read slowly, so it can take several writes."""
        while line:
            line = line[os.write(self._stdout, line) :]


def _add_servers(message: dict[str, Any]) -> None:
    """Add the list of MCP servers to a request for a session that lacks it. The protocol demands it, but
    editors leave it out or send null if they have no servers.
    """
    params = message.get("params")
    opens_session = message.get("method") in ("session/new", "session/load")
    if opens_session and isinstance(params, dict) and params.get("mcpServers") is None:
        params["mcpServers"] = []


def import_sdk() -> None:
    """Import the SDK without making its validators.

    By default pydantic makes the validators of its 250 classes during the import. After this they
    are made when they are first used.
    """
    from pydantic import BaseModel

    BaseModel.model_config["defer_build"] = True
    try:
        import acp.schema  # noqa: F401
    finally:
        del BaseModel.model_config["defer_build"]
