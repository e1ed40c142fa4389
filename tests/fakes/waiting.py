"""Wait: for a condition, or from code that is not asynchronous for a coroutine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
SLOWER = float(os.environ.get("TEST_TIME_FACTOR", "1"))
"""How many times slower than usual this machine is: all limits of time are multiplied by it."""
PATIENCE = 60.0 * SLOWER
"""Seconds until a test that waits fails. Only a failing test waits as long; a busy machine may need
many.
"""


async def until(is_so: Callable[[], object]) -> None:
    """Wait until a condition is true."""
    async with asyncio.timeout(PATIENCE):
        while not is_so():
            await asyncio.sleep(0.005)


class BytesFile:
    """Bytes with the interface of an open file of aiofiles, without threads."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    async def seek(self, place: int) -> int:
        self._place = place
        return place

    async def read(self, size: int) -> bytes:
        found = self._data[self._place : self._place + size]
        self._place += len(found)
        return found


def wait(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result. It runs in another thread, so that it also works below
    a running loop.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()
