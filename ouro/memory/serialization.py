"""Records to plain data and back."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from ouro.display import Body as DisplayBody
from ouro.display import CommandOutput, Diff, Display, FileChange, Picture, Plain, Todo, Todos
from ouro.memory.backend import CHANGES, MessageRecord, Record, SessionHeader
from ouro.memory.record_fields import (
    BodyFields,
    CallFields,
    HeaderFields,
    ImageFields,
    MessageFields,
    PartFields,
    ReplyFields,
)
from ouro.messages import Context, Image, Message, Part, Text, Thinking, ToolCall, ToolReply, Usage
from ouro.safety.secrets import is_secret_name

Mask = Callable[[str], str]
KeepImage = Callable[[Image], str]
"""Puts a picture beside the session file and gives its name there."""
FetchImage = Callable[[str], bytes]
"""The bytes of a picture that was kept; raises OSError."""

_PARTS_IN_ORDER = (Context, Thinking, Text, Image, ToolCall, ToolReply)
_HUNK_LINES = re.compile(r"([-+])(\d+)")
S = TypeVar("S", bound=msgspec.Struct)


class BadRecordError(ValueError):
    """Plain data that is no record; the message says what is wrong."""


class UnknownRecordError(ValueError):
    """A record of a kind that this ouro does not know."""


# Writing


def header_data(header: SessionHeader) -> dict[str, Any]:
    """The first record of a session."""
    first = {"format": header.format, "id": header.id, "created_at": header.created_at}
    data = {"session": first, "project": header.project, "model": header.model}
    return data | _present(memory=dict(header.memory), origin=dict(header.origin))


def record_data(record: Record, mask: Mask, keep_image: KeepImage) -> dict[str, Any]:
    """A record as it stands in the file: secrets masked, pictures kept beside it."""
    match record:
        case MessageRecord():
            return _Writer(mask, keep_image).message(record)
        case _:
            data: dict[str, Any] = _masked(msgspec.to_builtins(record), mask)
            return data


def _masked(value: Any, mask: Mask) -> Any:
    if isinstance(value, dict):
        return {key: _masked(item, mask) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(item, mask) for item in value]
    return mask(value) if isinstance(value, str) else value


class _Writer:
    """Parts to plain data."""

    def __init__(self, mask: Mask, keep_image: KeepImage) -> None:
        self._mask = mask
        self._keep_image = keep_image

    def message(self, record: MessageRecord) -> dict[str, Any]:
        message = record.message
        data: dict[str, Any] = {"message": record.number, "at": record.at, "role": message.role}
        data |= _present(model=message.model, cut=message.cut)
        data |= self._by_kind(message.parts) if _in_order(message.parts) else self._one_by_one(message.parts)
        if message.usage is not None:
            data["usage"] = _usage_data(message.usage)
        return data

    def _by_kind(self, parts: Iterable[Part]) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for part in parts:
            kind, value = self._part(part)
            if kind == "text":
                data["text"] = value
            else:
                names = {"image": "images", "call": "tool_calls", "reply": "replies"}
                data.setdefault(names.get(kind, kind), []).append(value)
        return data

    def _one_by_one(self, parts: Iterable[Part]) -> dict[str, Any]:
        return {"parts": [dict([self._part(part)]) for part in parts]}

    def _part(self, part: Part) -> tuple[str, Any]:
        match part:
            case Text(text):
                return "text", self._mask(text)
            case Context(text):
                return "context", self._mask(text)
            case Thinking(text, signature, redacted):
                return "thinking", {"text": self._mask(text)} | _present(signature=signature, redacted=redacted)
            case Image():
                return "image", self._image(part)
            case ToolCall():
                return "call", self._call(part)
            case ToolReply():
                return "reply", self._reply(part)

    def _image(self, image: Image) -> dict[str, Any]:
        return {"file": self._keep_image(image), "media_type": image.media_type} | _present(name=self._mask(image.name))

    def _call(self, call: ToolCall) -> dict[str, Any]:
        data: dict[str, Any] = {"id": call.id, "name": call.name}
        try:
            arguments = self._masked(call.arguments)
            data |= {"arguments": arguments} if _is_writable(arguments) else {"arguments_json": json.dumps(arguments)}
        except RecursionError:
            return data | {"arguments": {}, "malformed": "[nested too deep to be kept]"}
        return data | _present(malformed=self._mask(call.malformed))

    def _reply(self, reply: ToolReply) -> dict[str, Any]:
        text = self._mask(reply.text)
        data: dict[str, Any] = {"id": reply.call_id, "name": reply.name, "text": text} | _present(failed=reply.failed)
        if reply.images:
            data["images"] = [self._image(image) for image in reply.images]
        if reply.display is not None:
            data["summary"] = self._mask(reply.display.summary)
            if reply.display.body is not None:
                data["body"] = self._body(reply.display.body, text)
        return data

    def _body(self, body: DisplayBody, told: str) -> dict[str, Any]:
        match body:
            case Plain(text, language):
                return {"kind": "plain"} | self._unless_told(text, told) | _present(language=language)
            case Diff():
                return {"kind": "plain", "language": "diff", "text": self._mask(unified(body))}
            case CommandOutput(command, output, exit_code):
                data = {"kind": "command", "command": self._mask(command), "exit_code": exit_code}
                return data | self._unless_told(output, told)
            case Picture(name, media_type, size):
                return {"kind": "picture", "name": self._mask(name), "media_type": media_type, "bytes": size}
            case Todos(items):
                return {"kind": "todos", "items": [[item.state, self._mask(item.text)] for item in items]}

    def _unless_told(self, text: str, told: str) -> dict[str, Any]:
        """Nothing for the reply's own text, and for its beginning how many lines that is: no output is kept twice."""
        shown = self._mask(text)
        if shown == told:
            return {}
        if shown and told.startswith(f"{shown}\n"):
            return {"lines": shown.count("\n") + 1}
        return {"text": shown}

    def _masked(self, value: Any, name: str = "") -> Any:
        if isinstance(value, Mapping):
            return {self._mask(key): self._masked(item, key) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._masked(item, name) for item in value]
        if isinstance(value, str):
            return self._masked_pair(name, value) if is_secret_name(name) else self._mask(value)
        return value

    def _masked_pair(self, name: str, value: str) -> str:
        # A value may look harmless until one sees what it is called.
        pair = self._mask(f"{name}={value}")
        return pair.removeprefix(f"{name}=")


