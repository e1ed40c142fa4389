"""Rest: what of a session is not loaded: read behind the screen where it is sent, else when someone scrolls to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ouro.errors import SessionError
from ouro.memory.backend import LoadedSession, MemoryStore
from ouro.memory.transcript import Entry, Transcript
from ouro.utils.log import log


class Rest:
    """Knows where the loaded part of a session begins.

    Args:
        store: has the session.
        session_id: which one.
    """

    def __init__(self, store: MemoryStore, session_id: str) -> None:
        self.is_gapped = False
        """Messages of long branches are not loaded: after a way back the session has to be read again."""
        self._store = store
        self._session_id = session_id
        self._place = 0
        self._shown_from = 0
        self._reading: asyncio.Task[str] | None = None

    @property
    def is_being_read(self) -> bool:
        """Whether what is sent is not all there yet."""
        return self._reading is not None

    def begins(self, loaded: LoadedSession) -> None:
        """It is what stands before this."""
        self._place, self.is_gapped = loaded.place, loaded.is_gapped

    def has_earlier(self, transcript: Transcript) -> bool:
        """Whether there are messages on the line before those that are loaded."""
        return self._place > 0 and not transcript.is_whole

    def has_hidden(self, transcript: Transcript) -> bool:
        """Whether there are messages on the line before those that are shown."""
        return self._hidden(transcript.entries) > 0 or self.has_earlier(transcript)

    def shown(self, transcript: Transcript) -> tuple[Entry, ...]:
        """The messages of the line from the first one on that was there for the screen to show."""
        entries = transcript.entries
        return entries[self._hidden(entries) :]

    async def show_more(self, transcript: Transcript, count: int) -> tuple[Entry, ...]:
        """The `count` messages before those that are shown; they are shown then. Raises as `earlier` does."""
        if self._hidden(transcript.entries) < count:
            await self.earlier(transcript, count)
        entries = transcript.entries
        end = self._hidden(entries)
        begin = max(0, end - count)
        while begin and entries[begin].message.role == "tool":
            begin -= 1  # answers are shown with what asked for them
        self._shown_from = entries[begin].number if entries else 0
        return entries[begin:end]

    async def earlier(self, transcript: Transcript, count: int) -> tuple[Entry, ...]:
        """The `count` messages before those that are loaded. Raises SessionNotFound and SessionDamaged."""
        if not self.has_earlier(transcript):
            return ()
        page = await asyncio.to_thread(self._store.load_before, self._session_id, self._place, count)
        self._place = page.place
        return transcript.prepend(page.records, is_whole=page.place == 0)

    def shows(self, transcript: Transcript) -> None:
        """What is loaded now is what the screen shows; what is loaded later is not, until someone scrolls to it."""
        said = (each for each in transcript.entries if each.message.role != "tool")
        first = None if transcript.is_whole else next(said, None)
        self._shown_from = first.number if first else 0

    def read_what_is_sent(self, take: Callable[[LoadedSession], None]) -> None:
        """Begin to read all that is sent; `take` is given it, and makes it the transcript."""
        self._reading = asyncio.create_task(self._read(take))

    async def all_read(self) -> str:
        """Wait until what is sent is there; gives what is to be told where it could not be read."""
        if self._reading is None:
            return ""
        told = await asyncio.shield(self._reading)
        self._reading = None
        return told

    def _hidden(self, entries: Sequence[Entry]) -> int:
        """How many messages stand before the first one that is shown."""
        return next((place for place, each in enumerate(entries) if each.number == self._shown_from), 0)

    async def _read(self, take: Callable[[LoadedSession], None]) -> str:
        try:
            loaded = await asyncio.to_thread(
                self._store.load_session, self._session_id, read_only=True, reach="context"
            )
        except SessionError as error:
            log.warning("read what is sent: %s", error)
            return f"What was said earlier could not be read: {error.message}"
        self.begins(loaded)
        take(loaded)
        return ""
