"""Events as JSON for another process of ouro, and back: what a screen needs of them."""

from __future__ import annotations

from functools import cache
from typing import Any, Union, get_args

import msgspec
from msgspec.structs import replace

from ouro import events
from ouro.events import Event
from ouro.messages import Message, Part, Text, Thinking, ToolCall, Usage
from ouro.utils.decoding import from_plain

_SHOWN_PARTS: dict[str, Any] = {"text": Text, "thinking": Thinking, "call": ToolCall}
"""The classes of the parts of an answer that are shown, by the name that is sent."""


def encode(event: Event) -> dict[str, Any]:
    """The event as JSON, with its tag as `type`. Images lose their bytes: a screen only shows their
    names.
    """
    match event:
        case events.Replied(message):
            return {"type": "replied", "message": _encode_message(message)}
        case events.Prompted():
            images = tuple(replace(image, data=b"") for image in event.images)
            event = replace(event, images=images)
        case _:
            pass
    encoded: dict[str, Any] = msgspec.to_builtins(event, enc_hook=str)
    return encoded


def decode(data: Any) -> Event | None:
    """The event from its JSON; None if this version does not know it."""
    try:
        if isinstance(data, dict) and data.get("type") == "replied":
            return events.Replied(_decode_message(data["message"]))
        event: Event = from_plain(data, _tagged_events())
        return event
    except (msgspec.ValidationError, KeyError, TypeError):
        return None


@cache
def _tagged_events() -> Any:
    """The union of all events that msgspec can decode by their tag. `Replied` is left out, because
    the parts of its message have no tag.
    """
    return Union[tuple(kind for kind in get_args(Event) if kind is not events.Replied)]  # noqa: UP007


def _encode_message(message: Message) -> dict[str, Any]:
    """An answer as JSON. Each part has its kind; parts that are not shown are left out."""
    names = {kind: name for name, kind in _SHOWN_PARTS.items()}
    return {
        "parts": [
            {"kind": names[type(part)], **msgspec.to_builtins(part, enc_hook=str)}
            for part in message.parts
            if type(part) in names
        ],
        "usage": msgspec.to_builtins(message.usage),
        "model": message.model,
        "cut": message.cut,
    }


def _decode_message(data: dict[str, Any]) -> Message:
    """An answer from JSON. Raises KeyError or ValidationError for a part of another version."""
    parts: list[Part] = []
    for part in data["parts"]:
        kind = _SHOWN_PARTS[part["kind"]]
        parts.append(from_plain(part, kind))
    usage = from_plain(data.get("usage"), Usage | None)
    return Message(
        "assistant",
        tuple(parts),
        usage=usage,
        model=str(data.get("model", "")),
        cut=bool(data["cut"]),
    )
