"""DictMemoryStore: sessions that are forgotten when ouro ends."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ouro.errors import SaveFailed, SessionInUse, SessionNotFound
from ouro.memory.backend import (
    ChangeRecord,
    CompactionRecord,
    CostRecord,
    DailyUsage,
    ForkRecord,
    LoadedSession,
    MessageRecord,
    ModelRecord,
    Progress,
    Reach,
    RecalledRecord,
    Record,
    RecordPage,
    SessionHeader,
    SessionInfo,
    TitleRecord,
    timestamp,
)
from ouro.memory.sessions.usage import Spending
from ouro.memory.sessions.walk_back import WalkStep, walk_back, walk_page
from ouro.memory.transcript import Transcript

_MOST = 1 << 62


class DictMemoryStore:
    """Keeps sessions in memory, for `--ephemeral` and for tests. A place is how many records stand before it."""

    def __init__(self) -> None:
        self._headers: dict[str, SessionHeader] = {}
        self._records: dict[str, list[Record]] = {}
        self._deleted: set[str] = set()
        self._open: set[str] = set()
        self._beside = Spending()

    def obstacle(self) -> str:
        """Nothing stands in the way."""
        return ""

    def create_session(self, header: SessionHeader) -> None:
        """Start a session, and open it."""
        self.import_session(header, ())
        self._open.add(header.id)

    def import_session(self, header: SessionHeader, records: Iterable[Record]) -> None:
        """Make a session of these records."""
        if header.id in self._headers:
            raise SaveFailed(f"Session {header.id} exists already.")
        self._headers[header.id] = header
        self._records[header.id] = list(records)

    def fork_session(self, source_id: str, number: int | None, header: SessionHeader, title: str = "") -> None:
        """Make a session that begins as a copy of another one."""
        source = self._records[self._header(source_id).id]
        end = len(source) if number is None else self._end_of(source, number, source_id)
        copied = source[:end]
        last = max((each.number for each in copied if isinstance(each, MessageRecord)), default=0)
        now = timestamp()
        named = [TitleRecord(title, now)] if title else []
        self.import_session(header, (*copied, ForkRecord(source_id, last, now), *named))

    def save_message(self, session_id: str, record: MessageRecord) -> None:
        """Put a message behind the others."""
        self._save(session_id, record)

    def save_memory(self, session_id: str, record: ChangeRecord) -> None:
        """Put what is no message behind the messages."""
        self._save(session_id, record)

    def load_session(self, session_id: str, *, read_only: bool = False, reach: Reach = "whole") -> LoadedSession:
        """The session of this full id; opens it unless `read_only`."""
        header = self._header(session_id)
        if not read_only:
            self._refuse_if_open(session_id)
            self._open.add(session_id)
        records = self._records[session_id]
        way = walk_back(_steps(records), _MOST)
        if reach == "whole" or way.is_lost:
            return LoadedSession(header, tuple(records), read_only=read_only)
        taken = {step.number for step in way.steps}
        wanted = set(way.compaction.kept) - taken if way.compaction else set()
        kept = [each for each in records if isinstance(each, MessageRecord) and each.number in wanted]
        found = tuple(step.source for step in way.steps)
        return LoadedSession(header, found, (), read_only, tuple(kept), way.place)

    def load_before(self, session_id: str, place: int, count: int) -> RecordPage:
        """The messages before `place` on the line."""
        records = self._records[self._header(session_id).id]
        found, begin = walk_page(_steps(records[: max(0, place - 1)]), count)
        return RecordPage(tuple(step.source for step in found), begin)

    def place_of(self, session_id: str, number: int) -> int | None:
        """Behind how many records a message stands, itself among them."""
        records = self._records.get(session_id, ())
        said = (
            place for place, each in enumerate(records, 1) if isinstance(each, MessageRecord) and each.number == number
        )
        return next(said, None)

    def list_sessions(self, project: str | None = None, progress: Progress | None = None) -> list[SessionInfo]:
        """All sessions, or those of one project folder; last used first."""
        wanted = [each for each in self._listed(deleted=False) if project is None or each.project == project]
        if progress is not None:
            progress(len(wanted), len(wanted))
        return wanted

    def get_session_stats(self, session_id: str) -> SessionInfo:
        """What a list says of one session."""
        return self._info(self._header(session_id))

    def delete_session(self, session_id: str) -> None:
        """Put a session into the trash."""
        self._header(session_id)
        self._refuse_if_open(session_id)
        self._deleted.add(session_id)

    def list_deleted(self) -> list[SessionInfo]:
        """What is in the trash; last used first."""
        return self._listed(deleted=True)

    def restore_session(self, session_id: str) -> None:
        """Take a session out of the trash."""
        self._refuse_unless_deleted(session_id)
        self._deleted.discard(session_id)

    def purge_session(self, session_id: str) -> None:
        """Remove a session that is in the trash for good."""
        self._refuse_unless_deleted(session_id)
        self._deleted.discard(session_id)
        del self._headers[session_id], self._records[session_id]

    def close_session(self, session_id: str) -> None:
        """Let go of an open session; its outputs go with it."""
        self._open.discard(session_id)
        shutil.rmtree(_outputs_of(session_id), ignore_errors=True)

    def save_cost(self, record: CostRecord) -> None:
        """Count a model call that belongs to no session."""
        self._beside.add(record.at, record.model, record.usage)

    def spent_beside(self) -> tuple[DailyUsage, ...]:
        """What `save_cost` counted."""
        return self._beside.spent()

    def outputs_folder(self, header: SessionHeader) -> Path:
        """A folder among the system's temporary files."""
        return _outputs_of(header.id)

    def _save(self, session_id: str, record: Record) -> None:
        if session_id not in self._open:
            raise SaveFailed(f"Session {session_id[:8]} is not open.")
        self._records[session_id].append(record)

    def _header(self, session_id: str) -> SessionHeader:
        if session_id not in self._headers or session_id in self._deleted:
            raise _not_found(session_id)
        return self._headers[session_id]

    def _end_of(self, records: Sequence[Record], number: int, session_id: str) -> int:
        if number == 0:
            return 0
        numbers = [_number(each) for each in records]
        if number not in numbers:
            raise SessionNotFound(f"Session `{session_id[:8]}` has no message {number}.")
        return numbers.index(number) + 1

    def _refuse_if_open(self, session_id: str) -> None:
        if session_id in self._open:
            raise SessionInUse("This session is open already, here in this ouro.", "Go on there, or close it first.")

    def _refuse_unless_deleted(self, session_id: str) -> None:
        if session_id not in self._deleted:
            raise _not_found(session_id, " in the trash")

    def _listed(self, *, deleted: bool) -> list[SessionInfo]:
        wanted = [each for each in self._headers.values() if (each.id in self._deleted) == deleted]
        found = (self._info(each) for each in wanted)
        return sorted((each for each in found if each.messages), key=lambda each: each.updated_at, reverse=True)

    def _info(self, header: SessionHeader) -> SessionInfo:
        transcript, spending = Transcript(), Spending()
        records = self._records[header.id]
        for record in records:
            transcript.take(record)
            spending.take(record, header.model)
        said = [each for each in records if isinstance(each, MessageRecord)]
        return SessionInfo(
            id=header.id,
            title=transcript.title,
            project=header.project,
            model=transcript.model or header.model,
            created_at=header.created_at,
            updated_at=said[-1].at if said else header.created_at,
            messages=len(said),
            size=0,
            cost=spending.cost,
            folder="",
            summary=transcript.summary.summary if transcript.summary else "",
            spent=spending.spent(),
            fork_of=transcript.fork.session if transcript.fork else "",
        )


def _steps(records: Sequence[Record]) -> Iterator[WalkStep[Record]]:
    for place, record in enumerate(reversed(records)):
        is_message = isinstance(record, MessageRecord)
        change = None if isinstance(record, MessageRecord) else record
        is_told = isinstance(record, ModelRecord | RecalledRecord)
        yield WalkStep(len(records) - place, 1, record, is_message, _number(record), change, is_told)


def _number(record: Record) -> int:
    return record.number if isinstance(record, MessageRecord | CompactionRecord) else 0


def _not_found(session_id: str, where: str = "") -> SessionNotFound:
    return SessionNotFound(f"No session `{session_id[:60]}`{where}.", "`ouro sessions list --all` shows them all.")


def _outputs_of(session_id: str) -> Path:
    # Others can make folders there, too: under a name that nobody can guess none of them waits for us.
    return Path(tempfile.gettempdir()) / f"ouro-{session_id}"
