"""What was said in a session, in parts for a model, and the parts of earlier sessions that are to
be captured.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ouro.errors import SaveFailed, SessionError, SessionInUse
from ouro.memory.backend import (
    ChangeRecord,
    LoadedSession,
    MemoryStore,
    MessageRecord,
    Record,
    SessionHeader,
)
from ouro.memory.long_term.trust.provenance import MAX_OWN_WORDS, OWN_LINE
from ouro.memory.sessions.session_catalog import SessionCatalog
from ouro.memory.transcript import Transcript
from ouro.messages import (
    ATTACHED,
    PIPED,
    Context,
    Image,
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolReply,
)
from ouro.utils.files import try_lock_file
from ouro.utils.git import branch_in_note
from ouro.utils.lenient_json import text_or_json
from ouro.utils.log import log
from ouro.utils.ouro_paths import get_history_dir
from ouro.utils.relative_dates import local_day
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
"""How often to open a session that is in use, within about one second."""
_MAX_ARGUMENT = 2_000
_MAX_CONTEXT = 2_000


class Spoken(msgspec.Struct, frozen=True):
    """What the user or the assistant said in one message."""

    number: int
    role: Literal["user", "assistant"]
    text: str
    turn: int = 0
    """The number of its turn, from 1; 0 when unknown."""
    at: str = ""
    branch: str = ""
    """The git branch that was checked out; empty when unknown."""
    tool_input: str = ""
    """The texts that were given to tools until the next message of the user, without command lines.
    """

    @property
    def day(self) -> date:
        """The local day on which it was said; today if that is not known."""
        return local_day(self.at)

    @property
    def is_own(self) -> bool:
        """Whether the user certainly wrote it: long or piped text may come from another source."""
        return (
            self.role == "user"
            and len(self.text) <= MAX_OWN_WORDS
            and not self.text.startswith((PIPED, ATTACHED))
        )


def spoken_in_message(number: int, message: Message) -> Spoken | None:
    """What was said in a message; None for output of tools and shells, and for a message without
    text.
    """
    if message.role not in ("user", "assistant") or message.text.startswith(OWN_LINE):
        return None
    text = "\n\n".join(part.text for part in message.parts_of(Text)).strip()
    if not text:
        return None
    return Spoken(number, "user" if message.role == "user" else "assistant", text)


def spoken_in(entries: Iterable[MessageRecord]) -> list[Spoken]:
    """What was said in these messages, without messages that say nothing."""
    return [
        spoken for entry in entries if (spoken := spoken_in_message(entry.number, entry.message))
    ]


def newest_lines(
    spoken: Sequence[Spoken], room: int, width: int = sys.maxsize, size: Callable[[str], int] = len
) -> list[str]:
    """The newest messages that together fit into `room`, oldest first, as `User: …` or
    `Assistant: …`. Each is cut to `width` characters; `room` is in the unit of `size`: characters
    by default.
    """
    lines: list[str] = []
    for message in reversed(spoken):
        speaker = "User" if message.role == "user" else "Assistant"
        line = f"{speaker}: {cut_middle(message.text, width)}"
        room -= size(line)
        if room < 0:
            break
        lines.append(line)
    return lines[::-1]


def _tool_texts(message: Message) -> str:
    """The names and arguments of the tool calls in a message, one a line. Command lines are left
    out: they may show conventions of the project. So are searches of the memory: they repeat what
    the user said (`remember that prices are integers`), and leave nothing in the repository.
    """
    values: list[Any] = []
    for call in message.tool_calls:
        if call.name == "memory_search":
            continue
        values.append(call.name)
        values += [call.arguments[key] for key in call.arguments.keys() - {"command"}]
    return "\n".join(text_or_json(value).replace("\\n", "\n") for value in values)


class SessionPart(msgspec.Struct, frozen=True):
    """Consecutive messages of a session that are captured together."""

    spoken: tuple[Spoken, ...]
    upto: int
    """The number of the last message, which may be a tool's."""
    end: int
    """The number of messages of the branch up to there."""
    turn: int


