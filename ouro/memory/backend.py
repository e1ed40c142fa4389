"""MemoryStore: the contract of a session store, and the records and values it takes and returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

import msgspec

from ouro.messages import Message, Usage

FORMAT = 1
"""The version of the session files that this ouro writes."""
CompactionTrigger = Literal["auto", "manual", "window"]
"""`auto`: the share of the window was reached. `manual`: the user asked. `window`: the provider
reported a full one.
"""
RewindScope = Literal["conversation", "files", "memory"]


class Undoable(msgspec.Struct, frozen=True):
    """What turns did outside of the transcript, and how a rewind undoes it; or the same for the
    undo of a rewind.
    """

    what: str
    """A description in a few words: `2 changes`."""
    undo: Callable[[], Awaitable[Sequence[str]]]
    """Returns messages for the user, one a line."""
    prepare: Callable[[], Awaitable[None]] | None = None
    """Writes down that it is undone next, so that a process that is killed leaves no half. None:
    nothing has to be prepared.
    """
    cancel: Callable[[], None] | None = None
    """Reverts `prepare`; None: nothing has to be reverted."""


class SessionHeader(msgspec.Struct, frozen=True):
    """The first record of a session."""

    id: str
    project: str
    model: str
    created_at: str
    """UTC, as `2026-11-21T20:14:03.120Z`."""
    format: int = FORMAT
    memory: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Scope -> the commit of long-term memory at the start of the session."""
    origin: Mapping[str, str] = msgspec.field(default_factory=dict)
    """For an imported session: `from` (the program), its `id` and `file` there, `branch`; otherwise
    empty.
    """


class MessageRecord(msgspec.Struct, frozen=True):
    """One message of the transcript. Each message has a higher number than those before it."""

    number: int
    at: str
    message: Message
    private: bool = False
    """Long-term memory was off when it was written: no memory is ever made from it."""
    steered: bool = False
    """It arrived during a turn, which continued with it."""


class TitleRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The session gets a title."""

    title: str
    at: str


class ModelRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The session continues with another model."""

    model: str
    at: str


class ModeRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The session continues in another permission mode."""

    mode: str
    at: str


class CompactionRecord(
    msgspec.Struct, frozen=True, omit_defaults=True, rename={"number": "compaction"}
):
    """After this record a summary is sent instead of the messages it covers.

    It is a checkpoint: earlier records are read only for kept messages and for scrolling.
    """

    number: int
    """Messages and compactions are numbered in one sequence."""
    at: str
    covers: tuple[int, int]
    """The first and the last number that the summary replaces."""
    kept: tuple[int, ...]
    """The covered messages that are still sent word for word, oldest first."""
    summary: str
    trigger: CompactionTrigger = "auto"
    focus: str = ""
    """What the user asked to keep; empty: nothing in particular."""
    dropped: tuple[str, ...] = ()
    """If no model could summarize: the calls whose outputs are not sent."""
    tokens: tuple[int, int] = (0, 0)
    """The tokens that are sent, before and after the compaction."""
    model: str = ""
    usage: Usage | None = None
    """The usage of the call that wrote the summary; None: not known, or no model wrote one."""
    spent: Usage | None = None
    """The usage of all model calls of the session so far, including this one; None: not known."""
    title: str = ""
    """The title of the session at that time."""
    pins: tuple[int, ...] = ()
    chosen: str = ""
    """The model that answered at that time."""
    captured: int = 0
    """The number of the last message that capture had read; 0: none."""
    messages: int = 0
    """The number of covered messages, as they were sent; 0: not counted."""


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
    """A message is pinned (it stays word for word in every compaction), or no longer pinned."""

    message: int
    at: str
    pinned: bool = True


class DropRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename={"number": "drop"}):
    """The user took items out of what is sent, or restored them. The session keeps them.

    An item is the number of a message, `12:mem_3f6c1e` (a note sent with message 12), or `call:ID`
    (a tool output).
    """

    number: int
    """Numbered in one sequence with messages: a rewind to before this number undoes it."""
    at: str
    items: tuple[str, ...]
    restored: bool = False
    tokens: tuple[int, int] = (0, 0)
    """The tokens that are sent, before and after the drop."""


class RecalledItem(msgspec.Struct, frozen=True):
    """A note or a command (`$ make test`), and why it was sent to the model or not."""

    id: str
    state: Literal["loaded", "cut", "skipped"]
    reason: str
    score: float = 0.0
    tokens: int = 0


class RecalledRecord(
    msgspec.Struct, frozen=True, omit_defaults=True, rename={"message": "recalled"}
):
    """The receipt of recall: what was considered for the message of that number."""

    message: int
    at: str
    items: tuple[RecalledItem, ...]
    way: str = ""
    """How notes were found: `local`, `hyde`, or another way that `turn_recall` names (`touch`)."""


class CostRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename={"purpose": "cost"}):
    """A model call outside of the turns, with its usage."""

    purpose: str
    """`title`, `compaction`, `capture`, `summary` …"""
    at: str
    model: str
    usage: Usage


class CapturedRecord(
    msgspec.Struct, frozen=True, omit_defaults=True, rename={"message": "captured"}
):
    """Capture has read the session up to the message of that number."""

    message: int
    at: str


class SummaryRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A summary of the session in a few lines, for lists and for resuming."""

    summary: str
    at: str
    message: int
    """The last message that it covers."""


class LabelRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What tells the session apart in lists; replaces the labels before."""

    tags: tuple[str, ...]
    at: str
    pinned: bool = False
    """Whether it is first in lists."""
    branch: str = ""
    """The git branch of the last turn; empty outside of a repository."""
    files: int = 0
    """How many files its tools have changed."""
    headless: bool = False
    """Whether only programs have used it so far: `ouro -p`, a batch, the API."""


ChangeRecord = (
    TitleRecord
    | LabelRecord
    | ModelRecord
    | ModeRecord
    | CompactionRecord
    | DropRecord
    | RewindRecord
    | ForkRecord
    | PinRecord
    | RecalledRecord
    | CostRecord
    | CapturedRecord
    | SummaryRecord
)
Record = MessageRecord | ChangeRecord
NumberedRecord = MessageRecord | CompactionRecord | DropRecord
"""The records to which a rewind can go."""
CHANGES: Mapping[str, type[ChangeRecord]] = {
    kind.__struct_encode_fields__[0]: kind for kind in get_args(ChangeRecord)
}
"""The record types by their first key in the file."""
Reach = Literal["screen", "context", "whole"]
"""The part of a session to read: the end for the screen, what is sent to a model, or everything."""
Progress = Callable[[int, int], None]
"""Called with the number of sessions read so far, and the total."""


class DailyUsage(msgspec.Struct, frozen=True, array_like=True):
    """The usage of one model for one purpose in a session on one day."""

    day: str
    """The day in local time: `2026-11-21`."""
    model: str
    usage: Usage
    calls: int = 0
    purpose: str = ""
    """The purpose, as in CostRecord; empty: the turns, or not recorded by an earlier version."""


class SessionInfo(msgspec.Struct, frozen=True):
    """A session as lists show it."""

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
    """The usage by day and model; a fork does not count the usage of its source."""
    fork_of: str = ""
    mode: str = ""
    """The permission mode that was saved last; empty if none was."""
    tags: tuple[str, ...] = ()
    pinned: bool = False
    branch: str = ""
    """The git branch of the last turn; empty outside of a repository."""
    files: int = 0
    """How many files its tools have changed."""
    headless: bool = False
    """Whether only programs have used it so far: `ouro -p`, a batch, the API."""

    @property
    def is_listed(self) -> bool:
        """Whether lists to pick from show it at once. Scripts may leave hundreds of sessions, among
        which the user would not find their own.
        """
        return self.pinned or not self.headless

    @property
    def cost(self) -> float | None:
        """US dollars; None if no price is known."""
        costs = [day.usage.cost for day in self.spent if day.usage.cost is not None]
        return sum(costs) if costs else None

    @property
    def is_copied_by_hand(self) -> bool:
        """Whether its file has the id of another session. Such a copy is identified by the name of
        its folder.
        """
        return self.id == self.folder

    @property
    def short_id(self) -> str:
        """The id as lists show it, and as a user may type it."""
        return self.id if self.is_copied_by_hand else self.id[:8]


class LoadedSession(msgspec.Struct, frozen=True):
    """A session as it was loaded, at least as far back as was asked for."""

    header: SessionHeader
    records: tuple[Record, ...] = ()
    """The records in the order of the file, as far back as requested."""
    notices: tuple[str, ...] = ()
    """Notices for the user: an incomplete last record, unreadable records."""
    read_only: bool = False
    kept: tuple[MessageRecord, ...] = ()
    """Messages from before `records` that the compaction in force keeps."""
    offset: int = 0
    """Where the first record begins, for `load_before`; 0: nothing precedes it."""
    is_complete: bool = True
    """Whether everything that is sent to a model is included."""
    is_gapped: bool = False
    """Whether messages of long branches are missing: a rewind to one of them needs another load."""


class WholeSession(msgspec.Struct, frozen=True):
    """A session with all of its records."""

    header: SessionHeader
    records: Callable[[], Iterator[Record]]
    """Every record, oldest first, with rewound and compacted ones. Can be called repeatedly; blocks
    on the disk.
    """


class MemoryStore(ABC):
    """Stores sessions. A session is open, and this store its only writer, from `create_session` or
    `load_session` to `close_session`. Methods that write raise SaveFailed if they fail (SessionLost
    if the file is no longer the same file); an unknown id raises SessionNotFound.
    """

    is_on_disk = True

    @abstractmethod
    async def create_session(self, header: SessionHeader) -> None:
        """Create a session and open it."""

    @abstractmethod
    async def save_message(self, session_id: str, record: MessageRecord) -> None:
        """Append a message to an open session. It is on disk when this returns. If this raises,
        what was saved before stays.
        """

    @abstractmethod
    async def save_memory(self, session_id: str, record: ChangeRecord) -> None:
        """Append a record that is not a message (a compaction, a title, a rewind …), as
        `save_message` does.
        """

    @abstractmethod
    async def write_again(self, header: SessionHeader, records: Sequence[Record]) -> str:
        """Write an open session again after a save raised SessionLost.

        Args:
            records: those that were saved and are in memory, oldest first.

        Returns:
            What was done, as a notice for the user, with the path where the other file was saved.
        """

    @abstractmethod
    async def load_session(
        self, session_id: str, *, read_only: bool = False, reach: Reach = "whole"
    ) -> LoadedSession:
        """Load the session of this full id, at least as far back as `reach`, and open it unless
        `read_only`.

        Raises:
            SessionInUse: another process, or another session of this one, has it open.
            SessionDamaged: its first record is not a header.
        """

    @abstractmethod
    async def list_sessions(
        self, project: str | None = None, progress: Progress | None = None
    ) -> list[SessionInfo]:
        """Returns all sessions, or those of one project folder; last used first. `progress` is
        called while that takes long.
        """

    async def newest_sessions(
        self,
        is_wanted: Callable[[str], bool],  # noqa: ARG002
        count: int,  # noqa: ARG002
    ) -> list[SessionInfo]:
        """Returns the first `count` sessions whose project folder is wanted: pinned ones first,
        then the most recently used. It takes the same short time for any number of sessions;
        therefore some may be missing, and the list is empty if it would take long.
        """
        return []

    async def complete_first_page(
        self, is_wanted: Callable[[str], bool], count: int
    ) -> list[SessionInfo]:
        """Returns the same as `newest_sessions`, but none is missing, and it takes as long as
        that needs.
        """
        sessions = [info for info in await self.list_sessions() if is_wanted(info.project)]
        return sorted(sessions, key=lambda info: not info.pinned)[:count]

    @abstractmethod
    async def delete_session(self, session_id: str) -> None:
        """Move a session to the trash. Raises SessionInUse if it is open."""

    @abstractmethod
    async def get_session_stats(self, session_id: str) -> SessionInfo:
        """Returns the list entry of one session."""

    @abstractmethod
    async def close_session(self, session_id: str) -> None:
        """Release an open session, so that others can open it."""

    @abstractmethod
    async def import_session(self, header: SessionHeader, records: Iterable[Record]) -> None:
        """Create a session from these records, or nothing; it is not open afterwards."""

    @abstractmethod
    async def fork_session(
        self, source_id: str, number: int | None, header: SessionHeader, title: str = ""
    ) -> None:
        """Create a copy of a session, which may be open; the copy is not open afterwards.

        Args:
            number: the last message to copy; 0: none, None: all. Raises SessionNotFound if there is
                no such message.
            title: the title of the copy; empty: the same as the source.
        """

    @abstractmethod
    async def read_whole(self, session_id: str) -> WholeSession:
        """Returns a session from its first record to its last, without opening it. Records that
        cannot be read are skipped.
        """

    async def load_before(
        self,
        session_id: str,  # noqa: ARG002
        offset: int,  # noqa: ARG002
        count: int,  # noqa: ARG002
    ) -> tuple[tuple[Record, ...], int]:
        """Returns the last `count` messages of the transcript before an offset, with the records
        that are shown between them, oldest first. The second value is the offset where they begin;
        0 if nothing precedes them. A store that always loads a whole session returns no records and
        0. Raises SessionDamaged.
        """
        return (), 0

    def offset_of(self, session_id: str, number: int) -> int | None:  # noqa: ARG002
        """Returns the offset where a message of an open session begins, for `load_before`; None if
        it is not known.
        """
        return None

    @abstractmethod
    async def list_deleted(self) -> list[SessionInfo]:
        """Returns the sessions in the trash; last used first."""

    @abstractmethod
    async def restore_session(self, session_id: str) -> None:
        """Move a session out of the trash."""

    @abstractmethod
    async def purge_session(self, session_id: str) -> None:
        """Remove a session in the trash permanently."""

    @abstractmethod
    async def save_cost(self, record: CostRecord) -> None:
        """Count a model call that does not belong to a saved session."""

    @abstractmethod
    async def load_costs(self) -> tuple[DailyUsage, ...]:
        """Returns the costs that `save_cost` counted, by day, model and purpose."""

    @abstractmethod
    def outputs_folder(self, header: SessionHeader) -> Path:
        """Returns the folder for outputs of a session that are too long for its file. It may not
        exist yet.
        """

    def obstacle(self) -> str:
        """Returns why nothing can be saved in this store; empty if it can."""
        return ""


def timestamp(not_before: str = "") -> str:
    """Returns the current UTC time as text with milliseconds; `not_before` if that is later,
    because the clock was set back.
    """
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return max(now, not_before)
