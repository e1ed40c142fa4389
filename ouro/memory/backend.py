"""MemoryStore: the contract for keeping sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol

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
"""How much of a session is read: what a screen shows at once, what is sent to a model, or all of it."""
Progress = Callable[[int, int], None]
"""Told how many of how many sessions were looked at."""


class DailyUsage(msgspec.Struct, frozen=True, array_like=True):
    """What a session used of one model on one day."""

    day: str
    """Of the calendar on the person's wall, as `2026-11-21`."""
    model: str
    usage: Usage
    calls: int = 0


class SessionInfo(msgspec.Struct, frozen=True):
    """A session in a list."""

    id: str
    title: str
    project: str
    model: str
    created_at: str
    updated_at: str
    messages: int
    size: int
    """Bytes of the session file."""
    cost: float | None
    """US dollars; None where no price was known."""
    folder: str
    summary: str = ""
    """What it was about, on one line; empty where nobody has said so yet."""
    spent: tuple[DailyUsage, ...] = ()
    """By day and model; what a fork has from its source is not among it."""
    fork_of: str = ""
    """The id of the session that it is a copy of."""
    mode: str = ""
    """The permission mode that was saved last; empty if none was."""

    @property
    def is_copied_by_hand(self) -> bool:
        """Its file says the id of another session: it goes by the name of its folder."""
        return self.id == self.folder


class LoadedSession(msgspec.Struct, frozen=True):
    """A session as it was found."""

    header: SessionHeader
    records: tuple[Record, ...]
    """In the order of the file, as far back as was asked for."""
    notices: tuple[str, ...] = ()
    """What the person is to be told: a tail set aside, records that could not be read."""
    read_only: bool = False
    kept: tuple[MessageRecord, ...] = ()
    """Messages from before `records` that the compaction in force keeps."""
    place: int = 0
    """Where `records` begin, for `load_before`; 0: nothing stands before them."""
    is_complete: bool = True
    """All that is sent to a model is among it."""
    is_gapped: bool = False
    """Of long branches not all messages are among it: after a way back it has to be loaded again."""


class RecordPage(msgspec.Struct, frozen=True):
    """Older records of the line that a session goes on with."""

    records: tuple[Record, ...]
    place: int
    """Where they begin; 0: nothing stands before them."""


class MemoryStore(Protocol):
    """Keeps sessions. Every method may block on a disk: call it from a thread.

    A session is open, and this store its only writer, from `create_session` or `load_session` to `close_session`.
    """

    def obstacle(self) -> str:
        """Why nothing can be saved here; empty where it can."""
        ...

    def create_session(self, header: SessionHeader) -> None:
        """Start a session, and open it.

        Raises:
            SaveFailed: nothing was created, or not for good.
        """
        ...

    def import_session(self, header: SessionHeader, records: Iterable[Record]) -> None:
        """Make a session of these records: all of it, or nothing; it is not open afterwards.

        Raises:
            SaveFailed: nothing was created.
        """
        ...

    def fork_session(self, source_id: str, number: int | None, header: SessionHeader, title: str = "") -> None:
        """Make a session that begins as a copy of another one up to its message `number`; not open afterwards.

        Args:
            source_id: of the session that is copied; it may be open, also elsewhere.
            number: of the last message that is copied; 0: none of them, None: all there is.
            header: of the copy.
            title: what it is called; empty: as the other one.

        Raises:
            SessionNotFound: there is no such session, or no such message in it.
            SaveFailed: nothing was created.
        """
        ...

    def save_message(self, session_id: str, record: MessageRecord) -> None:
        """Put a message behind the others; it is on disk when this returns.

        Raises:
            SaveFailed: it is not; what was saved before still is.
        """
        ...

    def save_memory(self, session_id: str, record: ChangeRecord) -> None:
        """Put what is no message (a compaction, a title, a rewind …) behind the messages, likewise."""
        ...

    def load_session(self, session_id: str, *, read_only: bool = False, reach: Reach = "whole") -> LoadedSession:
        """The session of this full id; opens it unless `read_only`.

        Raises:
            SessionNotFound: there is none.
            SessionInUse: another process, or another place in this one, has it open.
            SessionDamaged: its first record cannot be believed.
        """
        ...

    def load_before(self, session_id: str, place: int, count: int) -> RecordPage:
        """The `count` messages before `place` on the line that goes on there, and what stands between them.

        Raises:
            SessionNotFound: there is no such session.
            SessionDamaged: it cannot be read.
        """
        ...

    def place_of(self, session_id: str, number: int) -> int | None:
        """Where the message of that number stands, as `load_before` takes it; None where that is not known at once."""
        ...

    def list_sessions(self, project: str | None = None, progress: Progress | None = None) -> list[SessionInfo]:
        """All sessions, or those of one project folder; last used first. `progress` is told while it takes long."""
        ...

    def get_session_stats(self, session_id: str) -> SessionInfo:
        """What a list says of one session.

        Raises:
            SessionNotFound: there is none.
        """
        ...

    def delete_session(self, session_id: str) -> None:
        """Put a session into the trash: `list_deleted` still has it, and `restore_session` brings it back.

        Raises:
            SessionNotFound: there is none.
            SessionInUse: it is open.
        """
        ...

    def list_deleted(self) -> list[SessionInfo]:
        """What is in the trash; last used first."""
        ...

    def restore_session(self, session_id: str) -> None:
        """Take a session out of the trash.

        Raises:
            SessionNotFound: it is not there.
            SaveFailed: it could not be moved.
        """
        ...

    def purge_session(self, session_id: str) -> None:
        """Remove a session that is in the trash for good.

        Raises:
            SessionNotFound: it is not there.
            SaveFailed: it could not be removed.
        """
        ...

    def save_cost(self, record: CostRecord) -> None:
        """Count a model call that belongs to no session that is kept.

        Raises:
            SaveFailed: it is not on disk.
        """
        ...

    def spent_beside(self) -> tuple[DailyUsage, ...]:
        """What `save_cost` counted, by day and model."""
        ...

    def outputs_folder(self, header: SessionHeader) -> Path:
        """Where outputs of this session that are too long for its file belong; it need not exist yet."""
        ...

    def close_session(self, session_id: str) -> None:
        """Let go of an open session, so that others may open it."""
        ...


def timestamp(not_before: str = "") -> str:
    """Now, in UTC, to the millisecond; never earlier than `not_before`, even when the clock went back."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return max(now, not_before)
