"""ContextWindow: what fills the model's window, and how the person makes room in it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing

import msgspec

from ouro.agent.compactor import Compactor
from ouro.agent.instructions import prompt_parts
from ouro.agent.requests import Requests
from ouro.display import Todo
from ouro.errors import UsageError
from ouro.events import Event, TurnFinished
from ouro.llm.model import Model
from ouro.memory.compaction import is_own_words
from ouro.memory.manager import MemoryManager
from ouro.memory.message_tree import TranscriptEntry
from ouro.memory.sessions.records import PinRecord
from ouro.memory.tokens import TOKENS_A_PICTURE, estimate, estimate_messages
from ouro.messages import Context, Image, Message, Part, Text, Thinking, ToolCall, ToolReply
from ouro.session.todo_plan import plan_in_words
from ouro.tools.shell_jobs import JobInfo

Play = Callable[[Callable[[], AsyncGenerator[Event, None]]], AsyncGenerator[Event, None]]
"""Runs a stream of events as a turn, so that it can be interrupted."""
LOOK_UP = "The earlier messages themselves can be looked up with `memory_search`."
LARGE = 0.2
"""The share of what is sent from which a single message is worth a word."""


class Outlook(msgspec.Struct, frozen=True):
    """What a compaction of now would do."""

    covered: int
    """Messages that would give way to a summary."""
    kept: int
    """Of these, the ones that would stay word for word."""
    tokens: int
    """About what would be left."""


class WindowReport(msgspec.Struct, frozen=True):
    """What fills the model's window. All sizes are tokens; those of the parts are estimates that add up to `tokens`."""

    parts: tuple[tuple[str, int], ...]
    """What it is, and its size; the order is that of the request."""
    tokens: int
    window: int
    limit: int
    """Where the conversation is compacted by itself; 0: nowhere."""
    outlook: Outlook | None
    """None where there is nothing to compact."""
    largest: str = ""
    """The single thing that takes the most room, where it takes much."""


class Pinnable(msgspec.Struct, frozen=True):
    """A message that can be pinned: it then survives every compaction word for word."""

    number: int
    speaker: str
    """`you` or `ouro`."""
    text: str
    pinned: bool


class ContextWindow:
    """What fills the model's window, and how the person makes room in it."""

    def __init__(
        self,
        memory: MemoryManager,
        models: Callable[[], Sequence[Model]],
        requests: Requests,
        compactor: Compactor,
        play: Play,
    ) -> None:
        self._memory = memory
        self._models = models
        self._requests = requests
        self._compactor = compactor
        self._play = play

    def report(self) -> WindowReport:
        """What fills the window, as of now."""
        estimates = self._estimates()
        model = self._models()[0]
        constant = sum(self._requests.sizes(model))
        whole = sum(estimates.values())
        tokens = max(self._memory.tokens, constant)
        parts = tuple((name, size * tokens // max(1, whole)) for name, size in estimates.items() if size)
        return WindowReport(
            parts,
            tokens,
            model.spec.window,
            self._compactor.limit_of_itself,
            self._outlook(tokens),
            self._largest(whole),
        )

    def compact(self, keep: str) -> AsyncGenerator[Event, None]:
        """Sum up the conversation, as a turn; `keep` is what the person wants kept in particular.

        Raises:
            UsageError: a turn is under way.
        """
        return self._play(lambda: self._compact(keep))

    def pinnable(self) -> tuple[Pinnable, ...]:
        """The messages that are sent and can be pinned, oldest first."""
        pins = self._memory.transcript.pins
        return tuple(
            Pinnable(
                entry.number,
                "ouro" if entry.message.role == "assistant" else "you",
                entry.message.text,
                entry.number in pins,
            )
            for entry in self._memory.transcript.sent_entries()
            if entry.number and _can_be_pinned(entry)
        )

    async def pin(self, number: int, pinned: bool = True) -> None:
        """Let a message survive every compaction word for word, as far as pinned messages fit; or no longer.

        Raises:
            UsageError: there is no such message in what is sent.
            SaveFailed: it is not on disk yet.
        """
        if number not in {each.number for each in self.pinnable()}:
            raise UsageError(f"Message {number} is not among those that are sent. `/pin` shows them.")
        await self._memory.record(PinRecord(number, self._memory.now(), pinned))

    async def _compact(self, keep: str) -> AsyncGenerator[Event, None]:
        async with aclosing(self._compactor.compact(keep)) as events:
            async for event in events:
                yield event
        yield TurnFinished("answered")

    def _estimates(self) -> Mapping[str, int]:
        sizes = {name: estimate(text) for name, text in prompt_parts(self._requests.instructions)}
        sizes["tools"] = self._requests.sizes(self._models()[0])[1]
        compaction = self._memory.transcript.compaction
        sizes["summary"] = estimate(compaction.summary) if compaction else 0
        names = ("your messages", "added by ouro", "answers", "thinking", "tool calls", "tool outputs", "pictures")
        sizes |= dict.fromkeys(names, 0)
        for name, size in (each for message in self._memory.context() for each in _sizes(message)):
            sizes[name] += size
        sizes["added by ouro"] = max(0, sizes["added by ouro"] - sizes["summary"])
        return sizes

    def _outlook(self, tokens: int) -> Outlook | None:
        plan = self._compactor.planned()
        if plan is None:
            return None
        left = self._compactor.tokens_after(plan)
        return Outlook(len(plan.covered), len(plan.kept), left) if left < tokens else None

    def _largest(self, whole: int) -> str:
        found = [(estimate_messages([entry.message]), entry) for entry in self._memory.transcript.sent_entries()]
        size, entry = max(found, key=lambda each: each[0], default=(0, None))
        if entry is None or size < whole * LARGE:
            return ""
        tools = ", ".join(dict.fromkeys(reply.name for reply in entry.message.parts_of(ToolReply)))
        what = f"the output of {tools}" if tools else "your message" if entry.message.role == "user" else "the answer"
        return f"{what} at message {entry.number}, about {size:,} tokens"


def carried(environment: str, todos: Sequence[Todo], jobs: Sequence[JobInfo], hint: str) -> str:
    """What goes into a summary beside the model's words: the plan, where and when, what runs."""
    plan = plan_in_words(todos)
    running = [f"- {job.id}: {job.command}" for job in jobs if job.running]
    background = "\n".join(["## Running in the background", *running]) if running else ""
    return "\n\n".join(part for part in (plan, background, environment, hint) if part)


def _can_be_pinned(entry: TranscriptEntry) -> bool:
    message = entry.message
    return is_own_words(message) or (message.role == "assistant" and bool(message.text.strip()))


def _sizes(message: Message) -> Iterator[tuple[str, int]]:
    for part in message.parts:
        yield from _sizes_of(part, message)


def _sizes_of(part: Part, message: Message) -> Iterator[tuple[str, int]]:
    match part:
        case Text(text):
            yield ("answers" if message.role == "assistant" else "your messages"), estimate(text)
        case Context(text):
            yield "added by ouro", estimate(text)
        case Thinking():
            yield "thinking", estimate_messages([Message("assistant", (part,))])
        case Image():
            yield "pictures", TOKENS_A_PICTURE
        case ToolCall():
            yield "tool calls", estimate_messages([Message("assistant", (part,))])
        case ToolReply():
            yield "tool outputs", estimate(part.text)
            yield "pictures", len(part.images) * TOKENS_A_PICTURE
