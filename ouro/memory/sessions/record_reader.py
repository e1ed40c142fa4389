"""Read and validate the records of a session file, field by field."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec

from ouro.display import Body as DisplayBody
from ouro.display import CommandOutput, Display, Picture, Plain, Todo, Todos
from ouro.memory.sessions.records import MessageRecord
from ouro.messages import Context, Image, Message, Part, Role, Text, Thinking, ToolCall, ToolReply, Usage


class SessionFields(msgspec.Struct):
    """The session fields of the header: format and id."""

    id: str
    created_at: str
    format: int


class HeaderFields(msgspec.Struct):
    session: SessionFields
    project: str = ""
    model: str = ""
    memory: dict[str, str] = {}
    origin: dict[str, str] = {}


class UsageFields(msgspec.Struct):
    input: int = 0
    cached: int = 0
    cache_written: int = 0
    output: int = 0
    cost: float | None = None


class ThinkingFields(msgspec.Struct):
    text: str = ""
    signature: str = ""
    redacted: bool = False


class ImageFields(msgspec.Struct):
    """An image in the outputs folder."""

    file: str
    media_type: str
    name: str = ""


class CallFields(msgspec.Struct):
    id: str
    name: str
    arguments: dict[str, Any] = {}
    arguments_json: str = ""
    malformed: str = ""


class BodyFields(msgspec.Struct):
    """The body below a result's summary; without `text` it is the result's text, or its first `lines`."""

    kind: Literal["plain", "command", "picture", "todos"]
    text: str | None = None
    file: str = ""
    """Where the text is, below the session's folder, when it is too long for the record."""
    lines: int | None = None
    language: str = ""
    command: str = ""
    exit_code: int | None = None
    name: str = ""
    media_type: str = ""
    bytes: int = 0
    items: list[tuple[Literal["pending", "in_progress", "done"], str]] = []


class ReplyFields(msgspec.Struct):
    id: str
    name: str
    text: str = ""
    file: str = ""
    """Where the text is, below the session's folder, when it is too long for the record."""
    bytes: int = 0
    failed: bool = False
    images: list[ImageFields] = []
    summary: str | None = None
    body: BodyFields | None = None


class PartFields(msgspec.Struct):
    """One part of a message whose parts are not in the usual order."""

    context: str | None = None
    thinking: ThinkingFields | None = None
    text: str | None = None
    image: ImageFields | None = None
    call: CallFields | None = None
    reply: ReplyFields | None = None


class MessageFields(msgspec.Struct):
    role: Role
    message: int = 0
    """Its number; 0: a user added it by hand, and given it none."""
    at: str = ""
    model: str = ""
    cut: bool = False
    private: bool = False
    usage: UsageFields | None = None
    context: list[str] = []
    thinking: list[ThinkingFields] = []
    text: str | None = None
    images: list[ImageFields] = []
    tool_calls: list[CallFields] = []
    replies: list[ReplyFields] = []
    parts: list[PartFields] = []


Fetch = Callable[[str], bytes]
"""The bytes of a picture or an output that was kept in the outputs folder; raises OSError."""


class BadRecordError(ValueError):
    """Plain data that is not a valid record; the message names the error."""


class RecordReader:
    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    def message(self, data: MessageFields) -> MessageRecord:
        """The message of a record. Raises BadRecordError."""
        parts = tuple(self._parts(data))
        usage = None if data.usage is None else Usage(**msgspec.structs.asdict(data.usage))
        message = Message(data.role, parts, usage, data.model, data.cut)
        return MessageRecord(data.message, data.at, message, data.private)

    def _parts(self, data: MessageFields) -> Iterable[Part]:
        yield from map(Context, data.context)
        yield from (Thinking(item.text, item.signature, item.redacted) for item in data.thinking)
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
            return Image(data.media_type, self._fetch(data.file), data.name)
        except OSError:
            return Text(f"[the picture {data.name or data.file} is no longer there]")

    def _reply(self, data: ReplyFields) -> ToolReply:
        pictures = [self._image(image) for image in data.images]
        lost = "".join(f"\n{item.text}" for item in pictures if isinstance(item, Text))
        images = tuple(item for item in pictures if isinstance(item, Image))
        text = self._text(data.text, data.file)
        display = None if data.summary is None else Display(data.summary, self._body(data.body, text))
        return ToolReply(data.id, data.name, text + lost, data.failed, images, display)

    def _text(self, text: str, file: str) -> str:
        if not file:
            return text
        try:
            return self._fetch(file).decode("utf-8", "replace")
        except OSError:
            return f"[the output {file} is no longer there]"

    def _body(self, body: BodyFields | None, told: str) -> DisplayBody | None:
        if body is None:
            return None
        text = self._text(body.text or "", body.file) if body.file or body.text is not None else _shown_text(body, told)
        if body.kind == "plain":
            return Plain(text, body.language)
        if body.kind == "command":
            return CommandOutput(body.command, text, body.exit_code)
        if body.kind == "picture":
            return Picture(body.name, body.media_type, body.bytes)
        return Todos(tuple(Todo(text, state) for state, text in body.items))


def _call(data: CallFields) -> ToolCall:
    arguments = data.arguments
    if data.arguments_json:
        try:
            arguments = json.loads(data.arguments_json)
        except (ValueError, RecursionError) as error:
            raise BadRecordError(f"arguments of {data.name}: {error}") from error
    return ToolCall(data.id, data.name, arguments, data.malformed)


def _shown_text(body: BodyFields, told: str) -> str:
    return told if body.lines is None else "\n".join(told.split("\n")[: body.lines])
