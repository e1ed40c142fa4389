"""What was said in a session, in parts for a model; CaptureBacklog: the parts of earlier sessions to capture."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from ouro.errors import SaveFailed, SessionError, SessionInUse
from ouro.memory.backend import (
    CapturedRecord,
    ChangeRecord,
    LoadedSession,
    MemoryStore,
    MessageRecord,
    Record,
    SessionHeader,
)
from ouro.memory.long_term.trust.provenance import MAX_OWN_WORDS, OWN_LINE
from ouro.memory.transcript import Transcript
from ouro.messages import ATTACHED, PIPED, Context, Image, Message, Part, Text, Thinking, ToolCall, ToolReply
from ouro.utils.files import only_one
from ouro.utils.git import branch_in_note, same_project
from ouro.utils.json_types import text_or_json
from ouro.utils.log import log
from ouro.utils.text import cut_middle

MAX_MESSAGE = 4_000
"""Characters of one message that a classifier reads: the start and the end."""
MAX_CHARACTERS = 40_000
"""Characters of all messages in one request; older messages are left out."""
PART_CHARACTERS = MAX_CHARACTERS // 2
"""A part of a session with more characters ends at the next user message."""
MAX_DAYS = 14
MAX_SESSIONS = 3
"""Earlier sessions that are captured after one start."""
_MAX_CANDIDATES = 20
_MAX_PARTS = 4
"""Parts of one session that are captured after one start; the next start continues there."""
_SAVE_ATTEMPTS = 20
_MAX_ARGUMENT = 2_000
_MAX_CONTEXT = 2_000


class Spoken(msgspec.Struct, frozen=True):
    """What the user or the assistant said in one message."""

    number: int
    role: Literal["user", "assistant"]
    text: str
    turn: int = 0
    at: str = ""
    branch: str = ""
    """The git branch that was checked out; empty when unknown."""
    done: str = ""
    """The texts that were given to tools until the next message of the user, without command lines."""

    @property
    def is_own(self) -> bool:
        """Whether the user surely wrote it: long or piped text may be from elsewhere."""
        return self.role == "user" and len(self.text) <= MAX_OWN_WORDS and not self.text.startswith((PIPED, ATTACHED))


def words_of(number: int, message: Message) -> Spoken | None:
    """What was said in a message; None for output of tools and shells, and without words."""
    if message.role not in ("user", "assistant") or message.text.startswith(OWN_LINE):
        return None
    text = "\n\n".join(part.text for part in message.parts_of(Text)).strip()
    return Spoken(number, "user" if message.role == "user" else "assistant", text) if text else None


def words_in(entries: Iterable[MessageRecord]) -> list[Spoken]:
    """What was said in these messages."""
    return [spoken for entry in entries if (spoken := words_of(entry.number, entry.message))]


def newest_lines(
    spoken: Sequence[Spoken], room: int, width: int = sys.maxsize, size: Callable[[str], int] = len
) -> list[str]:
    """The newest messages that fit into `room`, oldest first, as `User: …`; of each at most `width` characters."""
    lines: list[str] = []
    for message in reversed(spoken):
        line = f"{'User' if message.role == 'user' else 'Assistant'}: {cut_middle(message.text, width)}"
        room -= size(line)
        if room < 0:
            break
        lines.append(line)
    return lines[::-1]


def _tool_texts(message: Message) -> str:
    """The texts that a message gives to tools, without command lines: these may show how things are done here."""
    given = (
        (call.name, *(call.arguments[key] for key in call.arguments.keys() - {"command"}))
        for call in message.tool_calls
    )
    return "\n".join(text_or_json(value).replace("\\n", "\n") for values in given for value in values)


class SessionPart(msgspec.Struct, frozen=True):
    """Consecutive messages of a session that are captured together."""

    spoken: tuple[Spoken, ...]
    upto: int
    """The number of the last message, which may be a tool's."""
    place: int
    """The number of messages of the branch up to there."""
    turn: int


def split_uncaptured(entries: Sequence[MessageRecord], captured: int, turn: int = 0) -> Iterator[SessionPart]:
    """Yields the parts after message number `captured`, oldest first; none if the user has said nothing since.

    `turn` is the number of the last turn before these messages.
    """
    if not turns_since(entries, captured):
        return
    branch, size, last = "", 0, 0
    spoken: list[Spoken] = []
    for place, entry in enumerate(entries):
        said = words_of(entry.number, entry.message)
        is_turn = said is not None and said.role == "user"
        if is_turn and size > PART_CHARACTERS:
            yield SessionPart(tuple(spoken), last, place, turn)
            spoken, size = [], 0
        turn += is_turn
        named = (branch_in_note(part.text) for part in reversed(list(entry.message.parts_of(Context))))
        branch = next(filter(None, named), branch)
        if entry.number <= captured:
            continue
        last = entry.number
        if said and not entry.private:
            spoken.append(replace(said, turn=turn, at=entry.at, branch=branch))
            size += min(len(said.text), PART_CHARACTERS)
        if not entry.private and (done := _tool_texts(entry.message)):
            asked = max((at for at, other in enumerate(spoken) if other.role == "user"), default=len(spoken))
            spoken[asked:] = [
                replace(other, done=f"{other.done}\n{done}"[-PART_CHARACTERS:]) for other in spoken[asked:]
            ]
    yield SessionPart(tuple(spoken), last, len(entries), turn)


