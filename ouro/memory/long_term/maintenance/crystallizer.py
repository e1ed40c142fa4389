"""Crystallizer: lasting knowledge drawn from sessions that are older than a week, each read once, piece by piece.

What it finds goes the way of every capture: validated, the person's words read alone where material from outside was
near, the assistant's conclusions as proposals then (THREATS M1), nothing that the person took out before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec.structs import replace

from ouro.errors import ModelError, SessionError
from ouro.memory.backend import SessionInfo
from ouro.memory.long_term.capture.backlog import Piece, is_known, slim, uncaptured
from ouro.memory.long_term.capture.capture import Captured, Moment
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.sessions.whole_session import WholeSession
from ouro.memory.tokens import estimate
from ouro.memory.transcript import Transcript
from ouro.messages import Message
from ouro.utils.log import log

DAYS = 7
"""A session is old after so long; and so long is between two times that it is done by itself."""
MOST_SESSIONS = 5
MOST_TOKENS = 30_000
"""That are read at one time out of band."""
OVERHEAD = 1_500
"""Tokens of a request beside the words of the session, about."""
LONGEST_SECONDS = 180.0
"""A model may take for one piece; then it has failed."""
ORDER = """\

This conversation is more than a week old. Keep only what will still be true: facts, preferences that show again and
again, what tripped somebody up, decisions with their reasons. What was done in it is over, and no note."""
_STATE = "crystallized"
_MOST_FAILURES = 3
"""Of one session; then it is left out."""


class Gone(msgspec.Struct, frozen=True):
    """How far a session was read."""

    upto: int = 0
    """The last message."""
    at: str = ""
    """When the session was last used by then; empty while it is not read to its end."""
    failures: int = 0


class _State(msgspec.Struct, frozen=True):
    """What is remembered beside the history."""

    last: Mapping[str, str] = {}
    """When it was done by itself, by project."""
    sessions: Mapping[str, Gone] = {}


class OldSession(msgspec.Struct, frozen=True):
    """A session that is to be read, or that is not and why."""

    info: SessionInfo
    pieces: int = 0
    """How often a model is to be asked; what was read before does not count."""
    tokens: int = 0
    """That it will read, about."""
    skipped: str = ""


class Step(msgspec.Struct, frozen=True):
    """A piece of a session was read."""

    session: OldSession
    piece: int
    """Counted from 1."""
    captured: Captured


class CrystallizerParts(msgspec.Struct, frozen=True):
    """What a Crystallizer is made of."""

    capture: Callable[[Piece, Sequence[Message], Moment], Awaitable[Captured]]
    """Keeps what is worth it of a piece, told the conversation up to its end. Raises ModelError."""
    sessions: Callable[[], Sequence[SessionInfo]]
    """Those of this project. Blocks."""
    read: Callable[[str], WholeSession]
    """Raises SessionError. Blocks."""
    history: GitRepository
    project: str
    own: str = ""
    """The session that is open here."""
    branch_in: Callable[[str], str] = lambda _context: ""
    """The branch that a context of a message tells of."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)


