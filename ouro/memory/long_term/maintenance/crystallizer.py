"""Crystallizer: captures what is still true from sessions older than a week, each read once, part by part.

It captures as in open sessions, with the same protection (M1).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec.structs import replace

from ouro.errors import ModelError, SessionError
from ouro.memory.backend import SessionInfo
from ouro.memory.long_term.capture.backlog import SessionPart, records_privacy, uncaptured, without_outputs
from ouro.memory.long_term.capture.capture import Captured, CaptureMoment
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.sessions.session_reader import WholeSession
from ouro.memory.tokens import estimate
from ouro.memory.transcript import Transcript
from ouro.messages import Message
from ouro.utils.log import log
from ouro.utils.repository import branch_in_note

MIN_DAYS = 7
"""The age at which a session is read, and the time between two runs in the background."""
MAX_SESSIONS = 5
MAX_TOKENS = 30_000
"""Limits of one background run."""
REQUEST_TOKENS = 1_500
"""Estimated size of a request without the text of the session."""
PART_TIMEOUT = 180.0
"""Seconds a model may take for one part."""
CRYSTALLIZE_INSTRUCTIONS = """\

This session is more than a week old. Write notes only about what is still true: facts, preferences that appear
repeatedly, problems that could occur again, decisions with their reasons. Write no note about work that is finished."""
_STATE = "crystallized"
_MAX_FAILURES = 3
"""Failures after which a session is skipped."""
ReadPart = Callable[[SessionPart, Sequence[Message], CaptureMoment], Awaitable[Captured]]


class _Progress(msgspec.Struct, frozen=True):
    upto: int = 0
    """The last message."""
    at: str = ""
    """When the session was last used, once it is read to its end; empty before."""
    failures: int = 0


class _State(msgspec.Struct, frozen=True):
    last: Mapping[str, str] = {}
    """The time of the last run in the background, by project."""
    sessions: Mapping[str, _Progress] = {}


class OldSession(msgspec.Struct, frozen=True):
    info: SessionInfo
    parts: int = 0
    """The number of parts to read; parts that were read before do not count."""
    tokens: int = 0
    """An estimate of what there is to read."""
    skipped: str = ""
    """The reason, if it is skipped."""


class CrystallizedPart(msgspec.Struct, frozen=True):
    session: OldSession
    part: int
    """Counted from 1."""
    captured: Captured


class Crystallizer:
    """For one session or command.

    Args:
        read_part: makes notes of a part, given the messages up to its end. Raises ModelError.
        sessions: returns those of the project. Blocks.
        read: reads one. Raises SessionError. Blocks.
        repository: keeps the state beside its history.
        project: the folder of the project.
        own: the id of the open session.
    """

    def __init__(
        self,
        read_part: ReadPart,
        sessions: Callable[[], Sequence[SessionInfo]],
        read: Callable[[str], WholeSession],
        repository: GitRepository,
        project: str,
        own: str = "",
    ) -> None:
        self._read_part = read_part
        self._sessions = sessions
        self._read = read
        self._repository = repository
        self._project = project
        self._own = own

    def is_due(self) -> bool:
        """Whether the last run in the background was a week ago. Blocks."""
        return self._state().last.get(self._project, "") < _stamp(days=MIN_DAYS)

    def note_done(self) -> None:
        """Record a run in the background. Blocks."""
        state = self._state()
        self._save(replace(state, last={**state.last, self._project: _stamp()}))

    def pending(
        self, days: int = MIN_DAYS, check: Callable[[int, int], None] = lambda _done, _all: None
    ) -> tuple[OldSession, ...]:
        """The older sessions that were not read to their end, oldest first, also skipped ones. Blocks.

        Args:
            days: since they were last used.
            check: called with (done, total); what it raises ends the work.
        """
        before, known = _stamp(days=days), self._state().sessions
        old = [
            info
            for info in sorted(self._sessions(), key=lambda info: info.updated_at)
            if info.id != self._own
            and not info.is_copied_by_hand
            and info.updated_at < before
            and known.get(info.id, _Progress()).at < info.updated_at
        ]
        found = []
        for done, info in enumerate(old):
            check(done, len(old))
            found.append(self._examine(info, known.get(info.id, _Progress())))
        return tuple(found)

    async def read(self, sessions: Sequence[OldSession]) -> AsyncGenerator[CrystallizedPart, None]:
        """Read these, one part after the other; after an interruption the next call continues there.

        Raises:
            ModelError: the model did not answer as asked; the part is read again the next time.
        """
        for session in sessions:
            if session.skipped:
                continue
            transcript = await asyncio.to_thread(self._transcript, session.info.id)
            if transcript is None:
                continue
            progress = (await asyncio.to_thread(self._state)).sessions.get(session.info.id, _Progress())
            for number, part in enumerate(list(_parts(transcript, progress)), 1):
                captured = await self._capture(session.info, transcript, part)
                await asyncio.to_thread(self._note, session.info.id, _Progress(part.upto))
                yield CrystallizedPart(session, number, captured)
            done = _Progress(transcript.last_number, session.info.updated_at)
            await asyncio.to_thread(self._note, session.info.id, done)

    async def _capture(self, info: SessionInfo, transcript: Transcript, part: SessionPart) -> Captured:
        messages = [entry.message for entry in transcript.entries[: part.place]]
        moment = CaptureMoment(info.id, part.turn, "crystallization")
        try:
            async with asyncio.timeout(PART_TIMEOUT):
                return await self._read_part(part, messages, moment)
        except TimeoutError as error:
            raise ModelError(f"The model took longer than {PART_TIMEOUT:.0f} seconds.") from error
        except ModelError:
            await asyncio.to_thread(self._note_failure, info.id)
            raise

    def _examine(self, info: SessionInfo, progress: _Progress) -> OldSession:
        if progress.failures >= _MAX_FAILURES:
            return OldSession(info, skipped=f"the model failed {progress.failures} times")
        transcript = self._transcript(info.id)
        if transcript is None:
            return OldSession(info, skipped="it cannot be read, or memory was off in it")
        parts = list(_parts(transcript, progress))
        if not parts:
            self._note(info.id, _Progress(transcript.last_number, info.updated_at))
            return OldSession(info, skipped="it has no messages of the user")
        words = sum(estimate(message.text) for part in parts for message in part.spoken)
        return OldSession(info, len(parts), words + len(parts) * REQUEST_TOKENS)

    def _transcript(self, session_id: str) -> Transcript | None:
        """The current branch without tool outputs; None if it cannot be read or memory was off."""
        try:
            whole = self._read(session_id)
            transcript = Transcript()
            for record in whole.records():
                transcript.take(without_outputs(record))
        except (SessionError, OSError) as error:
            log.info("crystallization: session %s is left out: %s", session_id[:8], error)
            return None
        return transcript if whole.header.origin or records_privacy(whole.header, transcript) else None

    def _note_failure(self, session_id: str) -> None:
        progress = self._state().sessions.get(session_id, _Progress())
        self._note(session_id, replace(progress, failures=progress.failures + 1))

    def _note(self, session_id: str, progress: _Progress) -> None:
        state = self._state()
        self._save(replace(state, sessions={**state.sessions, session_id: progress}))

    def _state(self) -> _State:
        text = self._repository.own(_STATE)
        try:
            return msgspec.json.decode(text, type=_State) if text else _State()
        except msgspec.DecodeError as error:
            log.warning("crystallization: its state cannot be read: %s", error)
            return _State()

    def _save(self, state: _State) -> None:
        self._repository.create()
        self._repository.keep(_STATE, msgspec.json.encode(state).decode())


def for_one_run(sessions: Sequence[OldSession]) -> tuple[OldSession, ...]:
    """The sessions to read in one background run; at least one."""
    found: list[OldSession] = []
    tokens = 0
    for session in sessions:
        if session.skipped:
            continue
        tokens += session.tokens
        if found and (len(found) == MAX_SESSIONS or tokens > MAX_TOKENS):
            break
        found.append(session)
    return tuple(found)


def _parts(transcript: Transcript, progress: _Progress) -> Iterator[SessionPart]:
    copied = transcript.fork.number if transcript.fork else 0
    return uncaptured(transcript.entries, max(progress.upto, copied), branch_in_note)


def _stamp(days: int = 0) -> str:
    then = datetime.now(UTC) - timedelta(days=days)
    return then.isoformat(timespec="milliseconds").replace("+00:00", "Z")
