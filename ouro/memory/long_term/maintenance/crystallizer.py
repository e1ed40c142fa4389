"""Crystallizer: captures what is still true from sessions older than a week; each is read once,
part by part.

It uses the same capture as open sessions, with the same protection (M1).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from itertools import chain

import msgspec
from msgspec.structs import replace

from ouro.errors import ModelError
from ouro.memory.backend import SessionInfo
from ouro.memory.long_term.capture.capture import PART_TIMEOUT, Capture, Captured
from ouro.memory.long_term.capture.session_parts import (
    SessionPart,
    read_whole_branch,
    split_uncaptured,
)
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.manager import MemoryManager
from ouro.memory.sessions.session_catalog import SessionCatalog
from ouro.memory.tokens import estimate
from ouro.memory.transcript import Transcript

MIN_DAYS = 7
"""The age at which a session is read, and the time between two runs in the background."""
MAX_SESSIONS = 5
MAX_TOKENS = 30_000
"""The sessions and tokens of one run in the background."""
REQUEST_TOKENS = 1_500
"""Estimated size of a request without the text of the session."""
CRYSTALLIZE_INSTRUCTIONS = """\

This session is more than a week old. Write notes only about what is still true: facts, preferences that appear
repeatedly, problems that could occur again, decisions with their reasons. Write no note about work that is finished."""
_STATE_FILE = "crystallized"
"""The state file, in the folder of the repository, with what was read."""
_MAX_FAILURES = 3


class _Progress(msgspec.Struct, frozen=True):
    """How far one session was read."""

    upto: int = 0
    """The number of the last message that was read; 0: none."""
    at: str = ""
    """The time when the session was last used; empty until the session was read to its end."""
    failures: int = 0


class _State(msgspec.Struct, frozen=True):
    """The content of the state file."""

    last: Mapping[str, str] = {}
    """The time of the last run in the background, by project."""
    sessions: Mapping[str, _Progress] = {}


class OldSession(msgspec.Struct, frozen=True):
    """A session that was not read to its end."""

    info: SessionInfo
    parts: int = 0
    """The parts that are not read yet; 0 if it is skipped."""
    tokens: int = 0
    """The estimated tokens of all requests about these."""
    skipped: str = ""
    """The reason why it is not read; empty if it is."""


class CrystallizedPart(msgspec.Struct, frozen=True):
    """One part of a session that was read, and what was captured from it."""

    session: OldSession
    part: int
    """Counted from 1."""
    captured: Captured


class Crystallizer(msgspec.Struct, eq=False):
    """Captures old sessions of one project. `repository` keeps how far each was read."""

    capture: Capture
    session_catalog: SessionCatalog
    repository: GitRepository
    memory: MemoryManager

    def is_due(self) -> bool:
        """Whether the last run in the background for this project was at least `MIN_DAYS` ago, or
        there was none. Blocks.
        """
        last_run = self._state().last.get(self.memory.project, "")
        return last_run < _time_before(days=MIN_DAYS)

    def record_run(self) -> None:
        """Record the time of a run in the background."""
        state = self._state()
        last = {**state.last, self.memory.project: _time_before(days=0)}
        self.repository.save_state(_STATE_FILE, replace(state, last=last))

    async def find_old_sessions(self, days: int = MIN_DAYS) -> list[OldSession]:
        """The other sessions of this project that were last used more than `days` ago and not read
        to their end since, oldest first. Some have a reason why they are skipped. A session without
        messages of the user is recorded as read.
        """
        before = _time_before(days=days)
        progress_by_id = self._state().sessions
        sessions = []
        for info in sorted(
            await self.session_catalog.sessions_here(), key=lambda info: info.updated_at
        ):
            progress = progress_by_id.get(info.id, _Progress())
            is_other = info.id != self.memory.session_id and not info.is_copied_by_hand
            is_unread = progress.at < info.updated_at
            if is_other and is_unread and info.updated_at < before:
                sessions.append(await self._examine(info, progress))
        return sessions

    async def _examine(self, info: SessionInfo, progress: _Progress) -> OldSession:
        """Find out whether a session can be read, in how many parts, and with how many tokens.
        Records a session without messages of the user as read.
        """
        if progress.failures >= _MAX_FAILURES:
            return OldSession(info, skipped=f"the model failed {progress.failures} times")
        transcript = await read_whole_branch(self.session_catalog.store, info.id)
        if transcript is None:
            return OldSession(info, skipped="it cannot be read, or memory was off in it")
        if parts := _unread_parts(transcript, progress):
            spoken = chain.from_iterable(part.spoken for part in parts)
            words = sum(estimate(message.text) for message in spoken)
            return OldSession(info, len(parts), words + len(parts) * REQUEST_TOKENS)
        whole = _Progress(transcript.last_number, info.updated_at)
        await asyncio.to_thread(self._record, info.id, whole)
        return OldSession(info, skipped="it has no messages of the user")

    async def read(self, sessions: Sequence[OldSession]) -> AsyncGenerator[CrystallizedPart, None]:
        """Capture sessions part by part; yields each part after its progress is recorded. Skipped
        sessions are left out. Raises ModelError if the model failed or took too long, after the
        failure is recorded. After that, or an interruption, the next call continues with the first
        part that was not read.
        """
        for session in sessions:
            info = session.info
            if session.skipped:
                continue
            transcript = await read_whole_branch(self.session_catalog.store, info.id)
            if transcript is None:
                continue
            parts = _unread_parts(transcript, self._state().sessions.get(info.id, _Progress()))
            captures = self.capture.run_parts(transcript, parts, info.id, "crystallization")
            number = 0
            try:
                async with aclosing(captures):
                    async for part, captured in captures:
                        number += 1
                        if part:
                            await asyncio.to_thread(self._record, info.id, _Progress(part.upto))
                        yield CrystallizedPart(session, number, captured)
            except (ModelError, TimeoutError) as error:
                progress = self._state().sessions.get(info.id, _Progress())
                failed = replace(progress, failures=progress.failures + 1)
                await asyncio.to_thread(self._record, info.id, failed)
                if isinstance(error, ModelError):
                    raise
                raise ModelError(
                    f"The model took longer than {PART_TIMEOUT:.0f} seconds."
                ) from error
            whole = _Progress(transcript.last_number, info.updated_at)
            await asyncio.to_thread(self._record, info.id, whole)

    def _record(self, session_id: str, progress: _Progress) -> None:
        """Record how far a session was read."""
        state = self._state()
        sessions = {**state.sessions, session_id: progress}
        self.repository.save_state(_STATE_FILE, replace(state, sessions=sessions))

    def _state(self) -> _State:
        return self.repository.load_state(_STATE_FILE, _State)


def choose_for_one_run(sessions: Sequence[OldSession]) -> list[OldSession]:
    """The first sessions that are not skipped, at most `MAX_SESSIONS` and `MAX_TOKENS` together;
    one in any case if there is one.
    """
    chosen: list[OldSession] = []
    tokens = 0
    for session in sessions:
        if session.skipped:
            continue
        tokens += session.tokens
        if chosen and (len(chosen) == MAX_SESSIONS or tokens > MAX_TOKENS):
            break
        chosen.append(session)
    return chosen


def _unread_parts(transcript: Transcript, progress: _Progress) -> list[SessionPart]:
    """The parts of a session that were not read, without what a fork copied."""
    copied = transcript.fork.number if transcript.fork else 0
    return list(split_uncaptured(transcript.entries, max(progress.upto, copied)))


def _time_before(days: int) -> str:
    """The time before so many days, in the form of the records of sessions: texts in this form sort
    by time.
    """
    then = datetime.now(UTC) - timedelta(days=days)
    return then.isoformat(timespec="milliseconds").replace("+00:00", "Z")
