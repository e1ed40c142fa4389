"""DictMemoryStore: sessions that are forgotten when ouro ends."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from ouro.errors import SaveFailed, SessionInUse, SessionNotFound
from ouro.memory.backend import (
    ChangeRecord,
    LoadedSession,
    MessageRecord,
    ModelRecord,
    Record,
    SessionHeader,
    SessionInfo,
    TitleRecord,
)


class DictMemoryStore:
    """Keeps sessions in memory, for `--ephemeral` and for tests."""

    def __init__(self) -> None:
        self._headers: dict[str, SessionHeader] = {}
        self._records: dict[str, list[Record]] = {}
        self._open: set[str] = set()

    def obstacle(self) -> str:
        """Nothing stands in the way."""
        return ""

    def create_session(self, header: SessionHeader) -> None:
        """Start a session, and open it."""
        if header.id in self._headers:
            raise SaveFailed(f"Session {header.id} exists already.")
        self._headers[header.id] = header
        self._records[header.id] = []
        self._open.add(header.id)

    def save_message(self, session_id: str, record: MessageRecord) -> None:
        """Put a message behind the others."""
        self._save(session_id, record)

    def save_memory(self, session_id: str, record: ChangeRecord) -> None:
        """Put what is no message behind the messages."""
        self._save(session_id, record)

    def load_session(self, session_id: str, *, read_only: bool = False) -> LoadedSession:
        """The session of this full id; opens it unless `read_only`."""
        header = self._header(session_id)
        if not read_only:
            self._refuse_if_open(session_id)
            self._open.add(session_id)
        return LoadedSession(header, tuple(self._records[session_id]), read_only=read_only)

    def list_sessions(self, project: str | None = None) -> list[SessionInfo]:
        """All sessions, or those of one project folder; last used first."""
        found = [self._info(each) for each in self._headers.values() if project is None or each.project == project]
        return sorted((each for each in found if each.messages), key=lambda each: each.updated_at, reverse=True)

    def get_session_stats(self, session_id: str) -> SessionInfo:
        """What a list says of one session."""
        return self._info(self._header(session_id))

    def delete_session(self, session_id: str) -> None:
        """Remove a session for good."""
        self._header(session_id)
        self._refuse_if_open(session_id)
        del self._headers[session_id], self._records[session_id]

    def close_session(self, session_id: str) -> None:
        """Let go of an open session; its outputs go with it."""
        self._open.discard(session_id)
        shutil.rmtree(_outputs_of(session_id), ignore_errors=True)

    def outputs_folder(self, header: SessionHeader) -> Path:
        """A folder among the system's temporary files."""
        return _outputs_of(header.id)

    def _save(self, session_id: str, record: Record) -> None:
        if session_id not in self._open:
            raise SaveFailed(f"Session {session_id[:8]} is not open.")
        self._records[session_id].append(record)

    def _header(self, session_id: str) -> SessionHeader:
        if session_id not in self._headers:
            raise SessionNotFound(f"No session `{session_id[:60]}`.", "`ouro sessions list --all` shows them all.")
        return self._headers[session_id]

    def _refuse_if_open(self, session_id: str) -> None:
        if session_id in self._open:
            raise SessionInUse("This session is open already, here in this ouro.", "Go on there, or close it first.")

    def _info(self, header: SessionHeader) -> SessionInfo:
        messages = [each for each in self._records[header.id] if isinstance(each, MessageRecord)]
        titles = [each.title for each in self._records[header.id] if isinstance(each, TitleRecord)]
        models = [each.model for each in self._records[header.id] if isinstance(each, ModelRecord)]
        used = [each.message.usage.cost for each in messages if each.message.usage is not None]
        costs = [cost for cost in used if cost is not None]
        return SessionInfo(
            id=header.id,
            title=titles[-1] if titles else "",
            project=header.project,
            model=models[-1] if models else header.model,
            created_at=header.created_at,
            updated_at=messages[-1].at if messages else header.created_at,
            messages=len(messages),
            size=0,
            cost=sum(costs) if costs else None,
            folder="",
        )


def _outputs_of(session_id: str) -> Path:
    # Others can make folders there, too: under a name that nobody can guess none of them waits for us.
    return Path(tempfile.gettempdir()) / f"ouro-{session_id}"
