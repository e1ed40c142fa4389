"""Messages and JSON in a form that every provider accepts, also if another model wrote them."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from ouro.messages import Context, Image, Message, Text, ToolCall, ToolReply
from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import arguments_object, dictionaries, string

_REFUSED_CHARACTER = late_pattern(r"[^A-Za-z0-9_-]")
"""Matches a character that some providers refuse in ids and names."""
SEAL = "__thought__"
"""Separates a call's id from the signature that Gemini requires with the call; litellm uses the
same.
"""
SHOWN_MALFORMED = 4_000
"""Maximum characters of invalid arguments that are sent back."""
NO_OUTPUT = "(no output)"
DETAILS = "reasoning_details"
"""The field in which OpenRouter, and relays with its format, send thinking with its signatures."""
_SURROGATE = late_pattern("[\ud800-\udfff]")
_HIGH_AT_END = late_pattern("[\ud800-\udbff]\\Z")
"""Matches the first half of a surrogate pair at the end of a text."""


def portable_id(call_id: str, longest: int = 40) -> str:
    """`call_id`, or an id made from it if it is empty, longer than `longest` or has characters that
    providers refuse. The same id always gives the same result.
    """
    if len(call_id) <= longest and call_id and not _REFUSED_CHARACTER.search(call_id):
        return call_id
    return "call_" + hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def portable_name(name: str) -> str:
    """A tool's name that providers accept: a model may have called a tool by an invalid name."""
    return _REFUSED_CHARACTER.sub("_", name)[:64] or "unnamed"


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """The arguments to send back. If they were invalid, they are an object with one field, which
    has the beginning of what the model wrote.
    """
    if call.malformed:
        return {"malformed_arguments": call.malformed[:SHOWN_MALFORMED]}
    return dict(call.arguments)


def texts_of(message: Message) -> list[str]:
    """The non-blank texts of a message, including the context that ouro adds."""
    return [
        part.text
        for part in message.parts
        if isinstance(part, Text | Context) and part.text.strip()
    ]


def calls_of(message: Message) -> tuple[ToolCall, ...]:
    """The tool calls to send; empty for a message that was cut."""
    return () if message.cut else message.tool_calls


def base64_of(image: Image) -> str:
    """The data of an image in base64."""
    return base64.b64encode(image.data).decode("ascii")


def describe_hidden(image: Image) -> str:
    """The text instead of an image, for a model without image input."""
    return f"[picture {image.name or image.media_type}: this model cannot see pictures]"


def reply_text(reply: ToolReply, sees_images: bool) -> str:
    """The text of a tool result, with descriptions of its images if the model cannot see them."""
    hidden = [] if sees_images else [describe_hidden(image) for image in reply.images]
    return "\n".join(text for text in (reply.text, *hidden) if text.strip()) or NO_OUTPUT


THINKING_NAMES = ("reasoning_content", "reasoning", "thinking", "reasoning_text")
"""The fields in which servers stream thinking: DeepSeek and most others, vLLM and OpenRouter,
Ollama, and relays.
"""


def thinking_name(message: Mapping[str, Any]) -> str:
    """The field of a streamed message that has its thinking; empty if none has it."""
    for name in THINKING_NAMES:
        if name in message and string(message[name]):
            return name
    return ""


def thinking_in(message: Mapping[str, Any]) -> str:
    """The thinking in a streamed message, whichever field it is in. Mistral has it as parts of the
    content.
    """
    name = thinking_name(message)
    if name:
        return string(message[name])
    return "".join(map(_thinking_of_part, dictionaries(message.get("content"))))


def _thinking_of_part(part: Mapping[str, Any]) -> str:
    """The thinking in one part of the content."""
    thinking = part.get("thinking")
    if isinstance(thinking, str):
        return thinking
    return "".join(string(piece.get("text")) for piece in dictionaries(thinking))


def join_surrogates(text: str) -> str:
    """`text` with surrogate pairs joined, and U+FFFD for each single surrogate."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def encode_json(value: Any) -> bytes:
    """`value` as JSON; the same bytes each time, for the provider's cache."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(join_all_surrogates(value))


def parse_object(text: str) -> dict[str, Any] | None:
    """The JSON object that a model wrote; newlines in strings are allowed. An empty text is an empty
    object. None if the text is no object, or has NaN or infinity.
    """
    if not text.strip():
        return {}
    try:
        value = arguments_object(json.loads(text, strict=False))
        # NaN and infinity cannot be sent back as JSON.
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return None if value is None else join_all_surrogates(value)


def join_all_surrogates(value: Any) -> Any:
    """The JSON `value` with the surrogates of every text joined."""
    if isinstance(value, str):
        return join_surrogates(value)
    if isinstance(value, Mapping):
        return {join_all_surrogates(key): join_all_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [join_all_surrogates(item) for item in value]
    return value


class SurrogateJoiner:
    """Joins surrogates in streamed text: a high surrogate at the end of a piece waits for the next
    piece.
    """

    def __init__(self) -> None:
        self._half_pair = ""
        """The first half of a pair, whose second half comes with the next piece."""

    def feed(self, piece: str) -> str:
        """The text that can be shown now: what waited and this piece, without a half pair at its end."""
        if not self._half_pair and piece.isascii():
            return piece
        text = self._half_pair + piece
        self._half_pair = text[-1] if _HIGH_AT_END.search(text) else ""
        return join_surrogates(text.removesuffix(self._half_pair))

    def end(self) -> str:
        """The rest of the text: U+FFFD if it ended with half of a pair, else empty."""
        rest, self._half_pair = join_surrogates(self._half_pair), ""
        return rest