class Crystallizer:
    """One for a session or command."""

    def __init__(self, parts: CrystallizerParts) -> None:
        self._parts = parts

    def is_due(self) -> bool:
        """Whether a week has passed since it was last done by itself. Blocks."""
        last = self._state().last.get(self._parts.project, "")
        return last < self._stamp(days=DAYS)

    def note_done(self) -> None:
        """It was done by itself just now. Blocks."""
        state = self._state()
        self._keep(replace(state, last={**state.last, self._parts.project: self._stamp()}))

    def waiting(
        self, days: int = DAYS, check: Callable[[int, int], None] = lambda _done, _all: None
    ) -> tuple[OldSession, ...]:
        """The sessions older than that of which something was not read yet, oldest first, and those left out. Blocks.

        Args:
            days: since they were last used.
            check: told how far it is; what it raises ends the work.
        """
        before, gone = self._stamp(days=days), self._state().sessions
        old = [
            each
            for each in sorted(self._parts.sessions(), key=lambda each: each.updated_at)
            if each.id != self._parts.own
            and not each.is_copied_by_hand
            and each.updated_at < before
            and gone.get(each.id, Gone()).at < each.updated_at
        ]
        found = []
        for done, info in enumerate(old):
            check(done, len(old))
            found.append(self._looked_at(info, gone.get(info.id, Gone())))
        return tuple(found)

    async def read(self, sessions: Sequence[OldSession]) -> AsyncGenerator[Step, None]:
        """Read these, one piece after the other. Whoever stops in between goes on behind the last one.

        Raises:
            ModelError: the model did not answer as it should; the piece is read again the next time.
        """
        for session in sessions:
            if session.skipped:
                continue
            line = await asyncio.to_thread(self._line, session.info.id)
            if line is None:
                continue
            gone = (await asyncio.to_thread(self._state)).sessions.get(session.info.id, Gone())
            for number, piece in enumerate(list(self._pieces(line, gone)), 1):
                captured = await self._capture(session.info, line, piece)
                await asyncio.to_thread(self._note, session.info.id, Gone(piece.upto))
                yield Step(session, number, captured)
            await asyncio.to_thread(self._note, session.info.id, Gone(line.last_number, session.info.updated_at))

    async def _capture(self, info: SessionInfo, line: Transcript, piece: Piece) -> Captured:
        messages = [each.message for each in line.entries[: piece.place]]
        moment = Moment(info.id, piece.turn, "crystallization")
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                return await self._parts.capture(piece, messages, moment)
        except TimeoutError as error:
            raise ModelError(f"The model took longer than {LONGEST_SECONDS:.0f} seconds.") from error
        except ModelError:
            await asyncio.to_thread(self._note_failure, info.id)
            raise

    def _looked_at(self, info: SessionInfo, gone: Gone) -> OldSession:
        if gone.failures >= _MOST_FAILURES:
            return OldSession(info, skipped=f"the model failed at it {gone.failures} times")
        line = self._line(info.id)
        if line is None:
            return OldSession(info, skipped="it cannot be read, or memory was off in it")
        pieces = list(self._pieces(line, gone))
        if not pieces:
            self._note(info.id, Gone(line.last_number, info.updated_at))
            return OldSession(info, skipped="nothing was said in it")
        words = sum(estimate(each.text) for piece in pieces for each in piece.spoken)
        return OldSession(info, len(pieces), words + len(pieces) * OVERHEAD)

    def _line(self, session_id: str) -> Transcript | None:
        """The line that goes on, its words without what tools said; None where it may not, or cannot, be read."""
        try:
            whole = self._parts.read(session_id)
            line = Transcript()
            for record in whole.records():
                line.take(slim(record))
        except (SessionError, OSError) as error:
            log.info("crystallization: session %s is left out: %s", session_id[:8], error)
            return None
        return line if whole.header.origin or is_known(whole.header, line) else None

    def _pieces(self, line: Transcript, gone: Gone) -> Iterator[Piece]:
        copied = line.fork.number if line.fork else 0
        return uncaptured(line.entries, max(gone.upto, copied), self._parts.branch_in)

    def _stamp(self, days: int = 0) -> str:
        then = self._parts.now() - timedelta(days=days)
        return then.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def _note_failure(self, session_id: str) -> None:
        gone = self._state().sessions.get(session_id, Gone())
        self._note(session_id, replace(gone, failures=gone.failures + 1))

    def _note(self, session_id: str, gone: Gone) -> None:
        state = self._state()
        self._keep(replace(state, sessions={**state.sessions, session_id: gone}))

    def _state(self) -> _State:
        text = self._parts.history.own(_STATE)
        try:
            return msgspec.json.decode(text, type=_State) if text else _State()
        except msgspec.DecodeError as error:
            log.warning("crystallization: what was read before is not known: %s", error)
            return _State()

    def _keep(self, state: _State) -> None:
        self._parts.history.create()
        self._parts.history.keep(_STATE, msgspec.json.encode(state).decode())


def for_one_time(sessions: Sequence[OldSession]) -> tuple[OldSession, ...]:
    """Those of them that are read at one time out of band; at least one."""
    found: list[OldSession] = []
    tokens = 0
    for each in sessions:
        if each.skipped:
            continue
        tokens += each.tokens
        if found and (len(found) == MOST_SESSIONS or tokens > MOST_TOKENS):
            break
        found.append(each)
    return tuple(found)
