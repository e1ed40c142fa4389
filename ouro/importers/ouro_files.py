"""ouro's own files: its JSON export, and the YAML documents of its predecessor, which has OpenAI's
messages.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ouro.errors import SessionError
from ouro.importers.foreign_values import (
    DAMAGED,
    add_milliseconds,
    count_of,
    cut_text,
    open_regular,
    parse_call,
    parse_time,
    short_text,
    texts_and_images,
)
from ouro.importers.transcript_builder import (
    ForeignSession,
    TranscriptBuilder,
    is_session_id,
)
from ouro.memory.backend import FORMAT, ModeRecord, Record
from ouro.memory.record_fields import BadRecordError
from ouro.memory.safe_yaml import BadYamlError, load
from ouro.memory.serialization import UnknownRecordError, header_from, record_from_export
from ouro.messages import Message, Part, Text, Thinking, ToolReply, Usage
from ouro.utils.lenient_json import dictionaries, dictionary

DAMAGED_RECORDS = "records that cannot be read"
"""What `left_out` calls them."""
_MAX_EXPORT = 1 << 30
"""Maximum bytes of an export."""
_MAX_OLDER = 256 << 20
"""Maximum bytes of a session of the older layout; YAML needs more memory."""


def read_export(path: Path) -> ForeignSession:
    """The session in an export. Records that cannot be read are counted in `left_out`.

    Records of the mode are dropped: the file of another user must not turn off the questions.
    Raises SessionError if the file cannot be read, is not an export, or is too new.
    """
    content = _content(path, _MAX_EXPORT)
    try:
        document = json.loads(content)
        header = header_from(document)
    except (ValueError, RecursionError) as error:
        raise SessionError(f"{path} is not an export of ouro: {str(error)[:200]}.") from error
    if header.format > FORMAT:
        raise SessionError(
            f"{path} was exported by a newer ouro (format {header.format}).", "Update ouro."
        )
    if not is_session_id(header.id) or not parse_time(header.created_at):
        raise SessionError(f"{path} is not an export of ouro: its id or date is not valid.")
    left_out: Counter[str] = Counter()
    records: list[Record] = []
    items = document.get("records")
    if not isinstance(items, list):
        items = []
    for data in items:
        try:
            record = record_from_export(data)
        except (UnknownRecordError, BadRecordError, RecursionError):
            left_out[DAMAGED_RECORDS] += 1
            continue
        if not isinstance(record, ModeRecord):
            records.append(record)
    return ForeignSession(header, tuple(records), left_out)


def read_older_ouro(path: Path) -> ForeignSession:
    """The session in a `session.yaml` of the older layout, without its system messages: ouro has
    its own.

    Raises SessionError if the file cannot be read, or is not such a session.
    """
    try:
        document = load(_content(path, _MAX_OLDER))
    except BadYamlError as error:
        raise SessionError(f"{path} cannot be read: {error}.") from error
    if not isinstance(document, dict) or not isinstance(document.get("messages"), list):
        raise SessionError(f"{path} is not a session of the older layout: it has no `messages`.")
    builder = TranscriptBuilder()
    builder.created = parse_time(document.get("created_at")) or parse_time(path.stat().st_mtime)
    for index, data in enumerate(document["messages"]):
        message = _message(data, builder) if isinstance(data, dict) else None
        if message is not None:
            # Most messages have no time: one millisecond between them keeps their order.
            default_time = add_milliseconds(builder.created, index)
            builder.add(message, parse_time(data.get("timestamp"), default_time))
        elif not (isinstance(data, dict) and data.get("role") == "system"):
            builder.left_out[DAMAGED] += 1
    builder.set_title(short_text(document.get("title")))
    return builder.finish("ouro-old", short_text(document.get("id")) or path.parent.name, path)


def _content(path: Path, max_bytes: int) -> bytes:
    """The bytes of a file. Raises SessionError if it cannot be opened or has more than `max_bytes`."""
    with open_regular(path) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise SessionError(f"{path} has over {max_bytes >> 20} MB: it is not read.")
    return content


def _message(data: Mapping[str, Any], builder: TranscriptBuilder) -> Message | None:
    """A message in the format of the older ouro or of OpenAI. None for other roles, and for a message of
    the user or an answer without content.
    """
    content = data.get("content")
    match data.get("role"):
        case "user":
            results = [
                _reply(block.get("tool_use_id"), block.get("content"), builder)
                for block in dictionaries(content)
                if block.get("type") == "tool_result"
            ]
            if results:
                return Message("tool", tuple(results))
            parts = tuple(texts_and_images(content))
            return Message("user", parts) if parts else None
        case "assistant":
            return _answer(data)
        case "tool":
            return Message(
                "tool", (_reply(data.get("tool_call_id"), content, builder, name=data.get("name")),)
            )
        case _:
            return None


def _reply(call_id: Any, content: Any, builder: TranscriptBuilder, name: Any = None) -> ToolReply:
    """The result of a tool call, with its texts joined. `name`: the tool, if the call is missing."""
    texts = [item.text for item in texts_and_images(content) if isinstance(item, Text)]
    return builder.make_reply(
        short_text(call_id), "\n".join(texts), name=short_text(name) or "unknown"
    )


def _answer(data: Mapping[str, Any]) -> Message | None:
    """An answer with its thoughts, texts and calls; None if it is empty."""
    parts: list[Part] = []
    thoughts = data.get("reasoning_content") or data.get("thinking")
    if isinstance(thoughts, str) and thoughts.strip():
        parts.append(Thinking(cut_text(thoughts)))
    parts += texts_and_images(data.get("content"))
    for block in dictionaries(data.get("content")):  # the oldest version stored tool calls there
        if block.get("type") == "tool_use":
            name = short_text(block.get("name")) or "unknown"
            parts.append(parse_call(short_text(block.get("id")), name, block.get("input")))
    for call in dictionaries(data.get("tool_calls")):
        function = dictionary(call.get("function")) or call
        name = short_text(function.get("name")) or "unknown"
        parts.append(parse_call(short_text(call.get("id")), name, function.get("arguments")))
    if not parts:
        return None
    model = short_text(data.get("model"), 120)
    return Message("assistant", parts=tuple(parts), usage=_usage(data.get("usage")), model=model)


def _usage(usage: Any) -> Usage | None:
    """The usage under the names of the older ouro or of OpenAI; None if there is none."""
    if not isinstance(usage, dict):
        return None
    return Usage(
        input=count_of(usage.get("input_tokens")) or count_of(usage.get("prompt_tokens")),
        cached=count_of(usage.get("cache_read_tokens")),
        cache_written=count_of(usage.get("cache_creation_tokens")),
        output=count_of(usage.get("output_tokens")) or count_of(usage.get("completion_tokens")),
    )
