"""The parts of an exported session in order: messages, tool calls with their results, marks between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec
from msgspec.structs import replace

from ouro.memory.backend import (
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
    """A user message, for the table of contents."""

    number: int
    at: str
    text: str
    """Its first words."""


class Survey(msgspec.Struct, frozen=True):
    """Facts about a session, collected before it is written out."""

    title: str
    branch: frozenset[int]
    """The numbers of the messages on the current branch; all others were rewound."""
    prompts: tuple[ExportedPrompt, ...]
    """Those of the current branch."""
    usage: Usage
    last_at: str
    messages: int


class ExportedMessage(msgspec.Struct, frozen=True):
    """A message without its tool calls."""

    by_user: bool
    number: int
    at: str
    parts: tuple[Text | Context | Thinking | Image, ...]
    model: str = ""
    cut: bool = False


class ToolUse(msgspec.Struct, frozen=True):
    """A tool call and its result; None without a result."""

    call: ToolCall
    reply: ToolReply | None


class Mark(msgspec.Struct, frozen=True):
    """An event between the messages, on one line, with details below it."""

    text: str
    at: str
    details: str = ""


class RewoundSpan(msgspec.Struct, frozen=True):
    """Where messages that were rewound later begin, or end."""

    begins: bool


Piece = ExportedMessage | ToolUse | Mark | RewoundSpan


def survey(whole: WholeSession) -> Survey:
    """Read a session once; little of it stays in memory."""
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
    branch = frozenset(entry.number for entry in fold.entries)
    prompts_on_branch = tuple(prompt for prompt in prompts if prompt.number in branch)
    return Survey(fold.title, branch, prompts_on_branch, fold.usage, fold.last_at, count)


def pieces(records: Iterable[Record], found: Survey) -> Iterator[Piece]:
    """A session in pieces; each tool call comes with its result."""
    open_calls: dict[str, ToolCall] = {}
    is_rewound = False
    for record in records:
        if isinstance(record, MessageRecord):
            if (record.number not in found.branch) != is_rewound:
                yield from _unanswered(open_calls)
                is_rewound = not is_rewound
                yield RewoundSpan(is_rewound)
            yield from _message(record, open_calls)
        elif mark := _mark(record, found.title):
            yield from _unanswered(open_calls)
            yield mark
    yield from _unanswered(open_calls)
    if is_rewound:
        yield RewoundSpan(begins=False)


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
    """A timestamp in local time; empty if it is not a timestamp."""
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
    """Whether an image may be embedded in a document; SVG never may, because it can hold scripts."""
    return image.media_type in _SHOWN and 0 < len(image.data) <= largest


def picture_name(image: Image) -> str:
    """The name of an image, on one line."""
    return " ".join(clean(image.name).split())[:120] or clean(image.media_type)
