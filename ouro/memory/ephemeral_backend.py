"""DictMemoryStore: sessions in memory, never on disk."""

from __future__ import annotations

import shutil
import sys
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
    MemoryStore,
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
from ouro.memory.sessions.walk_back import ContextWalk, PageWalk, WalkStep
from ouro.memory.transcript import Transcript


class DictMemoryStore(MemoryStore):
    """Sessions in memory, for `--ephemeral` and for tests. A place is the number of records that precede it."""

    def __init__(self) -> None:
        self._headers: dict[str, SessionHeader] = {}
        self._records: dict[str, list[Record]] = {}
        self._deleted: set[str] = set()
        self._open: set[str] = set()
        self._costs = Spending()

    async def create_session(self, header: SessionHeader) -> None:
        await self.import_session(header, ())
        self._open.add(header.id)

    async def import_session(self, header: SessionHeader, records: Iterable[Record]) -> None:
        if header.id in self._headers:
            raise SaveFailed(f"Session {header.id} exists already.")
        self._headers[header.id] = header
        self._records[header.id] = list(records)

    async def fork_session(self, source_id: str, number: int | None, header: SessionHeader, title: str = "") -> None:
        source = self._records[self._header(source_id).id]
        end = len(source) if number is None else self._end_of(source, number, source_id)
        copied = source[:end]
        last = max((record.number for record in copied if isinstance(record, MessageRecord)), default=0)
        now = timestamp()
        titles = [TitleRecord(title, now)] if title else []
        await self.import_session(header, (*copied, ForkRecord(source_id, last, now), *titles))

    async def save_message(self, session_id: str, record: MessageRecord) -> None:
        self._save(session_id, record)

    async def save_memory(self, session_id: str, record: ChangeRecord) -> None:
        self._save(session_id, record)

    async def load_session(self, session_id: str, *, read_only: bool = False, reach: Reach = "whole") -> LoadedSession:
        header = self._header(session_id)
        if not read_only:
            self._refuse_if_open(session_id)
            self._open.add(session_id)
        records = self._records[session_id]
        found = ContextWalk[Record](sys.maxsize).take_all(_steps(records))
        if reach == "whole" or found.is_lost:
            return LoadedSession(header, tuple(records), read_only=read_only)
        here = {step.number for step in found.steps}
        wanted = set(found.compaction.kept) - here if found.compaction else set()
        kept = [record for record in records if isinstance(record, MessageRecord) and record.number in wanted]
        sources = tuple(step.source for step in found.steps)
        return LoadedSession(header, sources, (), read_only, tuple(kept), found.place)

    async def load_before(self, session_id: str, place: int, count: int) -> RecordPage:
        records = self._records[self._header(session_id).id]
        steps, begin = PageWalk[Record](count).take_all(_steps(records[: max(0, place - 1)]))
        return RecordPage(tuple(step.source for step in steps), begin)

    def place_of(self, session_id: str, number: int) -> int | None:
        messages = enumerate(self._records.get(session_id, ()), 1)
        return next((at for at, item in messages if isinstance(item, MessageRecord) and item.number == number), None)

    async def list_sessions(self, project: str | None = None, progress: Progress | None = None) -> list[SessionInfo]:
        wanted = [info for info in self._listed(deleted=False) if project is None or info.project == project]
        if progress is not None:
            progress(len(wanted), len(wanted))
        return wanted

    async def get_session_stats(self, session_id: str) -> SessionInfo:
        return self._info(self._header(session_id))

    async def delete_session(self, session_id: str) -> None:
        self._header(session_id)
        self._refuse_if_open(session_id)
        self._deleted.add(session_id)

    async def list_deleted(self) -> list[SessionInfo]:
        return self._listed(deleted=True)

    async def restore_session(self, session_id: str) -> None:
        self._refuse_unless_deleted(session_id)
        self._deleted.discard(session_id)

    async def purge_session(self, session_id: str) -> None:
        self._refuse_unless_deleted(session_id)
        self._deleted.discard(session_id)
        del self._headers[session_id], self._records[session_id]

    async def close_session(self, session_id: str) -> None:
        """Release an open session and remove its outputs."""
        self._open.discard(session_id)
        shutil.rmtree(_outputs_of(session_id), ignore_errors=True)

    async def save_cost(self, record: CostRecord) -> None:
        self._costs.add(record.at, record.model, record.usage)

    async def load_costs(self) -> tuple[DailyUsage, ...]:
        return self._costs.spent()

    def obstacle(self) -> str:
        return ""

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
        numbers = [_number(record) for record in records]
        if number not in numbers:
            raise SessionNotFound(f"Session `{session_id[:8]}` has no message {number}.")
        return numbers.index(number) + 1

    def _refuse_if_open(self, session_id: str) -> None:
        if session_id in self._open:
            raise SessionInUse("This session is already open in this ouro.", "Continue there, or close it first.")

    def _refuse_unless_deleted(self, session_id: str) -> None:
        if session_id not in self._deleted:
            raise _not_found(session_id, " in the trash")

    def _listed(self, *, deleted: bool) -> list[SessionInfo]:
        wanted = [item for item in self._headers.values() if (item.id in self._deleted) == deleted]
        found = (self._info(item) for item in wanted)
        return sorted((item for item in found if item.messages), key=lambda item: item.updated_at, reverse=True)

    def _info(self, header: SessionHeader) -> SessionInfo:
        transcript, spending = Transcript(), Spending()
        records = self._records[header.id]
        for record in records:
            transcript.take(record)
            spending.take(record, header.model)
        said = [record for record in records if isinstance(record, MessageRecord)]
        return SessionInfo(
            id=header.id,
            title=transcript.title,
            project=header.project,
            model=transcript.model or header.model,
            created_at=header.created_at,
            updated_at=said[-1].at if said else header.created_at,
            messages=len(said),
            size=0,
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
    # Other users can create folders there, too: a random name cannot be prepared by them.
    return Path(tempfile.gettempdir()) / f"ouro-{session_id}"
