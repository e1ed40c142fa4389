"""MemoryManager: the one door. Add, context, save, resume."""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from ouro.memory.backend import (
    LoadedSession,
    MemoryStore,
    MessageRecord,
    ModelRecord,
    Record,
    SessionHeader,
    TitleRecord,
    timestamp,
)
from ouro.memory.find import find_session
from ouro.memory.short_term import outputs_to_drop, sendable, with_answers, without_outputs
from ouro.memory.tokens import TokenCount, estimate_messages
from ouro.messages import Message, Usage
from ouro.utils.log import log
from ouro.utils.terminal_text import clean

_TITLE_WIDTH = 60


class MemoryManager:
    """The messages of one session: in memory, on disk, and as they are sent. Made by `start` or `resume`."""

    def __init__(self, store: MemoryStore, header: SessionHeader, loaded: LoadedSession | None = None) -> None:
        self.session_id = header.id
        self.project = header.project
        self.model = header.model
        self.title = ""
        self.notices: tuple[str, ...] = ()
        self.read_only = False
        self._store = store
        self._header = header
        self._created = loaded is not None
        self._messages: list[Message] = []
        self._usage = Usage()
        self._size = TokenCount()
        self._next = 1
        self._last_at = header.created_at
        self._dropped: frozenset[str] = frozenset()
        self._shrunk_at = 0
        self._unsaved: deque[Record] = deque()
        self._saving = asyncio.Lock()
        self._saves: set[asyncio.Task[None]] = set()
        if loaded is not None:
            self._take(loaded)

    @classmethod
    def start(cls, store: MemoryStore, *, project: str, model: str) -> MemoryManager:
        """A new session. Nothing is written before its first message; `notices` says where nothing can be."""
        manager = cls(store, SessionHeader(str(uuid.uuid4()), project, model, timestamp()))
        if obstacle := store.obstacle():
            manager.notices = (f"This session cannot be saved: {obstacle}.",)
        return manager

    @classmethod
    async def resume(cls, store: MemoryStore, query: str, *, project: str) -> MemoryManager:
        """The session that `query` means: an id, the start of one, `latest` of this project, words of its title.

        Raises:
            SessionNotFound: none answers to it, or several do.
            SessionInUse: another process has it open.
            SessionDamaged: its header cannot be believed.
        """
        loaded = await asyncio.to_thread(_load, store, query, project)
        return cls(store, loaded.header, loaded)

    def messages(self) -> tuple[Message, ...]:
        """The whole transcript."""
        return tuple(self._messages)

    def context(self) -> list[Message]:
        """What is sent to the model: always sendable, and less when `shrink` was called."""
        sent = sendable(self._messages)
        return without_outputs(sent, self._dropped) if self._dropped else sent

    @property
    def outputs(self) -> Path:
        """Where outputs that are too long for the session file belong."""
        return self._store.outputs_folder(self._header)

    @property
    def tokens(self) -> int:
        """Of the context: by the provider's figures, and an estimate for what is newer."""
        whole = self._size.tokens
        if not self._dropped or _answered_since(self._messages, self._shrunk_at):
            return whole
        saved = estimate_messages(sendable(self._messages)) - estimate_messages(self.context())
        return max(0, whole - saved)

    @property
    def usage(self) -> Usage:
        """Of all model calls of the session."""
        return self._usage

    async def add(self, message: Message) -> None:
        """Put a message behind the others; it is on disk when this returns.

        Once begun a save is carried through, also when the caller is cancelled.

        Raises:
            SaveFailed: it is not on disk. It is kept, and saved with the next one.
        """
        self._keep([message])
        self._unsaved.append(MessageRecord(self._next, self._now(), message))
        self._next += 1
        if not self.title and message.role == "user" and (title := title_of(message.text)):
            self.title = title
            self._unsaved.append(TitleRecord(title, self._now()))
        await self._save()

    def set_title(self, title: str) -> None:
        """Call the session so from here on; saved in the background, at the latest with the next message."""
        self.title = title_of(title)
        self._change(TitleRecord(self.title, self._now()))

    def set_model(self, model: str) -> None:
        """Note that another model answers from here on; saved likewise."""
        if model != self.model:
            self.model = model
            self._change(ModelRecord(model, self._now()))

    def shrink(self, target: int = 0) -> bool:
        """Drop the oldest tool outputs from what is sent, down to `target` tokens (0: half); the file keeps them.

        False where there was nothing left to drop.
        """
        before = self.context()
        half = estimate_messages(before) // 2
        dropped = outputs_to_drop(before, min(target or half, estimate_messages(before) - 1))
        self._dropped |= set(dropped)
        self._shrunk_at = len(self._messages)
        return bool(dropped)

    async def close(self) -> None:
        """Save what is left, and let others open the session.

        Raises:
            SaveFailed: something could not be saved, and now is lost.
        """
        try:
            if self._unsaved and self._messages:
                await self._save()
        finally:
            await asyncio.gather(*self._saves, return_exceptions=True)  # each has told its own failure
            await asyncio.to_thread(self._store.close_session, self.session_id)

    def _take(self, loaded: LoadedSession) -> None:
        self.read_only = loaded.read_only
        self.notices = loaded.notices
        found: list[Message] = []
        for record in loaded.records:
            self._last_at = max(self._last_at, record.at)
            match record:
                case MessageRecord(number=number, message=message):
                    self._next = max(self._next, number + 1)
                    found.append(message)
                case TitleRecord(title):
                    self.title = title
                case ModelRecord(model):
                    self.model = model
        self._keep(with_answers(found))

    def _keep(self, messages: Sequence[Message]) -> None:
        self._messages.extend(messages)
        for each in messages:
            self._usage += each.usage or Usage()
            self._size.add(each)

    def _now(self) -> str:
        self._last_at = timestamp(self._last_at)
        return self._last_at

    def _change(self, record: TitleRecord | ModelRecord) -> None:
        self._unsaved.append(record)
        if self._messages:
            # A session that nobody has said anything in is not worth a file.
            self._begin_save()

    async def _save(self) -> None:
        await asyncio.shield(self._begin_save())

    def _begin_save(self) -> asyncio.Task[None]:
        task = asyncio.create_task(self._save_all())
        self._saves.add(task)
        task.add_done_callback(self._saves.discard)
        task.add_done_callback(_note_failure)
        return task

    async def _save_all(self) -> None:
        async with self._saving:
            await asyncio.to_thread(self._write)

    def _write(self) -> None:
        if self.read_only:
            self._unsaved.clear()
        elif not self._created:
            self._store.create_session(self._header)
            self._created = True
        while self._unsaved:
            record = self._unsaved[0]
            if isinstance(record, MessageRecord):
                self._store.save_message(self.session_id, record)
            else:
                self._store.save_memory(self.session_id, record)
            self._unsaved.popleft()


def title_of(text: str) -> str:
    """The first words of a text, on one line."""
    words = " ".join(clean(text).split())
    if len(words) <= _TITLE_WIDTH:
        return words
    cut = words[:_TITLE_WIDTH]
    return (cut.rpartition(" ")[0] or cut).rstrip(",;:") + "…"


def _load(store: MemoryStore, query: str, project: str) -> LoadedSession:
    return store.load_session(find_session(store.list_sessions(), query, project).id)


def _answered_since(messages: Sequence[Message], index: int) -> bool:
    return any(each.role == "assistant" and each.usage is not None for each in messages[index:])


def _note_failure(task: asyncio.Task[None]) -> None:
    """A save whose caller was cancelled has nobody to tell; what is not saved waits for the next one."""
    if not task.cancelled() and task.exception() is not None:
        log.warning("save: %s", task.exception())
