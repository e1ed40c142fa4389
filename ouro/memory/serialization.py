"""Turns records and messages into plain data, in the form of a session file, and back."""

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
from ouro.memory.safe_yaml import replace_surrogates
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
StoreFile = Callable[[str, bytes], object]
"""Stores the bytes of an image or of a long text under a name, the path relative to the session's
folder.
"""
FetchFile = Callable[[str], bytes]
"""Returns the bytes of an image or output in the outputs folder; raises OSError."""

_MAX_NESTING = 32
"""Arguments of a call that are nested deeper are written as JSON: the YAML that is read has at most
`safe_yaml.MAX_DEPTH` levels, and the record around them has some, too.
"""
_MAX_KEY = 200
"""So are those with a longer key: YAML limits a key to 1,024 characters, with its escapes."""
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
    """Returns the header of a session as plain data, in the order of a session file."""
    session_fields = {"format": header.format, "id": header.id, "created_at": header.created_at}
    data = {"session": session_fields, "project": header.project, "model": header.model}
    optional_fields = {"memory": dict(header.memory), "origin": dict(header.origin)}
    return data | {name: value for name, value in optional_fields.items() if value}


def header_from(data: Any) -> SessionHeader:
    """Returns the header from the plain data of the first record. Raises BadRecordError if it is
    not one.
    """
    session = data.get("session") if isinstance(data, dict) else None
    if not isinstance(session, dict) or "format" not in session:
        raise BadRecordError("the first record is not a `session:` header")
    if not isinstance(session["format"], int):
        raise BadRecordError(
            f"format {str(session['format'])[:20]!r} is unknown: was it written by a newer ouro?"
        )
    # Project and model may be missing, and are empty then.
    fields = {"project": "", "model": "", **data, **session}
    header, _repaired = read_fields(fields, SessionHeader, numbers=())
    return header


def record_data(
    record: Record, mask: Mask, store_file: StoreFile, *, inline: bool = False
) -> dict[str, Any]:
    """Returns a record as plain data, as in a session file: secrets are masked by `mask`, images
    and long outputs are stored by `store_file`. With `inline` long outputs stay in the record.
    """
    if isinstance(record, MessageRecord):
        return _Writer(mask, store_file, inline).message(record)
    data: dict[str, Any] = _mask_all(msgspec.to_builtins(record), mask)
    return data


def record_from(data: Any, fetch_file: FetchFile) -> ReadRecord:
    """Returns the record from its plain data, with the names of unknown fields, and of fields whose
    values were corrected.

    Args:
        fetch_file: returns the bytes of a saved image or output.

    Raises:
        UnknownRecordError: the record has an unknown kind.
        BadRecordError: the record has a known kind, but a required part of it cannot be read.
    """
    if not isinstance(data, dict) or not data:
        raise BadRecordError("not a record")
    first_key = next(iter(data))  # says the kind of a record that is not a message
    if kind := CHANGES.get(first_key):
        change, repaired = read_fields({"at": "", **data}, kind, data.keys() - {BYTES_BACK})
        if isinstance(change, CompactionRecord) and change.covers[0] > change.covers[1]:
            raise BadRecordError("it covers an impossible range")
        known_fields = {*kind.__struct_encode_fields__, BYTES_BACK}
        return ReadRecord(change, tuple(data.keys() - known_fields), repaired)
    if "message" in data or "role" in data:
        return _read_message(data, fetch_file)
    if "session" in data:
        raise BadRecordError("a second header")
    raise UnknownRecordError(first_key)


def bytes_back_in(data: Any) -> tuple[int, ...]:
    """Returns the distance in bytes from a compaction, given as plain data, back to each message
    that it keeps; empty if that is not recorded.
    """
    distances = data.get(BYTES_BACK, ()) if isinstance(data, dict) else ()
    if not isinstance(distances, list):
        return ()
    return tuple(item for item in distances if isinstance(item, int))


