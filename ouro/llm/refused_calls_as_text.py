"""Earlier tool calls and their results as text, for a server that refuses them as calls."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import chain

from msgspec.structs import replace

from ouro.llm.portable import SEAL, arguments_of, portable_id, reply_text
from ouro.messages import Context, Message, Part, Text, Thinking, ToolCall, ToolReply

CALL = "[I called the tool {}: {}]"
"""A call as text: tool and arguments."""
RESULT = "[Result of the tool {}:]\n{}"
"""A result as text: tool and text."""
ID_LENGTHS = (40, 64)
"""The maximum lengths of ids on the wires."""
_MIN_ID = 6
"""A shorter id may stand by chance in a refusal."""


def find_calls_to_describe(messages: Sequence[Message], refusal: str) -> set[str]:
    """The ids of the calls that a refusal names, and of the other calls in the same answers. If it
    names none, the ids of all calls.
    """
    ids_of_answers = [_ids_in(message) for message in messages if message.tool_calls]
    refused = [ids for ids in ids_of_answers if _names_any(refusal, ids)]
    if not refused:
        refused = ids_of_answers
    return set().union(*refused)


def calls_as_text(message: Message, described: Set[str]) -> Message:
    """The message with its calls or results as text, if it has one with these ids; else the same
    object. A message of results becomes one of the user.
    """
    if described.isdisjoint(_ids_in(message)):
        return message
    parts = tuple(_parts_as_text(message.parts))
    role = "user" if message.role == "tool" else message.role
    return replace(message, role=role, parts=parts)


def _ids_in(message: Message) -> set[str]:
    """The ids of the calls and the results in a message."""
    calls = {call.id for call in message.tool_calls}
    return calls | {reply.call_id for reply in message.parts_of(ToolReply)}


def _names_any(refusal: str, call_ids: Iterable[str]) -> bool:
    """Whether a refusal names one of these calls, in a form in which its id may have been sent."""
    names = chain.from_iterable(map(_sent_names, call_ids))
    return any(name in refusal for name in names)


def _sent_names(call_id: str) -> list[str]:
    """The forms in which an id may have been sent. Forms that are so short that they could be
    another word of a refusal are left out.
    """
    plain = call_id.partition(SEAL)[0]
    names = [plain, *(portable_id(plain, length) for length in ID_LENGTHS)]
    return [name for name in names if len(name) >= _MIN_ID]


def _parts_as_text(parts: Iterable[Part]) -> Iterator[Part]:
    """Yield the parts; calls and results as text, and thinking left out."""
    for part in parts:
        if isinstance(part, ToolCall):
            arguments = json.dumps(arguments_of(part), ensure_ascii=False)
            yield Text(CALL.format(part.name, arguments))
        elif isinstance(part, ToolReply):
            yield Context(RESULT.format(part.name, reply_text(part, sees_images=True)))
            yield from part.images
        elif not isinstance(part, Thinking):  # its signature is only valid before the call
            yield part
