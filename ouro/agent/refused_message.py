"""Name the message that a provider refuses: it would end each later turn, too."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ouro.errors import ModelError
from ouro.memory.backend import MessageRecord
from ouro.messages import ToolCall, ToolReply

_PLACE = re.compile(r"\b(?:messages|input|contents)\W{0,2}(\d+)", re.IGNORECASE)
"""How providers name a place in the request: `messages[3]`, `messages.3.content`, `input.3`."""
_MIN_ID = 6
_REFUSALS = (400, 422)


def explain_refusal(error: ModelError, entries: Sequence[MessageRecord]) -> str:
    """The text of an error, with what to do if it names a message, a call or a part of the request.

    Args:
        entries: the messages that were sent.
    """
    answer = error.answer
    if answer is None or answer.status not in _REFUSALS:
        return str(error)
    named = f"{answer.param} {answer.text}"
    if found := _find_call(named, entries):
        return (
            f"{error} It refuses message {found.number} of this session. Leave that out with"
            f" `/context drop {found.number}`, or go back before it with `/rewind`."
        )
    if _PLACE.search(named):
        return (
            f"{error} It refuses a message of this session. `/rewind` goes back before it,"
            " `/context` lists the messages, and `/context drop N` leaves one out."
        )
    return str(error)


def _find_call(named: str, entries: Sequence[MessageRecord]) -> MessageRecord | None:
    """The newest message with a call, or a result of one, whose id the refusal names."""
    for entry in reversed(entries):
        for part in entry.message.parts:
            id_of_call = part.id if isinstance(part, ToolCall) else ""
            id_of_call = part.call_id if isinstance(part, ToolReply) else id_of_call
            if len(id_of_call) >= _MIN_ID and id_of_call in named:
                return entry
    return None