def _in_order(parts: tuple[Part, ...]) -> bool:
    """The parts come in the order in which the short form gives them back, with one text at most."""
    ranks = [_PARTS_IN_ORDER.index(type(part)) for part in parts]
    return ranks == sorted(ranks) and ranks.count(_PARTS_IN_ORDER.index(Text)) <= 1


def _present(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _usage_data(usage: Usage) -> dict[str, Any]:
    data = {"input": usage.input} | _present(cached=usage.cached, cache_written=usage.cache_written)
    data["output"] = usage.output
    return data if usage.cost is None else {**data, "cost": usage.cost}


def _is_writable(value: Any, depth: int = 0) -> bool:
    """Whether the reader would take it back: not too deep, no odd keys, no endless numbers."""
    if isinstance(value, dict):
        return depth < 32 and all(len(key) <= 200 and _is_writable(item, depth + 1) for key, item in value.items())
    if isinstance(value, list):
        return depth < 32 and all(_is_writable(item, depth + 1) for item in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or abs(value) < 1 << 63


def unified(diff: Diff) -> str:
    """A diff as the text that `diff -u` would give."""
    return "".join(line for change in diff.changes for line in _file_lines(change))


def _file_lines(change: FileChange) -> Iterable[str]:
    before = (change.before or "").splitlines(keepends=True)
    after = (change.after or "").splitlines(keepends=True)
    shift = change.first_line - 1
    source = "/dev/null" if change.before is None else change.path
    target = "/dev/null" if change.after is None else change.moved_to or change.path
    for line in difflib.unified_diff(before, after, source, target):
        if shift and line.startswith("@@"):
            line = _HUNK_LINES.sub(lambda found: f"{found[1]}{int(found[2]) + shift}", line, count=2)  # noqa: PLW2901
        yield line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"


# Reading


def header_from(data: Any) -> SessionHeader:
    """The header in the first record.

    Raises:
        BadRecordError: it is not a header.
    """
    if not isinstance(data, dict) or "session" not in data:
        raise BadRecordError("the first record is not a `session:` header")
    header = _converted(data, HeaderFields)
    return SessionHeader(
        header.session.id,
        header.project,
        header.model,
        header.session.created_at,
        header.session.format,
        header.memory,
        header.origin,
    )


def record_from(data: Any, fetch_image: FetchImage) -> tuple[Record, tuple[str, ...]]:
    """A record, and the fields of it that this ouro does not know.

    Raises:
        UnknownRecordError: of a kind that this ouro does not know.
        BadRecordError: of a known kind, but not as it should be.
    """
    if not isinstance(data, dict) or not data:
        raise BadRecordError("not a record")
    if kind := CHANGES.get(next(iter(data))):
        return _converted({"at": "", **data}, kind), _unknown_fields(data, kind)
    if "message" in data or "role" in data:
        return _Reader(fetch_image).message(_converted(data, MessageFields)), _unknown_fields(data, MessageFields)
    if "session" in data:
        raise BadRecordError("a second header")
    raise UnknownRecordError(next(iter(data)))


def _converted(data: Any, kind: type[S]) -> S:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise BadRecordError(str(error)) from error


def _unknown_fields(data: dict[str, Any], kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(sorted(data.keys() - set(kind.__struct_encode_fields__)))


class _Reader:
    """Plain data to parts."""

    def __init__(self, fetch_image: FetchImage) -> None:
        self._fetch_image = fetch_image

    def message(self, data: MessageFields) -> MessageRecord:
        parts = tuple(self._parts(data))
        usage = None if data.usage is None else Usage(**msgspec.structs.asdict(data.usage))
        return MessageRecord(data.message, data.at, Message(data.role, parts, usage, data.model, data.cut))

    def _parts(self, data: MessageFields) -> Iterable[Part]:
        yield from map(Context, data.context)
        yield from (Thinking(each.text, each.signature, each.redacted) for each in data.thinking)
        if data.text is not None:
            yield Text(data.text)
        yield from map(self._image, data.images)
        yield from map(_call, data.tool_calls)
        yield from map(self._reply, data.replies)
        yield from map(self._part, data.parts)

    def _part(self, part: PartFields) -> Part:
        if part.text is not None:
            return Text(part.text)
        if part.context is not None:
            return Context(part.context)
        if part.thinking is not None:
            return Thinking(part.thinking.text, part.thinking.signature, part.thinking.redacted)
        if part.image is not None:
            return self._image(part.image)
        if part.call is not None:
            return _call(part.call)
        if part.reply is not None:
            return self._reply(part.reply)
        raise BadRecordError("an empty part")

    def _image(self, data: ImageFields) -> Image | Text:
        try:
            return Image(data.media_type, self._fetch_image(data.file), data.name)
        except OSError:
            return Text(f"[the picture {data.name or data.file} is no longer there]")

    def _reply(self, data: ReplyFields) -> ToolReply:
        pictures = [self._image(image) for image in data.images]
        lost = "".join(f"\n{each.text}" for each in pictures if isinstance(each, Text))
        images = tuple(each for each in pictures if isinstance(each, Image))
        display = None if data.summary is None else Display(data.summary, _body(data.body, data.text))
        return ToolReply(data.id, data.name, data.text + lost, data.failed, images, display)


def _call(data: CallFields) -> ToolCall:
    arguments = data.arguments
    if data.arguments_json:
        try:
            arguments = json.loads(data.arguments_json)
        except (ValueError, RecursionError) as error:
            raise BadRecordError(f"arguments of {data.name}: {error}") from error
    return ToolCall(data.id, data.name, arguments, data.malformed)


def _body(body: BodyFields | None, told: str) -> DisplayBody | None:
    if body is None:
        return None
    text = _shown_text(body, told)
    if body.kind == "plain":
        return Plain(text, body.language)
    if body.kind == "command":
        return CommandOutput(body.command, text, body.exit_code)
    if body.kind == "picture":
        return Picture(body.name, body.media_type, body.bytes)
    return Todos(tuple(Todo(text, state) for state, text in body.items))


def _shown_text(body: BodyFields, told: str) -> str:
    if body.text is not None:
        return body.text
    return told if body.lines is None else "\n".join(told.split("\n")[: body.lines])
