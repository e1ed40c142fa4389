"""Servers on pipes as children of a worker: each has a process group, which is ended with it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ouro.utils.processes import send_signal

GRACE = 2.0
"""Seconds that a server has to exit after its input is closed, and again after SIGTERM."""
groups: set[int] = set()
"""The process groups of the running servers."""
_STDERR_PIECE = 64 * 1024
"""Bytes of stderr that are read at once."""


class CommandMissingError(Exception):
    """The command of a server does not exist."""


async def start_process(
    command: Sequence[str], environment: Mapping[str, str], cwd: str, limit: int
) -> asyncio.subprocess.Process:
    """Start a server with pipes, in its own process group, which is added to `groups`.

    Args:
        limit: maximum bytes that a reader of its output waits for.

    Raises:
        CommandMissingError: the command does not exist.
        OSError: it cannot be started.
    """
    # Found as the child finds it: in its folder if the name has a slash, else in its PATH.
    program = str(Path(cwd) / command[0]) if os.sep in command[0] else command[0]
    if shutil.which(program, path=environment.get("PATH")) is None:
        raise CommandMissingError(f"The command {command[0]} was not found.")
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=limit,
        env=dict(environment),
        cwd=cwd,
        start_new_session=True,
    )
    groups.add(process.pid)
    return process


async def exit_reason(process: asyncio.subprocess.Process, otherwise: str) -> str:
    """Why the output of a server ended: its exit code, or `otherwise` if it still runs."""
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), GRACE)
    code = process.returncode
    return otherwise if code is None else f"it ended with exit code {code}"


async def read_stderr(process: asyncio.subprocess.Process) -> AsyncGenerator[list[str], None]:
    """Yield the lines of each piece that a server writes to stderr, until it closes it."""
    assert process.stderr is not None
    while data := await process.stderr.read(_STDERR_PIECE):
        yield data.decode("utf-8", "replace").splitlines()
        await asyncio.sleep(0)  # a flood must not keep others waiting


async def stop_server(process: asyncio.subprocess.Process) -> None:
    """End a process group: close stdin, wait, SIGTERM, wait, SIGKILL. The signals are sent even if
    the process has ended: others may still run in its group.
    """
    if process.stdin is not None:
        process.stdin.close()
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), GRACE)
        send_signal(process.pid, number, group=True)


async def forget_server(process: asyncio.subprocess.Process) -> None:
    """Wait for the end of a process that was stopped, at most `GRACE` seconds. Then remove its
    group from `groups` in any case.
    """
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), GRACE)
    groups.discard(process.pid)


def end_groups() -> None:
    """End the servers that still run: wait, SIGTERM, wait, SIGKILL. Blocks for at most 2 seconds.
    A wait ends early when `groups` is empty.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + GRACE / 2
        while groups and time.monotonic() < deadline:
            time.sleep(0.02)
        for group in list(groups):
            send_signal(group, number, group=True)
