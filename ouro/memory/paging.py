"""TranscriptPager: loads the rest of a session, in the background or when the user scrolls
there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from ouro.errors import SessionError
from ouro.memory.backend import LoadedSession, MemoryStore, MessageRecord, Reach
from ouro.memory.transcript import ShownItem, Transcript
from ouro.utils.log import log


class TranscriptPager(msgspec.Struct, eq=False):
    """Loads older messages of a session into its transcript, and knows which part of it a screen
    shows.

    `notify` is called with a notice if the rest of a session cannot be read.
    """

    store: MemoryStore
    session_id: str
    transcript: Callable[[], Transcript]
    notify: Callable[[str], None]
    is_gapped: bool = False
    """Whether messages of long branches are not loaded: after a rewind the session has to be read
    again.
    """
    _offset: int = 0
    """The offset where the loaded part of the session begins; 0: nothing precedes it."""
    _shown_from: int = 0
    """The number of the first shown message, which may no longer be in memory; 0: everything is
    shown.
    """
    _loading: asyncio.Task[str] | None = None
    """Loads the rest of the messages to send, in the background; None: all of them are loaded."""

    @property
    def is_loading(self) -> bool:
        """Whether a part of the messages to send is not in memory yet: `finish_loading` waits for
        it.
        """
        return self._loading is not None

    @property
    def has_earlier(self) -> bool:
        """Whether older messages are not in memory, and can be loaded."""
        return self._offset > 0 and not self.transcript().is_whole

    @property
    def has_hidden(self) -> bool:
        """Whether there is something before the shown items, in memory or not."""
        if self._shown_from == 0:  # everything is shown
            return False
        return self.has_earlier or self._index_of_first_shown(self.transcript().shown_items()) > 0

    def set_offset(self, loaded: LoadedSession) -> None:
        """Record where the loaded part of a session begins."""
        self._offset, self.is_gapped = loaded.offset, loaded.is_gapped

    def shown(self) -> tuple[ShownItem, ...]:
        """Returns the items that a new screen shows: the end of the transcript, and what
        `show_more` added as far as it is in memory. If the message at which the screen began is not
        in memory any more, the screen begins with the first of these items from now on.
        """
        transcript = self.transcript()
        items = transcript.shown_items()
        shown_items = items[self._index_of_first_shown(items) :]
        first_message = _first_message(shown_items)
        if first_message is not None and not transcript.is_whole:
            self._shown_from = first_message.number
        return tuple(shown_items)

    async def show_more(self, count: int) -> tuple[ShownItem, ...]:
        """Returns the items before the shown ones, with `count` messages or a few more: tool
        results are shown with their tool calls. From now on these items count as shown. They are
        loaded if needed. Empty if nothing is hidden. Raises SessionError.
        """
        await self.finish_loading()
        if not self._shown_from:
            return ()
        items = await self._load_hidden(count)
        # Go back from the shown items over `count` messages. The page begins with no tool result.
        begin = end = self._index_of_first_shown(items)
        missing_count = count
        while begin and (missing_count > 0 or _is_tool(items[begin])):
            begin -= 1
            if isinstance(items[begin], MessageRecord):
                missing_count -= 1
        first_message = _first_message(items[begin:end])
        if begin == 0 and not self.has_earlier:
            # All is shown now, also if only a change of the model precedes the first message.
            self._shown_from = 0
        elif first_message is not None:  # else there is nothing by which they could count as shown
            self._shown_from = first_message.number
        return tuple(items[begin:end])

    async def _load_hidden(self, count: int) -> Sequence[ShownItem]:
        """Load until `count` messages before the shown ones are in memory, or all; returns all
        items of the transcript. The first one is not a tool result, which belongs to a call before
        it.
        """
        while True:
            items = self.transcript().shown_items()
            if not self.has_earlier:
                return items
            hidden_items = items[: self._index_of_first_shown(items)]
            hidden_count = sum(isinstance(item, MessageRecord) for item in hidden_items)
            if hidden_count >= count and not _is_tool(items[0]):
                return items
            await self.load_earlier(count)

    async def load_earlier(self, count: int) -> tuple[MessageRecord, ...]:
        """Load the `count` messages before those in memory, or fewer at the start of the session;
        returns them. Raises SessionError.
        """
        await self.finish_loading()
        while self.has_earlier:
            offset = self._offset
            records, begin = await self.store.load_before(self.session_id, offset, count)
            if self._offset == offset:  # otherwise another call has loaded them meanwhile
                self._offset = begin
                return self.transcript().prepend(records, is_whole=begin == 0)
        return ()

    def unload_old_messages(self) -> None:
        """Remove messages from memory that are neither sent nor near the end. `show_more` reads
        them again.
        """
        from ouro.memory.sessions.session_reader import MIN_SHOWN

        if self.is_loading:
            return
        transcript = self.transcript()
        first = transcript.first_needed_message(MIN_SHOWN)
        if first is None:
            return
        offset = self.store.offset_of(self.session_id, first.number)
        if offset is not None:  # else it is not on disk, and could not be read again
            transcript.release_before(first)
            self._offset = offset

    def hide_before(self, number: int) -> bool:
        """Let the screen begin with the message `number`, if its first message is not in memory any
        more, but can be loaded again. Returns whether this was done: then the screen may remove
        what it shows before `number`.
        """
        items = self.transcript().shown_items()
        is_in_memory = any(
            isinstance(item, MessageRecord) and item.number == self._shown_from for item in items
        )
        if is_in_memory or (self._shown_from == 0 and not self.has_earlier):
            return False
        self._shown_from = number
        return True

    def show_loaded(self) -> None:
        """Let the screen begin with the first loaded message that is not a tool result. What is
        loaded later stays hidden until the user scrolls there.
        """
        transcript = self.transcript()
        if transcript.is_whole or not transcript.entries:
            self._shown_from = 0
            return
        others = (entry for entry in transcript.entries if entry.message.role != "tool")
        self._shown_from = next(others, transcript.entries[0]).number

    def load_context(
        self, on_loaded: Callable[[LoadedSession], None], reach: Reach = "context"
    ) -> None:
        """Start to read the session as far as `reach` says, in the background; `on_loaded` is
        called with the result.
        """
        self._loading = asyncio.create_task(self._load(on_loaded, reach))

    async def finish_loading(self) -> None:
        """Wait until everything that is sent is in memory. A screen needs less, so a resume does
        not wait for this.
        """
        loading = self._loading
        if loading is None:
            return
        notice = await asyncio.shield(loading)
        if self._loading is loading:  # not if `load_context` was called meanwhile
            self._loading = None
        if notice:
            self.notify(notice)

    def _index_of_first_shown(self, items: Sequence[ShownItem]) -> int:
        """Returns the index of the first shown message in `items`; 0 if it is not among them."""
        for index, item in enumerate(items):
            if isinstance(item, MessageRecord) and item.number == self._shown_from:
                return index
        return 0

    async def _load(self, on_loaded: Callable[[LoadedSession], None], reach: Reach) -> str:
        """Read the session again, and call `on_loaded` with the result. Returns a notice if it
        cannot be read; otherwise empty.
        """
        try:
            loaded = await self.store.load_session(self.session_id, read_only=True, reach=reach)
        except SessionError as error:
            log.warning("load the context: %s", error)
            return f"Earlier messages could not be read: {error.message}"
        self.set_offset(loaded)
        on_loaded(loaded)
        return ""


def _first_message(items: Sequence[ShownItem]) -> MessageRecord | None:
    """Returns the first message among the items; None if there is none."""
    return next((item for item in items if isinstance(item, MessageRecord)), None)


def _is_tool(item: ShownItem) -> bool:
    return isinstance(item, MessageRecord) and item.message.role == "tool"
