"""A saved transcript as the events that showed it."""

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
from ouro.memory.backend import CompactionRecord, ModelRecord, RecalledRecord, RewindRecord
from ouro.memory.message_tree import TranscriptEntry
from ouro.memory.transcript import ShownItem
from ouro.messages import Image, Message, Text, Thinking, ToolCall, ToolReply


def replay(items: Iterable[ShownItem], title: Callable[[ToolCall], str]) -> Iterator[Event]:
    """The events of past turns, in order. No tool is run."""
    for item in items:
        match item:
            case TranscriptEntry():
                yield from _message(item.message, title)
            case CompactionRecord():
                yield compaction_event(item)
            case RecalledRecord(items=notes, way=way):
                # The record holds the ids of notes, not their texts.
                yield NotesRecalled(
                    tuple(Remembered(i.id, "", i.state, i.reason, "", i.score, i.tokens) for i in notes), way
                )
            case ModelRecord(model):
                yield Said(f"Model: {model}")
            case RewindRecord():
                yield Said("Rewound to here. What followed is kept: /rewind lists it.")


def compaction_event(record: CompactionRecord) -> Event:
    """The event that shows a compaction: when it is made, and when the session is shown again."""
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
            yield from (_finished(result) for result in message.parts_of(ToolReply))
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


def _finished(result: ToolReply) -> ToolFinished:
    display = result.display or Display(result.text.partition("\n")[0][:120], Plain(result.text))
    return ToolFinished(result.call_id, result.name, display, result.failed, 0.0)