def serialize_message(message: Message, number: int = 0, at: str = "") -> dict[str, Any]:
    """Returns a message as plain data for JSON or YAML, as `record_to_export` does."""
    return record_to_export(MessageRecord(number, at, message))


def deserialize_message(data: dict[str, Any]) -> Message:
    """Returns the message from the plain data that `serialize_message` made. Raises
    BadRecordError.
    """
    record = record_from_export(data)
    if not isinstance(record, MessageRecord):
        raise BadRecordError("not a message")
    return record.message


def record_to_export(record: Record) -> dict[str, Any]:
    """Returns a record as plain data that needs no further files: as in a session file, but with
    long outputs in it, and with the bytes of its images as base64 (`data`). Secrets are not masked.
    """
    images: dict[str, bytes] = {}
    data = record_data(record, str, images.__setitem__, inline=True)
    if not images:
        return data
    for item in _find_mappings(data):
        name = item.get("file")
        if isinstance(name, str) and name in images and "media_type" in item:
            item["data"] = base64.b64encode(images[name]).decode()
    return data


def record_from_export(data: Any) -> Record:
    """Returns the record from the plain data that `record_to_export` made. Raises as
    `record_from`.
    """
    images: dict[str, bytes] = {}
    for item in _find_mappings(data):
        encoded, name = item.get("data"), item.get("file")
        if isinstance(encoded, str) and isinstance(name, str):
            with suppress(ValueError):  # the message then shows that the image is missing
                images[name] = base64.b64decode(encoded, validate=True)

    def fetch_file(name: str) -> bytes:
        if name not in images:
            raise FileNotFoundError(name)
        return images[name]

    return record_from(data, fetch_file).record


