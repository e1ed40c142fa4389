"""Wait: for a condition, or from code that is not asynchronous for a coroutine."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
SLOWER = float(os.environ.get("TEST_TIME_FACTOR", "1"))
"""How many times slower than usual this machine is: all limits of time are multiplied by it."""
PATIENCE = 60.0 * SLOWER
"""Seconds until a test that waits fails. Only a failing test waits as long; a busy machine may need
many.
"""
MIN_LOOKS = 1000
"""How often a test looks at least whether a condition is true: some five seconds."""


async def until(is_so: Callable[[], object]) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + PATIENCE
    looks = 0
    while not is_so():
        looks += 1
        if time.monotonic() > end and looks > MIN_LOOKS:
            raise TimeoutError
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
    place = _place_to_wait(os.getpid())
    if not place.is_free.acquire(blocking=False):
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, coroutine).result()
    try:
        return place.thread.submit(place.run, coroutine).result()
    finally:
        place.is_free.release()


class _Jobs(ThreadPoolExecutor):
    """The threads of a loop, whose work can be waited for without ending them."""

    def __init__(self) -> None:
        super().__init__()
        self._running: set[Future[Any]] = set()

    def submit(self, *arguments: Any, **named: Any) -> Future[Any]:
        future = super().submit(*arguments, **named)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return future

    def finish(self) -> None:
        futures.wait(tuple(self._running))


class _PlaceToWait:
    """A thread with an event loop. New ones for each coroutine take ten times as long as reading a
    short session.
    """

    def __init__(self) -> None:
        self.is_free = threading.Lock()
        self.thread = ThreadPoolExecutor(1)
        self._make_loop()

    def _make_loop(self) -> None:
        self._jobs = _Jobs()
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(self._jobs)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, as `asyncio.run` does: nothing that it began is left."""
        try:
            return self._loop.run_until_complete(coroutine)
        finally:
            if asyncio.all_tasks(self._loop) or self._loop._asyncgens:
                self._end_what_is_left()
            self._jobs.finish()

    def _end_what_is_left(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop):
            pass  # its end cancels tasks, and closes generators and the loop
        self._make_loop()


@functools.cache
def _place_to_wait(process: int) -> _PlaceToWait:
    """That of a process: a fork has no other threads."""
    return _PlaceToWait()
