"""EditorFiles: files as the editor has them, with changes that are not saved; written so that the editor sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from acp import Client, RequestError
from acp import schema as acp

from ouro.utils.log import log

T = TypeVar("T")
READ_TIMEOUT = 5.0
"""Seconds; then the file is read from the disk."""
WRITE_TIMEOUT = 30.0
"""Seconds: an editor may format the file while it saves it."""


class EditorFiles:
    """Reads and writes through the client, where it can. Called from the threads of tools, never from the loop.

    Args:
        session_id: of the protocol; set once the session is open, if it is not known before.
    """

    def __init__(self, client: Client, can: acp.FileSystemCapabilities, session_id: str = "") -> None:
        self.session_id = session_id
        self._client = client
        self._can_read = bool(can.read_text_file)
        self._can_write = bool(can.write_text_file)
        self._loop = asyncio.get_running_loop()

    def read(self, path: Path) -> str | None:
        """The text that the editor has; None where it does not say."""
        if not self._can_read:
            return None
        answer = self._wait(self._client.read_text_file(self.session_id, str(path)), READ_TIMEOUT)
        return None if answer is None else answer.content

    def write(self, path: Path, text: str) -> bool:
        """Save a text through the editor; False where it did not."""
        if not self._can_write:
            return False
        return self._wait(self._write(path, text), WRITE_TIMEOUT) is not None

    async def _write(self, path: Path, text: str) -> bool:
        await self._client.write_text_file(self.session_id, str(path), text)
        return True

    def _wait(self, work: Coroutine[Any, Any, T], seconds: float) -> T | None:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(seconds)
        except (RequestError, ConnectionError, OSError, ValueError, TimeoutError) as error:
            future.cancel()
            log.info("the editor did not read or write: %s", error)
            return None
