"""MemoryStore: the contract for keeping sessions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from ouro.messages import Message, Usage

FORMAT = 1
"""The version of the session files that this ouro writes."""
CompactionTrigger = Literal["auto", "manual", "window"]
"""The share of the window was reached; the person asked; the provider said that it is full."""
RewindScope = Literal["conversation", "files", "memory"]


class SessionHeader(msgspec.Struct, frozen=True):
    """What a session starts with."""

    id: str
    project: str
    model: str
    created_at: str
    """UTC, as `2026-11-21T20:14:03.120Z`."""
    format: int = FORMAT
    memory: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The commit of long-term memory that it started from, by scope."""
    origin: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Where it was taken over from: `from` (the program), `id` and `file` there, `branch`; empty for one of our own."""


class MessageRecord(msgspec.Struct, frozen=True):
    """One message of the transcript; numbers rise, whatever the clock does."""

    number: int
    at: str
    message: Message


class TitleRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """From here on the session is called so."""

    title: str
    at: str


class ModelRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """From here on this model answers."""

    model: str
    at: str


class CompactionRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename={"number": "compaction"}):
    """From here on a summary is sent in place of the messages it covers.

    A checkpoint: what stands before it is read only for the messages that are kept, and when someone scrolls there.
    """

    number: int
    """Of the same row as the messages' numbers."""
    at: str
    covers: tuple[int, int]
    """The first and the last number that the summary stands for."""
    kept: tuple[int, ...]
    """Of these, the messages that are sent word for word all the same, oldest first."""
    summary: str
    trigger: CompactionTrigger = "auto"
    focus: str = ""
    """What the person asked to keep."""
    dropped: tuple[str, ...] = ()
    """The calls whose outputs are left out of what is sent, where no model could summarise."""
    tokens: tuple[int, int] = (0, 0)
    """Of what is sent, before and after."""
    model: str = ""
    usage: Usage | None = None
    """Of the call that wrote the summary."""
    spent: Usage | None = None
    """Of all model calls of the session up to here, this one among them."""
    title: str = ""
    """What the session was called by then."""
    pins: tuple[int, ...] = ()


class RewindRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename={"to": "rewind"}):
    """The conversation goes on behind message `to` (0: from its start); what came after stays in the file."""

    to: int
    at: str
    scopes: tuple[RewindScope, ...] = ("conversation",)


class ForkRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename={"session": "fork"}):
    """The records before this one are those of another session, up to its message `number`."""

    session: str
    number: int
    at: str


class PinRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename={"message": "pin"}):
    """A message is to survive every compaction word for word; or no longer."""

    message: int
    at: str
    pinned: bool = True


class RecalledItem(msgspec.Struct, frozen=True):
    """A note, and why it was handed to the model, or why not."""

    id: str
    state: Literal["loaded", "cut", "skipped"]
    reason: str
    score: float = 0.0
    tokens: int = 0


class RecalledRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename={"message": "recalled"}):
    """The receipt of recall: what was considered for the message of that number."""

    message: int
    at: str
    items: tuple[RecalledItem, ...]
    way: str = ""
    """How it was looked for: `local`, `hyde`."""


class CostRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename={"purpose": "cost"}):
    """A model call beside the conversation, and what it used."""

    purpose: str
    """`title`, `compaction`, `capture`, `summary` …"""
    at: str
    model: str
    usage: Usage


class CapturedRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename={"message": "captured"}):
    """Capture has read the conversation up to the message of that number."""

    message: int
    at: str


class SummaryRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the session was about, in a few lines: for lists, and for who takes it up again."""

    summary: str
    at: str
    message: int
    """The last message it knows of."""


ChangeRecord = (
    TitleRecord
    | ModelRecord
    | CompactionRecord
    | RewindRecord
    | ForkRecord
    | PinRecord
    | RecalledRecord
    | CostRecord
    | CapturedRecord
    | SummaryRecord
)
Record = MessageRecord | ChangeRecord
CHANGES: Mapping[str, type[ChangeRecord]] = {
    "title": TitleRecord,
    "model": ModelRecord,
    "compaction": CompactionRecord,
    "rewind": RewindRecord,
    "fork": ForkRecord,
    "pin": PinRecord,
    "recalled": RecalledRecord,
    "cost": CostRecord,
    "captured": CapturedRecord,
    "summary": SummaryRecord,
}
"""By the key that a record of that kind begins with."""


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


class LoadedSession(msgspec.Struct, frozen=True):
    """A session as it was found."""

    header: SessionHeader
    records: tuple[Record, ...]
    notices: tuple[str, ...] = ()
    """What the person is to be told: a tail set aside, records that could not be read."""
    read_only: bool = False


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

    def save_message(self, session_id: str, record: MessageRecord) -> None:
        """Put a message behind the others; it is on disk when this returns.

        Raises:
            SaveFailed: it is not; what was saved before still is.
        """
        ...

    def save_memory(self, session_id: str, record: ChangeRecord) -> None:
        """Put what is no message (a compaction, a title, a rewind …) behind the messages, likewise."""
        ...

    def load_session(self, session_id: str, *, read_only: bool = False) -> LoadedSession:
        """The session of this full id; opens it unless `read_only`.

        Raises:
            SessionNotFound: there is none.
            SessionInUse: another process, or another place in this one, has it open.
            SessionDamaged: its first record cannot be believed.
        """
        ...

    def list_sessions(self, project: str | None = None) -> list[SessionInfo]:
        """All sessions, or those of one project folder; last used first."""
        ...

    def get_session_stats(self, session_id: str) -> SessionInfo:
        """What a list says of one session.

        Raises:
            SessionNotFound: there is none.
        """
        ...

    def delete_session(self, session_id: str) -> None:
        """Remove a session for good.

        Raises:
            SessionNotFound: there is none.
            SessionInUse: it is open.
        """
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
