"""What of a conversation nobody has captured yet, in pieces that a classifier can read at once. Pure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ouro.errors import SaveFailed, SessionError, SessionInUse
from ouro.memory.backend import CapturedRecord, MemoryStore, SessionInfo
from ouro.memory.long_term.capture.request import LONGEST_PART, MOST_CHARACTERS, Spoken, words_of
from ouro.memory.message_tree import TranscriptEntry
from ouro.memory.sessions.records import MessageRecord, Record, SessionHeader
from ouro.memory.sessions.whole_session import read_whole
from ouro.memory.transcript import Transcript
from ouro.messages import Context, Image, Message, Part, Text, Thinking, ToolCall, ToolReply
from ouro.utils.files import only_one
from ouro.utils.log import log
from ouro.utils.repository import branch_in_note, same_project

PIECE = MOST_CHARACTERS // 2
"""Characters of words after which a piece ends, at the next message of the person."""


class Piece(msgspec.Struct, frozen=True):
    """Messages of a conversation that are captured together."""

    spoken: tuple[Spoken, ...]
    upto: int
    """The number of the last message; those of tools count too."""
    place: int
    """How many messages of the line there were by then."""
    turn: int
    at: str
    """When the last message was said."""


def is_known(header: SessionHeader, line: Transcript) -> bool:
    """Whether a session tells which of its messages were said with memory on: it began so, or marks the others.

    One without either is older than the marks, or a copy.
    """
    return bool(header.memory) or any(each.private for each in line.entries)


def turns_since(entries: Sequence[TranscriptEntry], captured: int) -> int:
    """The person's turns after the message of that number, those with memory off left out."""
    return sum(1 for each in entries if each.number > captured and not each.private and _is_turn(each))


def uncaptured(
    entries: Sequence[TranscriptEntry],
    captured: int,
    branch_in: Callable[[str], str] = lambda _context: "",
    turn: int = 0,
) -> Iterator[Piece]:
    """What came after the message of number `captured`, oldest first; nothing where the person has said nothing since.

    Args:
        branch_in: the branch that a context of a message tells of; empty where it tells of none.
        turn: the number of the last turn before these messages.
    """
    if not turns_since(entries, captured):
        return
    branch, size = "", 0
    spoken: list[Spoken] = []
    last = None
    for place, each in enumerate(entries):
        is_turn = _is_turn(each)
        if size > PIECE and is_turn and last is not None:
            yield Piece(tuple(spoken), last.number, place, turn, last.at)
            spoken, size = [], 0
        turn += is_turn
        branch = _branch(each, branch_in) or branch
        if each.number <= captured:
            continue
        last = each
        if each.private:
            continue
        if found := words_of(each.number, each.message):
            spoken.append(msgspec.structs.replace(found, turn=turn, at=each.at, branch=branch))
            size += min(len(found.text), PIECE)
    if last is not None:
        yield Piece(tuple(spoken), last.number, len(entries), turn, last.at)


def _is_turn(entry: TranscriptEntry) -> bool:
    found = words_of(entry.number, entry.message)
    return found is not None and found.role == "user"


def _branch(entry: TranscriptEntry, branch_in: Callable[[str], str]) -> str:
    told = [branch_in(part.text) for part in entry.message.parts_of(Context)]
    return next((each for each in reversed(told) if each), "")


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


_LONGEST_ARGUMENT = 2_000
_LONGEST_CONTEXT = 2_000


def slim(record: Record) -> Record:
    """The record as it is needed to learn from what was said; of everything else the least."""
    if not isinstance(record, MessageRecord):
        return record
    parts = (each for part in record.message.parts if (each := _slim(part)) is not None)
    return replace(record, message=Message(record.message.role, tuple(parts)))


def _slim(part: Part) -> Part | None:
    match part:
        case Text(text) if len(text) > 2 * LONGEST_PART:
            return Text(f"{text[:LONGEST_PART]}\n[…]\n{text[-LONGEST_PART:]}")
        case Context(text):
            return Context(text[:_LONGEST_CONTEXT])
        case ToolCall(call_id, name, arguments):
            kept = {key: value[:_LONGEST_ARGUMENT] for key, value in arguments.items() if isinstance(value, str)}
            return ToolCall(call_id, name, kept)
        case ToolReply(call_id, name):
            return ToolReply(call_id, name, "")
        case Image() | Thinking():
            return None
        case _:
            return part
