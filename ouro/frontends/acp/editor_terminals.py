"""EditorTerminals: the commands of the agent in terminals of the editor, where the user sees them run."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from acp import Client, RequestError

from ouro.tools.shell_process import GRACE, RunningCommand, kill_tagged, running
from ouro.tools.truncate import OutputCapture
from ouro.utils.log import log

T = TypeVar("T")
MAX_OUTPUT = 4_000_000
"""Bytes that the editor keeps of one command."""
ANSWER_TIMEOUT = 5.0
"""Seconds that the editor has to answer."""
_NO_INPUT = 'exec "$@" </dev/null'


class EditorTerminals:
    """Starts commands through the client, as `Shell` would start them: the same sandbox, environment and bounds.

    Args:
        session_id: of the protocol; set once the session is open, if it is not known before.
    """

    def __init__(self, client: Client, session_id: str = "") -> None:
        self.session_id = session_id
        self.ids: dict[str, str] = {}
        """The terminal of each tool call."""
        self._client = client

    async def start(
        self, call_id: str, argv: Sequence[str], tag: int, cwd: Path, environment: Mapping[str, str],
        capture: OutputCapture,
    ) -> RunningCommand | None:  # fmt: skip
        # `env -i`: the keys that the editor has in its environment are not for the agent.
        words = ["-i", *(f"{name}={value}" for name, value in environment.items()), "sh", "-c", _NO_INPUT, "sh", *argv]
        made = await self.ask(
            self._client.create_terminal(self.session_id, "env", args=words, cwd=str(cwd), output_byte_limit=MAX_OUTPUT)
        )
        if made is None:
            return None
        self.ids[call_id] = made.terminal_id
        return TerminalCommand(self, self._client, made.terminal_id, tag, capture)

    async def ask(self, question: Awaitable[T], seconds: float | None = ANSWER_TIMEOUT) -> T | None:
        """The answer of the editor; None where there is none."""
        try:
            async with asyncio.timeout(seconds):
                return await question
        except (RequestError, ConnectionError, OSError, ValueError, TimeoutError) as error:
            log.info("a terminal of the editor: %s", error or type(error).__name__)
            return None


class TerminalCommand:
    """A command in a terminal of the editor (`RunningCommand`)."""

    def __init__(
        self, terminals: EditorTerminals, client: Client, terminal_id: str, tag: int, capture: OutputCapture
    ) -> None:
        self.tag = tag
        self.exit_code: int | None = None
        self._ask = terminals.ask
        self._client = client
        self._place: Any = (terminals.session_id, terminal_id)
        self._capture = capture
        self._began = time.monotonic()
        self._ended: float | None = None
        self._exit = asyncio.create_task(self._wait_for_exit())
        running.add(self)

    @property
    def seconds(self) -> float:
        return (self._ended or time.monotonic()) - self._began

    async def wait(self, seconds: float | None) -> bool:
        await asyncio.wait({self._exit}, timeout=seconds)
        return self._exit.done()

    async def end(self) -> int:
        """End it with all that it started, and get its output."""
        try:
            if not self._exit.done():
                await self._ask(self._client.kill_terminal(*self._place))
            await asyncio.to_thread(kill_tagged, self.tag)
            await self.wait(GRACE)
            if found := await self._ask(self._client.terminal_output(*self._place)):
                cut = "[The begin of the output is cut.]\n" if found.truncated else ""
                self._capture.add(f"{cut}{found.output}".replace("\r\n", "\n").encode())
            await self._ask(self._client.release_terminal(*self._place))
        finally:
            self.kill()
        return 0

    def kill(self) -> None:
        if self._ended is None:
            self._ended = time.monotonic()
            kill_tagged(self.tag)
            self._exit.cancel()
            self.exit_code = -signal.SIGKILL if self.exit_code is None else self.exit_code
            self._capture.close()
            running.discard(self)

    async def _wait_for_exit(self) -> None:
        ended = await self._ask(self._client.wait_for_terminal_exit(*self._place), None)
        if ended is not None and ended.exit_code is not None:
            self.exit_code = ended.exit_code
        elif ended is not None:
            self.exit_code = -getattr(signal, ended.signal or "", signal.SIGKILL)
