"""NewsReader: what happens beside the turns of a session, read for as long as the session is open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

from ouro.utils.log import log

if TYPE_CHECKING:
    from ouro.events import Event
    from ouro.session import Session


class NewsReader:
    """Hands the news of one session after another to `show`. Owned by the front end, which closes it."""

    def __init__(self, show: Callable[[Event], None]) -> None:
        self._show = show
        self._reading: asyncio.Task[None] | None = None

    def follow(self, session: Session) -> None:
        """Read this session's news from now on, and no longer those of the one before."""
        self._cancel()
        self._reading = asyncio.create_task(self._read(session))
        self._reading.add_done_callback(_note_failure)

    async def close(self, patience: float = 0.0) -> None:
        """Read to the end of the news, where that comes within `patience` seconds: a closed session has one."""
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=patience)
            self._cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self, session: Session) -> None:
        async with aclosing(session.news()) as news:
            async for event in news:
                self._show(event)

    def _cancel(self) -> None:
        if self._reading is not None:
            self._reading.cancel()


def _note_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("news: %s", error, exc_info=error)
