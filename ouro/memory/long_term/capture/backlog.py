"""CaptureBacklog: messages that are not captured yet, in this session and in earlier ones of the project."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ouro.errors import SaveFailed, SessionError, SessionInUse
from ouro.memory.backend import CapturedRecord, MemoryStore, MessageRecord, Record, SessionHeader, SessionInfo
from ouro.memory.long_term.capture.request import MAX_CHARACTERS, MAX_MESSAGE, Spoken, words_of
from ouro.memory.message_tree import TranscriptEntry
from ouro.memory.sessions.session_reader import read_whole
from ouro.memory.transcript import Transcript
from ouro.messages import Context, Image, Message, Part, Text, Thinking, ToolCall, ToolReply
from ouro.utils.files import only_one
from ouro.utils.log import log
from ouro.utils.repository import branch_in_note, same_project

PART_CHARACTERS = MAX_CHARACTERS // 2
"""Characters after which a part of a session ends, at the next user message."""
MAX_DAYS = 14
MAX_SESSIONS = 3
"""Sessions captured at one start."""
_MAX_CANDIDATES = 20
_MAX_PARTS = 4
"""Parts of one session; the next start continues there."""
_MAX_ARGUMENT = 2_000
_MAX_CONTEXT = 2_000


class SessionPart(msgspec.Struct, frozen=True):
    """Consecutive messages of a session that are captured together."""

    spoken: tuple[Spoken, ...]
    upto: int
    """The number of the last message, also of a tool's."""
    place: int
    """How many messages of the branch there were by then."""
    turn: int
    at: str
    """The time of the last message."""


def uncaptured(
    entries: Sequence[TranscriptEntry],
    captured: int,
    branch_in: Callable[[str], str] = lambda _context: "",
    turn: int = 0,
) -> Iterator[SessionPart]:
    """Yields the parts after message number `captured`, oldest first; none if the user has said nothing since.

    Args:
        branch_in: returns the git branch that the context of a message names; empty where it names none.
        turn: the number of the last turn before these messages.
    """
    if not turns_since(entries, captured):
        return
    branch, size = "", 0
    spoken: list[Spoken] = []
    last = None
    for place, entry in enumerate(entries):
        is_turn = _is_turn(entry)
        if size > PART_CHARACTERS and is_turn and last is not None:
            yield SessionPart(tuple(spoken), last.number, place, turn, last.at)
            spoken, size = [], 0
        turn += is_turn
        branch = _branch(entry, branch_in) or branch
        if entry.number <= captured:
            continue
        last = entry
        if entry.private:
            continue
        if found := words_of(entry.number, entry.message):
            spoken.append(replace(found, turn=turn, at=entry.at, branch=branch))
            size += min(len(found.text), PART_CHARACTERS)
    if last is not None:
        yield SessionPart(tuple(spoken), last.number, len(entries), turn, last.at)


def turns_since(entries: Sequence[TranscriptEntry], captured: int) -> int:
    """The number of turns after message number `captured`, without those with memory off."""
    return sum(1 for entry in entries if entry.number > captured and not entry.private and _is_turn(entry))


def records_privacy(header: SessionHeader, transcript: Transcript) -> bool:
    """Whether a session shows which of its messages were said with memory off.

    False for copies, and for sessions older than these marks: they must not be captured.
    """
    return bool(header.memory) or any(entry.private for entry in transcript.entries)


class BacklogSession(msgspec.Struct, frozen=True):
    id: str
    transcript: Transcript
    parts: tuple[SessionPart, ...]


class CaptureBacklog:
    """Finds sessions that ended before everything in them was captured. One process at a time does so.

    Args:
        store: has the sessions.
        own: the id of the open session.
        project: the folder of the session.
        lock: a lock file.
    """

    def __init__(self, store: MemoryStore, own: str, project: str, lock: Path) -> None:
        self._store = store
        self._own = own
        self._project = project
        self._lock = lock

    async def sessions(self) -> AsyncGenerator[BacklogSession, None]:
        """Yields sessions of the last 14 days that are not open, latest first; none while another process does this."""
        with only_one(self._lock) as is_mine:
            count = 0
            for info in await self._recent() if is_mine else []:
                found = await self._read(info.id)
                if found is not None:
                    yield found
                    count += 1
                if count == MAX_SESSIONS:
                    return

    async def mark_captured(self, session: BacklogSession, part: SessionPart) -> None:
        """Record in a session that a part of it is captured.

        The record has the time of the session's last one, so that its place in lists stays.

        Raises:
            SessionError: it is open elsewhere by now, or cannot be written.
        """
        loaded = await self._store.load_session(session.id, reach="screen")
        try:
            if not loaded.read_only:
                await self._store.save_memory(session.id, CapturedRecord(part.upto, session.transcript.last_at))
        finally:
            await self._store.close_session(session.id)

    async def _recent(self) -> list[SessionInfo]:
        since = (datetime.now(UTC) - timedelta(days=MAX_DAYS)).isoformat()
        is_ours = same_project(self._project)
        sessions = await self._store.list_sessions()
        found = [info for info in sessions if info.id != self._own and info.updated_at >= since]
        return [info for info in found if is_ours(info.project) and not info.is_copied_by_hand][:_MAX_CANDIDATES]

    async def _read(self, session_id: str) -> BacklogSession | None:
        """The uncaptured parts; None when there are none, it is in use, or memory was off in all of it."""
        try:
            loaded = await self._store.load_session(session_id, reach="context")
            await self._store.close_session(session_id)
            transcript = Transcript.of(loaded)
            if loaded.read_only or loaded.header.origin or not turns_since(transcript.entries, transcript.captured):
                return None
            if not transcript.is_whole:
                transcript = Transcript()
                whole = await read_whole(self._store, session_id)
                for record in await asyncio.to_thread(lambda: list(whole.records())):
                    transcript.take(record)
            if not records_privacy(loaded.header, transcript):
                return None
        except SessionInUse:
            return None
        except (SessionError, SaveFailed, OSError) as error:
            log.info("capture: session %s is left out: %s", session_id[:8], error)
            return None
        parts = tuple(uncaptured(transcript.entries, transcript.captured, branch_in_note))[:_MAX_PARTS]
        return BacklogSession(session_id, transcript, parts) if parts else None


def without_outputs(record: Record) -> Record:
    """The record without tool outputs; calls keep what names their source."""
    if not isinstance(record, MessageRecord):
        return record
    parts = (part for whole in record.message.parts if (part := _shortened(whole)) is not None)
    return replace(record, message=Message(record.message.role, tuple(parts)))


def _shortened(part: Part) -> Part | None:
    match part:
        case Text(text) if len(text) > 2 * MAX_MESSAGE:
            return Text(f"{text[:MAX_MESSAGE]}\n[…]\n{text[-MAX_MESSAGE:]}")
        case Context(text):
            return Context(text[:_MAX_CONTEXT])
        case ToolCall(call_id, name, arguments):
            shortened = {key: value[:_MAX_ARGUMENT] for key, value in arguments.items() if isinstance(value, str)}
            return ToolCall(call_id, name, shortened)
        case ToolReply(call_id, name):
            return ToolReply(call_id, name, "")
        case Image() | Thinking():
            return None
        case _:
            return part


def _is_turn(entry: TranscriptEntry) -> bool:
    found = words_of(entry.number, entry.message)
    return found is not None and found.role == "user"


def _branch(entry: TranscriptEntry, branch_in: Callable[[str], str]) -> str:
    named = [branch_in(part.text) for part in entry.message.parts_of(Context)]
    return next((branch for branch in reversed(named) if branch), "")
