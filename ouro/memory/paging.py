"""Rest: what of a session is not loaded: read behind the screen where it is sent, else when someone scrolls to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ouro.errors import SessionError
from ouro.memory.backend import LoadedSession, MemoryStore
from ouro.memory.message_tree import TranscriptEntry
from ouro.memory.sessions.records import CompactionRecord, MessageRecord, ModelRecord, RecalledRecord, RewindRecord
from ouro.memory.sessions.walk_back import FEWEST_SHOWN
from ouro.memory.transcript import ShownItem, Transcript
from ouro.utils.log import log


class TranscriptPager:
    """Knows where the loaded part of a session begins, and where the part that a screen shows.

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
        self._shown_place: int | None = None
        """Where in the file begins what is shown, where that is not loaded any more; 0: it is the start."""
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
        if self._shown_place is not None:
            return self._shown_place > 0
        return self._hidden(transcript.told()) > 0 or self.has_earlier(transcript)

    def shown(self, transcript: Transcript) -> tuple[ShownItem, ...]:
        """The line from the first message on that was there for the screen to show; the screen is made of it anew."""
        self._shown_place = None
        told = transcript.told()
        shown = told[self._hidden(told) :]
        first = next((each for each in shown if isinstance(each, TranscriptEntry)), None)
        if first is not None and not transcript.is_whole:
            self._shown_from = first.number  # what it was may have left memory
        return tuple(shown)

    async def show_more(self, transcript: Transcript, count: int) -> tuple[ShownItem, ...]:
        """What stands before what is shown, `count` messages of it; shown then. Raises as `earlier` does."""
        if self._shown_place is not None:
            return await self._read_more(self._shown_place, count)
        told = transcript.told()
        while self.has_earlier(transcript) and (self._messages(told) < count or _is_answer(told[0])):
            await self.earlier(transcript, count)
            told = transcript.told()
        begin = end = self._hidden(told)
        while begin and (count > 0 or _is_answer(told[begin])):
            begin -= 1  # answers are shown with what asked for them
            count -= isinstance(told[begin], TranscriptEntry)
        first = next((each for each in told[begin:end] if isinstance(each, TranscriptEntry)), None)
        self._shown_from = first.number if first else self._shown_from
        return tuple(told[begin:end])

    async def earlier(self, transcript: Transcript, count: int) -> tuple[TranscriptEntry, ...]:
        """The `count` messages before those that are loaded. Raises SessionNotFound and SessionDamaged."""
        while self.has_earlier(transcript):
            place = self._place
            page = await asyncio.to_thread(self._store.load_before, self._session_id, place, count)
            if self._place == place:  # nobody else was faster
                self._place = page.place
                return transcript.prepend(page.records, is_whole=page.place == 0)
        return ()

    def let_go(self, transcript: Transcript) -> None:
        """Forget what is neither sent nor near the end: the file has it, for who scrolls or goes back there."""
        first = transcript.needed_from(FEWEST_SHOWN)
        place = self._place_of(first)
        if first is None or place is None:
            return  # not on disk, or where is not known
        told = transcript.told()
        hidden = self._hidden(told)
        if self._shown_place is None and hidden < told.index(first):
            shown = next((each for each in told[hidden:] if isinstance(each, TranscriptEntry)), None)
            self._shown_place = self._place_of(shown) if hidden else self._place
            if self._shown_place is None:
                return
        transcript.let_go(first)
        self._place = place

    def shows_from(self, number: int) -> bool:
        """Where the screen shows more than is loaded: it shows what begins with that message, which is, and no more."""
        if self._shown_place is None:
            return False
        self._shown_place, self._shown_from = None, number
        return True

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

    async def _read_more(self, place: int, count: int) -> tuple[ShownItem, ...]:
        """From the file: what a screen still shows has left memory, and what stands before it need not come back."""
        records: list[ShownItem] = []
        while place and (count > 0 or (records and _is_answer(records[0]))):
            page = await asyncio.to_thread(self._store.load_before, self._session_id, place, max(1, count))
            found = [told for each in page.records if (told := _told(each)) is not None]
            records[:0] = found
            count -= sum(isinstance(each, TranscriptEntry) for each in found)
            place = page.place
        self._shown_place = place
        return tuple(records)

    def _place_of(self, entry: TranscriptEntry | None) -> int | None:
        return self._store.place_of(self._session_id, entry.number) if entry is not None else None

    def _messages(self, told: Sequence[ShownItem]) -> int:
        """How many messages stand before the first one that is shown."""
        return sum(isinstance(each, TranscriptEntry) for each in told[: self._hidden(told)])

    def _hidden(self, told: Sequence[ShownItem]) -> int:
        """The place of the first message that is shown."""
        numbers = (
            place
            for place, each in enumerate(told)
            if isinstance(each, TranscriptEntry) and each.number == self._shown_from
        )
        return next(numbers, 0)

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


def _is_answer(told: ShownItem) -> bool:
    return isinstance(told, TranscriptEntry) and told.message.role == "tool"


def _told(record: object) -> ShownItem | None:
    if isinstance(record, MessageRecord):
        return TranscriptEntry(record.number, record.at, record.message)
    return record if isinstance(record, CompactionRecord | RecalledRecord | ModelRecord | RewindRecord) else None
