"""A transcript that was kept, as the events that would have shown it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ouro.display import Display, Plain
from ouro.events import (
    Compacted,
    Event,
    NotesRecalled,
    Prompted,
    Remembered,
    Replied,
    Said,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
)
from ouro.memory.message_tree import TranscriptEntry
from ouro.memory.sessions.records import CompactionRecord, ModelRecord, RecalledRecord, RewindRecord
from ouro.memory.transcript import ShownItem
from ouro.messages import Image, Message, Text, Thinking, ToolCall, ToolReply


def replay(told: Iterable[ShownItem], title: Callable[[ToolCall], str]) -> Iterator[Event]:
    """The events of past turns, in order; tools are not run."""
    for each in told:
        match each:
            case TranscriptEntry():
                yield from _message(each.message, title)
            case CompactionRecord():
                yield compaction_event(each)
            case RecalledRecord(items=items, way=way):
                # Notes are told by their ids alone: that is what is kept of them.
                yield NotesRecalled(
                    tuple(Remembered(i.id, "", i.state, i.reason, "", i.score, i.tokens) for i in items), way
                )
            case ModelRecord(model):
                yield Said(f"Model: {model}")
            case RewindRecord():
                yield Said("Went back to here. What was left is kept: /rewind lists it.")


def compaction_event(record: CompactionRecord) -> Event:
    """What is told of a compaction when it is made, and whenever the conversation is shown again."""
    (before, after), kept = record.tokens, len(record.kept)
    covered = record.messages or (record.covers[1] - record.covers[0] + 1 if record.summary else 0)
    if record.summary and not record.model:
        return Said(
            f"{before:,} → {after:,} tokens: {covered} earlier messages are not sent any more. "
            "The session keeps them, and they can be searched."
        )
    return Compacted(before, after, covered, kept, len(record.dropped), record.summary, record.usage)


def _message(message: Message, title: Callable[[ToolCall], str]) -> Iterator[Event]:
    match message.role:
        case "user":
            yield from _prompted(message)
        case "assistant":
            yield from _replied(message)
            yield from (ToolStarted(call, title(call)) for call in message.tool_calls)
        case "tool":
            yield from (_finished(reply) for reply in message.parts_of(ToolReply))
        case "system":
            pass


def _prompted(message: Message) -> Iterator[Event]:
    if message.text or message.parts_of(Image):
        yield Prompted(message.text, message.parts_of(Image))


def _replied(message: Message) -> Iterator[Event]:
    for part in message.parts:
        if isinstance(part, Thinking) and part.text:
            yield ThinkingDelta(part.text)
        elif isinstance(part, Text):
            yield TextDelta(part.text)
    yield Replied(message)


def _finished(reply: ToolReply) -> ToolFinished:
    display = reply.display or Display(reply.text.partition("\n")[0][:120], Plain(reply.text))
    return ToolFinished(reply.call_id, reply.name, display, reply.failed, 0.0)
