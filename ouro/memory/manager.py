"""MemoryManager: the messages of one session, in memory, on disk and as sent to the model."""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import (
    Awaitable,
    Callable,
    Iterator,
    Mapping,
)
from pathlib import Path
from typing import TYPE_CHECKING

from ouro.errors import SaveFailed, SessionLost
from ouro.memory.backend import (
    ChangeRecord,
    CompactionRecord,
    CostRecord,
    LoadedSession,
    MemoryStore,
    MessageRecord,
    ModelRecord,
    ModeRecord,
    PinRecord,
    Record,
    RewindRecord,
    SessionHeader,
    TitleRecord,
    WholeSession,
    timestamp,
)
from ouro.memory.paging import TranscriptPager
from ouro.memory.short_term import SendableMessages
from ouro.memory.transcript import Transcript, make_title
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Message, Usage
from ouro.utils.log import log

if TYPE_CHECKING:
    from ouro.memory.long_term.manager import LongTermMemoryManager


class MemoryManager:
    """The messages of one session, in memory, on disk and as sent to the model. `start` and
    `resume` are the usual constructors.

    Args:
        store: the store of the session; default `~/.ouro/sessions`.
        header: the header of the session; default: a new one.
        loaded: the session as read from the store; None: a new session.
        long_term: long-term memory; None if it is off.
        on_notice: called with each notice after the start.
        is_private: whether long-term memory is off: no memory may be made from the messages that are
            added.
    """

    def __init__(
        self,
        store: MemoryStore | None = None,
        header: SessionHeader | None = None,
        loaded: LoadedSession | None = None,
        long_term: LongTermMemoryManager | None = None,
        on_notice: Callable[[str], None] = lambda _notice: None,
        *,
        is_private: bool = False,
    ) -> None:
        store = store or YamlFileMemoryStore()
        header = header or _new_header(str(Path.cwd()), model="")
        self.session_id = header.id
        self.project = header.project
        self.long_term = long_term
        self.notices: tuple[str, ...] = loaded.notices if loaded else ()
        self.read_only = loaded.read_only if loaded else False
        self.transcript = Transcript()
        self.transcript.last_at = header.created_at
        self.constant = 0
        """Estimated tokens of the system prompt and the tools, which are part of every request."""
        self.pager = TranscriptPager(
            store, header.id, transcript=lambda: self.transcript, notify=self._notify
        )
        self._store = store
        self._header = header
        self._on_notice = on_notice
        self._is_private = is_private
        self._sendable = SendableMessages()
        self._is_created = loaded is not None
        """The session is in the store; else it is created there with its first message."""
        self._unsaved: deque[Record] = deque()
        """What is not on disk yet, oldest first; what could not be saved stays for the next save.
        """
        self._added_read_only: list[Record] = []
        """All that was added to a read-only session: it is never on disk."""
        self._save_lock = asyncio.Lock()
        self._saves: set[asyncio.Task[None]] = set()
        if loaded is not None:
            self.pager.set_offset(loaded)
            self.transcript = Transcript.of(loaded)
            self.pager.show_loaded()
            self.notices += tuple(self.transcript.notices)
        elif obstacle := store.obstacle():
            self.notices = (f"This session cannot be saved: {obstacle}.",)

    @classmethod
    def start(
        cls,
        store: MemoryStore,
        *,
        project: str,
        model: str,
        commits: Mapping[str, str] | None = None,
        on_notice: Callable[[str], None] = lambda _notice: None,
        session_id: str = "",
        is_private: bool = False,
    ) -> MemoryManager:
        """Returns the manager of a new session. Nothing is written before the first message.

        Args:
            commits: the present versions of long-term memory, by scope.
            session_id: empty: a new id.
            is_private: as for the constructor.
        """
        header = _new_header(project, model, commits, session_id)
        return cls(store, header, on_notice=on_notice, is_private=is_private)

    @classmethod
    async def resume(
        cls,
        store: MemoryStore,
        session_id: str,
        *,
        project: str,
        read_only: bool = False,
        fork: bool = False,
        keeps_memory: bool = False,
        on_notice: Callable[[str], None] = lambda _notice: None,
        is_private: bool = False,
    ) -> MemoryManager:
        """Resume the session of this full id; returns its manager. Raises SessionError. If the
        folder of the session is a copy that was made by hand, the session is forked, unless it is
        opened read-only.

        When this returns, at least what a screen shows is in memory. If more than that is sent, it
        is read in the background.

        Args:
            project: the folder that a fork belongs to.
            read_only: whether nothing is saved; the session may be open elsewhere then.
            fork: whether a copy is opened; the session itself may be open elsewhere then.
            keeps_memory: whether a fork begins with the versions of long-term memory that the
                session began with.
            on_notice: called with each later notice.
            is_private: as for the constructor.
        """
        info = await store.get_session_stats(session_id)
        if fork or (info.is_copied_by_hand and not read_only):
            commits = (await store.read_whole(info.id)).header.memory if keeps_memory else None
            header = _new_header(project, info.model, commits)
            await store.fork_session(info.id, number=None, header=header)
            session_id = header.id

        loaded = await store.load_session(session_id, read_only=read_only, reach="screen")
        manager = cls(store, loaded.header, loaded, on_notice=on_notice, is_private=is_private)
        if not manager.transcript.is_whole or loaded.is_gapped:
            # The list entry has the totals, also of records that are not read.
            transcript = manager.transcript
            transcript.usage = sum((day.usage for day in info.spent), Usage())
            transcript.title = transcript.title or info.title
            transcript.model = transcript.model or info.model
            transcript.mode = transcript.mode or info.mode
        if not loaded.is_complete:
            manager.pager.load_context(manager._rebuild_transcript)
        return manager

    @property
    def title(self) -> str:
        return self.transcript.title

    @property
    def model(self) -> str:
        return self.transcript.model or self._header.model

    @property
    def next_number(self) -> int:
        return self.transcript.next_number

    @property
    def began_with(self) -> Mapping[str, str]:
        """The commits of long-term memory at the start of the session, by scope."""
        return self._header.memory

    @property
    def outputs(self) -> Path:
        """The folder for the outputs of the session."""
        return self._store.outputs_folder(self._header)

    @property
    def tokens(self) -> int:
        """The tokens of the next request, as `Transcript.count_tokens` computes them."""
        return self.transcript.count_tokens(self.constant)

    @property
    def usage(self) -> Usage:
        return self.transcript.usage

    def now(self) -> str:
        """Returns the time for the next record, in UTC: never before that of the last record."""
        return timestamp(self.transcript.last_at)

    def messages(self) -> tuple[Message, ...]:
        """Returns the messages in memory, oldest first, without those before them that a compaction
        keeps.
        """
        # A list: a generator takes twice the time.
        return tuple([entry.message for entry in self.transcript.entries])

    def context(self) -> list[Message]:
        """Returns the messages to send to the model, in a form that every provider accepts. A
        summary replaces compacted messages.
        """
        return self._sendable.convert(self.transcript.sent())

    def set_private(self, *, is_private: bool) -> None:
        """Choose whether memory may be made from the messages that are added from now on."""
        self._is_private = is_private

    async def add(self, message: Message, *, steered: bool = False) -> None:
        """Append a message. It is on disk when this returns. If the caller is cancelled, it is
        saved nevertheless.

        Args:
            steered: whether the user sent it during a turn.

        Raises:
            SaveFailed: it is not on disk. It stays in memory, and is saved with the next message.
        """
        await self.pager.finish_loading()
        self._add_record(
            MessageRecord(
                self.next_number,
                at=self.now(),
                message=message,
                private=self._is_private,
                steered=steered,
            )
        )
        if not self.title and message.role == "user" and (title := make_title(message.text)):
            self._add_record(TitleRecord(title, self.now()))
        await self._save()

    async def record(self, change: ChangeRecord) -> None:
        """Append a record that is not a message (a compaction, a rewind, a title …). It is on disk
        when this returns. After a compaction with a summary, messages that are no longer sent are
        removed from memory; they can be read again.

        Raises:
            SaveFailed: it is not on disk. It stays in memory, and is saved with the next record.
                A rewind is not made and not saved later.
        """
        await self.pager.finish_loading()
        if isinstance(change, RewindRecord):
            await self._rewind(change)
            return
        self._add_record(change)
        await self._save()
        if isinstance(change, CompactionRecord) and change.summary:
            self.pager.unload_old_messages()

    async def _rewind(self, change: RewindRecord) -> None:
        """Save a rewind, and only then change the transcript. If the message that it names, or what
        is then sent, is not in memory, the session is read again.
        """

        async def save_and_take() -> None:
            """Save the rewind with the records before it, and take it if it is saved."""
            self._queue_record(change)
            try:
                await self._write_queue()
            except SaveFailed:
                if change in self._unsaved:  # otherwise only a later record could not be saved
                    self._unsaved.remove(change)
                    raise
            self.transcript.add_record(change)

        is_known = self.transcript.is_loaded(change.to)
        await asyncio.shield(self._start_save(save_and_take))
        if not is_known or self.pager.is_gapped or not self.transcript.is_complete:
            # The file of a read-only session does not have the rewind: so all of it is read.
            self.pager.load_context(
                self._rebuild_transcript, "whole" if self.read_only else "context"
            )
            await self.pager.finish_loading()

    def record_later(self, change: ChangeRecord) -> None:
        """Append a record that is not a message, without waiting. It is saved in the background, at
        the latest with the next message.
        """
        self._add_record(change)
        if self.pager.is_loading:
            return  # it stays in the queue, and is saved with the next message
        if self._has_messages():
            self._start_save(self._write_queue)
        else:
            # Without a message the session has no file: costs are counted outside of the sessions.
            self._start_save(self._save_costs)

    def note_cost(self, purpose: str, model: str, usage: Usage | None) -> None:
        """Record the cost of a model call outside of the turns; nothing if its usage is not
        known.
        """
        if usage is not None:
            self.record_later(CostRecord(purpose, at=self.now(), model=model, usage=usage))

    def set_title(self, title: str) -> None:
        self.record_later(TitleRecord(make_title(title), self.now()))

    def set_model(self, model: str) -> None:
        if model != self.model:
            self.record_later(ModelRecord(model, self.now()))

    @property
    def mode(self) -> str:
        return self.transcript.mode

    def set_mode(self, mode: str) -> None:
        if mode != self.mode:
            self.record_later(ModeRecord(mode, self.now()))

    async def fork(self, number: int | None = None, title: str = "") -> str:
        """Copy the session up to the message `number` (None: the last one of the current branch).
        Without a `title` the copy has that of this session. Returns the id of the copy, which is
        not opened.

        Raises SessionNotFound if nothing of the session is on disk yet, or it has no such message.
        """
        await self._save()
        header = _new_header(self.project, self.model)
        end = self.transcript.last_number if number is None else number
        await self._store.fork_session(self.session_id, end, header, title)
        return header.id

    async def whole(self) -> WholeSession:
        """Returns the session with all of its records, read from the store. Raises SessionNotFound
        if it has no message yet.
        """
        return await self._store.read_whole(self.session_id)

    async def close(self) -> None:
        """Save what is left, and release the session. Raises SaveFailed if something is lost."""
        await self.pager.finish_loading()
        try:
            if self._unsaved and self._has_messages():
                await self._save()
        finally:
            # Each save logs its own failure.
            await asyncio.gather(*self._saves, return_exceptions=True)
            await self._store.close_session(self.session_id)

    def _notify(self, text: str) -> None:
        """Show a notice, unless it was shown before."""
        if text not in self.notices:
            self.notices += (text,)
            self._on_notice(text)

    async def _write_again(self, lost: SessionLost) -> None:
        """Write the session again from memory, after its file was lost: the saved messages of the
        current branch, and what is set in the session. Shows a notice about it.
        """
        unsaved_ids = {id(record) for record in self._unsaved}
        unsaved_numbers = {
            record.number for record in self._unsaved if isinstance(record, MessageRecord)
        }
        transcript, time = self.transcript, self.now()
        records: list[Record] = []
        for item in (*transcript.kept_entries, *transcript.shown_items()):
            if isinstance(item, RewindRecord) or id(item) in unsaved_ids:
                continue
            # An inserted tool result has no time: it was never in the file.
            if isinstance(item, MessageRecord) and (not item.at or item.number in unsaved_numbers):
                continue
            records.append(item)
        records += _state_records(transcript, time)
        self._notify(f"{lost.message} {await self._store.write_again(self._header, records)}")

    def _add_record(self, record: Record) -> None:
        """Add a record to the transcript, and to the queue of what is saved next."""
        self.transcript.add_record(record)
        self._queue_record(record)

    def _queue_record(self, record: Record) -> None:
        """Add a record to the queue of what is saved next. Records that are added to a read-only
        session are never saved: they are stored for a transcript that is built again.
        """
        self._unsaved.append(record)
        if self.read_only:
            self._added_read_only.append(record)

    async def _save(self) -> None:
        """Save the queue, even if the caller is cancelled. Raises SaveFailed; unsaved records stay
        in the queue.
        """
        await asyncio.shield(self._start_save(self._write_queue))

    def _has_messages(self) -> bool:
        """Whether the session has a message. Then it is in the store, or a message in the queue
        creates it there.
        """
        return self._is_created or any(
            isinstance(record, MessageRecord) for record in self._unsaved
        )

    def _start_save(self, write: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Start `write` in a task, which waits for the saves before it; returns the task. A failure
        is logged too, because the caller may be cancelled and not see it.
        """

        async def write_alone() -> None:
            async with self._save_lock:
                await write()

        def log_failure(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and task.exception() is not None:
                log.warning("save: %s", task.exception())

        task = asyncio.create_task(write_alone())
        self._saves.add(task)
        task.add_done_callback(self._saves.discard)
        task.add_done_callback(log_failure)
        return task

    async def _write_queue(self) -> None:
        """Write the queue to the store, oldest record first. The first write creates the session.
        If another program has changed its file, the session is written again from memory. Of a
        read-only session only the costs are saved, outside of it.

        Raises:
            SaveFailed: a record could not be written. It stays in the queue, like those after it.
        """
        if self.read_only:
            await self._save_costs()
            self._unsaved.clear()
        elif not self._is_created:
            await self._store.create_session(self._header)
            self._is_created = True
        while self._unsaved:
            try:
                await self._save_record(self._unsaved[0])
            except SessionLost as lost:
                await self._write_again(lost)
                await self._save_record(self._unsaved[0])
            self._unsaved.popleft()

    async def _save_record(self, record: Record) -> None:
        if isinstance(record, MessageRecord):
            await self._store.save_message(self.session_id, record)
        else:
            await self._store.save_memory(self.session_id, record)

    async def _save_costs(self) -> None:
        """Save the costs of the records that wait to be saved, but not the records: the costs are
        saved outside of the sessions. Records with a cost are removed from the queue.
        """
        for record in tuple(self._unsaved):
            match record:
                case CostRecord():
                    cost = record
                case MessageRecord(_, at, Message(usage=Usage() as usage, model=model)):
                    cost = CostRecord("turn", at, model, usage)
                case CompactionRecord(at=at, model=model, usage=Usage() as usage):
                    cost = CostRecord("compaction", at, model, usage)
                case _:
                    continue
            await self._store.save_cost(cost)
            self._unsaved.remove(record)

    def _rebuild_transcript(self, loaded: LoadedSession) -> None:
        """Replace the transcript by what was read of the session again, and add what is not on
        disk. Usage, title and model are known only from the whole session: if not all was read,
        those of the transcript before stay.
        """
        before = self.transcript
        self.transcript = Transcript.of(loaded)
        for notice in (*loaded.notices, *self.transcript.notices):
            self._notify(notice)
        for record in self._added_read_only or self._unsaved:
            self.transcript.add_record(record)
        if not self.transcript.is_whole or loaded.is_gapped:
            self.transcript.usage = before.usage
            self.transcript.title, self.transcript.model = before.title, before.model


def _state_records(transcript: Transcript, at: str) -> Iterator[Record]:
    """Yield records that give another session the pins, title, model, mode and labels that this
    transcript has now. `at` is the time of the records.
    """
    for number in sorted(transcript.pins):
        yield PinRecord(number, at)
    if transcript.title:
        yield TitleRecord(transcript.title, at)
    if transcript.model:
        yield ModelRecord(transcript.model, at)
    if transcript.mode:
        yield ModeRecord(transcript.mode, at)
    if transcript.labels:
        yield transcript.labels


def _new_header(
    project: str, model: str, commits: Mapping[str, str] | None = None, session_id: str = ""
) -> SessionHeader:
    return SessionHeader(
        session_id or str(uuid.uuid4()),
        project,
        model,
        created_at=timestamp(),
        memory=commits or {},
    )
