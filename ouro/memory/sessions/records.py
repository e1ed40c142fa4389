"""The records of a session: its header and every kind of record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from ouro.messages import Message, Usage

FORMAT = 1
"""The version of the session files that this ouro writes."""
CompactionTrigger = Literal["auto", "manual", "window"]
"""The share of the window was reached; the user asked; the provider reported a full window."""
RewindScope = Literal["conversation", "files", "memory"]


class SessionHeader(msgspec.Struct, frozen=True):
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
    private: bool = False
    """Said with long-term memory off: nothing is ever learned from it."""


class TitleRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    title: str
    at: str


class ModelRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    model: str
    at: str


class ModeRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    mode: str
    at: str


class CompactionRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename={"number": "compaction"}):
    """From here on a summary is sent in place of the messages it covers.

    A checkpoint: earlier records are read only for kept messages and for scrolling.
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
    """What the user asked to keep."""
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
    chosen: str = ""
    """The model that answered by then."""
    captured: int = 0
    """The message up to which capture had read."""
    messages: int = 0
    """How many it covers, as they were sent; 0 where that was not counted."""


class RewindRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename={"to": "rewind"}):
    """The session continues after message `to` (0: the start); later messages stay in the file."""

    to: int
    at: str
    scopes: tuple[RewindScope, ...] = ("conversation",)


class ForkRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename={"session": "fork"}):
    """The records before this one are those of another session, up to its message `number`."""

    session: str
    number: int
    at: str


class PinRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename={"message": "pin"}):
    """A message stays word for word in every compaction, or no longer."""

    message: int
    at: str
    pinned: bool = True


class RecalledItem(msgspec.Struct, frozen=True):
    """A note, and why it was sent to the model or not."""

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
    """A model call outside of the turns, with its usage."""

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
    """A summary of the session in a few lines, for lists and for resuming."""

    summary: str
    at: str
    message: int
    """The last message it knows of."""


ChangeRecord = (
    TitleRecord
    | ModelRecord
    | ModeRecord
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
    "mode": ModeRecord,
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