def _last_branch(message: Message) -> str:
    """The git branch that a message names in its last context with a branch; empty if no context
    names one.
    """
    for part in reversed(list(message.parts_of(Context))):
        if branch := branch_in_note(part.text):
            return branch
    return ""


def _with_tool_texts(spoken: Sequence[Spoken], tool_texts: str) -> list[Spoken]:
    """The messages, with `tool_texts` added to the field `tool_input` of the user's last message and
    of those after it. Only the end of the field is kept if it gets too long.
    """
    prompts = [index for index, message in enumerate(spoken) if message.role == "user"]
    if not prompts:
        return list(spoken)
    last_prompt = prompts[-1]
    messages_of_turn = [
        replace(message, tool_input=f"{message.tool_input}\n{tool_texts}"[-PART_CHARACTERS:])
        for message in spoken[last_prompt:]
    ]
    return [*spoken[:last_prompt], *messages_of_turn]


def split_uncaptured(
    entries: Sequence[MessageRecord], captured: int, turn: int = 0
) -> Iterator[SessionPart]:
    """Yield the parts of what was said after the message `captured`, oldest first; no part if the
    user has said nothing since. A part ends before a message of the user, once it is long enough.

    What was said with memory off is left out. Earlier messages are read only for their turns and
    branches; `turn` is the number of the last turn before all `entries`.
    """
    if not turns_since(entries, captured):
        return
    branch, size, last_number = "", 0, 0
    spoken: list[Spoken] = []
    for index, entry in enumerate(entries):
        said = spoken_in_message(entry.number, entry.message)
        if said is not None and said.role == "user":
            if size > PART_CHARACTERS:
                yield SessionPart(tuple(spoken), upto=last_number, end=index, turn=turn)
                spoken, size = [], 0
            turn += 1
        branch = _last_branch(entry.message) or branch
        if entry.number <= captured:
            continue
        last_number = entry.number
        if said and not entry.private:
            spoken.append(replace(said, turn=turn, at=entry.at, branch=branch))
            size += min(len(said.text), PART_CHARACTERS)
        if not entry.private and (tool_texts := _tool_texts(entry.message)):
            spoken = _with_tool_texts(spoken, tool_texts)
    yield SessionPart(tuple(spoken), upto=last_number, end=len(entries), turn=turn)


def turns_since(
    entries: Iterable[MessageRecord], number: int, *, with_private: bool = False
) -> int:
    """The number of messages after the message `number` in which the user said something. Those
    with memory off count only `with_private`: they are in summaries, but never captured.
    """
    counted = [
        entry for entry in entries if entry.number > number and (with_private or not entry.private)
    ]
    return len([message for message in spoken_in(counted) if message.role == "user"])


def records_privacy(header: SessionHeader, transcript: Transcript) -> bool:
    """Whether a session shows which of its messages were said with memory off: it began with memory
    on (its header names commits of memory), or a message is marked as private.

    False for copies, and for sessions older than these marks: they are captured only if the user
    asks for it.
    """
    return bool(header.memory) or any(entry.private for entry in transcript.entries)


async def load_session_not_open(store: MemoryStore, session_id: str) -> LoadedSession | None:
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


async def save_to_session_not_open(
    store: MemoryStore, session_id: str, record: ChangeRecord
) -> None:
    """Append a record to a session that is not open; nothing is written to one that is read-only.
    Raises SessionError, SaveFailed or OSError; SessionInUse if it stays in use for a second.
    """
    # Other background work may have it open: wait, because the model's answer is paid.
    for attempt in range(_SAVE_ATTEMPTS + 1):
        try:
            loaded = await store.load_session(session_id, reach="screen")
            break
        except SessionInUse:
            if attempt == _SAVE_ATTEMPTS:
                raise
            await asyncio.sleep(1 / _SAVE_ATTEMPTS)
    try:
        if not loaded.read_only:
            await store.save_memory(session_id, record)
    finally:
        await store.close_session(session_id)


