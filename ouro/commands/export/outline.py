"""What a written-out session consists of, in its order: what was said, tools and their outputs, marks between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec
from msgspec.structs import replace

from ouro.memory.sessions.records import (
    CompactionRecord,
    CostRecord,
    ForkRecord,
    MessageRecord,
    ModelRecord,
    RecalledRecord,
    Record,
    RewindRecord,
    TitleRecord,
)
from ouro.memory.sessions.session_reader import WholeSession
from ouro.memory.transcript import Transcript
from ouro.messages import Context, Image, Message, Part, Text, Thinking, ToolCall, ToolReply, Usage
from ouro.utils.text import clean, one_line

_NOTHING = Message("user", ())
_LINE = 90


class ExportedPrompt(msgspec.Struct, frozen=True):
    """What the user said, for the table of contents."""

    number: int
    at: str
    line: str
    """Its first words."""


class Survey(msgspec.Struct, frozen=True):
    """What one look through a session tells before it is written out."""

    title: str
    line: frozenset[int]
    """The numbers of the messages that the conversation goes on from; all others were taken back."""
    prompts: tuple[ExportedPrompt, ...]
    """Those of the line."""
    usage: Usage
    last_at: str
    messages: int


class ExportedMessage(msgspec.Struct, frozen=True):
    """What the user or the model said, in its order; without calls."""

    by_person: bool
    number: int
    at: str
    parts: tuple[Text | Context | Thinking | Image, ...]
    model: str = ""
    cut: bool = False


class ToolUse(msgspec.Struct, frozen=True):
    """A tool call, and what came of it; None where nothing did."""

    call: ToolCall
    reply: ToolReply | None


class Mark(msgspec.Struct, frozen=True):
    """Something that happened between the messages, in a line, and what unfolds below it."""

    text: str
    at: str
    details: str = ""


class TakenBack(msgspec.Struct, frozen=True):
    """From here on what was said was taken back later (`begins`), or no longer."""

    begins: bool


Piece = ExportedMessage | ToolUse | Mark | TakenBack


def survey(whole: WholeSession) -> Survey:
    """Look through a session once, keeping little of it."""
    fold = Transcript()
    prompts: list[ExportedPrompt] = []
    count = 0
    for record in whole.records():
        if isinstance(record, MessageRecord):
            count += 1
            message = record.message
            if message.role == "user" and (words := _first_words(message)):
                prompts.append(ExportedPrompt(record.number, record.at, words))
            fold.take(replace(record, message=replace(_NOTHING, usage=message.usage)))
        else:
            fold.take(record)
    line = frozenset(entry.number for entry in fold.entries)
    kept = tuple(prompt for prompt in prompts if prompt.number in line)
    return Survey(fold.title, line, kept, fold.usage, fold.last_at, count)


def pieces(records: Iterable[Record], found: Survey) -> Iterator[Piece]:
    """A session in pieces; every call comes with its reply, where that has one."""
    open_calls: dict[str, ToolCall] = {}
    is_back = False
    for record in records:
        if isinstance(record, MessageRecord):
            if (record.number not in found.line) != is_back:
                yield from _unanswered(open_calls)
                is_back = not is_back
                yield TakenBack(is_back)
            yield from _message(record, open_calls)
        elif mark := _mark(record, found.title):
            yield from _unanswered(open_calls)
            yield mark
    yield from _unanswered(open_calls)
    if is_back:
        yield TakenBack(begins=False)


def call_title(call: ToolCall) -> str:
    """A call in one line."""
    values = [value for value in call.arguments.values() if isinstance(value, str)]
    command = call.arguments.get("command")
    if isinstance(command, list | tuple):
        values = [" ".join(map(str, command))]
    return short(f"{call.name} {values[0] if values else ''}")


def short(text: str) -> str:
    """The beginning of a text, on one line."""
    return one_line(text[: _LINE * 4], _LINE)


def local_time(at: str) -> str:
    """A time as the user's clock showed it; empty where it is none."""
    try:
        return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return ""


def _first_words(message: Message) -> str:
    return short(message.text) or ("[picture]" if message.parts_of(Image) else "")


def _message(record: MessageRecord, open_calls: dict[str, ToolCall]) -> Iterator[Piece]:
    message = record.message
    if message.role == "tool":
        for reply in message.parts_of(ToolReply):
            yield ToolUse(open_calls.pop(reply.call_id, ToolCall(reply.call_id, reply.name, {})), reply)
        return
    if message.role == "assistant" or message.text:
        yield from _unanswered(open_calls)
    words = tuple(part for part in message.parts if not isinstance(part, ToolCall | ToolReply) and not _is_blank(part))
    if words:
        yield ExportedMessage(message.role != "assistant", record.number, record.at, words, message.model, message.cut)
    open_calls.update({call.id: call for call in message.tool_calls})


def _is_blank(part: Part) -> bool:
    return isinstance(part, Text | Context | Thinking) and not part.text.strip()


def _unanswered(open_calls: dict[str, ToolCall]) -> Iterator[ToolUse]:
    yield from (ToolUse(call, None) for call in open_calls.values())
    open_calls.clear()


def _mark(record: Record, last_title: str) -> Mark | None:
    match record:
        case CompactionRecord():
            return _compaction(record)
        case RewindRecord(to, at):
            return Mark(f"Went back to message {to}." if to else "Went back to the start.", at)
        case ForkRecord(session, number, at):
            return Mark(f"Up to here a copy of session {session[:8]}, up to its message {number}.", at)
        case ModelRecord(model, at):
            return Mark(f"From here on {model} answers.", at)
        case TitleRecord(title, at) if title != last_title:
            return Mark(f"Called “{title}”.", at)
        case RecalledRecord(_, at, items):
            loaded = sum(item.state == "loaded" for item in items)
            return Mark(f"{loaded} notes were recalled.", at) if loaded else None
        case CostRecord(purpose, at, model, usage):
            return Mark(f"In the background: {purpose} ({model}, {usage.input:,} + {usage.output:,} tokens).", at)
        case _:
            return None


def _compaction(record: CompactionRecord) -> Mark:
    first, last = record.covers
    if not record.summary:
        return Mark(f"Compacted: {len(record.dropped)} old outputs were no longer sent.", record.at)
    text = f"Compacted: in place of messages {first} to {last} a summary was sent from here on."
    return Mark(text, record.at, record.summary)


_SHOWN = ("image/png", "image/jpeg", "image/gif", "image/webp")


def can_be_shown(image: Image, largest: int) -> bool:
    """Whether a picture may stand in a document; one that is markup (SVG) never does."""
    return image.media_type in _SHOWN and 0 < len(image.data) <= largest


def picture_name(image: Image) -> str:
    """What a picture is called, on one line."""
    return " ".join(clean(image.name).split())[:120] or clean(image.media_type)
