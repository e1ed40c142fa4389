"""Saver: puts the records of one session on disk, in their order, whoever waits for it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from ouro.memory.backend import CompactionRecord, CostRecord, MemoryStore, MessageRecord, Record, SessionHeader
from ouro.utils.log import log


class Saver:
    """Keeps what is not saved yet, and saves it with what comes next.

    Args:
        store: where to.
        header: of the session; it is created with its first message.
        is_created: the session is open in the store already.
        read_only: nothing is saved.
    """

    def __init__(self, store: MemoryStore, header: SessionHeader, *, is_created: bool, read_only: bool) -> None:
        self._store = store
        self._header = header
        self._is_created = is_created
        self._read_only = read_only
        self._unsaved: deque[Record] = deque()
        self._one_at_a_time = asyncio.Lock()
        self._saves: set[asyncio.Task[None]] = set()

    @property
    def unsaved(self) -> tuple[Record, ...]:
        """What is not on disk yet, oldest first."""
        return tuple(self._unsaved)

    def put(self, record: Record) -> None:
        """Take one more record, to be saved with the next `save`."""
        self._unsaved.append(record)

    async def save(self) -> None:
        """Save all that was put; it is on disk when this returns, also when the caller is cancelled meanwhile.

        Raises:
            SaveFailed: it is not. It is kept, and saved the next time.
        """
        await asyncio.shield(self._begin(self._write))

    def save_soon(self) -> None:
        """Save in the background; what fails waits for the next save.

        Before anybody has said anything there is no file yet: what was paid by then is counted beside the sessions.
        """
        self._begin(self._write if self._is_worth_a_file() else self._count_costs)

    async def close(self) -> None:
        """Save what is left, and let others open the session.

        Raises:
            SaveFailed: something could not be saved, and now is lost.
        """
        try:
            if self._unsaved and self._is_worth_a_file():
                await self.save()
        finally:
            await asyncio.gather(*self._saves, return_exceptions=True)  # each has told its own failure
            await asyncio.to_thread(self._store.close_session, self._header.id)

    def _is_worth_a_file(self) -> bool:
        """A session in which nobody has said anything is not."""
        return self._is_created or any(isinstance(each, MessageRecord) for each in self._unsaved)

    def _begin(self, write: Callable[[], None]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._one_by_one(write))
        self._saves.add(task)
        task.add_done_callback(self._saves.discard)
        task.add_done_callback(_note_failure)
        return task

    async def _one_by_one(self, write: Callable[[], None]) -> None:
        async with self._one_at_a_time:
            await asyncio.to_thread(write)

    def _write(self) -> None:
        if self._read_only:
            self._count_costs()
            self._unsaved.clear()
        elif not self._is_created:
            self._store.create_session(self._header)
            self._is_created = True
        while self._unsaved:
            record = self._unsaved[0]
            if isinstance(record, MessageRecord):
                self._store.save_message(self._header.id, record)
            else:
                self._store.save_memory(self._header.id, record)
            self._unsaved.popleft()

    def _count_costs(self) -> None:
        """Count what was paid where there is no session to count it."""
        for record in tuple(self._unsaved):
            if cost := _cost_of(record):
                self._store.save_cost(cost)
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


def _note_failure(task: asyncio.Task[None]) -> None:
    """A save whose caller was cancelled has nobody to tell; what is not saved waits for the next one."""
    if not task.cancelled() and task.exception() is not None:
        log.warning("save: %s", task.exception())
