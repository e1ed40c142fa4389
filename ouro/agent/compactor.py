"""Compactor: makes what is sent smaller, before it is too large, when it is, or when the person asks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing

import msgspec
from msgspec.structs import replace

from ouro.agent.replay import compaction_event
from ouro.agent.requests import Requests
from ouro.errors import ContextTooLong, ModelError, SaveFailed
from ouro.events import Compacting, Event, Retrying, Said, UsageUpdated
from ouro.llm.model import Model, TextChunk, ToolSpec
from ouro.llm.retry import Attempt, stream_with_retries
from ouro.llm.streaming import ReplyBuilder
from ouro.memory.compaction import (
    CompactionPlan,
    CompactionRules,
    ask_for_part,
    ask_for_summary,
    cut_summary,
    files_listed,
    files_section,
    is_summary,
    longest_part,
    parts_of,
    pictures_section,
    plan_compaction,
    quotes,
    smaller,
    words_for,
)
from ouro.memory.manager import MemoryManager
from ouro.memory.sessions.records import ChangeRecord, CompactionRecord, CompactionTrigger, CostRecord
from ouro.memory.short_term import outputs_to_drop, sendable, without_outputs
from ouro.memory.tokens import CHARACTERS_A_TOKEN, estimate_messages
from ouro.messages import Message, ToolReply, Usage

TOO_LONG = "Begin anew (`/clear`), or choose a model with a larger window (`/model`)."
"""What a person can do where nothing can be made smaller."""
WORTH = 0.9
"""What is sent must become smaller than this share of itself, else nothing is done."""
GROWN = 1.1
"""By how much it must have grown before the next attempt: none follows another at once."""
DROPPED_TO = 0.8
"""The share of the limit that dropping outputs aims at."""


class CompactorParts(msgspec.Struct, frozen=True):
    """What a Compactor is made of."""

    memory: MemoryManager
    models: Callable[[], Sequence[Model]]
    """Those that answer."""
    summarisers: Callable[[], Sequence[Model]]
    """Those that sum up."""
    requests: Requests
    rules: CompactionRules
    carried: Callable[[], Awaitable[str]]
    """What goes into the summary beside the model's words: the plan, where and when, what runs."""
    on_compacted: Callable[[], None]
    """What was told once has to be told again."""


