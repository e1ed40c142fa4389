"""Messages as plain data: secrets masked, images and long outputs in the outputs folder."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ouro.display import Body as DisplayBody
from ouro.display import CommandOutput, Diff, FileChange, Picture, Plain, Todos
from ouro.memory.sessions.records import MessageRecord
from ouro.memory.sessions.yaml_text import cleaned
from ouro.messages import Context, Image, Part, Text, Thinking, ToolCall, ToolReply, Usage
from ouro.safety import is_secret_name

MAX_INLINE = 16 << 10
"""Bytes of an output that stand in the record itself; a longer one goes in the outputs folder."""
Mask = Callable[[str], str]
KeepImage = Callable[[Image], str]
"""Puts a picture in the outputs folder and gives its name there."""
KeepText = Callable[[str], str]
"""Puts a long text in the outputs folder and gives its name there."""

_PARTS_IN_ORDER = (Context, Thinking, Text, Image, ToolCall, ToolReply)
_HUNK_LINES = re.compile(r"([-+])(\d+)")


class RecordWriter:
    def __init__(self, mask: Mask, keep_image: KeepImage, keep_text: KeepText | None = None) -> None:
        self._mask = mask
        self._keep_image = keep_image
        self._keep_text = keep_text

    def message(self, record: MessageRecord) -> dict[str, Any]:
        message = record.message
        data: dict[str, Any] = {"message": record.number, "at": record.at, "role": message.role}
        data |= _present(model=message.model, cut=message.cut, private=record.private)
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
        data: dict[str, Any] = {"id": reply.call_id, "name": reply.name} | self._inline_or_beside(text)
        data |= _present(failed=reply.failed)
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
        """Empty if the body is the result's text, a line count if it is its beginning: no output is saved twice."""
        shown = self._mask(text)
        if shown == told:
            return {}
        if shown and told.startswith(f"{shown}\n"):
            return {"lines": shown.count("\n") + 1}
        return self._inline_or_beside(shown)

    def _inline_or_beside(self, text: str) -> dict[str, Any]:
        """A text, or the name of its file if it is long: session files stay readable."""
        if self._keep_text is None or len(text) <= MAX_INLINE // 4:
            return {"text": text}
        size = len(text.encode("utf-8", "replace"))
        return {"text": text} if size <= MAX_INLINE else {"file": self._keep_text(cleaned(text)), "bytes": size}

    def _masked(self, value: Any, name: str = "") -> Any:
        if isinstance(value, Mapping):
            return {self._mask(key): self._masked(item, key) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._masked(item, name) for item in value]
        if isinstance(value, str):
            return self._masked_pair(name, value) if is_secret_name(name) else self._mask(value)
        return value

    def _masked_pair(self, name: str, value: str) -> str:
        # The name of a field may show that its value is a secret.
        pair = self._mask(f"{name}={value}")
        return pair.removeprefix(f"{name}=")


def _in_order(parts: tuple[Part, ...]) -> bool:
    """Whether the parts are in the order that the short form restores, with one text at most."""
    ranks = [_PARTS_IN_ORDER.index(type(part)) for part in parts]
    return ranks == sorted(ranks) and ranks.count(_PARTS_IN_ORDER.index(Text)) <= 1


def _present(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _usage_data(usage: Usage) -> dict[str, Any]:
    data = {"input": usage.input} | _present(cached=usage.cached, cache_written=usage.cache_written)
    data["output"] = usage.output
    return data if usage.cost is None else {**data, "cost": usage.cost}


def _is_writable(value: Any, depth: int = 0) -> bool:
    """Whether the reader would accept it: not too deep, valid keys, finite numbers."""
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
