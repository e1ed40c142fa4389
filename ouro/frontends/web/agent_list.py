"""AgentList: the background sessions for all open pages, asked for once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from ouro.errors import OuroError, UsageError
from ouro.frontends.background.agents import AgentRow, AgentWatch
from ouro.session.background_record import BackgroundRecord, find_record

POLL_SECONDS = 1.0


class AgentList:
    """Asks the sessions for their states while a page is open, however many pages there are."""

    def __init__(self) -> None:
        self._watch = AgentWatch()
        self._asking = asyncio.Lock()
        self.rows: Sequence[AgentRow] = ()
        self.problem = ""
        """Why the list cannot be read."""
        self._readers = 0
        """Open pages."""
        self._polling: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        self._turn = 0
        """How often the list was read."""

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Ask as long as the block runs."""
        self._readers += 1
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll())
        try:
            yield
        finally:
            self._readers -= 1
            if not self._readers and self._polling is not None:
                self._polling.cancel()
                self._polling = None

    async def next(self, turn: int) -> int:
        """Wait for a reading after this one; returns its number."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._turn > turn)
        return self._turn

    async def refresh(self) -> None:
        """Read the list now."""
        async with self._asking:
            try:
                self.rows, self.problem = await self._watch.rows(), ""
            except (OuroError, OSError) as error:
                self.rows, self.problem = (), str(error)
        async with self._changed:
            self._turn += 1
            self._changed.notify_all()

    async def find(self, session_id: str) -> AgentRow:
        """The state of one session. Raises UsageError if there is none."""
        watch = AgentWatch()
        try:
            return await watch.row(await self.record(session_id))
        finally:
            await watch.close()

    async def record(self, session_id: str) -> BackgroundRecord:
        """The record of one session. Raises UsageError if there is none."""
        record = await asyncio.to_thread(find_record, session_id)
        if record.id != session_id:
            raise UsageError(f"No background session has the id `{session_id[:80]}`.")
        return record

    async def close(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
        await self._watch.close()

    async def _poll(self) -> None:
        while True:
            await self.refresh()
            await asyncio.sleep(POLL_SECONDS)