async def read_whole_branch(store: MemoryStore, session_id: str) -> Transcript | None:
    """The whole current branch of a session, without tool outputs. None if it cannot be read, or
    does not record which messages were said with memory off (`records_privacy`). A copy from
    elsewhere has no such record, and is returned all the same: it is read only when the user asks
    for notes of old sessions (`crystallizer`). The backlog, which nobody asked for, leaves
    copies out before (`_load_uncaptured`).
    """

    def take_all() -> Transcript:
        """The transcript of all records of `whole`; in a thread, because it reads the files."""
        transcript = Transcript()
        for record in whole.records():
            transcript.add_record(drop_outputs(record))
        return transcript

    try:
        whole = await store.read_whole(session_id)
        transcript = await asyncio.to_thread(take_all)
    except (SessionError, OSError) as error:
        log.info("capture: session %s is left out: %s", session_id[:8], error)
        return None
    return transcript if whole.header.origin or records_privacy(whole.header, transcript) else None


def drop_outputs(record: Record) -> Record:
    """The record of a message without outputs of tools, thinking and images, and with long texts
    and arguments of tools cut. Another record is returned as it is.
    """
    if not isinstance(record, MessageRecord):
        return record
    parts: list[Part] = []
    for part in record.message.parts:
        match part:
            case Text(text):
                parts.append(Text(cut_middle(text, 2 * MAX_MESSAGE)))
            case Context(text):
                parts.append(Context(text[:_MAX_CONTEXT]))
            case ToolCall(call_id, name, arguments):
                shortened = {
                    key: text_or_json(value)[:_MAX_ARGUMENT] for key, value in arguments.items()
                }
                parts.append(ToolCall(call_id, name, shortened))
            case ToolReply(call_id, name):
                parts.append(ToolReply(call_id, name, text=""))
            case Image() | Thinking():
                pass
    return replace(record, message=Message(record.message.role, tuple(parts)))


async def find_backlog(
    catalog: SessionCatalog, open_session: str
) -> AsyncGenerator[tuple[str, Transcript, tuple[SessionPart, ...]], None]:
    """Find sessions that ended before everything in them was captured. Yields for each the id, the
    transcript and the first `_MAX_PARTS` parts to capture.

    At most `MAX_SESSIONS` sessions of the last `MAX_DAYS` days are found, the latest first, and
    none that is open. While another process does this, none is found. `open_session` is the id of
    the session of this process.
    """
    since = (datetime.now(UTC) - timedelta(days=MAX_DAYS)).isoformat()
    count = 0
    with try_lock_file(get_history_dir() / "capture.lock") as is_mine:
        sessions = await catalog.sessions_here() if is_mine else []
        others = [
            info for info in sessions if info.id != open_session and not info.is_copied_by_hand
        ]
        recent = [info.id for info in others if info.updated_at >= since]
        for session_id in recent[:_MAX_CANDIDATES]:
            transcript = await _load_uncaptured(catalog.store, session_id)
            if transcript is None:
                continue
            parts = split_uncaptured(transcript.entries, transcript.captured)
            if first_parts := tuple(islice(parts, _MAX_PARTS)):
                yield session_id, transcript, first_parts
                count += 1
            if count == MAX_SESSIONS:
                return


async def _load_uncaptured(store: MemoryStore, session_id: str) -> Transcript | None:
    """The transcript of a session that is not open; the whole of it if something in it is not
    captured. None if the session is in use or cannot be read, if it is a copy from elsewhere
    (`origin`), or if it does not record which messages were said with memory off.
    """
    loaded = await load_session_not_open(store, session_id)
    if loaded is None or loaded.header.origin:
        return None
    transcript = Transcript.of(loaded)
    if turns_since(transcript.entries, transcript.captured) and not transcript.is_whole:
        return await read_whole_branch(store, session_id)
    return transcript if records_privacy(loaded.header, transcript) else None
