"""ListingSchedule: when the folders of memory are listed, so that no request waits for many notes."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from ouro.events import CoreChanged
from ouro.memory.long_term.scope import ScopeMemory
from ouro.memory.side_calls import SessionChannel

_MAX_AGE_OF_START = 2.0
"""Seconds for which the listing of a start is used for its first message: `ouro -p` would list 10,000
notes twice in a tenth of a second.
"""
_MIN_NOTES_FOR_PROCESS = 20_000
"""To list fewer notes at the end takes less CPU than to start a process that does it."""
_LISTED_AGAIN_AFTER = 10.0
"""Seconds of writing after which the folders are listed again."""
_MAX_AGE_WHILE_WRITING = 30.0
"""Seconds for which a listing that was begun while the user wrote is used for the message."""


class Refresh(Protocol):
    """Reads what others have changed; arguments as for `ScopeMemory.refresh`."""

    def __call__(
        self, max_age: float = 0.0, *, defers_listing: bool = False
    ) -> list[CoreChanged]: ...


class ListingSchedule:
    """When the folders of a session are listed.

    Args:
        run: runs a function in a thread, while nothing else here writes memory, and shows its events.
        refresh: reads what others have changed.
    """

    def __init__(
        self,
        scopes: Sequence[ScopeMemory],
        channel: SessionChannel,
        run: Callable[[str, Callable[[], list[CoreChanged]]], Awaitable[Any]],
        refresh: Refresh,
    ) -> None:
        self._scopes = scopes
        self._channel = channel
        self._run = run
        self._refresh = refresh
        self._is_turn_running = False
        self._has_begun = False
        """Whether a turn has begun in this session."""
        self._listing: asyncio.Task[None] | None = None
        """The listing that follows the start."""
        self._closing = asyncio.Event()
        self._is_listing_begun = False
        self._prepared_at = -math.inf
        """When `prepare` last asked for a listing, by the monotonic clock."""
        self._listed_at = -math.inf
        """When a listing was last begun while the user wrote the next message."""

    def list_after(self, seconds: float) -> None:
        """Complete the listing of the start after some seconds, or at the end, in the background;
        once in a session.
        """
        if self._listing is None:
            self._listing = asyncio.create_task(self._complete(seconds))

    async def _complete(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), seconds)

        def complete() -> list[CoreChanged]:
            self._is_listing_begun = True
            events: list[CoreChanged] = []
            for scope in self._scopes:
                events += scope.complete_listing()
                scope.record_listing()
            return events

        await self._run("list memory", complete)

    def prepare(self) -> None:
        """List folders with many notes in the background, because the user writes a message, which
        then need not wait for it; returns at once. Does nothing while a turn runs: what changed in a
        turn does not count as the user's change.
        """
        is_recent = time.monotonic() < self._prepared_at + _LISTED_AGAIN_AFTER
        has_many_notes = any(scope.has_many_notes for scope in self._scopes)
        if has_many_notes and not is_recent and not self._is_turn_running:
            self._prepared_at = time.monotonic()
            self._channel.start("list memory", self._list_while_writing())

    async def _list_while_writing(self) -> None:
        def list_unless_sent() -> list[CoreChanged]:
            """Called under the lock. A message that was sent before this has read the folders."""
            if self._is_turn_running:
                return []
            self._listed_at = time.monotonic()
            return self._refresh()

        await self._run("look at memory", list_unless_sent)

    async def begin_turn(self) -> None:
        """Read what others wrote since the last turn. With many notes the folders are listed only if
        no listing was begun since: at the start, or while the user wrote.
        """
        is_first, self._has_begun = not self._has_begun, True
        is_listed = time.monotonic() < self._listed_at + _MAX_AGE_WHILE_WRITING
        self._is_turn_running = True
        self._prepared_at = self._listed_at = -math.inf
        max_age = _MAX_AGE_OF_START if is_first else 0.0
        await self._run(
            "look at memory",
            lambda: self._refresh(max_age, defers_listing=is_first or is_listed),
        )

    def turn_ended(self) -> None:
        self._is_turn_running = False

    async def close(self) -> None:
        """Complete the listing of the start, which was asked for with `list_after`. If that takes a
        while and was not begun, a process does it that outlives this one.
        """
        if self._listing is None:
            return
        if not self._is_listing_begun and await asyncio.to_thread(self._start_listing_process):
            self._listing.cancel()
            return
        self._closing.set()
        await asyncio.wait([self._listing])

    def _start_listing_process(self) -> bool:
        """Start the process that compares the files with a recorded listing. Returns False if there
        are few notes, or it cannot be started.
        """
        unlisted = [scope for scope in self._scopes if not scope.loaded.is_listed]
        if sum(len(scope.loaded.notes) for scope in unlisted) < _MIN_NOTES_FOR_PROCESS:
            return False
        from ouro.memory.long_term.listing_process import start_listing_process

        return start_listing_process([scope.store for scope in unlisted])