def _find_mappings(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all mappings in plain data, itself included, the outer ones first."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        yield from _find_mappings(item)


def _read_message(data: dict[str, Any], fetch_file: FetchFile) -> ReadRecord:
    """Returns a message record from its plain data. What cannot be read is left out. Raises
    BadRecordError if nothing of the message can be read.
    """
    fields, repaired = read_fields(data, MessageFields, ("message", "usage"))
    message_parts = list(_read_parts(fields, fetch_file))
    for part in fields.parts:
        parts = _read_single_part(part, fields.role, fetch_file)
        message_parts += parts
        if not parts:
            repaired += ("parts",)
    if repaired and not message_parts:
        raise BadRecordError(f"nothing in it can be read: `{repaired[0]}` is of a wrong type")
    message = Message(
        fields.role,
        parts=tuple(message_parts),
        usage=fields.usage,
        model=fields.model,
        cut=fields.cut,
        incomplete=fields.incomplete,
    )
    record = MessageRecord(fields.message, fields.at, message, fields.private, fields.steered)
    unknown = data.keys() - set(MessageFields.__struct_encode_fields__)
    return ReadRecord(record, tuple(unknown), repaired)


def _read_single_part(part: Mapping[str, Any], role: str, fetch_file: FetchFile) -> list[Part]:
    """Returns a part that is written by itself, as a mapping of its kind to its value, in a list;
    empty if it cannot be read. `role` is that of its message.
    """
    # Read as a message with this part only. All fields but `text` are lists.
    fields_of_part = {
        _FIELDS.get(kind, kind): value if kind == "text" else [value]
        for kind, value in part.items()
    }
    try:
        part_fields, _repaired = read_fields(
            {"role": role, **fields_of_part}, MessageFields, numbers=()
        )
    except BadRecordError:
        return []
    return list(_read_parts(part_fields, fetch_file))


def _read_parts(data: MessageFields, fetch_file: FetchFile) -> Iterable[Part]:
    """Yield the parts of a message from its fields, in the order of `_PARTS_IN_ORDER`. Parts that
    are written one by one (`parts`) are not among them.
    """
    yield from map(Context, data.context)
    yield from data.thinking
    if data.text is not None:
        yield Text(data.text)
    yield from (_read_image(image, fetch_file) for image in data.images)
    yield from map(_read_call, data.tool_calls)
    yield from (_read_reply(reply, fetch_file) for reply in data.replies)


def _read_image(data: ImageFields, fetch_file: FetchFile) -> Image | Text:
    """Returns an image; if its file is missing, a text that says so."""
    try:
        return Image(data.media_type, fetch_file(data.file), data.name)
    except OSError:
        return Text(f"[the picture {data.name or data.file} is no longer there]")


def _read_call(data: CallFields) -> ToolCall:
    """Returns a tool call. Arguments that are written as JSON and cannot be read as an object are
    kept as text (`malformed`).
    """
    arguments: dict[str, Any] | None = data.arguments or {}
    if data.arguments_json:
        try:
            arguments = arguments_object(json.loads(data.arguments_json))
        except (ValueError, RecursionError):
            arguments = None
    malformed = data.malformed or ("" if arguments is not None else data.arguments_json)
    return ToolCall(data.id, data.name, arguments=arguments or {}, malformed=malformed)


def _read_reply(data: ReplyFields, fetch_file: FetchFile) -> ToolReply:
    """Returns a tool result, with its images and what the user sees of it. Notes about missing
    images are added to its text.
    """
    images_or_notes = [_read_image(image, fetch_file) for image in data.images]
    notes = [item.text for item in images_or_notes if isinstance(item, Text)]
    notes_about_missing = "".join(f"\n{note}" for note in notes)
    images = tuple(item for item in images_or_notes if isinstance(item, Image))
    text = _read_text(data.text or "", data.file, fetch_file)
    body = None if data.body is None else _read_body(data.body, text, fetch_file)
    display = None if data.summary is None else Display(data.summary, body)
    return ToolReply(
        data.id,
        data.name,
        text=text + notes_about_missing,
        failed=data.failed,
        images=images,
        display=display,
    )


def _read_text(text: str, file: str, fetch_file: FetchFile) -> str:
    """Returns the content of `file`, or `text` if `file` is empty. If the file cannot be read, the
    result is a text that says so.
    """
    if not file:
        return text
    try:
        return fetch_file(file).decode("utf-8", "replace")
    except OSError:
        return f"[the output {file} is no longer there]"


def _read_body(body: BodyFields, output: str, fetch_file: FetchFile) -> DisplayBody:
    """Returns what the user sees below the summary of a tool result. Without a text of its own it
    is the text of the result (`output`), or the first `lines` of it.
    """
    if body.file or body.text is not None:
        text = _read_text(body.text or "", body.file, fetch_file)
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
    """Makes plain data of messages; `store_file` stores images, and long outputs unless `inline`."""

    mask: Mask
    store_file: StoreFile
    inline: bool

    def message(self, record: MessageRecord) -> dict[str, Any]:
        """Returns the fields of a message record.

        Usually each kind of part has a field of its own, such as `text` or `calls`. From these the
        order of the parts can be restored only if they are in the order of `_PARTS_IN_ORDER`, with
        one text. Other messages have the field `parts`, a list of all parts in their order.
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
        has_several_texts = ranks.count(_PARTS_IN_ORDER.index(Text)) > 1
        if ranks != sorted(ranks) or has_several_texts:
            fields.parts = [{kind: value} for kind, value in parts]
        else:
            for kind, value in parts:
                if kind == "text":
                    fields.text = value
                else:
                    field_name = _FIELDS.get(kind, kind)
                    getattr(fields, field_name).append(value)
        data = {"message": record.number, "at": record.at, **msgspec.to_builtins(fields)}
        if message.usage:
            data["usage"] = _usage_fields(message.usage)
        return data

    def _part(self, part: Part) -> tuple[str, Any]:
        """Returns the kind of a part, and its value with masked texts."""
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
                # A signature belongs to the unchanged text, and may contain it: it is only saved
                # if nothing in the text was masked.
                is_unchanged = masked == replace_surrogates(text)
                kept_signature = replace_surrogates(signature) if is_unchanged else ""
                return "thinking", replace(part, text=masked, signature=kept_signature)
            case Image():
                return "image", self._image(part)
            case ToolCall():
                return "call", self._call(part)
            case ToolReply():
                return "reply", self._reply(part)

    def _image(self, image: Image) -> ImageFields:
        """Store the bytes of an image with `store_file`; returns the fields that name them."""
        subtype = image.media_type.rpartition("/")[2].lower()  # `png` of `image/png`
        ending = re.sub(r"[^a-z0-9]", "", subtype)[:8] or "bin"
        name = self._store_output(image.data, ending)
        return ImageFields(name, image.media_type, self.mask(image.name))

    def _call(self, call: ToolCall) -> CallFields:
        """Returns the fields of a tool call. Arguments that YAML could not return unchanged are
        written as JSON; those that are nested too deeply are left out.
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
            return CallFields(
                call.id, call.name, arguments={}, malformed="[nested too deep to be kept]"
            )

    def _reply(self, reply: ToolReply) -> ReplyFields:
        """Returns the fields of a tool result."""
        text = self.mask(reply.text)
        images = [self._image(image) for image in reply.images]
        fields = ReplyFields(
            reply.call_id, reply.name, failed=reply.failed, images=images, **self._text_fields(text)
        )
        if reply.display is not None:
            fields.summary = self.mask(reply.display.summary)
            if reply.display.body is not None:
                fields.body = self._body(reply.display.body, text)
        return fields

    def _body(self, body: DisplayBody, output: str) -> BodyFields:
        """Returns the fields of what the user sees below the summary of a tool result. `output` is
        the masked text of the result.
        """
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
        """Returns the fields for a text that is shown to the user. An output is not saved twice: if
        the text is the same as `output`, the text of the tool result, there are no fields; if the
        text is the beginning of `output`, the only field is the number of its lines.
        """
        masked = self.mask(text)
        if masked == output:
            return {}
        if masked and output.startswith(f"{masked}\n"):
            return {"lines": masked.count("\n") + 1}
        return self._text_fields(masked)

    def _text_fields(self, text: str) -> dict[str, Any]:
        """Returns the field `text`; or the name of a file and its size if the text is long, so that
        session files stay readable.
        """
        is_short = len(text) <= MAX_INLINE // 4  # a character has at most four bytes
        if self.inline or is_short:
            return {"text": text}
        size = len(text.encode("utf-8", "replace"))
        if size <= MAX_INLINE:
            return {"text": text}
        return {"file": self._store_output(replace_surrogates(text).encode(), "txt"), "bytes": size}

    def _store_output(self, data: bytes, ending: str) -> str:
        """Store bytes with `store_file`, under a name that is made from their hash. Returns the name: a
        path below the folder of the session.
        """
        name = f"{OUTPUTS}/{hashlib.sha256(data).hexdigest()[:32]}.{ending}"
        self.store_file(name, data)
        return name


def _usage_fields(usage: Usage) -> dict[str, Any]:
    """Returns the fields of the usage of a message. Counts that are 0 are left out, except those of
    the input and the output, and so is an unknown cost.
    """
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
    """Returns plain data in which each text is masked, keys of mappings too. `name` is the field
    that the value is in; empty if none.
    """
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
    """Whether YAML returns plain data unchanged: it is not nested too deeply, its keys are not too
    long, and its numbers are finite and have at most 64 bits.
    """
    if isinstance(value, dict):
        return depth < _MAX_NESTING and all(
            len(key) <= _MAX_KEY and _is_writable(item, depth + 1) for key, item in value.items()
        )
    if isinstance(value, list):
        return depth < _MAX_NESTING and all(_is_writable(item, depth + 1) for item in value)
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return abs(value) < 1 << 63
    return True
