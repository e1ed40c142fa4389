"""The background sessions of this user: their states, and what one can do with them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from ouro.errors import HostGone, OuroError, SocketRefused, UsageError
from ouro.events import PermissionAsked, Permit, QuestionAsked, UserAnswer
from ouro.frontends.background.connection import HostConnection, host_connection
from ouro.frontends.background.state import SessionState
from ouro.session.background_record import (
    BackgroundPlace,
    BackgroundRecord,
    find_record,
    forget_record,
    read_records,
)
from ouro.utils.decoding import from_plain

STATE_TIMEOUT = 5.0
STOP_TIMEOUT = 25.0
"""Seconds for a host to end: its turn, then its session, have 10 each."""

RowState = Literal["working", "waiting", "idle", "silent", "refused", "ended"]
_ORDER: Sequence[RowState] = ("waiting", "silent", "refused", "working", "idle", "ended")
_ENDED = {
    "stopped": "it was stopped",
    "idle": "it was idle for long",
    "signal": "its process was ended",
    "": "its process was killed",
}


class AgentRow(msgspec.Struct, frozen=True):
    """One background session in a list."""

    record: BackgroundRecord
    state: RowState
    live: SessionState | None = None
    problem: str = ""
    """Why its state is not known."""

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def title(self) -> str:
        live = self.live
        return (live.title if live else "") or self.record.title

    @property
    def cost(self) -> float | None:
        return self.live.status.usage.cost if self.live else None

    @property
    def line(self) -> str:
        """What it says last, asks, or why it ended."""
        if self.state == "ended":
            why = _ENDED[self.record.ended]
            return f"ended: {why}; resume with `ouro --resume {self.record.short_id}`"
        if self.problem or self.live is None:
            return self.problem
        return self.live.question_line or self.live.last_line

    @property
    def question(self) -> PermissionAsked | QuestionAsked | None:
        """Its oldest open question."""
        return self.live.question if self.live else None

    def to_json(self) -> dict[str, Any]:
        live = self.live
        return {
            "id": self.id,
            "state": self.state,
            "title": self.title,
            "cwd": self.record.cwd,
            "model": live.status.model if live else self.record.model,
            "mode": live.status.mode if live else "",
            "pid": self.record.pid if self.state != "ended" else None,
            "started_at": self.record.started_at,
            "seconds": live.seconds if live else None,
            "last_line": live.last_line if live else self.record.last_line,
            "question": live.question_line if live else "",
            "choices": list(choices_of(self.question)),
            "cost": self.cost,
            "viewers": live.viewers if live else 0,
            "ended": (self.record.ended or "killed") if self.state == "ended" else "",
            "problem": self.problem,
        }


async def find_agents() -> list[AgentRow]:
    """The background sessions: those that wait for an answer first, those that ended last.

    Raises:
        SocketRefused: the folder of the sockets is another user's.
    """
    watch = AgentWatch()
    try:
        return await watch.rows()
    finally:
        await watch.close()


class AgentWatch:
    """Asks the background sessions for their states, and keeps its connections to them."""

    def __init__(self) -> None:
        self._connections: dict[str, HostConnection] = {}

    async def rows(self) -> list[AgentRow]:
        """As `find_agents`."""
        records = await asyncio.to_thread(read_records)
        rows = await asyncio.gather(*map(self.row, records))
        return sorted(rows, key=lambda row: _ORDER.index(row.state))

    async def row(self, record: BackgroundRecord) -> AgentRow:
        """The state of one session; a host that does not answer has a row too."""
        if not await asyncio.to_thread(lambda: BackgroundPlace(record.id).is_alive):
            await self._disconnect(record.id)
            return AgentRow(record, "ended")
        try:
            async with asyncio.timeout(STATE_TIMEOUT):
                live = await (await self.connection(record)).state()
        except SocketRefused as error:
            return AgentRow(record, "refused", problem=str(error))
        except (OuroError, OSError, TimeoutError) as error:
            await self._disconnect(record.id)
            return AgentRow(record, "silent", problem=str(error) or "it does not answer")
        return AgentRow(record, live.activity, live)

    async def connection(self, record: BackgroundRecord) -> HostConnection:
        """The connection to this session. Raises as `HostConnection.open`."""
        if record.id not in self._connections:
            self._connections[record.id] = await HostConnection.open(record)
        return self._connections[record.id]

    async def close(self) -> None:
        for session_id in tuple(self._connections):
            await self._disconnect(session_id)

    async def _disconnect(self, session_id: str) -> None:
        connection = self._connections.pop(session_id, None)
        if connection is not None:
            await connection.close()


def choices_of(asked: PermissionAsked | QuestionAsked | None) -> tuple[str, ...]:
    """What `ouro agents answer` takes for this question."""
    if isinstance(asked, PermissionAsked):
        return asked.choices
    return asked.question.choices if asked else ()


def parse_answer(asked: PermissionAsked | QuestionAsked, given: str) -> UserAnswer:
    """The answer that `given` names. Raises UsageError if it names none."""
    from ouro.frontends.plain.line_questions import NotUnderstood, parse_permit, parse_reply

    word = given.strip().lower()
    try:
        if isinstance(asked, QuestionAsked):
            return parse_reply(given, asked.question)
        if word in asked.choices and word != "no":  # `no` stops the turn, as the key does
            return from_plain({"choice": word}, Permit)
        return parse_permit(given, asked.choices)
    except NotUnderstood as error:
        raise UsageError(f"`{given}` is not an answer.", str(error)) from error


async def send_answer(connection: HostConnection, question_id: str, answer: UserAnswer) -> None:
    """Answer a question of the session. Raises HostRefused if another viewer was faster."""
    if isinstance(answer, Permit):
        await connection.answer(question_id, choice=answer.choice, comment=answer.comment)
    else:
        await connection.answer(question_id, answers=list(answer.answers))


async def answer_agent(words: str, given: str) -> tuple[AgentRow, str]:
    """Answer the oldest question of a session; returns the session, and what was answered.

    Raises:
        UsageError: there is no such session or question, or it has no such answer.
        HostGone: the session has ended.
    """
    record = await asyncio.to_thread(find_record, words)
    watch = AgentWatch()
    try:
        return await _answer_question(watch, record, given)
    finally:
        await watch.close()


async def _answer_question(
    watch: AgentWatch, record: BackgroundRecord, given: str
) -> tuple[AgentRow, str]:
    """As `answer_agent`."""
    row = await watch.row(record)
    if row.live is None:
        raise HostGone(f"{record.short_id}: {row.line}")
    asked = row.question
    if asked is None:
        raise UsageError(f"{record.short_id} asks nothing now.")
    answer = parse_answer(asked, given)
    await send_answer(await watch.connection(record), asked.question_id, answer)
    answered = answer.choice if isinstance(answer, Permit) else ", ".join(answer.answers)
    return row, answered


async def stop_agent(words: str) -> tuple[BackgroundRecord, bool]:
    """End a session, or remove one that has ended from the list; returns whether it ran.

    Raises:
        UsageError: there is no such session.
        HostGone: it did not end.
    """
    record = await asyncio.to_thread(find_record, words)
    place = BackgroundPlace(record.id)
    if not await asyncio.to_thread(lambda: place.is_alive):
        await asyncio.to_thread(forget_record, record.id)
        return record, False
    async with host_connection(record) as connection:
        await connection.call("session/close", sessionId=record.id)
    if not await asyncio.to_thread(_wait_for_end, place):
        raise HostGone(
            f"{record.short_id} has not ended in {STOP_TIMEOUT:g} s.",
            f"Its process is {record.pid}.",
        )
    return record, True


def _wait_for_end(place: BackgroundPlace) -> bool:
    """Wait until no process hosts the session; returns False if it does not end in time. Blocks."""
    deadline = time.monotonic() + STOP_TIMEOUT
    while place.is_alive:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
