"""Saver: writes the records of one session, in their order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from ouro.memory.backend import CompactionRecord, CostRecord, MemoryStore, MessageRecord, Record, SessionHeader
from ouro.utils.log import log


class Saver:
    """Queues records and saves them. A record that could not be saved stays in the queue for the next save.

    Args:
        store: of the session.
        header: of the session; the session is created with its first message.
        is_created: the session is already open in the store.
        read_only: nothing is saved.
    """

    def __init__(self, store: MemoryStore, header: SessionHeader, *, is_created: bool, read_only: bool) -> None:
        self._store = store
        self._header = header
        self._is_created = is_created
        self._read_only = read_only
        self._unsaved: deque[Record] = deque()
        self._lock = asyncio.Lock()
        self._saves: set[asyncio.Task[None]] = set()

    @property
    def unsaved(self) -> tuple[Record, ...]:
        """What is not on disk yet, oldest first."""
        return tuple(self._unsaved)

    def put(self, record: Record) -> None:
        """Queue a record for the next `save`."""
        self._unsaved.append(record)

    async def save(self) -> None:
        """Save the queue. It is on disk when this returns, and is saved even if the caller is cancelled.

        Raises:
            SaveFailed: it is not on disk. It stays queued.
        """
        await asyncio.shield(self._begin(self._write))

    def save_soon(self) -> None:
        """Save in the background; a failure waits for the next save.

        Before the first message there is no file yet: costs up to then are counted outside of the sessions.
        """
        self._begin(self._write if self._has_messages() else self._count_costs)

    async def close(self) -> None:
        """Save the queue and release the session.

        Raises:
            SaveFailed: something could not be saved, and is lost.
        """
        try:
            if self._unsaved and self._has_messages():
                await self.save()
        finally:
            await asyncio.gather(*self._saves, return_exceptions=True)  # each save has logged its own failure
            await self._store.close_session(self._header.id)

    def _has_messages(self) -> bool:
        return self._is_created or any(isinstance(record, MessageRecord) for record in self._unsaved)

    def _begin(self, write: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._one_at_a_time(write))
        self._saves.add(task)
        task.add_done_callback(self._saves.discard)
        task.add_done_callback(_log_failure)
        return task

    async def _one_at_a_time(self, write: Callable[[], Awaitable[None]]) -> None:
        async with self._lock:
            await write()

    async def _write(self) -> None:
        if self._read_only:
            await self._count_costs()
            self._unsaved.clear()
        elif not self._is_created:
            await self._store.create_session(self._header)
            self._is_created = True
        while self._unsaved:
            record = self._unsaved[0]
            if isinstance(record, MessageRecord):
                await self._store.save_message(self._header.id, record)
            else:
                await self._store.save_memory(self._header.id, record)
            self._unsaved.popleft()

    async def _count_costs(self) -> None:
        """Count what model calls cost, where there is no session to record it."""
        for record in tuple(self._unsaved):
            if cost := _cost_of(record):
                await self._store.save_cost(cost)
                self._unsaved.remove(record)


def _cost_of(record: Record) -> CostRecord | None:
    match record:
        case CostRecord():
            return record
        case MessageRecord(_, at, message) if message.usage is not None:
            return CostRecord("turn", at, message.model, message.usage)
        case CompactionRecord(at=at, model=model, usage=usage) if usage is not None:
            return CostRecord("compaction", at, model, usage)
        case _:
            return None


def _log_failure(task: asyncio.Task[None]) -> None:
    # The caller of a save may have been cancelled: then nobody else sees the failure.
    if not task.cancelled() and task.exception() is not None:
        log.warning("save: %s", task.exception())
