"""Events as plain data, for JSON lines; the names are stable and documented in docs/headless.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from ouro import events
from ouro.display import Diff
from ouro.events import Event
from ouro.messages import Message, Thinking, ToolCall, Usage

Data = dict[str, Any]


def event_to_json(event: Event) -> Data:
    """The event as a JSON object: its fields, with these exceptions."""
    match event:
        case events.Prompted():  # not the bytes of images
            images = [{"name": i.name, "media_type": i.media_type, "bytes": len(i.data)} for i in event.images]
            return {"type": "prompted", "text": event.text, "images": images}
        case events.Replied():
            return {"type": "replied", **_message(event.message)}
    data: Data = msgspec.to_builtins(event, enc_hook=_encode)
    match event:
        case events.ToolStarted():
            data["call"] = _call(event.call)
        case events.PermissionAsked():
            data["call"] = _call(event.call)
            del data["of_turn"]
        case events.QuestionAsked():
            del data["of_turn"]
        case events.ToolFinished():
            data["seconds"] = round(event.seconds, 3)
        case events.NotesRecalled():
            data["milliseconds"] = round(event.milliseconds, 1)
        case _:
            pass
    if isinstance(event, events.ToolFinished | events.PermissionAsked | events.CoreChanged) and isinstance(
        event.display.body, Diff
    ):
        for change in data["display"]["body"]["changes"]:
            del change["first_line"]
    return data


def usage_to_json(usage: Usage) -> Data:
    """Tokens and dollars; `cost` is null if the price is unknown."""
    data: Data = msgspec.to_builtins(usage)
    return data


def json_line(data: Mapping[str, Any]) -> str:
    """One line of JSON in ASCII: no text in it can break the line or reach a terminal."""
    return json.dumps(data, default=str, separators=(",", ":")) + "\n"


def _message(message: Message) -> Data:
    thinking = "\n\n".join(part.text for part in message.parts_of(Thinking) if part.text)
    return {
        "text": message.text,
        "thinking": thinking,
        "calls": [_call(call) for call in message.tool_calls],
        "usage": usage_to_json(message.usage) if message.usage else None,
        "model": message.model,
        "cut": message.cut,
    }


def _call(call: ToolCall) -> Data:
    data: Data = {"id": call.id, "name": call.name, "arguments": dict(call.arguments)}
    return {**data, "malformed": call.malformed} if call.malformed else data


def _encode(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)
