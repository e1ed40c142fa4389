"""Missed: what was said in earlier sessions of this project and not captured then, because ouro was closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from ouro.errors import SaveFailed, SessionError, SessionInUse
from ouro.memory.backend import CapturedRecord, MemoryStore, SessionInfo
from ouro.memory.long_term.capture.uncaptured import Piece, is_known, turns_since, uncaptured
from ouro.memory.sessions.whole_session import read_whole
from ouro.memory.transcript import Transcript
from ouro.utils.files import only_one
from ouro.utils.log import log
from ouro.utils.repository import branch_in_note, same_project

DAYS = 14
MOST_SESSIONS = 3
"""That are caught up with at one start."""
_MOST_LOOKED_AT = 20
_MOST_PIECES = 4
"""Of one session; the next start goes on there."""


class MissedSession(msgspec.Struct, frozen=True):
    """A session of which something was not captured."""

    id: str
    transcript: Transcript
    pieces: tuple[Piece, ...]


class Missed:
    """Finds them, and notes in them what is captured. One process does so at a time.

    Args:
        store: has the sessions.
        own: the id of the session that is open here.
        project: the folder that is worked in.
        lock: a file of ours that says who is at it.
    """

    def __init__(self, store: MemoryStore, own: str, project: str, lock: Path) -> None:
        self._store = store
        self._own = own
        self._project = project
        self._lock = lock

    async def sessions(self) -> AsyncGenerator[MissedSession, None]:
        """Those of the last days that are not open anywhere, the latest first; none while another process looks."""
        with only_one(self._lock) as is_mine:
            count = 0
            for info in await asyncio.to_thread(self._recent) if is_mine else []:
                found = await asyncio.to_thread(self._look, info.id)
                if found is not None:
                    yield found
                    count += 1
                if count == MOST_SESSIONS:
                    return

    def keep(self, session: MissedSession, piece: Piece) -> None:
        """Note in a session that a piece of it is captured. Blocks.

        The time of its last record stays what it was, and so its place in lists.

        Raises:
            SessionError: it is open elsewhere by now, or cannot be written.
        """
        loaded = self._store.load_session(session.id, reach="screen")
        try:
            if not loaded.read_only:
                self._store.save_memory(session.id, CapturedRecord(piece.upto, session.transcript.last_at))
        finally:
            self._store.close_session(session.id)

    def _recent(self) -> list[SessionInfo]:
        since = (datetime.now(UTC) - timedelta(days=DAYS)).isoformat()
        is_ours = same_project(self._project)
        found = [each for each in self._store.list_sessions() if each.id != self._own and each.updated_at >= since]
        return [each for each in found if is_ours(each.project) and not each.is_copied_by_hand][:_MOST_LOOKED_AT]

    def _look(self, session_id: str) -> MissedSession | None:
        """What was missed of a session; None where nothing was, where it is in use, or memory was off in all of it."""
        try:
            loaded = self._store.load_session(session_id, reach="context")
            self._store.close_session(session_id)
            transcript = Transcript.of(loaded)
            if loaded.read_only or loaded.header.origin or not turns_since(transcript.entries, transcript.captured):
                return None
            if not transcript.is_whole:
                transcript = Transcript()
                for record in read_whole(self._store, session_id).records():
                    transcript.take(record)
            if not is_known(loaded.header, transcript):
                return None
        except SessionInUse:
            return None
        except (SessionError, SaveFailed, OSError) as error:
            log.info("capture: session %s is left out: %s", session_id[:8], error)
            return None
        pieces = tuple(uncaptured(transcript.entries, transcript.captured, branch_in_note))[:_MOST_PIECES]
        return MissedSession(session_id, transcript, pieces) if pieces else None
