"""EditorClient: reads and writes files through the editor, and runs commands in its terminals."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from acp import Client, RequestError
from acp import schema as acp

from ouro.utils.log import log

T = TypeVar("T")
ANSWER_TIMEOUT = 5.0
"""Seconds for an answer of the editor; after that a file is read from the disk."""
WRITE_TIMEOUT = 30.0
"""Seconds for a save: an editor may format the file while it saves it."""
MAX_OUTPUT = 4_000_000
"""Bytes of output that the editor keeps for one command."""


class EditorClient:
    """The `Editor` of the workspace and the `Terminals` of the shell tool, for one session.

    Args:
        capabilities: what the editor can do.
        session_id: the id in the protocol. It may be empty until the session is open.
    """

    def __init__(
        self, client: Client, capabilities: acp.ClientCapabilities, session_id: str = ""
    ) -> None:
        self.session_id = session_id
        self.terminals: dict[str, str] = {}
        """The id of the terminal in which each tool call runs its command, by the id of the call."""
        self._client = client
        self._file_access = capabilities.fs or acp.FileSystemCapabilities()
        self._loop = asyncio.get_running_loop()

    def read(self, path: Path) -> str | None:
        """The text of a file in the editor; None if the editor cannot read files, or does not answer.
        Blocks: call it from a thread.
        """
        if not self._file_access.read_text_file:
            return None
        request = self._client.read_text_file(self.session_id, str(path))
        answer = self._wait_in_thread(self._await_answer(request, ANSWER_TIMEOUT))
        return None if answer is None else answer.content

    def write(self, path: Path, text: str) -> bool:
        """Save a text through the editor. Returns False if the editor cannot write files, or did not
        answer in time. Blocks: call it from a thread.
        """

        async def save() -> bool:
            await self._client.write_text_file(self.session_id, str(path), text)
            return True

        if not self._file_access.write_text_file:
            return False
        return bool(self._wait_in_thread(self._await_answer(save(), WRITE_TIMEOUT)))

    async def create(self, call_id: str, argv: Sequence[str], cwd: Path) -> str:
        """Run the command of a tool call in a new terminal of the editor. Returns the id of the terminal,
        which is recorded in `terminals`; empty if the editor does not answer.
        """
        request = self._client.create_terminal(
            self.session_id,
            argv[0],
            args=list(argv[1:]),
            cwd=str(cwd),
            output_byte_limit=MAX_OUTPUT,
        )
        terminal = await self._await_answer(request)
        if terminal is None:
            return ""
        self.terminals[call_id] = terminal.terminal_id
        return terminal.terminal_id

    async def wait(self, terminal_id: str) -> int:
        """Wait for the end of a command. Returns its exit code, or the negative number of the
        signal that ended it. If the editor names neither, that signal is SIGKILL.
        """
        exit_status = await self._await_answer(
            self._client.wait_for_terminal_exit(self.session_id, terminal_id), seconds=None
        )
        if exit_status is not None and exit_status.exit_code is not None:
            return exit_status.exit_code
        signal_name = exit_status.signal if exit_status is not None else None
        return -int(getattr(signal, signal_name or "SIGKILL", signal.SIGKILL))

    async def kill(self, terminal_id: str) -> None:
        await self._await_answer(self._client.kill_terminal(self.session_id, terminal_id))

    async def release(self, terminal_id: str) -> str:
        """Close the terminal of a command; returns its output, or a line that says why it is missing."""
        answer = await self._await_answer(
            self._client.terminal_output(self.session_id, terminal_id)
        )
        await self._await_answer(self._client.release_terminal(self.session_id, terminal_id))
        if answer is None:
            return "[The editor did not return the output.]\n"
        if answer.truncated:
            return f"[The beginning of the output is cut.]\n{answer.output}"
        return answer.output

    def _wait_in_thread(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, and wait for its result in this thread. It must not be
        called from the thread of the loop.
        """
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _await_answer(
        self, request: Awaitable[T], seconds: float | None = ANSWER_TIMEOUT
    ) -> T | None:
        """The editor's answer to a request. None if the request failed, or got no answer within
        `seconds`. If `seconds` is None, the wait has no limit.
        """
        try:
            async with asyncio.timeout(seconds):
                return await request
        except (RequestError, ConnectionError, OSError, ValueError, TimeoutError) as error:
            log.info("the editor: %s", error or type(error).__name__)
            return None
