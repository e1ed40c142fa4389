"""MemoryStore: the contract of a session store, and the values it takes and returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from ouro.memory.sessions.records import (
    CHANGES,
    FORMAT,
    CapturedRecord,
    ChangeRecord,
    CompactionRecord,
    CompactionTrigger,
    CostRecord,
    ForkRecord,
    MessageRecord,
    ModelRecord,
    ModeRecord,
    PinRecord,
    RecalledItem,
    RecalledRecord,
    Record,
    RewindRecord,
    RewindScope,
    SessionHeader,
    SummaryRecord,
    TitleRecord,
)
from ouro.messages import Usage

__all__ = [
    "CHANGES",
    "FORMAT",
    "CapturedRecord",
    "ChangeRecord",
    "CompactionRecord",
    "CompactionTrigger",
    "CostRecord",
    "DailyUsage",
    "ForkRecord",
    "LoadedSession",
    "MemoryStore",
    "MessageRecord",
    "ModeRecord",
    "ModelRecord",
    "PinRecord",
    "Progress",
    "Reach",
    "RecalledItem",
    "RecalledRecord",
    "Record",
    "RecordPage",
    "RewindRecord",
    "RewindScope",
    "SessionHeader",
    "SessionInfo",
    "SummaryRecord",
    "TitleRecord",
    "timestamp",
]

Reach = Literal["screen", "context", "whole"]
"""How much of a session to read: the end for the screen, what is sent to a model, or everything."""
Progress = Callable[[int, int], None]
"""Called with the number of sessions read so far, and the total."""


class DailyUsage(msgspec.Struct, frozen=True, array_like=True):
    """The usage of one model in a session on one day."""

    day: str
    """In local time, as `2026-11-21`."""
    model: str
    usage: Usage
    calls: int = 0


class SessionInfo(msgspec.Struct, frozen=True):
    id: str
    title: str
    project: str
    model: str
    created_at: str
    updated_at: str
    messages: int
    size: int
    """Bytes of the session file."""
    folder: str
    summary: str = ""
    """A summary on one line; empty if there is none."""
    spent: tuple[DailyUsage, ...] = ()
    """By day and model; a fork does not count the usage of its source."""
    fork_of: str = ""
    """The id of the session that this is a copy of."""
    mode: str = ""
    """The permission mode that was saved last; empty if none was."""

    @property
    def cost(self) -> float | None:
        """US dollars; None where no price is known."""
        costs = [day.usage.cost for day in self.spent if day.usage.cost is not None]
        return sum(costs) if costs else None

    @property
    def is_copied_by_hand(self) -> bool:
        """Whether its file has the id of another session. Such a copy is identified by the name of its folder."""
        return self.id == self.folder


class LoadedSession(msgspec.Struct, frozen=True):
    header: SessionHeader
    records: tuple[Record, ...]
    """In the order of the file, as far back as requested."""
    notices: tuple[str, ...] = ()
    """For the user: an incomplete last record, records that could not be read."""
    read_only: bool = False
    kept: tuple[MessageRecord, ...] = ()
    """Messages from before `records` that the compaction in force keeps."""
    place: int = 0
    """The position of the first record, for `load_before`; 0: nothing precedes it."""
    is_complete: bool = True
    """Everything that is sent to a model is included."""
    is_gapped: bool = False
    """Messages of long branches are missing: rewinding to one of them needs another load."""


class RecordPage(msgspec.Struct, frozen=True):
    records: tuple[Record, ...]
    place: int
    """The position of the first; 0: nothing precedes it."""


class MemoryStore(ABC):
    """Stores sessions. A store that lacks one of these methods cannot be constructed.

    A session is open, and this store its only writer, from `create_session` or `load_session` to `close_session`.
    """

    @abstractmethod
    async def create_session(self, header: SessionHeader) -> None:
        """Create a session and open it.

        Raises:
            SaveFailed: nothing was created, or it is not on disk.
        """

    @abstractmethod
    async def save_message(self, session_id: str, record: MessageRecord) -> None:
        """Append a message. It is on disk when this returns.

        Raises:
            SaveFailed: it is not on disk; what was saved before still is.
        """

    @abstractmethod
    async def save_memory(self, session_id: str, record: ChangeRecord) -> None:
        """Append a record that is not a message (a compaction, a title, a rewind …), likewise."""

    @abstractmethod
    async def load_session(self, session_id: str, *, read_only: bool = False, reach: Reach = "whole") -> LoadedSession:
        """Load the session of this full id, and open it unless `read_only`.

        Raises:
            SessionNotFound: there is none.
            SessionInUse: another process, or another session of this one, has it open.
            SessionDamaged: its first record is not a header.
        """

    @abstractmethod
    async def list_sessions(self, project: str | None = None, progress: Progress | None = None) -> list[SessionInfo]:
        """All sessions, or those of one project folder; last used first. `progress` is called during a long read."""

    @abstractmethod
    async def delete_session(self, session_id: str) -> None:
        """Move a session to the trash: `list_deleted` lists it, `restore_session` restores it.

        Raises:
            SessionNotFound: there is none.
            SessionInUse: it is open.
        """

    @abstractmethod
    async def get_session_stats(self, session_id: str) -> SessionInfo:
        """The list entry of one session.

        Raises:
            SessionNotFound: there is none.
        """

    @abstractmethod
    async def close_session(self, session_id: str) -> None:
        """Release an open session, so that others can open it."""

    @abstractmethod
    async def import_session(self, header: SessionHeader, records: Iterable[Record]) -> None:
        """Create a session from these records atomically; it is not open afterwards.

        Raises:
            SaveFailed: nothing was created.
        """

    @abstractmethod
    async def fork_session(self, source_id: str, number: int | None, header: SessionHeader, title: str = "") -> None:
        """Create a copy of a session up to its message `number`; the copy is not open afterwards.

        Args:
            source_id: of the session that is copied; it may be open, also elsewhere.
            number: of the last message that is copied; 0: none, None: all.
            header: of the copy.
            title: of the copy; empty: the same as the source.

        Raises:
            SessionNotFound: there is no such session, or no such message in it.
            SaveFailed: nothing was created.
        """

    @abstractmethod
    async def load_before(self, session_id: str, place: int, count: int) -> RecordPage:
        """The `count` messages of the transcript before `place`, and the markers between them.

        Raises:
            SessionNotFound: there is no such session.
            SessionDamaged: it cannot be read.
        """

    @abstractmethod
    def place_of(self, session_id: str, number: int) -> int | None:
        """The position of a message of an open session, for `load_before`; None if unknown."""

    @abstractmethod
    async def list_deleted(self) -> list[SessionInfo]:
        """The sessions in the trash; last used first."""

    @abstractmethod
    async def restore_session(self, session_id: str) -> None:
        """Move a session out of the trash.

        Raises:
            SessionNotFound: it is not there.
            SaveFailed: it could not be moved.
        """

    @abstractmethod
    async def purge_session(self, session_id: str) -> None:
        """Remove a session in the trash permanently.

        Raises:
            SessionNotFound: it is not there.
            SaveFailed: it could not be removed.
        """

    @abstractmethod
    async def save_cost(self, record: CostRecord) -> None:
        """Count a model call that belongs to no saved session.

        Raises:
            SaveFailed: it is not on disk.
        """

    @abstractmethod
    async def load_costs(self) -> tuple[DailyUsage, ...]:
        """The costs of `save_cost`, by day and model."""

    @abstractmethod
    def outputs_folder(self, header: SessionHeader) -> Path:
        """The folder for outputs that are too long for the session file; it need not exist yet."""

    @abstractmethod
    def obstacle(self) -> str:
        """Why nothing can be saved here; empty if it can."""


def timestamp(not_before: str = "") -> str:
    """The current UTC time in milliseconds; never before `not_before`, even if the clock was set back."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return max(now, not_before)