def turns_since(entries: Iterable[MessageRecord], number: int, *, with_private: bool = False) -> int:
    """The number of turns after message `number`; `with_private`: also of those with memory off."""
    spoken = words_in(entry for entry in entries if entry.number > number and (with_private or not entry.private))
    return sum(message.role == "user" for message in spoken)


def records_privacy(header: SessionHeader, transcript: Transcript) -> bool:
    """Whether a session shows which of its messages were said with memory off.

    False for copies, and for sessions older than these marks: they must not be captured.
    """
    return bool(header.memory) or any(entry.private for entry in transcript.entries)


async def load_closed(store: MemoryStore, session_id: str) -> LoadedSession | None:
    """Load a session that is not open; None if it is in use, or cannot be read or written."""
    try:
        loaded = await store.load_session(session_id, reach="context")
        await store.close_session(session_id)
    except SessionInUse:
        return None
    except (SessionError, SaveFailed, OSError) as error:
        log.info("session %s is left out: %s", session_id[:8], error)
        return None
    return None if loaded.read_only else loaded


async def save_closed(store: MemoryStore, session_id: str, record: ChangeRecord) -> None:
    """Append a record to a session that is not open. Raises SessionError, SaveFailed or OSError."""
    loaded = await _load_unused(store, session_id)
    try:
        if not loaded.read_only:
            await store.save_memory(session_id, record)
    finally:
        await store.close_session(session_id)


async def _load_unused(store: MemoryStore, session_id: str) -> LoadedSession:
    """Wait a second if other background work has the session open: the answer of the model is already paid for."""
    for _ in range(_SAVE_ATTEMPTS):
        with suppress(SessionInUse):
            return await store.load_session(session_id, reach="screen")
        await asyncio.sleep(1 / _SAVE_ATTEMPTS)
    return await store.load_session(session_id, reach="screen")


async def read_transcript(store: MemoryStore, session_id: str) -> tuple[SessionHeader, Transcript]:
    """The whole current branch of a session, without tool outputs. Raises SessionError or OSError."""
    whole = await store.read_whole(session_id)

    def take_all() -> Transcript:
        transcript = Transcript()
        for record in whole.records():
            transcript.take(drop_outputs(record))
        return transcript

    return whole.header, await asyncio.to_thread(take_all)


def drop_outputs(record: Record) -> Record:
    """The record without tool outputs; calls keep what names their source."""
    if not isinstance(record, MessageRecord):
        return record
    parts = (part for whole in record.message.parts if (part := _shorten(whole)) is not None)
    return replace(record, message=Message(record.message.role, tuple(parts)))


def _shorten(part: Part) -> Part | None:
    match part:
        case Text(text):
            return Text(cut_middle(text, 2 * MAX_MESSAGE))
        case Context(text):
            return Context(text[:_MAX_CONTEXT])
        case ToolCall(call_id, name, arguments):
            shortened = {key: text_or_json(value)[:_MAX_ARGUMENT] for key, value in arguments.items()}
            return ToolCall(call_id, name, shortened)
        case ToolReply(call_id, name):
            return ToolReply(call_id, name, "")
        case Image() | Thinking():
            return None


class BacklogSession(msgspec.Struct, frozen=True):
    id: str
    transcript: Transcript
    parts: tuple[SessionPart, ...]


class CaptureBacklog(msgspec.Struct, eq=False):
    """Finds sessions that ended before everything in them was captured. One process at a time does so."""

    store: MemoryStore
    own: str
    """The id of the open session."""
    project: str
    """The folder of the open session."""
    lock: Path
    """A lock file."""

    async def sessions(self) -> AsyncGenerator[BacklogSession, None]:
        """Yields sessions of the last 14 days that are not open, latest first; none while another process does this."""
        with only_one(self.lock) as is_mine:
            count = 0
            for session_id in await self._recent() if is_mine else []:
                found = await self._read(session_id)
                if found is not None:
                    yield found
                    count += 1
                if count == MAX_SESSIONS:
                    return

    async def mark_captured(self, session: BacklogSession, part: SessionPart) -> None:
        """Record in a session that a part of it is captured. Raises as `save_closed`."""
        # With the time of the last record, so that the session stays in its place in lists.
        await save_closed(self.store, session.id, CapturedRecord(part.upto, session.transcript.last_at))

    async def _recent(self) -> list[str]:
        since = (datetime.now(UTC) - timedelta(days=MAX_DAYS)).isoformat()
        is_ours = same_project(self.project)
        sessions = await self.store.list_sessions()
        found = [info for info in sessions if info.id != self.own and info.updated_at >= since]
        return [info.id for info in found if is_ours(info.project) and not info.is_copied_by_hand][:_MAX_CANDIDATES]

    async def _read(self, session_id: str) -> BacklogSession | None:
        """The uncaptured parts; None when there are none, it is in use, or memory was off in all of it."""
        loaded = await load_closed(self.store, session_id)
        if loaded is None or loaded.header.origin:
            return None
        transcript = Transcript.of(loaded)
        if not turns_since(transcript.entries, transcript.captured):
            return None
        if not transcript.is_whole:
            try:
                _, transcript = await read_transcript(self.store, session_id)
            except (SessionError, OSError) as error:
                log.info("capture: session %s is left out: %s", session_id[:8], error)
                return None
        if not records_privacy(loaded.header, transcript):
            return None
        parts = tuple(split_uncaptured(transcript.entries, transcript.captured))[:_MAX_PARTS]
        return BacklogSession(session_id, transcript, parts) if parts else None
