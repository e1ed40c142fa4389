"""EditorTerminals: terminals of the editor, in which the commands of the agent run."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import TypeVar

from acp import Client, RequestError

from ouro.utils.log import log

T = TypeVar("T")
MAX_OUTPUT = 4_000_000
"""Bytes that the editor keeps of one command."""
ANSWER_TIMEOUT = 5.0
"""Seconds that the editor has to answer."""


class EditorTerminals:
    """Opens terminals through the client (`Terminals` of the shell tool).

    Args:
        session_id: of the protocol; set once the session is open, if it is not known before.
    """

    def __init__(self, client: Client, session_id: str = "") -> None:
        self.session_id = session_id
        self.ids: dict[str, str] = {}
        """The terminal of each tool call."""
        self._client = client

    async def create(self, call_id: str, argv: Sequence[str], cwd: Path) -> str:
        opening = self._client.create_terminal(
            self.session_id, argv[0], args=list(argv[1:]), cwd=str(cwd), output_byte_limit=MAX_OUTPUT
        )
        made = await self._answer(opening)
        if made is None:
            return ""
        self.ids[call_id] = made.terminal_id
        return made.terminal_id

    async def wait(self, terminal_id: str) -> int:
        ended = await self._answer(self._client.wait_for_terminal_exit(self.session_id, terminal_id), None)
        if ended is not None and ended.exit_code is not None:
            return ended.exit_code
        return -int(getattr(signal, (ended and ended.signal) or "", signal.SIGKILL))

    async def kill(self, terminal_id: str) -> None:
        await self._answer(self._client.kill_terminal(self.session_id, terminal_id))

    async def release(self, terminal_id: str) -> str:
        found = await self._answer(self._client.terminal_output(self.session_id, terminal_id))
        await self._answer(self._client.release_terminal(self.session_id, terminal_id))
        if found is None:
            return "[The editor did not return the output.]\n"
        return f"[The begin of the output is cut.]\n{found.output}" if found.truncated else found.output

    async def _answer(self, asked: Awaitable[T], seconds: float | None = ANSWER_TIMEOUT) -> T | None:
        """What the editor answers; None where it does not."""
        try:
            async with asyncio.timeout(seconds):
                return await asked
        except (RequestError, ConnectionError, OSError, ValueError, TimeoutError) as error:
            log.info("a terminal of the editor: %s", error or type(error).__name__)
            return None
