"""ContextWindow: what fills the model's window, and how the user makes room in it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence

import msgspec

from ouro.agent.compactor import Compactor
from ouro.agent.instructions import Environment, NestedInstructions, prompt_parts
from ouro.agent.requests import Requests
from ouro.errors import UsageError
from ouro.events import Emit, Event, TurnFinished
from ouro.llm import Model
from ouro.memory.backend import PinRecord
from ouro.memory.compaction import is_own_words
from ouro.memory.manager import MemoryManager
from ouro.memory.message_tree import TranscriptEntry
from ouro.memory.tokens import TOKENS_A_PICTURE, estimate, estimate_messages
from ouro.messages import Context, Image, Message, Part, Text, Thinking, ToolCall, ToolReply
from ouro.session.todo_plan import plan_in_words
from ouro.session.turn import TurnRunner
from ouro.tools.shell_jobs import ShellJobs
from ouro.tools.todo import Plan

SEARCH_HINT = "The earlier messages can be searched with `memory_search`."
LARGE = 0.2
"""The share of what is sent from which a single message is reported."""


class Outlook(msgspec.Struct, frozen=True):
    covered: int
    """Messages that a summary would replace."""
    kept: int
    """Of these, the ones that would stay verbatim."""
    tokens: int
    """About how many would be left."""


class WindowReport(msgspec.Struct, frozen=True):
    """What fills the model's window. All sizes are tokens; those of `parts` are estimates that add up to `tokens`."""

    parts: tuple[tuple[str, int], ...]
    """Name and size, in the order of the request."""
    tokens: int
    window: int
    limit: int
    """Where automatic compaction starts; 0: it is off."""
    outlook: Outlook | None
    """None if there is nothing to compact."""
    largest: str = ""
    """The largest single message, if it takes much; else empty."""


class Pinnable(msgspec.Struct, frozen=True):
    """A message that can be pinned: every compaction then keeps it verbatim."""

    number: int
    speaker: str
    """`you` or `ouro`."""
    text: str
    pinned: bool


class SentContext:
    """What the model is sent once beside the messages: again when older messages are gone from the request.

    Args:
        environment: where and when the agent works.
        instructions: of the folders that it has met.
        plan: the agent's todos.
        jobs: the background jobs.
        has_search: the agent can search older messages.
    """

    def __init__(
        self, environment: Environment, instructions: NestedInstructions, plan: Plan, jobs: ShellJobs, has_search: bool
    ) -> None:
        self._environment = environment
        self._instructions = instructions
        self._plan = plan
        self._jobs = jobs
        self._has_search = has_search

    def clear(self) -> None:
        """The model's context does not hold it any more: send it again."""
        self._environment.clear()
        self._instructions.clear()

    async def for_summary(self) -> str:
        """What a summary takes along beside the model's words: the plan, background jobs, the environment."""
        running = [f"- {job.id}: {job.command}" for job in self._jobs.list() if job.running]
        background = "\n".join(["## Running in the background", *running]) if running else ""
        hint = SEARCH_HINT if self._has_search else ""
        texts = (plan_in_words(self._plan.items), background, await self._environment.whole(), hint)
        return "\n\n".join(filter(None, texts))


class ContextWindow:
    """What fills the model's window, and how the user makes room in it.

    Args:
        memory: the transcript.
        models: the model in use, then its fallbacks.
        requests: the system prompt and the tools.
        compactor: makes the request smaller.
        runner: runs a compaction as a turn.
    """

    def __init__(
        self,
        memory: MemoryManager,
        models: Callable[[], Sequence[Model]],
        requests: Requests,
        compactor: Compactor,
        runner: TurnRunner,
    ) -> None:
        self._memory = memory
        self._models = models
        self._requests = requests
        self._compactor = compactor
        self._runner = runner

    def measure(self) -> None:
        """Another model answers now: it has another window."""
        self._compactor.measure()

    def report(self) -> WindowReport:
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
            self._compactor.limit,
            self._outlook(tokens),
            self._largest(whole),
        )

    def compact(self, keep: str) -> AsyncGenerator[Event, None]:
        """The events of a compaction, as a turn; `keep` is what the user wants to keep in particular.

        Raises:
            UsageError: a turn runs.
        """
        return self._runner.run(lambda emit: self._compact(keep, emit))

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
        """Pin a message: every compaction keeps it verbatim, as far as pinned messages fit; or unpin it.

        Raises:
            UsageError: there is no such message in the request.
            SaveFailed: it is not on disk yet.
        """
        if number not in {message.number for message in self.pinnable()}:
            raise UsageError(f"Message {number} is not among those that are sent. `/pin` shows them.")
        await self._memory.record(PinRecord(number, self._memory.now(), pinned))

    async def _compact(self, focus: str, emit: Emit) -> TurnFinished:
        await self._compactor.compact(focus, emit)
        return TurnFinished("answered")

    def _estimates(self) -> Mapping[str, int]:
        sizes = {name: estimate(text) for name, text in prompt_parts(self._requests.instructions)}
        sizes["tools"] = self._requests.sizes(self._models()[0])[1]
        compaction = self._memory.transcript.compaction
        sizes["summary"] = estimate(compaction.summary) if compaction else 0
        names = ("your messages", "added by ouro", "answers", "thinking", "tool calls", "tool outputs", "pictures")
        sizes |= dict.fromkeys(names, 0)
        for message in self._memory.context():
            for name, size in _sizes(message):
                sizes[name] += size
        sizes["added by ouro"] = max(0, sizes["added by ouro"] - sizes["summary"])
        return sizes

    def _outlook(self, tokens: int) -> Outlook | None:
        plan = self._compactor.plan()
        if plan is None:
            return None
        left = self._compactor.tokens_after(plan)
        return Outlook(len(plan.covered), len(plan.kept), left) if left < tokens else None

    def _largest(self, whole: int) -> str:
        found = [(estimate_messages([entry.message]), entry) for entry in self._memory.transcript.sent_entries()]
        size, entry = max(found, key=lambda item: item[0], default=(0, None))
        if entry is None or size < whole * LARGE:
            return ""
        tools = ", ".join(dict.fromkeys(reply.name for reply in entry.message.parts_of(ToolReply)))
        what = f"the output of {tools}" if tools else "your message" if entry.message.role == "user" else "the answer"
        return f"{what} at message {entry.number}, about {size:,} tokens"


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
