"""Servers on pipes as children of a worker: each has a process group, which is ended with it."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import suppress

from ouro.utils.runtime import send_signal

GRACE = 2.0
"""Seconds that a server has to exit after its input is closed, and again after SIGTERM."""
groups: set[int] = set()
"""The process groups of the running servers."""


async def stop_server(process: asyncio.subprocess.Process) -> None:
    """End a process group: close stdin, wait, SIGTERM, wait, SIGKILL."""
    if process.stdin is not None:
        process.stdin.close()
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), GRACE)
        send_signal(process.pid, number, group=True)


async def forget_server(process: asyncio.subprocess.Process) -> None:
    """Wait for the end of a process that was stopped."""
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), GRACE)
    groups.discard(process.pid)


def end_groups() -> None:
    """End the servers that still run: wait, SIGTERM, wait, SIGKILL. Blocks for at most 2 seconds."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + GRACE / 2
        while groups and time.monotonic() < deadline:
            time.sleep(0.02)
        for group in list(groups):
            send_signal(group, number, group=True)
