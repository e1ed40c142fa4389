"""TranscriptPager: loads the rest of a session, in the background or when the user scrolls there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ouro.errors import SessionError
from ouro.memory.backend import LoadedSession, MemoryStore, MessageRecord
from ouro.memory.sessions.session_reader import MIN_SHOWN
from ouro.memory.transcript import ShownItem, Transcript
from ouro.utils.log import log


class TranscriptPager:
    """Where the loaded part of a session begins, and the part that a screen shows.

    Args:
        notify: called with a notice if the rest of a session cannot be read.
    """

    def __init__(
        self,
        store: MemoryStore,
        session_id: str,
        transcript: Callable[[], Transcript],
        notify: Callable[[str], None],
    ) -> None:
        self.is_gapped = False
        """Messages of long branches are not loaded: after a rewind the session has to be read again."""
        self._store = store
        self._session_id = session_id
        self._current = transcript
        self._notify = notify
        self._place = 0
        self._shown_from = 0
        self._shown_place: int | None = None
        """The offset of the first shown message, where that message is no longer in memory; 0: the start."""
        self._loading: asyncio.Task[str] | None = None

    @property
    def is_loading(self) -> bool:
        """Whether a part of what is sent is not in memory yet: `loaded` waits for it."""
        return self._loading is not None

    @property
    def has_earlier(self) -> bool:
        return self._place > 0 and not self._current().is_whole

    @property
    def has_hidden(self) -> bool:
        if self._shown_place is not None:
            return self._shown_place > 0
        return self._first_shown(self._current().shown_items()) > 0 or self.has_earlier

    def set_place(self, loaded: LoadedSession) -> None:
        self._place, self.is_gapped = loaded.place, loaded.is_gapped

    def shown(self) -> tuple[ShownItem, ...]:
        """The items that a new screen shows: the end of the transcript, and what `show_more` added, if in memory."""
        self._shown_place = None
        transcript = self._current()
        items = transcript.shown_items()
        shown = items[self._first_shown(items) :]
        first = next((item for item in shown if isinstance(item, MessageRecord)), None)
        if first is not None and not transcript.is_whole:
            self._shown_from = first.number  # the former first message may have left memory
        return tuple(shown)

    async def show_more(self, count: int) -> tuple[ShownItem, ...]:
        """The items before those that are shown, about `count` messages of them. Raises as `earlier` does."""
        await self.loaded()
        if self._shown_place is not None:
            return await self._read_more(self._shown_place, count)
        transcript = self._current()
        items = transcript.shown_items()
        while self.has_earlier and (self._count_hidden(items) < count or _is_tool_result(items[0])):
            await self.earlier(count)
            items = transcript.shown_items()
        begin = end = self._first_shown(items)
        while begin and (count > 0 or _is_tool_result(items[begin])):
            begin -= 1  # tool results are shown with their tool calls
            count -= isinstance(items[begin], MessageRecord)
        first = next((item for item in items[begin:end] if isinstance(item, MessageRecord)), None)
        self._shown_from = first.number if first else self._shown_from
        return tuple(items[begin:end])

    async def earlier(self, count: int) -> tuple[MessageRecord, ...]:
        """Load the `count` messages before those in memory; fewer at the start.

        Raises:
            SessionNotFound: the session is gone.
            SessionDamaged: it cannot be read.
        """
        await self.loaded()
        while self.has_earlier:
            place = self._place
            page = await self._store.load_before(self._session_id, place, count)
            if self._place == place:  # no other call has loaded it meanwhile
                self._place = page.place
                return self._current().prepend(page.records, is_whole=page.place == 0)
        return ()

    def release(self) -> None:
        """Remove from memory what is neither sent nor near the end. The file has it, and `show_more` reads it again."""
        if self.is_loading:
            return
        transcript = self._current()
        first = transcript.needed_from(MIN_SHOWN)
        place = self._place_of(first)
        if first is None or place is None:
            return  # not on disk, or at an unknown offset
        items = transcript.shown_items()
        hidden = self._first_shown(items)
        if self._shown_place is None and hidden < items.index(first):
            shown = next((item for item in items[hidden:] if isinstance(item, MessageRecord)), None)
            self._shown_place = self._place_of(shown) if hidden else self._place
            if self._shown_place is None:
                return
        transcript.drop_before(first)
        self._place = place

    def show_from(self, number: int) -> bool:
        """Let the screen drop what precedes that message, where memory has dropped it too. Returns whether it may."""
        if self._shown_place is None:
            return False
        self._shown_place, self._shown_from = None, number
        return True

    def show_loaded(self) -> None:
        """Show what is loaded now. What is loaded later stays hidden until the user scrolls there."""
        transcript = self._current()
        entries = (entry for entry in transcript.entries if entry.message.role != "tool")
        first = None if transcript.is_whole else next(entries, None)
        self._shown_from = first.number if first else 0

    def load_context(self, take: Callable[[LoadedSession], None]) -> None:
        """Start reading everything that is sent; `take` gets the result."""
        self._loading = asyncio.create_task(self._load(take))

    async def loaded(self) -> None:
        """Wait until everything that is sent is in memory: a screen needs less, so a resume does not wait."""
        if self._loading is None:
            return
        notice = await asyncio.shield(self._loading)
        self._loading = None
        if notice:
            self._notify(notice)

    async def _read_more(self, place: int, count: int) -> tuple[ShownItem, ...]:
        """From the file: what the screen still shows has left memory, and what precedes it need not come back."""
        items: list[ShownItem] = []
        while place and (count > 0 or (items and _is_tool_result(items[0]))):
            page = await self._store.load_before(self._session_id, place, max(1, count))
            found = [record for record in page.records if isinstance(record, ShownItem)]
            items[:0] = found
            count -= sum(isinstance(item, MessageRecord) for item in found)
            place = page.place
        self._shown_place = place
        return tuple(items)

    def _place_of(self, entry: MessageRecord | None) -> int | None:
        return self._store.place_of(self._session_id, entry.number) if entry is not None else None

    def _count_hidden(self, items: Sequence[ShownItem]) -> int:
        return sum(isinstance(item, MessageRecord) for item in items[: self._first_shown(items)])

    def _first_shown(self, items: Sequence[ShownItem]) -> int:
        entries = ((place, item) for place, item in enumerate(items) if isinstance(item, MessageRecord))
        return next((place for place, entry in entries if entry.number == self._shown_from), 0)

    async def _load(self, take: Callable[[LoadedSession], None]) -> str:
        try:
            loaded = await self._store.load_session(self._session_id, read_only=True, reach="context")
        except SessionError as error:
            log.warning("load the context: %s", error)
            return f"Earlier messages could not be read: {error.message}"
        self.set_place(loaded)
        take(loaded)
        return ""


def _is_tool_result(item: ShownItem) -> bool:
    return isinstance(item, MessageRecord) and item.message.role == "tool"
