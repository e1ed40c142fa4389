"""A transcript that was kept, as the events that would have shown it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ouro.display import Display, Plain, Todo, Todos
from ouro.events import Event, NotesRecalled, Prompted, Replied, TextDelta, ThinkingDelta, ToolFinished, ToolStarted
from ouro.messages import Image, Message, Text, Thinking, ToolCall, ToolReply


def replay(
    messages: Iterable[Message],
    title: Callable[[ToolCall], str],
    recalled_with: Callable[[Message], NotesRecalled | None] = lambda _message: None,
) -> Iterator[Event]:
    """The events of past turns, in order; tools are not run."""
    for message in messages:
        match message.role:
            case "user":
                yield from _prompted(message)
                if recalled := recalled_with(message):
                    yield recalled
            case "assistant":
                yield from _replied(message)
                yield from (ToolStarted(call, title(call)) for call in message.tool_calls)
            case "tool":
                yield from (_finished(reply) for reply in message.parts_of(ToolReply))
            case "system":
                pass


def last_plan(messages: Sequence[Message]) -> tuple[Todo, ...]:
    """The agent's todos, as it left them."""
    for message in reversed(messages):
        for reply in reversed(message.parts_of(ToolReply)):
            if reply.display and isinstance(reply.display.body, Todos):
                return reply.display.body.items
    return ()


def _prompted(message: Message) -> Iterator[Event]:
    if message.text or message.parts_of(Image):
        yield Prompted(message.text, message.parts_of(Image))


def _replied(message: Message) -> Iterator[Event]:
    for part in message.parts:
        if isinstance(part, Thinking) and part.text:
            yield ThinkingDelta(part.text)
        elif isinstance(part, Text):
            yield TextDelta(part.text)
    yield Replied(message)


def _finished(reply: ToolReply) -> ToolFinished:
    display = reply.display or Display(reply.text.partition("\n")[0][:120], Plain(reply.text))
    return ToolFinished(reply.call_id, reply.name, display, reply.failed, 0.0)
