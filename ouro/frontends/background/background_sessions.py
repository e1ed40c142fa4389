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
_STATE_ORDER: Sequence[RowState] = ("waiting", "silent", "refused", "working", "idle", "ended")
"""The order of the list: what needs the user comes first."""
_END_CAUSES = {
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
    """What the host sends about it; None if there is no host, or it does not answer."""
    problem: str = ""
    """Why the state of the session is not known; empty if it is."""

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
        """The text of the row: for a session that ended the cause, for one whose state is not known the
        problem, otherwise the oldest open question, or the last line if there is no question.
        """
        if self.state == "ended":
            cause = _END_CAUSES[self.record.ended]
            return f"ended: {cause}; resume with `ouro --resume {self.record.short_id}`"
        if self.problem or self.live is None:
            return self.problem
        return self.live.question_line or self.live.last_line

    @property
    def question(self) -> PermissionAsked | QuestionAsked | None:
        """The oldest open question of the session; None if there is none."""
        return self.live.question if self.live else None

    def to_json(self) -> dict[str, Any]:
        """The row as `ouro agents --json` prints it."""
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
    """The background sessions. First are the sessions that wait for an answer, and last the
    sessions that have ended.

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
        """The background sessions. First are the sessions that wait for an answer, and last the
        sessions that have ended.

        Raises:
            SocketRefused: the folder of the sockets is another user's.
        """
        records = await asyncio.to_thread(read_records)
        rows = await asyncio.gather(*map(self.row, records))
        return sorted(rows, key=lambda row: _STATE_ORDER.index(row.state))

    async def row(self, record: BackgroundRecord) -> AgentRow:
        """Ask one session for its state, and return it as a row. If the host does not answer, or
        belongs to another user, the row has the problem instead of a state.
        """
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
        """The connection to this session; it is opened if there is none. Raises what
        `HostConnection.open` raises.
        """
        if record.id in self._connections:
            return self._connections[record.id]
        opened = await HostConnection.open(record)
        connection = self._connections.setdefault(record.id, opened)
        if connection is not opened:  # another call has opened one meanwhile
            await opened.close()
        return connection

    async def close(self) -> None:
        for session_id in tuple(self._connections):
            await self._disconnect(session_id)

    async def _disconnect(self, session_id: str) -> None:
        connection = self._connections.pop(session_id, None)
        if connection is not None:
            await connection.close()


def choices_of(question: PermissionAsked | QuestionAsked | None) -> tuple[str, ...]:
    """The choices of a question; empty for None, and for a question that is answered in free text."""
    if isinstance(question, PermissionAsked):
        return question.choices
    return question.question.choices if question else ()


def parse_answer(question: PermissionAsked | QuestionAsked, text: str) -> UserAnswer:
    """Read a text that answers a question: a choice, its key such as `y`, its number, or free text.
    Raises UsageError if the text is not an answer to the question.
    """
    from ouro.frontends.plain.line_questions import NotUnderstood, parse_permit, parse_reply

    word = text.strip().lower()
    try:
        if isinstance(question, QuestionAsked):
            return parse_reply(text, question.question)
        # `no` is left to `parse_permit`, which reads it as `n`: it stops the turn if the question
        # offers that. The choice `no` itself lets the turn continue.
        if word in question.choices and word != "no":
            return from_plain({"choice": word}, Permit)
        return parse_permit(text, question.choices)
    except NotUnderstood as error:
        raise UsageError(f"`{text}` is not an answer.", str(error)) from error


async def send_answer(connection: HostConnection, question_id: str, answer: UserAnswer) -> None:
    """Answer a question of the session. Raises HostRefused if another viewer was faster."""
    if isinstance(answer, Permit):
        await connection.answer(question_id, choice=answer.choice, comment=answer.comment)
    else:
        await connection.answer(question_id, answers=list(answer.answers))


async def answer_agent(words: str, text: str) -> tuple[AgentRow, str]:
    """Answer the oldest question of a session; returns its row, and the answer as text.

    Args:
        words: the session, by its id or words of its title.
        text: the answer, as `parse_answer` takes it.

    Raises:
        UsageError: there is no such session or question, or it has no such answer.
        HostGone: the session has ended.
    """
    record = await asyncio.to_thread(find_record, words)
    watch = AgentWatch()
    try:
        return await _answer_question(watch, record, text)
    finally:
        await watch.close()


async def _answer_question(
    watch: AgentWatch, record: BackgroundRecord, text: str
) -> tuple[AgentRow, str]:
    """Do the work of `answer_agent` for the session of this record. `watch` has the connection."""
    row = await watch.row(record)
    if row.live is None:
        raise HostGone(f"{record.short_id}: {row.line}")
    question = row.question
    if question is None:
        raise UsageError(f"{record.short_id} asks nothing now.")
    answer = parse_answer(question, text)
    await send_answer(await watch.connection(record), question.question_id, answer)
    answer_text = answer.choice if isinstance(answer, Permit) else ", ".join(answer.answers)
    return row, answer_text


async def stop_agent(words: str) -> tuple[BackgroundRecord, bool]:
    """End a session. If it has ended already, remove it from the list. Returns the record of the
    session, and whether it was still running.

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
