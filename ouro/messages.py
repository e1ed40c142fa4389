"""Messages between the user, the model and tools, as values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

import msgspec

from ouro.display import Display

Role = Literal["system", "user", "assistant", "tool"]
SHELL_NOTE = "I ran this in a shell:\n\n$ "
"""The beginning of a message that holds a shell line of the user and its output: not a message that
was typed.
"""
PIPED = "On standard input:\n\n"
"""The beginning of a message of which a part was piped in: that part is not the user's text."""
ATTACHED = "Attached files:\n\n"
"""The beginning of a message with files that an editor has embedded: they are not the user's text.
"""


class Text(msgspec.Struct, frozen=True):
    """Words of the user, or of the model."""

    text: str


class Context(msgspec.Struct, frozen=True):
    """What ouro adds to a user message: date, git state, recalled notes. The model reads it as
    text.
    """

    text: str


class Thinking(msgspec.Struct, frozen=True, omit_defaults=True):
    """The reasoning of a model before its answer; `signature` is data of the provider that is sent
    back unchanged.
    """

    text: str
    signature: str = ""
    redacted: bool = False
    """Whether the provider hid the text: `signature` holds its opaque data, `text` is empty."""


SEALED_ITEM = '{"responses":'
"""The beginning of a signature that holds an item of the Responses wire."""


class Image(msgspec.Struct, frozen=True):
    """An image in a message, checked and scaled by `ouro.images`."""

    media_type: str
    data: bytes
    name: str = ""

    def __repr__(self) -> str:
        """Does not show the bytes, which would fill a log."""
        return f"Image({self.media_type!r}, {len(self.data)} bytes, {self.name!r})"


class ToolCall(msgspec.Struct, frozen=True):
    """A call of a tool, as the model has asked for it."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    malformed: str = ""
    """What the model sent as arguments, if it was not a JSON object; such a call is never run."""


class ToolReply(msgspec.Struct, frozen=True):
    """The result of a tool call."""

    call_id: str
    name: str
    text: str
    failed: bool = False
    images: tuple[Image, ...] = ()
    display: Display | None = None
    """What the user saw; saved with the session so that it can be shown again, never sent to a
    model.
    """


Part = Text | Context | Thinking | Image | ToolCall | ToolReply
P = TypeVar("P", Text, Context, Thinking, Image, ToolCall, ToolReply)


class Usage(msgspec.Struct, frozen=True):
    """Tokens and cost (US dollars) of one or more model calls."""

    input: int = 0
    """All tokens that were read, including those from the cache."""
    cached: int = 0
    cache_written: int = 0
    output: int = 0
    cost: float | None = None
    """The cost; None if the model's price is not known: it is never shown as free."""

    def __add__(self, other: Usage) -> Usage:
        """Both together. A cost that is not known does not count; None if neither is known."""
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Usage(
            input=self.input + other.input,
            cached=self.cached + other.cached,
            cache_written=self.cache_written + other.cache_written,
            output=self.output + other.output,
            cost=sum(costs) if costs else None,
        )

    def __sub__(self, before: Usage) -> Usage:
        """What was used since `before`. The cost is None if it is not known now."""
        return Usage(
            input=self.input - before.input,
            cached=self.cached - before.cached,
            cache_written=self.cache_written - before.cache_written,
            output=self.output - before.output,
            cost=None if self.cost is None else self.cost - (before.cost or 0.0),
        )


Incomplete = Literal["", "length", "filtered"]


class Message(msgspec.Struct, frozen=True):
    """One message of a conversation."""

    role: Role
    parts: tuple[Part, ...]
    usage: Usage | None = None
    model: str = ""
    cut: bool = False
    """Whether the answer was stopped or cut in the middle: it is kept for the user, without its
    tool calls.
    """
    incomplete: Incomplete = ""
    """Why the provider ended the answer early: it reached max_output, or a filter stopped it."""

    @property
    def text(self) -> str:
        """The words of the message, without context, thinking, tools and pictures."""
        return "\n\n".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return self.parts_of(ToolCall)

    def parts_of(self, kind: type[P]) -> tuple[P, ...]:
        return tuple(part for part in self.parts if isinstance(part, kind))


T = TypeVar("T")


class PerMessage(Generic[T]):
    """The results of `make` for messages; `make` is called only for messages that were not in the
    last request.

    Messages do not change, and a request begins with the messages of the previous one: without
    this, 500 messages took 10 ms each time.
    """

    def __init__(self, make: Callable[[Message], T]) -> None:
        self._make = make
        self._last: list[Message] = []
        """The messages of the last request."""
        self._made: list[T] = []
        """The result for each of them, in the same order."""

    def __call__(self, messages: Iterable[Message]) -> list[T]:
        """The results for these messages, in their order."""
        now = list(messages)
        same = 0  # messages at the beginning that are those of the last request
        for last, message in zip(self._last, now, strict=False):
            if last is not message:
                break
            same += 1
        # The results are kept with their messages, so that no new message can get the id of an old
        # one.
        known = {
            id(message): made
            for message, made in zip(self._last[same:], self._made[same:], strict=True)
        }
        made = self._made[:same]
        made += [
            known[id(message)] if id(message) in known else self._make(message)
            for message in now[same:]
        ]
        self._last, self._made = now, made
        return made.copy()


def end_reasoning(message: Message) -> Message:
    """The message without the items of the Responses wire in its thinking, which are not valid any more
    after a compaction.
    """
    sealed = [part for part in message.parts_of(Thinking) if part.signature.startswith(SEALED_ITEM)]
    if not sealed:
        return message
    return msgspec.structs.replace(
        message, parts=tuple(part for part in message.parts if part not in sealed)
    )


def system(text: str) -> Message:
    return Message("system", (Text(text),))


def user(text: str, images: Sequence[Image] = (), context: str = "") -> Message:
    """A message of the user. `context`: a text that ouro puts before it; empty for none."""
    parts: tuple[Part, ...] = (Text(text), *images)
    if context:
        parts = (Context(context), *parts)
    return Message("user", parts)


def assistant(text: str, *calls: ToolCall) -> Message:
    """The text of a model, and its tool calls."""
    return Message("assistant", ((Text(text),) if text else ()) + calls)


def tool(*replies: ToolReply) -> Message:
    """The results of one batch of tool calls, in the order of the calls."""
    return Message("tool", replies)
