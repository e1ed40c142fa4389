"""ContextWindow: what fills the model's window, and how the user makes room in it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping

import msgspec

from ouro.agent.compactor import Compactor
from ouro.agent.instructions import Environment, prompt_parts
from ouro.agent.project_instructions import ProjectInstructions
from ouro.errors import UsageError
from ouro.events import Emit, Event, TurnFinished
from ouro.memory.backend import PinRecord
from ouro.memory.compaction import is_own_words
from ouro.memory.tokens import TOKENS_A_PICTURE, estimate, estimate_messages
from ouro.messages import Context, Image, Message, Part, Text, Thinking, ToolCall, ToolReply
from ouro.session.todo_plan import plan_in_words
from ouro.session.turn import SessionTasks
from ouro.tools.shell import ShellJobs
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


class SentContext(msgspec.Struct, frozen=True, eq=False):
    """What the model is sent once beside the messages: again when older messages are gone from the request."""

    environment: Environment
    instructions: ProjectInstructions
    plan: Plan
    jobs: ShellJobs
    has_search: bool
    """The agent can search older messages."""

    def clear(self) -> None:
        """The model's context does not hold it any more: send it again."""
        self.environment.clear()
        self.instructions.clear()

    async def for_summary(self) -> str:
        """What a summary takes along beside the model's words: the plan, background jobs, the environment."""
        running = [f"- {job.id}: {job.command}" for job in self.jobs.list() if job.running]
        background = "\n".join(["## Running in the background", *running]) if running else ""
        hint = SEARCH_HINT if self.has_search else ""
        texts = (plan_in_words(self.plan.items), background, await self.environment.whole(), hint)
        return "\n\n".join(filter(None, texts))


class ContextWindow(msgspec.Struct, frozen=True, eq=False):
    compactor: Compactor
    """Has the transcript, the models and the constant part of the requests."""
    tasks: SessionTasks

    def report(self) -> WindowReport:
        estimates = self._estimates()
        whole = sum(estimates.values())
        tokens = max(self.compactor.memory.tokens, self.compactor.memory.constant)
        parts = tuple((name, size * tokens // max(1, whole)) for name, size in estimates.items() if size)
        limit, outlook = self.compactor.limit, self._outlook(tokens)
        return WindowReport(parts, tokens, self.compactor.window, limit, outlook, self._largest(whole))

    def compact(self, keep: str) -> AsyncGenerator[Event, None]:
        """The events of a compaction, as a turn; `keep` is what the user wants to keep in particular."""

        async def work(emit: Emit) -> TurnFinished:
            await self.compactor.compact(keep, emit)
            return TurnFinished("answered")

        return self.tasks.run(work)

    def pinnable(self) -> tuple[Pinnable, ...]:
        """The messages that are sent and can be pinned, oldest first."""
        transcript = self.compactor.memory.transcript
        sent = [(entry.number, entry.message) for entry in transcript.sent_entries() if entry.number]
        return tuple(
            Pinnable(number, "ouro" if message.role == "assistant" else "you", message.text, number in transcript.pins)
            for number, message in sent
            if is_own_words(message) or (message.role == "assistant" and message.text.strip())
        )

    async def pin(self, number: int, pinned: bool = True) -> None:
        """Pin a message: every compaction keeps it verbatim, as far as pinned messages fit; or unpin it.

        Raises:
            UsageError: there is no such message in the request.
            SaveFailed: it is not on disk yet.
        """
        if number not in {message.number for message in self.pinnable()}:
            raise UsageError(f"Message {number} is not among those that are sent. `/pin` shows them.")
        await self.compactor.memory.record(PinRecord(number, self.compactor.memory.now(), pinned))

    def _estimates(self) -> Mapping[str, int]:
        sizes = {name: estimate(text) for name, text in prompt_parts(self.compactor.requests.instructions)}
        sizes["tools"] = self.compactor.requests.sizes(self.compactor.models()[0])[1]
        compaction = self.compactor.memory.transcript.compaction
        sizes["summary"] = estimate(compaction.summary) if compaction else 0
        names = ("your messages", "added by ouro", "answers", "thinking", "tool calls", "tool outputs", "pictures")
        sizes |= dict.fromkeys(names, 0)
        for message in self.compactor.memory.context():
            for part in message.parts:
                name, size = _size(part, message.role)
                sizes[name] += size
                sizes["pictures"] += TOKENS_A_PICTURE * len(part.images) if isinstance(part, ToolReply) else 0
        sizes["added by ouro"] = max(0, sizes["added by ouro"] - sizes["summary"])
        return sizes

    def _outlook(self, tokens: int) -> Outlook | None:
        plan = self.compactor.plan()
        left = self.compactor.tokens_after(plan) if plan else 0
        return Outlook(len(plan.covered), len(plan.kept), left) if plan and left < tokens else None

    def _largest(self, whole: int) -> str:
        entries = self.compactor.memory.transcript.sent_entries()
        found = [(estimate_messages([entry.message]), entry) for entry in entries]
        size, entry = max(found, key=lambda item: item[0], default=(0, None))
        if entry is None or size < whole * LARGE:
            return ""
        tools = ", ".join(dict.fromkeys(reply.name for reply in entry.message.parts_of(ToolReply)))
        what = f"the output of {tools}" if tools else "your message" if entry.message.role == "user" else "the answer"
        return f"{what} at message {entry.number}, about {size:,} tokens"


def _size(part: Part, role: str) -> tuple[str, int]:
    match part:
        case Text(text):
            return ("answers" if role == "assistant" else "your messages"), estimate(text)
        case Context(text):
            return "added by ouro", estimate(text)
        case Image():
            return "pictures", TOKENS_A_PICTURE
        case ToolReply():
            return "tool outputs", estimate(part.text)
        case Thinking() | ToolCall():
            name = "thinking" if isinstance(part, Thinking) else "tool calls"
            return name, estimate_messages([Message("assistant", (part,))])
