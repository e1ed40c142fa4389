"""Run one hook: a command with JSON on its standard input, or a POST to a server on this machine."""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import PIPE
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from ouro.llm import describe_connection_error
from ouro.utils.processes import send_signal
from ouro.utils.text import clean

MAX_OUTPUT = 64_000
"""Maximum bytes that are kept of each stream; the rest is read and dropped (E5)."""
BLOCKS = 2
"""The exit code that blocks. Any other code except 0 is a failure."""
_LAST_OUTPUT_SECONDS = 0.5
"""Seconds for the rest of the output after the command has ended: another process may hold the pipe
open.
"""
_POLL_SECONDS = 0.05


class HookAnswer(msgspec.Struct, frozen=True):
    """What a command or server answered, or why it did not."""

    exit_code: int | None
    """The exit code. None: it was ended at its timeout, or could not be run. For HTTP: 0 for a
    status of 2xx.
    """
    out: str = ""
    error: str = ""
    """The standard error, or why there is no answer."""

    @property
    def is_blocked(self) -> bool:
        return self.exit_code == BLOCKS

    @classmethod
    def allowed(cls) -> HookAnswer:
        """The answer of a check that has no objection."""
        return cls(0)

    @classmethod
    def blocked(cls, reason: str) -> HookAnswer:
        """The answer of a check that refuses."""
        return cls(BLOCKS, error=reason)

    @classmethod
    def failed(cls, reason: str) -> HookAnswer:
        """No answer, and why there is none."""
        return cls(None, error=reason)


async def run_command(
    argv: Sequence[str],
    data: bytes,
    cwd: Path,
    environment: Mapping[str, str],
    seconds: float,
    max_output: int = MAX_OUTPUT,
    on_error_output: Callable[[str], None] = lambda _text: None,
    clean_output: Callable[[str], str] = clean,
) -> HookAnswer:
    """Run a command, and return its output and exit code. If it cannot be started or takes too
    long, the answer is a failed one. When this returns, all processes of its group have ended.

    Args:
        data: what the command reads from standard input.
        seconds: the time limit; the command is ended then.
        max_output: the bytes of standard output that are kept.
        on_error_output: gets what the command prints on standard error, when it prints it.
        clean_output: returns what is kept of its output; the default leaves escape sequences out.
    """
    try:
        process = await _start_command(argv, data, cwd, environment)
    except OSError as error:
        return HookAnswer.failed(f"bash cannot be started: {error.strerror}")
    assert process.stdout is not None
    assert process.stderr is not None

    # Read its output until it has ended.
    out, error_output = bytearray(), bytearray()
    end_task = asyncio.create_task(process.wait())
    tasks = [
        asyncio.create_task(_read(process.stdout, out, max_output)),
        asyncio.create_task(_read(process.stderr, error_output, MAX_OUTPUT, on_error_output)),
        end_task,
    ]
    try:
        async with asyncio.timeout(seconds):
            # Not `process.wait` alone: it also waits for processes that have inherited the pipes.
            while process.returncode is None:
                await asyncio.wait({end_task}, timeout=_POLL_SECONDS)
    except TimeoutError:
        return HookAnswer.failed(f"it ran longer than {seconds:g} s and was ended")
    finally:
        send_signal(process.pid, signal.SIGKILL, group=True)  # also ends the processes that it left
        await asyncio.wait(tasks, timeout=_LAST_OUTPUT_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return HookAnswer(process.returncode, clean_output(_decode(out)).strip(), _text(error_output))


async def _start_command(
    argv: Sequence[str], data: bytes, cwd: Path, environment: Mapping[str, str]
) -> asyncio.subprocess.Process:
    """Start a command that reads `data` from standard input. Raises OSError."""
    from tempfile import TemporaryFile  # imported late: it imports random

    with TemporaryFile() as input_file:  # not a pipe: the command need not read its input
        input_file.write(data)
        input_file.seek(0)
        return await asyncio.create_subprocess_exec(
            *argv,
            cwd=cwd,
            env=dict(environment),
            stdin=input_file,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
        )


async def post(url: str, data: bytes, seconds: float) -> HookAnswer:
    """Send an event to a server on this machine, and return its answer: exit code 0 for a status of
    2xx, otherwise 1. If there is no answer within `seconds`, it is a failed one.
    """
    import httpx  # imported late: only few hooks are servers

    out, headers = bytearray(), {"Content-Type": "application/json"}
    try:
        async with (
            asyncio.timeout(seconds),
            httpx.AsyncClient(trust_env=False, timeout=seconds) as client,
            client.stream("POST", url, content=data, headers=headers) as response,
        ):
            async for piece in response.aiter_bytes():
                out += piece[: max(0, MAX_OUTPUT - len(out))]
    except (TimeoutError, httpx.TimeoutException):
        return HookAnswer.failed(f"{url} did not answer within {seconds:g} s")
    except httpx.HTTPError as error:
        return HookAnswer.failed(f"{url} did not answer: {describe_connection_error(error)}")
    if response.is_success:
        return HookAnswer(exit_code=0, out=_text(out))
    return HookAnswer(1, error=f"{url} answered with status {response.status_code}")


async def _read(
    stream: asyncio.StreamReader,
    into: bytearray,
    max_bytes: int,
    on_text: Callable[[str], None] = lambda _text: None,
) -> None:
    """Read a stream to its end, and add at most `max_bytes` of it to `into`. `on_text` gets what is
    kept, as it comes.
    """
    while data := await stream.read(1 << 16):
        piece = data[: max(0, max_bytes - len(into))]
        into += piece
        if piece:
            on_text(clean(piece.decode("utf-8", "replace")))


def _decode(data: bytes | bytearray) -> str:
    return bytes(data).decode("utf-8", "replace")


def _text(data: bytes | bytearray) -> str:
    """The text of an output, without escape sequences and blanks around it."""
    return clean(_decode(data)).strip()
