"""IdleCollector: garbage collection that no key waits for: long ones only while ouro is idle."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

NEW_OBJECTS = 5_000
"""After so many new objects Python collects the garbage among them, in 3 to 5 ms of CPU. With
50,000 a key waited for 45 ms.
"""
NEVER = 10_000
"""After so many collections of a generation, Python also collects the next older one. In practice it
never does.
"""
IDLE_SECONDS = 1.0
"""Seconds without a key after which nobody waits for the screen."""
FULL_COLLECTION_EVERY = 20
"""One of so many idle collections visits all objects, not only those of the last turns."""


def shorten_collections() -> None:
    """From now on Python's own collections only visit new objects, which does not take long.
    IdleCollector visits older ones.
    """
    gc.set_threshold(NEW_OBJECTS, NEVER, NEVER)


class IdleCollector:
    """Collects older objects after a turn, once no key has been pressed for a moment.

    Args:
        call_later: calls a function after some seconds.
        pressed_at: the time of the last key, by `clock`.
        collect: collects the garbage of a generation and of the younger ones.
    """

    def __init__(
        self,
        call_later: Callable[[float, Callable[[], None]], Any],
        pressed_at: Callable[[], float],
        collect: Callable[[int], int] = gc.collect,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._call_later = call_later
        self._pressed_at = pressed_at
        self._collect = collect
        self._clock = clock
        self._is_scheduled = False
        """Whether a collection will follow."""
        self._collections = 0
        """How many collections there were."""

    def turn_ended(self) -> None:
        """Schedule a collection, because a turn leaves many old objects."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_later(IDLE_SECONDS, self._collect_if_idle)

    def _collect_if_idle(self) -> None:
        """Collect if no key was pressed for IDLE_SECONDS. Otherwise try again after IDLE_SECONDS.
        One of FULL_COLLECTION_EVERY collections visits all objects.
        """
        if self._clock() - self._pressed_at() < IDLE_SECONDS:
            self._call_later(IDLE_SECONDS, self._collect_if_idle)
            return
        self._is_scheduled = False
        self._collections += 1
        is_full = self._collections % FULL_COLLECTION_EVERY == 0
        oldest_generation = 2 if is_full else 1
        self._collect(oldest_generation)
