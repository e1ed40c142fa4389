"""A session's records without what tools said: the words, and of calls what tells whence material came."""

from __future__ import annotations

from msgspec.structs import replace

from ouro.memory.long_term.capture.capture_request import LONGEST_PART
from ouro.memory.sessions.records import MessageRecord, Record
from ouro.messages import Context, Image, Message, Part, Text, Thinking, ToolCall, ToolReply

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
