"""AgentList: the background sessions for all open pages, asked for once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from ouro.errors import OuroError, UsageError
from ouro.frontends.background.background_sessions import AgentRow, AgentWatch
from ouro.session.background_record import BackgroundRecord, find_record

POLL_SECONDS = 1.0


class AgentList:
    """The rows of all background sessions, for any number of open pages.

    The sessions are asked for their states once a second, and only while a page is open.
    """

    def __init__(self) -> None:
        self._watch = AgentWatch()
        self._refresh_lock = asyncio.Lock()
        self.rows: Sequence[AgentRow] = ()
        self.problem = ""
        """Why the list cannot be read."""
        self._open_pages = 0
        """How many pages are open."""
        self._polling: asyncio.Task[None] | None = None
        """Reads the list again and again while pages are open."""
        self._changed = asyncio.Condition()
        self._reading_number = 0
        """How often the list was read."""

    @asynccontextmanager
    async def polling(self) -> AsyncIterator[None]:
        """A context in which a page counts as open. While any page is open, the list is read every
        POLL_SECONDS.
        """
        self._open_pages += 1
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll())
        try:
            yield
        finally:
            self._open_pages -= 1
            if not self._open_pages and self._polling is not None:
                self._polling.cancel()
                self._polling = None

    async def wait_for_reading(self, number: int) -> int:
        """Wait for a reading of the list that comes after the reading `number`. Returns the number
        of that reading.
        """
        async with self._changed:
            await self._changed.wait_for(lambda: self._reading_number > number)
        return self._reading_number

    async def refresh(self) -> None:
        """Read the list now, and wake all who wait for a reading. A failure is kept in `problem`."""
        async with self._refresh_lock:
            try:
                self.rows, self.problem = await self._watch.rows(), ""
            except (OuroError, OSError) as error:
                self.rows, self.problem = (), str(error)
        async with self._changed:
            self._reading_number += 1
            self._changed.notify_all()

    async def find_row(self, session_id: str) -> AgentRow:
        """Ask one session for its state. Raises UsageError if there is none."""
        watch = AgentWatch()
        try:
            return await watch.row(await self.find_record(session_id))
        finally:
            await watch.close()

    async def find_record(self, session_id: str) -> BackgroundRecord:
        """The record of one session. Raises UsageError if there is none."""
        record = await asyncio.to_thread(find_record, session_id)
        if record.id != session_id:  # `find_record` also takes words of a title
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
