"""The sessions of ouro's predecessor: one YAML document each, with messages as OpenAI's chat completions have them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ouro.errors import SessionError
from ouro.importers.builder import TranscriptBuilder, foreign_display
from ouro.importers.json_values import (
    DAMAGED,
    ForeignSession,
    count,
    instant,
    open_regular,
    picture_from_url,
    session_id_for,
    shifted,
    shortened,
    word,
)
from ouro.memory.backend import SessionHeader
from ouro.memory.sessions.yaml_text import BadYamlError, load
from ouro.messages import Image, Message, Part, Text, Thinking, ToolCall, ToolReply, Usage

_LARGEST = 256 << 20


def read_older_ouro(path: Path) -> ForeignSession:
    """The session in a `session.yaml` of the older layout. Its system messages are left out: ouro has its own.

    Raises:
        SessionError: the file cannot be read, or is no such session.
    """
    with open_regular(path) as file:
        text = file.read(_LARGEST + 1)
    if len(text) > _LARGEST:
        raise SessionError(f"{path} has over {_LARGEST >> 20} MB: it is left alone.")
    try:
        document = load(text)
    except BadYamlError as error:
        raise SessionError(f"{path} cannot be read: {error}.") from error
    if not isinstance(document, dict) or not isinstance(document.get("messages"), list):
        raise SessionError(f"{path} is no session of the older layout: it has no `messages`.")
    return _session_of(document, path)


def _session_of(document: Mapping[str, Any], path: Path) -> ForeignSession:
    left_out: Counter[str] = Counter()
    original = word(document.get("id")) or path.parent.name
    created = instant(document.get("created_at")) or instant(path.stat().st_mtime)
    builder = TranscriptBuilder()
    calls: dict[str, ToolCall] = {}
    for place, data in enumerate(document["messages"]):
        # Messages have no times: one millisecond apart they keep their order.
        at = instant(data.get("timestamp") if isinstance(data, dict) else None, shifted(created, place))
        message = _message(data, calls) if isinstance(data, dict) else None
        if message is not None:
            builder.add(message, at)
            calls.update({call.id: call for call in message.tool_calls})
        elif not (isinstance(data, dict) and data.get("role") == "system"):
            left_out[DAMAGED] += 1
    if title := word(document.get("title")):
        builder.entitle(title)
    origin = {"from": "ouro-old", "id": original, "file": str(path)}
    header = SessionHeader(session_id_for("ouro-old", original), "", builder.model, created, origin=origin)
    return ForeignSession(header, builder.finish(), +left_out)


def _message(data: Mapping[str, Any], calls: Mapping[str, ToolCall]) -> Message | None:
    match data.get("role"):
        case "user":
            parts = tuple(_contents(data.get("content")))
            replies = tuple(_replies(data.get("content"), calls))
            return Message("tool", replies) if replies else Message("user", parts) if parts else None
        case "assistant":
            return _answer(data)
        case "tool":
            call_id = word(data.get("tool_call_id"))
            call = calls.get(call_id, ToolCall(call_id, word(data.get("name")) or "unknown", {}))
            text = "\n".join(item.text for item in _contents(data.get("content")) if isinstance(item, Text))
            return Message("tool", (ToolReply(call_id, call.name, text, display=foreign_display(call, text)),))
        case _:
            return None


def _answer(data: Mapping[str, Any]) -> Message | None:
    parts: list[Part] = []
    thought = data.get("reasoning_content") or data.get("thinking")
    if isinstance(thought, str) and thought.strip():
        parts.append(Thinking(shortened(thought)))
    parts += _contents(data.get("content"))
    given = data.get("tool_calls")
    parts += [_call(item) for item in given if isinstance(item, dict)] if isinstance(given, list) else []
    usage = data.get("usage")
    used = _usage(usage) if isinstance(usage, dict) else None
    return Message("assistant", tuple(parts), used, word(data.get("model"), 120)) if parts else None


def _contents(content: Any) -> Iterable[Text | Image | ToolCall]:
    """Text and images of a content, and the tool calls that the oldest version stored there."""
    if isinstance(content, str) and content.strip():
        yield Text(shortened(content))
    for block in content if isinstance(content, list) else []:
        match block:
            case {"type": "text", "text": str(text)} if text.strip():
                yield Text(shortened(text))
            case {"type": "image_url", "image_url": {"url": url}}:
                yield picture_from_url(url)
            case {"type": "tool_use", "name": str(name), "input": dict(arguments)}:
                yield ToolCall(word(block.get("id")), word(name), arguments)
            case _:
                pass


def _replies(content: Any, calls: Mapping[str, ToolCall]) -> Iterable[ToolReply]:
    for block in content if isinstance(content, list) else []:
        if isinstance(block, dict) and block.get("type") == "tool_result":
            call_id = word(block.get("tool_use_id"))
            call = calls.get(call_id, ToolCall(call_id, "unknown", {}))
            text = "\n".join(item.text for item in _contents(block.get("content")) if isinstance(item, Text))
            yield ToolReply(call_id, call.name, text, display=foreign_display(call, text))


def _call(data: Mapping[str, Any]) -> ToolCall:
    function = data.get("function")
    function = function if isinstance(function, dict) else data
    given = function.get("arguments")
    try:
        arguments = json.loads(given or "{}") if isinstance(given, str | None) else given
    except (ValueError, RecursionError):
        arguments = None
    name = word(function.get("name")) or "unknown"
    if isinstance(arguments, dict):
        return ToolCall(word(data.get("id")), name, arguments)
    return ToolCall(word(data.get("id")), name, {}, malformed=shortened(str(given)))


def _usage(usage: Mapping[str, Any]) -> Usage:
    read = count(usage.get("input_tokens")) or count(usage.get("prompt_tokens"))
    written = count(usage.get("output_tokens")) or count(usage.get("completion_tokens"))
    return Usage(read, count(usage.get("cache_read_tokens")), count(usage.get("cache_creation_tokens")), written)