class Compactor:
    """Makes what is sent smaller; the session keeps every message."""

    def __init__(self, parts: CompactorParts) -> None:
        self._parts = parts
        self._memory = parts.memory
        self._not_before = 0
        """Tokens: the last attempt left it so large that another is of no use yet."""
        self.measure()

    def measure(self) -> None:
        """Another model answers from here on: what goes with every request is of another size, and so is its window."""
        self._memory.constant = self._constant()
        self._not_before = 0

    @property
    def window(self) -> int:
        """Tokens that fit the model in use."""
        return self._parts.models()[0].spec.window

    @property
    def limit(self) -> int:
        """Tokens above which the next request is made smaller first."""
        return self._parts.rules.limit(self.window)

    @property
    def limit_of_itself(self) -> int:
        """The same; 0 where it is not made smaller without being asked."""
        return self.limit if self._parts.rules.auto else 0

    def tokens_after(self, plan: CompactionPlan) -> int:
        """About what would be left, with a summary of middling length."""
        sent = self._memory.context()
        summary = "x" * int(longest_summary(self.window) * CHARACTERS_A_TOKEN / 2)
        return smaller(self._memory.tokens, sent, plan.will_be_sent(summary, frozenset()), self._constant())

    def planned(self) -> CompactionPlan | None:
        """What a compaction of now would do, if the person asked for it."""
        return self._plan("manual")

    async def make_room(self) -> AsyncGenerator[Event, None]:
        """Before a model call: compact where the share of the window is reached."""
        tokens = self._memory.tokens
        if self._parts.rules.auto and tokens > self.limit and tokens >= self._not_before:
            async with aclosing(self._compact_or_drop("auto")) as events:
                async for event in events:
                    yield event
            self._not_before = int(self._memory.tokens * GROWN)

    async def recover(self, refusal: ContextTooLong) -> AsyncGenerator[Event, None]:
        """After the provider said that the window is full: compact, or without leave to do so drop outputs.

        Raises:
            ContextTooLong: nothing could be made smaller.
        """
        before = self._memory.context()
        way = self._compact_or_drop("window") if self._parts.rules.auto else self._drop("window")
        async with aclosing(way) as events:
            async for event in events:
                yield event
        if self._memory.context() == before:
            raise ContextTooLong(refusal.message, refusal.hint or TOO_LONG) from refusal

    async def compact(self, focus: str) -> AsyncGenerator[Event, None]:
        """Because the person asked; `focus` is what they want kept."""
        await self._memory.read_all()
        plan = self._plan("manual")
        if plan is None:
            yield Said("There is nothing to compact yet: what was said last stays as it is.")
            return
        try:
            async with aclosing(self._sum_up(plan, "manual", focus)) as events:
                async for event in events:
                    yield event
        except ModelError as error:
            yield Said(f"Nothing was compacted. {error}", "error")

    async def _compact_or_drop(self, trigger: CompactionTrigger) -> AsyncGenerator[Event, None]:
        before = self._memory.context()
        plan = self._plan(trigger)
        try:
            if plan is not None:
                async with aclosing(self._sum_up(plan, trigger, "")) as events:
                    async for event in events:
                        yield event
        except ModelError as error:
            yield Said(f"The conversation could not be summed up: {error.message}", "warning")
        if self._memory.context() == before:
            async with aclosing(self._drop(trigger)) as dropping:
                async for event in dropping:
                    yield event

    def _plan(self, trigger: CompactionTrigger) -> CompactionPlan | None:
        rules, window, transcript = self._parts.rules, self._room(self.window, trigger), self._memory.transcript
        return plan_compaction(
            transcript.sent_entries(),
            transcript.compaction,
            transcript.pins,
            words=rules.words(window),
            tail=0 if trigger == "manual" else rules.tail(window),
            last=window // 3,
        )

    async def _sum_up(
        self, plan: CompactionPlan, trigger: CompactionTrigger, focus: str
    ) -> AsyncGenerator[Event, None]:
        """Raises ModelError where there is no summary. Until the record is kept nothing has changed."""
        summariser = Summariser(self._parts.summarisers(), self._parts.requests, focus)
        room = self._room_of_summariser(trigger)
        record = None
        try:
            async with aclosing(summariser.run(self._memory.context(), self._size(trigger), room)) as signs:
                async for sign in signs:
                    yield sign
            record = await self._summed_up(plan, trigger, focus, summariser.summary)
        finally:
            if record is None and summariser.summary.usage is not None:
                self._note_cost(summariser.summary.model, summariser.summary.usage)
        if record is None:
            yield Said("The summary would not have made it smaller: nothing was compacted.")
            return
        async with aclosing(self._keep(record)) as events:
            async for event in events:
                yield event
        if lost := plan.lost(self._memory.context()):
            numbers = ", ".join(map(str, lost))
            yield Said(f"Message {numbers} should still be sent word for word, and is not.", "error")

    async def _summed_up(
        self, plan: CompactionPlan, trigger: CompactionTrigger, focus: str, summary: Summary
    ) -> CompactionRecord | None:
        """The record with this summary; None where what is sent would not become smaller."""
        body = await self._body(plan, summary.text)
        sent, tokens, dropped = self._memory.context(), self._memory.tokens, self._still_dropped(plan)
        after = smaller(tokens, sent, plan.will_be_sent(body, frozenset(dropped)), self._constant())
        if after >= tokens * (1 if trigger == "manual" else WORTH):
            return None
        return replace(
            self._record(trigger, (tokens, after), dropped),
            covers=plan.covers,
            kept=plan.kept,
            messages=len(plan.covered),
            summary=body,
            focus=focus,
            model=summary.model,
            usage=summary.usage,
            spent=self._memory.usage + (summary.usage or Usage()),
        )

    async def _drop(self, trigger: CompactionTrigger) -> AsyncGenerator[Event, None]:
        """Without a model: leave the oldest tool outputs out of what is sent."""
        sent, tokens = self._memory.context(), self._memory.tokens
        constant, whole = self._constant(), estimate_messages(sent)
        goal = int(self._parts.rules.limit(self._room(self.window, trigger)) * DROPPED_TO)
        target = int((constant + whole) * goal / max(1, tokens)) - constant
        dropped = outputs_to_drop(sent, min(max(0, target), whole - 1))
        if not dropped:
            return
        after = smaller(tokens, sent, without_outputs(sent, frozenset(dropped)), constant)
        record = self._record(trigger, (tokens, after), tuple(dropped))
        async with aclosing(self._keep(record)) as events:
            async for event in events:
                yield event

    async def _keep(self, record: CompactionRecord) -> AsyncGenerator[Event, None]:
        try:
            await self._memory.record(record)
        except SaveFailed as error:
            yield Said(str(error), "error")
        finally:
            self._parts.on_compacted()
        yield compaction_event(record)
        yield UsageUpdated(self._memory.usage, self._memory.tokens, self.window)

    def _record(
        self, trigger: CompactionTrigger, tokens: tuple[int, int], dropped: tuple[str, ...]
    ) -> CompactionRecord:
        memory, transcript = self._memory, self._memory.transcript
        return CompactionRecord(
            memory.next_number,
            memory.now(),
            covers=(0, 0),
            kept=(),
            summary="",
            trigger=trigger,
            dropped=dropped,
            tokens=tokens,
            spent=memory.usage,
            title=memory.title,
            pins=tuple(sorted(transcript.pins)),
            chosen=memory.model,
            captured=transcript.captured,
        )

    async def _body(self, plan: CompactionPlan, summary: str) -> str:
        """The model's words, and what goes with them."""
        before = self._memory.transcript.compaction
        listed = files_listed(before.summary) if before else []
        files = self._parts.requests.files_in([entry.message for entry in plan.covered])
        said = quotes(plan.quoted)
        parts = [
            summary,
            f"## Said by the person, too long to be kept whole\n{said}" if said else "",
            files_section([*listed, *files]),
            pictures_section(plan),
            await self._parts.carried(),
        ]
        return "\n\n".join(part.strip() for part in parts if part.strip())

    def _room(self, window: int, trigger: CompactionTrigger) -> int:
        """What a window holds; where the provider has just said that it is full, less than was sent."""
        return min(window, self._size(trigger)) if trigger == "window" else window

    def _size(self, trigger: CompactionTrigger) -> int:
        """Tokens that are sent now; where the provider says that they are too many, the larger of two figures."""
        if trigger != "window":
            return self._memory.tokens
        return max(self._memory.tokens, self._constant() + estimate_messages(self._memory.context()))

    def _room_of_summariser(self, trigger: CompactionTrigger) -> int:
        model = self._parts.summarisers()[0].spec
        is_same = model.name == self._parts.models()[0].spec.name
        return self._room(model.window, trigger) if is_same else model.window

    def _still_dropped(self, plan: CompactionPlan) -> tuple[str, ...]:
        """The outputs that are left out by now, of those that will be sent."""
        return tuple(
            reply.call_id
            for message in sendable([entry.message for entry in plan.tail])
            for reply in message.parts_of(ToolReply)
            if reply.call_id in self._memory.transcript.dropped
        )

    def _constant(self) -> int:
        return sum(self._parts.requests.sizes(self._parts.models()[0]))

    def _note_cost(self, model: str, usage: Usage) -> None:
        change: ChangeRecord = CostRecord("compaction", self._memory.now(), model, usage)
        self._memory.note(change)


