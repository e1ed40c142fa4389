"""MemoryManager: the one door. Add, record, context, scroll, fork, save, resume."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ouro.memory.backend import (
    ChangeRecord,
    CompactionRecord,
    LoadedSession,
    MemoryStore,
    MessageRecord,
    ModelRecord,
    ModeRecord,
    Record,
    RewindRecord,
    SessionHeader,
    SessionInfo,
    TitleRecord,
    timestamp,
)
from ouro.memory.paging import TranscriptPager
from ouro.memory.saver import Saver
from ouro.memory.sessions.session_search import find_session
from ouro.memory.sessions.whole_session import WholeSession, read_whole
from ouro.memory.short_term import sendable
from ouro.memory.tokens import TokenCount
from ouro.memory.transcript import ShownItem, Transcript, TranscriptEntry, title_of
from ouro.messages import Message, Usage

_ID_LENGTH = 36


class MemoryManager:
    """The messages of one session: in memory, on disk, and as they are sent. Made by `start` or `resume`."""

    def __init__(self, store: MemoryStore, header: SessionHeader, loaded: LoadedSession | None = None) -> None:
        self.session_id = header.id
        self.project = header.project
        self.notices: tuple[str, ...] = loaded.notices if loaded else ()
        self._on_notice: Callable[[str], None] = lambda _notice: None
        self.read_only = loaded.read_only if loaded else False
        self.is_private = False
        """Long-term memory is off: what is said from here on is never to be learned from."""
        self.transcript = Transcript()
        self.transcript.last_at = header.created_at
        self._store = store
        self._header = header
        self.constant = 0
        """About how many tokens go with every request: the system prompt and the tools."""
        self._size = TokenCount()
        self._rest = TranscriptPager(store, header.id)
        self._saver = Saver(store, header, is_created=loaded is not None, read_only=self.read_only)
        if loaded is not None:
            self._rest.begins(loaded)
            self._fold(loaded)
            self._rest.shows(self.transcript)
            self.notices += tuple(self.transcript.notices)

    @classmethod
    def start(
        cls, store: MemoryStore, *, project: str, model: str, commits: Mapping[str, str] | None = None
    ) -> MemoryManager:
        """A new session. Nothing is written before its first message; `notices` says where nothing can be.

        `commits`: those of long-term memory that it starts from, by scope.
        """
        header = SessionHeader(str(uuid.uuid4()), project, model, timestamp(), memory=commits or {})
        manager = cls(store, header)
        if obstacle := store.obstacle():
            manager.notices = (f"This session cannot be saved: {obstacle}.",)
        return manager

    @classmethod
    async def resume(
        cls,
        store: MemoryStore,
        query: str,
        *,
        project: str,
        read_only: bool = False,
        fork: bool = False,
        said: Callable[[str], Iterable[str]] = lambda _words: (),
        on_notice: Callable[[str], None] = lambda _notice: None,
    ) -> MemoryManager:
        """The session that `query` means, as `find_session` understands it.

        Args:
            store: has it.
            query: an id, the start of one, `latest` of this project, words of its title or of what was said.
            project: the folder that is worked in.
            read_only: it may be open elsewhere, and nothing is saved.
            fork: a copy is opened, and the session itself stays as it is; it may be open elsewhere. The copy belongs to
                `project`.
            said: the ids of the sessions in which these words were said.
            on_notice: gets each notice that is found later, while the rest is read.

        Raises:
            SessionNotFound: none answers to it, or several do.
            SessionInUse: another process has it open.
            SessionDamaged: its header cannot be believed.
            SaveFailed: there is no copy.
        """

        def load() -> tuple[LoadedSession, SessionInfo]:
            info = _find(store, query, project, said)
            goes_apart = fork or (info.is_copied_by_hand and not read_only)
            session_id = _fork(store, info, project) if goes_apart else info.id
            return store.load_session(session_id, read_only=read_only, reach="screen"), info

        loaded, info = await asyncio.to_thread(load)
        manager = cls(store, loaded.header, loaded)
        if not manager.transcript.is_whole or loaded.is_gapped:
            manager._believe(info)
        if not loaded.is_complete:
            manager._rest.read_what_is_sent(manager._fold_again)
        manager._on_notice = on_notice
        return manager

    @property
    def title(self) -> str:
        """What the session is called in lists."""
        return self.transcript.title

    @property
    def model(self) -> str:
        """The model that answers."""
        return self.transcript.model or self._header.model

    @property
    def next_number(self) -> int:
        """Of the next message or compaction."""
        return self.transcript.next_number

    @property
    def began_with(self) -> Mapping[str, str]:
        """The commits of long-term memory that the session started from, by scope."""
        return self._header.memory

    @property
    def outputs(self) -> Path:
        """Where outputs that are too long for the session file belong."""
        return self._store.outputs_folder(self._header)

    @property
    def tokens(self) -> int:
        """Of the context: by the provider's figures, and an estimate for what is newer."""
        return self._size.tokens + (0 if self._size.is_told else self.constant)

    @property
    def usage(self) -> Usage:
        """Of all model calls of the session."""
        return self.transcript.usage

    @property
    def has_earlier(self) -> bool:
        """Whether there are older messages on this line than those loaded."""
        return self._rest.has_earlier(self.transcript)

    @property
    def has_hidden(self) -> bool:
        """Whether there are older messages on this line than those `shown`."""
        return self._rest.has_hidden(self.transcript)

    def now(self) -> str:
        """The time of the next record: UTC, and never before the last one."""
        return timestamp(self.transcript.last_at)

    def messages(self) -> tuple[Message, ...]:
        """The transcript, as far as loaded."""
        return tuple(entry.message for entry in self.transcript.entries)

    def known(self) -> tuple[Message, ...]:
        """The same, behind what a compaction keeps from before it."""
        return (*(entry.message for entry in self.transcript.kept), *self.messages())

    def shown(self) -> tuple[ShownItem, ...]:
        """The end of the transcript that a screen begins with, and what was asked for with `show_more`, as loaded."""
        return self._rest.shown(self.transcript)

    async def show_more(self, count: int) -> tuple[ShownItem, ...]:
        """What stands before what is `shown`, about `count` messages of it; raises as `earlier` does."""
        await self.read_all()
        return await self._rest.show_more(self.transcript, count)

    def shows_from(self, number: int) -> bool:
        """Whether the screen may let go of what stands before that message: memory has too."""
        return self._rest.shows_from(number)

    def let_go(self) -> None:
        """Forget the messages that are not sent any more: they are on disk, and read again when someone wants them."""
        if not self._rest.is_being_read:
            self._rest.let_go(self.transcript)

    def context(self) -> list[Message]:
        """What is sent to the model: always sendable, and under a compaction its summary in place of what it covers."""
        return sendable(self.transcript.sent())

    async def add(self, message: Message) -> None:
        """Put a message behind the others; it is on disk when this returns.

        Once begun a save is carried through, also when the caller is cancelled.

        Raises:
            SaveFailed: it is not on disk. It is kept, and saved with the next one.
        """
        await self.read_all()
        self._take(MessageRecord(self.next_number, self.now(), message, self.is_private))
        if not self.title and message.role == "user" and (title := title_of(message.text)):
            self._take(TitleRecord(title, self.now()))
        await self._saver.save()

    async def record(self, change: ChangeRecord) -> None:
        """Put what is no message (a compaction, a rewind, a title …) behind the others, likewise.

        Raises:
            SaveFailed: as for `add`.
        """
        await self.read_all()
        is_known = not isinstance(change, RewindRecord) or self.transcript.knows(change.to)
        self._take(change)
        await self._saver.save()
        if isinstance(change, CompactionRecord) and change.summary:
            self.let_go()
        has_all = not self._rest.is_gapped and self.transcript.is_complete
        if isinstance(change, RewindRecord) and not (is_known and has_all):
            self._rest.read_what_is_sent(self._fold_again)
            await self.read_all()

    def note(self, change: ChangeRecord) -> None:
        """Put what is no message behind the others; saved in the background, at the latest with the next message."""
        self._take(change)
        if not self._rest.is_being_read:
            self._saver.save_soon()

    def set_title(self, title: str) -> None:
        """Call the session so from here on; saved as `note` does."""
        self.note(TitleRecord(title_of(title), self.now()))

    def set_model(self, model: str) -> None:
        """Note that another model answers from here on; saved likewise."""
        if model != self.model:
            self.note(ModelRecord(model, self.now()))

    @property
    def mode(self) -> str:
        """The permission mode that was saved last; empty if none was."""
        return self.transcript.mode

    def set_mode(self, mode: str) -> None:
        """Save another permission mode, as `note` does."""
        if mode != self.mode:
            self.note(ModeRecord(mode, self.now()))

    @property
    def is_being_read(self) -> bool:
        """Whether what is sent is not all there yet: `read_all` waits for it."""
        return self._rest.is_being_read

    async def read_all(self) -> None:
        """Wait until all that is sent is loaded: a screen needs less, and a resume does not wait for the rest."""
        if told := await self._rest.all_read():
            self._notice(told)

    async def earlier(self, count: int) -> tuple[TranscriptEntry, ...]:
        """The `count` messages before those that are loaded, fewer at the start; they are loaded then.

        Raises:
            SessionNotFound: the session is gone.
            SessionDamaged: it cannot be read.
        """
        await self.read_all()
        return await self._rest.earlier(self.transcript, count)

    async def fork(self, number: int | None = None, title: str = "") -> str:
        """Copy the session, up to its message `number` where that is given; gives the copy's id.

        Raises:
            SessionNotFound: nothing of it is on disk yet, or there is no such message.
            SaveFailed: there is no copy.
        """
        await self._saver.save()
        header = SessionHeader(str(uuid.uuid4()), self.project, self.model, timestamp())
        end = self.transcript.last_number if number is None else number
        await asyncio.to_thread(self._store.fork_session, self.session_id, end, header, title)
        return header.id

    def whole(self) -> WholeSession:
        """All of the session as it is kept, what was taken back among it; blocks on a disk, as its records do.

        Raises:
            SessionNotFound: nothing was said in it yet.
        """
        return read_whole(self._store, self.session_id)

    async def close(self) -> None:
        """Save what is left, and let others open the session.

        Raises:
            SaveFailed: something could not be saved, and now is lost.
        """
        await self.read_all()
        await self._saver.close()

    def _notice(self, text: str) -> None:
        if text not in self.notices:
            self.notices += (text,)
            self._on_notice(text)

    def _take(self, record: Record) -> None:
        self.transcript.take(record)
        self._saver.put(record)
        if isinstance(record, MessageRecord):
            self._size.add(record.message)
        elif isinstance(record, CompactionRecord | RewindRecord | ModelRecord):
            self._count()

    def _fold(self, loaded: LoadedSession) -> None:
        transcript = Transcript.of(loaded)
        transcript.last_at = max(transcript.last_at, loaded.header.created_at)
        self.transcript = transcript
        self._count()

    def _count(self) -> None:
        self._size = TokenCount()
        self.transcript.count_tokens(self._size)

    def _believe(self, info: SessionInfo) -> None:
        """What a list knows of a session stands in for the records that were not read."""
        self.transcript.usage = sum((each.usage for each in info.spent), Usage())
        self.transcript.title = self.transcript.title or info.title
        self.transcript.model = self.transcript.model or info.model
        self.transcript.mode = self.transcript.mode or info.mode

    def _fold_again(self, loaded: LoadedSession) -> None:
        """More of the session was read; what was noted meanwhile comes behind it."""
        known = self.transcript
        self._fold(loaded)
        for notice in (*loaded.notices, *self.transcript.notices):
            self._notice(notice)
        for record in self._saver.unsaved:
            self.transcript.take(record)
        self._count()
        if not self.transcript.is_whole or loaded.is_gapped:
            self.transcript.usage = known.usage
            self.transcript.title, self.transcript.model = known.title, known.model


def _find(store: MemoryStore, query: str, project: str, said: Callable[[str], Iterable[str]]) -> SessionInfo:
    if len(query) == _ID_LENGTH and (info := store.get_session_stats(query)).id == query:
        return info  # who has it has looked already: no list is made for it
    return find_session(store.list_sessions(), query, project, said)


def _fork(store: MemoryStore, info: SessionInfo, project: str) -> str:
    header = SessionHeader(str(uuid.uuid4()), project, info.model, timestamp())
    store.fork_session(info.id, None, header)
    return header.id
