"""What stands in a record, field by field: the shapes that a session file is checked against."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ouro.messages import Role


class SessionFields(msgspec.Struct):
    """Of the header: the format, and who it is."""

    id: str
    created_at: str
    format: int


class HeaderFields(msgspec.Struct):
    """The first record."""

    session: SessionFields
    project: str = ""
    model: str = ""
    memory: dict[str, str] = {}
    origin: dict[str, str] = {}


class UsageFields(msgspec.Struct):
    """Tokens and dollars."""

    input: int = 0
    cached: int = 0
    cache_written: int = 0
    output: int = 0
    cost: float | None = None


class ThinkingFields(msgspec.Struct):
    """A piece of thinking."""

    text: str = ""
    signature: str = ""
    redacted: bool = False


class ImageFields(msgspec.Struct):
    """A picture, kept beside the session file."""

    file: str
    media_type: str
    name: str = ""


class CallFields(msgspec.Struct):
    """A tool call."""

    id: str
    name: str
    arguments: dict[str, Any] = {}
    arguments_json: str = ""
    malformed: str = ""


class BodyFields(msgspec.Struct):
    """What unfolds below a reply's summary; without `text` it is the reply's own, or its first `lines`."""

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
    """What came of a tool call."""

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
    """One part of a message whose parts stand in no common order."""

    context: str | None = None
    thinking: ThinkingFields | None = None
    text: str | None = None
    image: ImageFields | None = None
    call: CallFields | None = None
    reply: ReplyFields | None = None


class MessageFields(msgspec.Struct):
    """A message."""

    role: Role
    message: int = 0
    """Its number; 0: a person has added it by hand, and given it none."""
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
