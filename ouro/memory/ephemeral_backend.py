"""DictMemoryStore: sessions in memory, never on disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from ouro.errors import SaveFailed, SessionNotFound, SessionOpenHere
from ouro.memory.backend import (
    ChangeRecord,
    CostRecord,
    DailyUsage,
    ForkRecord,
    LoadedSession,
    MemoryStore,
    MessageRecord,
    NumberedRecord,
    Progress,
    Reach,
    Record,
    SessionHeader,
    SessionInfo,
    TitleRecord,
    WholeSession,
    timestamp,
)
from ouro.memory.sessions.session_folders import session_not_found
from ouro.memory.sessions.session_index import SessionTally
from ouro.memory.sessions.usage import Spending


class _StoredSession(msgspec.Struct):
    """A session in memory, with all of its records."""

    header: SessionHeader
    records: list[Record]
    is_open: bool = False
    is_deleted: bool = False


class DictMemoryStore(MemoryStore):
    """Sessions in memory, for `--ephemeral` and for tests. A session is always loaded whole."""

    is_on_disk = False

    def __init__(self) -> None:
        self._sessions: dict[str, _StoredSession] = {}
        self._costs = Spending()

    async def create_session(self, header: SessionHeader) -> None:
        await self.import_session(header, ())
        self._sessions[header.id].is_open = True

    async def import_session(self, header: SessionHeader, records: Iterable[Record]) -> None:
        if header.id in self._sessions:
            raise SaveFailed(f"Session {header.id} exists already.")
        self._sessions[header.id] = _StoredSession(header, list(records))

    async def fork_session(
        self, source_id: str, number: int | None, header: SessionHeader, title: str = ""
    ) -> None:
        """Create a copy of a session, up to the message `number`; 0: none of its records, None: all
        of them. Raises SessionNotFound if there is no such session or message.
        """
        copied = self._find(source_id).records
        if number == 0:
            copied = []
        elif number is not None:
            numbers = [
                record.number if isinstance(record, NumberedRecord) else 0 for record in copied
            ]
            if number not in numbers:
                raise SessionNotFound(f"Session `{source_id[:8]}` has no message {number}.")
            copied = copied[: numbers.index(number) + 1]
        last = max(
            (record.number for record in copied if isinstance(record, MessageRecord)), default=0
        )
        now = timestamp()
        titles = [TitleRecord(title, now)] if title else []
        await self.import_session(header, (*copied, ForkRecord(source_id, last, now), *titles))

    async def save_message(self, session_id: str, record: MessageRecord) -> None:
        self._append(session_id, record)

    async def save_memory(self, session_id: str, record: ChangeRecord) -> None:
        self._append(session_id, record)

    async def write_again(self, header: SessionHeader, records: Sequence[Record]) -> str:
        self._sessions[header.id].records[:] = records
        return ""

    async def load_session(
        self,
        session_id: str,
        *,
        read_only: bool = False,
        reach: Reach = "whole",  # noqa: ARG002
    ) -> LoadedSession:
        session = self._find(session_id)
        if not read_only:
            _require_closed(session)
            session.is_open = True
        return LoadedSession(session.header, tuple(session.records), read_only=read_only)

    async def read_whole(self, session_id: str) -> WholeSession:
        session = self._find(session_id)
        return WholeSession(session.header, lambda: iter(session.records))

    async def list_sessions(
        self,
        project: str | None = None,
        progress: Progress | None = None,  # noqa: ARG002
    ) -> list[SessionInfo]:
        return [
            info
            for info in self._list_infos(deleted=False)
            if project is None or info.project == project
        ]

    async def get_session_stats(self, session_id: str) -> SessionInfo:
        return _info(self._find(session_id))

    async def delete_session(self, session_id: str) -> None:
        session = self._find(session_id)
        _require_closed(session)
        session.is_deleted = True

    async def list_deleted(self) -> list[SessionInfo]:
        return self._list_infos(deleted=True)

    async def restore_session(self, session_id: str) -> None:
        self._find(session_id, deleted=True).is_deleted = False

    async def purge_session(self, session_id: str) -> None:
        self._find(session_id, deleted=True)
        del self._sessions[session_id]

    async def close_session(self, session_id: str) -> None:
        """Release an open session and remove its outputs."""
        if session_id in self._sessions:
            self._sessions[session_id].is_open = False
        shutil.rmtree(_outputs_of(session_id), ignore_errors=True)

    async def save_cost(self, record: CostRecord) -> None:
        self._costs.add(record.at, record.model, record.usage, record.purpose)

    async def load_costs(self) -> tuple[DailyUsage, ...]:
        return self._costs.spent()

    def outputs_folder(self, header: SessionHeader) -> Path:
        return _outputs_of(header.id)

    def _append(self, session_id: str, record: Record) -> None:
        """Add a record to an open session. Raises SaveFailed if it is not open."""
        session = self._sessions.get(session_id)
        if session is None or not session.is_open:
            raise SaveFailed(f"Session {session_id[:8]} is not open.")
        session.records.append(record)

    def _find(self, session_id: str, *, deleted: bool = False) -> _StoredSession:
        """Returns a session, or one in the trash if `deleted`. Raises SessionNotFound."""
        session = self._sessions.get(session_id)
        if session is None or session.is_deleted != deleted:
            raise session_not_found(session_id, " in the trash" if deleted else "")
        return session

    def _list_infos(self, *, deleted: bool) -> list[SessionInfo]:
        """Returns the list entries of the sessions that have messages, last used first; those of
        the trash if `deleted`.
        """
        infos = [
            _info(session) for session in self._sessions.values() if session.is_deleted == deleted
        ]
        with_messages = [info for info in infos if info.messages]
        return sorted(with_messages, key=lambda info: info.updated_at, reverse=True)


def _require_closed(session: _StoredSession) -> None:
    """Raise SessionOpenHere if the session is open."""
    if session.is_open:
        raise SessionOpenHere


def _info(session: _StoredSession) -> SessionInfo:
    """Returns the list entry of a session. It has no folder and no size, because there is no file."""
    tally = SessionTally(folder="")
    tally.add_header(session.header)
    for record in session.records:
        tally.add_record(record)
    return tally.info(size=0)


def _outputs_of(session_id: str) -> Path:
    """Returns the folder for the outputs of a session, below the folder for temporary files."""
    # Other users can create folders there too, but they cannot predict the random id in the name.
    import tempfile  # imported late: it imports random

    return Path(tempfile.gettempdir()) / f"ouro-{session_id}"
