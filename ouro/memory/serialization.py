"""Records and messages as plain data, in the form of a session file, and back."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from ouro.display import Body as DisplayBody
from ouro.display import CommandOutput, Diff, Display, Picture, Plain, Todo, Todos
from ouro.memory.backend import CHANGES, CompactionRecord, MessageRecord, Record, SessionHeader
from ouro.memory.record_fields import (
    BadRecordError,
    BodyFields,
    CallFields,
    ImageFields,
    MessageFields,
    ReplyFields,
    read_fields,
)
from ouro.memory.sessions.yaml_text import replace_surrogates
from ouro.messages import (
    Context,
    Image,
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolReply,
    Usage,
)
from ouro.safety import is_secret_name
from ouro.utils.lenient_json import arguments_object

BYTES_BACK = "bytes_back"
"""In a compaction: the distance in bytes to each message that it keeps. A hint for the reader, by
the store.
"""
OUTPUTS = "outputs"
"""The folder, in that of a session, for its images and long outputs."""
MAX_INLINE = 16 << 10
"""An output of at most so many bytes is written into the record; a longer one is put in the outputs
folder.
"""
Mask = Callable[[str], str]
Keep = Callable[[str, bytes], object]
"""Stores the bytes of an image or of a long text under a name, the path relative to the session's
folder.
"""
Fetch = Callable[[str], bytes]
"""Returns the bytes of an image or output in the outputs folder; raises OSError."""

_PARTS_IN_ORDER = (Context, Thinking, Text, Image, ToolCall, ToolReply)
"""Parts in this order, with at most one text, are written by kind; otherwise each part names its
kind.
"""
_FIELDS = {"image": "images", "call": "tool_calls", "reply": "replies"}
"""Kind of a part -> its field in a message; for other kinds the field has the name of the kind."""


class ReadRecord(msgspec.Struct, frozen=True):
    """A record that was read, and what of it was not as expected."""

    record: Record
    unknown: tuple[str, ...]
    """The names of fields that this version of ouro does not know."""
    repaired: tuple[str, ...]
    """The names of fields that were converted or left out in part, because they could not be read.
    """


class UnknownRecordError(ValueError):
    """A record of an unknown kind, from a newer version of ouro."""


def header_data(header: SessionHeader) -> dict[str, Any]:
    """The header of a session as plain data, in the order of a session file."""
    session_fields = {"format": header.format, "id": header.id, "created_at": header.created_at}
    data = {"session": session_fields, "project": header.project, "model": header.model}
    optional_fields = {"memory": dict(header.memory), "origin": dict(header.origin)}
    return data | {name: value for name, value in optional_fields.items() if value}


def header_from(data: Any) -> SessionHeader:
    """The header from the first record. Raises BadRecordError."""
    session = data.get("session") if isinstance(data, dict) else None
    if not isinstance(session, dict) or "format" not in session:
        raise BadRecordError("the first record is not a `session:` header")
    if not isinstance(session["format"], int):
        raise BadRecordError(
            f"format {str(session['format'])[:20]!r} is unknown: was it written by a newer ouro?"
        )
    fields = {"project": "", "model": "", **data, **session}
    header, _repaired = read_fields(fields, SessionHeader, numbers=())
    return header


def record_data(record: Record, mask: Mask, keep: Keep, *, inline: bool = False) -> dict[str, Any]:
    """A record as in a session file: secrets masked, images and long outputs stored by `keep`.

    `inline`: long outputs stay in the record.
    """
    if isinstance(record, MessageRecord):
        return _Writer(mask, keep, inline).message(record)
    data: dict[str, Any] = _mask_all(msgspec.to_builtins(record), mask)
    return data


def record_from(data: Any, fetch: Fetch) -> ReadRecord:
    """A record from plain data. `fetch` returns the bytes of a saved image or output.

    Raises:
        UnknownRecordError: the record has an unknown kind.
        BadRecordError: the record has a known kind, but a required part of it cannot be read.
    """
    if not isinstance(data, dict) or not data:
        raise BadRecordError("not a record")
    if kind := CHANGES.get(next(iter(data))):
        change, repaired = read_fields({"at": "", **data}, kind, data.keys() - {BYTES_BACK})
        if isinstance(change, CompactionRecord) and change.covers[0] > change.covers[1]:
            raise BadRecordError("it covers an impossible range")
        return ReadRecord(
            change, tuple(data.keys() - {*kind.__struct_encode_fields__, BYTES_BACK}), repaired
        )
    if "message" in data or "role" in data:
        return _read_message(data, fetch)
    if "session" in data:
        raise BadRecordError("a second header")
    raise UnknownRecordError(next(iter(data)))


def bytes_back_in(data: Any) -> tuple[int, ...]:
    """The distance in bytes from a compaction back to each message that it keeps; empty if that is
    not recorded.
    """
    distances = data.get(BYTES_BACK, ()) if isinstance(data, dict) else ()
    return (
        tuple(item for item in distances if isinstance(item, int))
        if isinstance(distances, list)
        else ()
    )


def serialize_message(message: Message, number: int = 0, at: str = "") -> dict[str, Any]:
    """A message as plain data for JSON or YAML, as `record_to_export`."""
    return record_to_export(MessageRecord(number, at, message))


def deserialize_message(data: dict[str, Any]) -> Message:
    """The message that `serialize_message` made plain data from. Raises BadRecordError."""
    record = record_from_export(data)
    if not isinstance(record, MessageRecord):
        raise BadRecordError("not a message")
    return record.message


def record_to_export(record: Record) -> dict[str, Any]:
    """A record as in a session file, but with its long outputs, and its images as base64."""
    images: dict[str, bytes] = {}
    data = record_data(record, str, images.__setitem__, inline=True)
    for item in _find_mappings(data) if images else ():
        if isinstance(name := item.get("file"), str) and name in images and "media_type" in item:
            item["data"] = base64.b64encode(images[name]).decode()
    return data


def record_from_export(data: Any) -> Record:
    """The record that `record_to_export` made data from. Raises as `record_from`."""
    images: dict[str, bytes] = {}
    for item in _find_mappings(data):
        if isinstance(encoded := item.get("data"), str) and isinstance(
            name := item.get("file"), str
        ):
            with suppress(ValueError):  # the message then shows that the image is missing
                images[name] = base64.b64decode(encoded, validate=True)

    def fetch(name: str) -> bytes:
        if name not in images:
            raise FileNotFoundError(name)
        return images[name]

    return record_from(data, fetch).record


def _find_mappings(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all mappings inside of plain data, the outer ones first."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        yield from _find_mappings(item)


def _read_message(data: dict[str, Any], fetch: Fetch) -> ReadRecord:
    """A message record. Raises BadRecordError if nothing in it can be read."""
    fields, repaired = read_fields(data, MessageFields, ("message", "usage"))
    message_parts = list(_read_parts(fields, fetch))
    for part in fields.parts:  # each names its kind
        fields_of_part = {
            _FIELDS.get(kind, kind): value if kind == "text" else [value]
            for kind, value in part.items()
        }
        try:
            part_fields, _repaired = read_fields(
                {"role": fields.role, **fields_of_part}, MessageFields, numbers=()
            )
            parts = list(_read_parts(part_fields, fetch))
        except BadRecordError:
            parts = []
        message_parts += parts
        if not parts:
            repaired += ("parts",)
    if repaired and not message_parts:
        raise BadRecordError(f"nothing in it can be read: `{repaired[0]}` is of a wrong type")
    message = Message(
        fields.role, tuple(message_parts), fields.usage, fields.model, fields.cut, fields.incomplete
    )
    record = MessageRecord(fields.message, fields.at, message, fields.private, fields.steered)
    return ReadRecord(
        record, tuple(data.keys() - set(MessageFields.__struct_encode_fields__)), repaired
    )


def _read_parts(data: MessageFields, fetch: Fetch) -> Iterable[Part]:
    """Yield the parts of a message, by kind, in the order of `_PARTS_IN_ORDER`."""
    yield from map(Context, data.context)
    yield from data.thinking
    if data.text is not None:
        yield Text(data.text)
    yield from (_read_image(image, fetch) for image in data.images)
    yield from map(_read_call, data.tool_calls)
    yield from (_read_reply(reply, fetch) for reply in data.replies)


def _read_image(data: ImageFields, fetch: Fetch) -> Image | Text:
    """An image; a text that says so if its file is missing."""
    try:
        return Image(data.media_type, fetch(data.file), data.name)
    except OSError:
        return Text(f"[the picture {data.name or data.file} is no longer there]")


def _read_call(data: CallFields) -> ToolCall:
    """A tool call. Arguments that are not an object of JSON are kept as text."""
    arguments: dict[str, Any] | None = data.arguments or {}
    if data.arguments_json:
        try:
            arguments = arguments_object(json.loads(data.arguments_json))
        except (ValueError, RecursionError):
            arguments = None
    malformed = data.malformed or ("" if arguments is not None else data.arguments_json)
    return ToolCall(data.id, data.name, arguments or {}, malformed)


def _read_reply(data: ReplyFields, fetch: Fetch) -> ToolReply:
    """A tool result, with its images and what the user sees of it."""
    images_or_notes = [_read_image(image, fetch) for image in data.images]
    notes_about_missing = "".join(
        f"\n{image_or_note.text}"
        for image_or_note in images_or_notes
        if isinstance(image_or_note, Text)
    )
    images = tuple(
        image_or_note for image_or_note in images_or_notes if isinstance(image_or_note, Image)
    )
    text = _read_text(data.text or "", data.file, fetch)
    body = None if data.body is None else _read_body(data.body, text, fetch)
    display = None if data.summary is None else Display(data.summary, body)
    return ToolReply(data.id, data.name, text + notes_about_missing, data.failed, images, display)


def _read_text(text: str, file: str, fetch: Fetch) -> str:
    """The text of a field, or of the file with this name; a note if the file is missing."""
    if not file:
        return text
    try:
        return fetch(file).decode("utf-8", "replace")
    except OSError:
        return f"[the output {file} is no longer there]"


def _read_body(body: BodyFields, output: str, fetch: Fetch) -> DisplayBody:
    """What the user sees below the summary of a tool result, which was `output`."""
    if body.file or body.text is not None:
        text = _read_text(body.text or "", body.file, fetch)
    else:
        text = "\n".join(output.split("\n")[: body.lines])
    match body.kind:
        case "plain":
            return Plain(text, body.language)
        case "command":
            return CommandOutput(body.command, text, body.exit_code)
        case "picture":
            return Picture(body.name, body.media_type, body.bytes)
        case "todos":
            return Todos(tuple(Todo(text, state) for state, text in body.items))


class _Writer(msgspec.Struct, frozen=True):
    """Makes plain data of messages; `keep` stores images, and long outputs unless `inline`."""

    mask: Mask
    keep: Keep
    inline: bool

    def message(self, record: MessageRecord) -> dict[str, Any]:
        """The fields of a message record. Parts in another order than the fields are written one by
        one.
        """
        message = record.message
        assert message.role != "system"  # ouro saves no system messages
        fields = MessageFields(
            role=message.role,
            model=message.model,
            cut=message.cut,
            incomplete=message.incomplete,
            private=record.private,
            steered=record.steered,
        )
        parts = [self._part(part) for part in message.parts]
        ranks = [_PARTS_IN_ORDER.index(type(part)) for part in message.parts]
        if ranks != sorted(ranks) or ranks.count(_PARTS_IN_ORDER.index(Text)) > 1:
            fields.parts = [{kind: value} for kind, value in parts]
        else:
            for kind, value in parts:
                if kind == "text":
                    fields.text = value
                else:
                    getattr(fields, _FIELDS.get(kind, kind)).append(value)
        data = {"message": record.number, "at": record.at, **msgspec.to_builtins(fields)}
        if message.usage:
            data["usage"] = _usage_fields(message.usage)
        return data

    def _part(self, part: Part) -> tuple[str, Any]:
        """The kind of a part, and its value with masked texts."""
        match part:
            case Text(text):
                return "text", self.mask(text)
            case Context(text) if text.startswith("<environment>"):
                # Each value is masked separately: after its name, a long folder with a digit looks
                # like a secret, and the scanner would be loaded in each session in that folder.
                return "context", "".join(map(self.mask, re.split(r"(: |\n)", text)))
            case Context(text):
                return "context", self.mask(text)
            case Thinking(text, signature):
                masked = self.mask(text)
                # The signature may hold the text, and belongs to the text as it was.
                kept_signature = (
                    replace_surrogates(signature) if masked == replace_surrogates(text) else ""
                )
                return "thinking", replace(part, text=masked, signature=kept_signature)
            case Image():
                return "image", self._image(part)
            case ToolCall():
                return "call", self._call(part)
            case ToolReply():
                return "reply", self._reply(part)

    def _image(self, image: Image) -> ImageFields:
        """The fields of an image, whose bytes are stored by `keep`."""
        ending = re.sub(r"[^a-z0-9]", "", image.media_type.rpartition("/")[2].lower())[:8] or "bin"
        return ImageFields(
            self._store_output(image.data, ending), image.media_type, self.mask(image.name)
        )

    def _call(self, call: ToolCall) -> CallFields:
        """The fields of a tool call. Arguments that YAML could not return unchanged are written as
        JSON.
        """
        malformed = self.mask(call.malformed)
        try:
            arguments = _mask_all(call.arguments, self.mask)
            if _is_writable(arguments):
                return CallFields(call.id, call.name, arguments, malformed=malformed)
            return CallFields(
                call.id, call.name, arguments_json=json.dumps(arguments), malformed=malformed
            )
        except RecursionError:
            return CallFields(call.id, call.name, {}, malformed="[nested too deep to be kept]")

    def _reply(self, reply: ToolReply) -> ReplyFields:
        """The fields of a tool result."""
        text = self.mask(reply.text)
        images = [self._image(image) for image in reply.images]
        fields = ReplyFields(
            reply.call_id, reply.name, failed=reply.failed, images=images, **self._text_fields(text)
        )
        if reply.display is not None:
            fields.summary = self.mask(reply.display.summary)
            fields.body = (
                None if reply.display.body is None else self._body(reply.display.body, text)
            )
        return fields

    def _body(self, body: DisplayBody, output: str) -> BodyFields:
        """The fields of what the user sees of a result, whose text is `output`."""
        match body:
            case Plain(text, language):
                return BodyFields("plain", language, **self._shown_fields(text, output))
            case Diff():
                text = "".join(f"{line}\n" for line in body.lines("", ""))
                return BodyFields("plain", "diff", text=self.mask(text))
            case CommandOutput(command, text, exit_code):
                text_fields = self._shown_fields(text, output)
                return BodyFields(
                    "command", command=self.mask(command), exit_code=exit_code, **text_fields
                )
            case Picture(name, media_type, size):
                return BodyFields(
                    "picture", name=self.mask(name), media_type=media_type, bytes=size
                )
            case Todos(items):
                return BodyFields(
                    "todos", items=[(item.state, self.mask(item.text)) for item in items]
                )

    def _shown_fields(self, text: str, output: str) -> dict[str, Any]:
        """The fields for the text of a body: none if it is the result's text, a line count if it is
        its beginning, so that no output is saved twice.
        """
        masked = self.mask(text)
        if masked == output:
            return {}
        if masked and output.startswith(f"{masked}\n"):
            return {"lines": masked.count("\n") + 1}
        return self._text_fields(masked)

    def _text_fields(self, text: str) -> dict[str, Any]:
        """A text, or the name of its file if it is long: session files stay readable."""
        if self.inline or len(text) <= MAX_INLINE // 4:
            return {"text": text}
        size = len(text.encode("utf-8", "replace"))
        if size <= MAX_INLINE:
            return {"text": text}
        return {"file": self._store_output(replace_surrogates(text).encode(), "txt"), "bytes": size}

    def _store_output(self, data: bytes, ending: str) -> str:
        """Store bytes under a name made from their hash, and return the name."""
        name = f"{OUTPUTS}/{hashlib.sha256(data).hexdigest()[:32]}.{ending}"
        self.keep(name, data)
        return name


def _usage_fields(usage: Usage) -> dict[str, Any]:
    """The counts of a message; without those that are 0, except of the input and the output."""
    fields: dict[str, Any] = {"input": usage.input}
    if usage.cached:
        fields["cached"] = usage.cached
    if usage.cache_written:
        fields["cache_written"] = usage.cache_written
    fields["output"] = usage.output
    if usage.cost is not None:
        fields["cost"] = usage.cost
    return fields


def _mask_all(value: Any, mask: Mask, name: str = "") -> Any:
    """Plain data in which each text is masked, also keys. `name`: the field of the value."""
    if isinstance(value, Mapping):
        return {mask(key): _mask_all(item, mask, key) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mask_all(item, mask, name) for item in value]
    if not isinstance(value, str):
        return value
    if is_secret_name(name):  # the name of a field can show that its value is a secret
        return mask(f"{name}={value}").removeprefix(f"{name}=")
    return mask(value)


def _is_writable(value: Any, depth: int = 0) -> bool:
    """Whether a reader accepts the value: not too deep, valid keys, finite numbers."""
    if isinstance(value, dict):
        return depth < 32 and all(
            len(key) <= 200 and _is_writable(item, depth + 1) for key, item in value.items()
        )
    if isinstance(value, list):
        return depth < 32 and all(_is_writable(item, depth + 1) for item in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or abs(value) < 1 << 63