ATTEMPTS = 3
HALVINGS = 3
"""How often the parts are made smaller when even one of them does not fit."""
LONGEST_SUMMARY = 8_000
"""Tokens; never more than an eighth of the window."""
THE_REQUEST = 600
"""Tokens of the request itself, and of what the estimate misses."""
PROGRESS = 400
"""Characters between two signs of life."""


def longest_summary(window: int) -> int:
    """The tokens of the longest summary that a model with this window may write."""
    return min(LONGEST_SUMMARY, window // 8)


class Summary(msgspec.Struct):
    """What has come so far; the money is spent also where nothing came of it."""

    text: str = ""
    model: str = ""
    usage: Usage | None = None


class Summariser:
    """Asks `models` for one summary; `summary` is what came.

    Args:
        models: the one to ask, then its fallbacks.
        requests: what goes with every request of the conversation.
        focus: what the person asks to keep.
    """

    def __init__(self, models: Sequence[Model], requests: Requests, focus: str) -> None:
        self.summary = Summary()
        self._models = models
        self._requests = requests
        self._focus = focus
        self._longest = longest_summary(models[0].spec.window)
        self._progress = Compacting()

    async def run(
        self, sent: Sequence[Message], tokens: int, window: int
    ) -> AsyncGenerator[Compacting | Retrying, None]:
        """Sum up what is `sent`: about `tokens`, to a model that holds `window`.

        Raises:
            ModelError: there is no summary; the message says why.
        """
        if tokens + THE_REQUEST + self._longest <= window:
            try:
                async with aclosing(self._at_once(sent)) as events:
                    async for event in events:
                        yield event
                return
            except ContextTooLong:
                window = min(window, tokens)
        for _ in range(HALVINGS):
            try:
                async with aclosing(self._in_steps(sent, window)) as events:
                    async for event in events:
                        yield event
                return
            except ContextTooLong:
                window //= 2
        raise ContextTooLong("The model takes not even a part of the conversation.")

    async def _at_once(self, sent: Sequence[Message]) -> AsyncGenerator[Compacting | Retrying, None]:
        """Behind the very bytes of the conversation, which the provider has in its cache."""
        messages = [*self._requests.messages(sent), ask_for_summary(self._focus, words_for(self._longest))]
        async with aclosing(self._ask(messages, self._requests.specs(self._models[0]))) as events:
            async for event in events:
                yield event

    async def _in_steps(self, sent: Sequence[Message], window: int) -> AsyncGenerator[Compacting | Retrying, None]:
        """Part by part, each with the summary of those before it."""
        self.summary.text = ""
        longest = min(self._longest, window // 8)
        parts = parts_of(sent, longest_part(window))
        for number, part in enumerate(parts, 1):
            self._progress = Compacting(0, number, len(parts))
            messages = ask_for_part(part, number, len(parts), self.summary.text, self._focus, words_for(longest))
            async with aclosing(self._ask(messages, ())) as events:
                async for event in events:
                    yield event

    async def _ask(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AsyncGenerator[Compacting | Retrying, None]:
        builder, written = ReplyBuilder(self._models[0].spec.name), 0
        yield self._progress
        async with aclosing(stream_with_retries(self._models, messages, tools, attempts=ATTEMPTS)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Attempt):
                    builder, written = ReplyBuilder(chunk.model), 0
                    yield Retrying(chunk.reason, chunk.number, chunk.wait, chunk.model)
                    continue
                builder.add(chunk)
                if isinstance(chunk, TextChunk):
                    before, written = written, written + len(chunk.text)
                    if written // PROGRESS > before // PROGRESS:
                        yield replace(self._progress, written=written)
        self._take(builder.finish(), messages)

    def _take(self, reply: Message, messages: Sequence[Message]) -> None:
        usage = reply.usage or Usage(estimate_messages(messages), output=estimate_messages([reply]))
        self.summary.usage = (self.summary.usage or Usage()) + usage
        self.summary.model = reply.model
        if not is_summary(reply.text):
            said = f": it said “{' '.join(reply.text.split())[:80]}”" if reply.text.strip() else ""
            raise ModelError(f"{reply.model} did not sum the conversation up{said}.")
        self.summary.text = cut_summary(reply.text, int(self._longest * CHARACTERS_A_TOKEN))
