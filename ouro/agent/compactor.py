"""Compactor: makes the request smaller, before the window is full, when it is full, and on
`/compact`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ouro.agent.tool_runner import ToolRunner
from ouro.errors import ContextTooLong, ModelError, SaveFailed
from ouro.events import Compacted, Emit, Event, Notice, TurnFinished, UsageUpdated
from ouro.llm import Model
from ouro.memory.backend import CompactionRecord, CompactionTrigger
from ouro.memory.compaction import (
    MAX_TAIL,
    CompactionPlan,
    compaction_limit,
    format_files,
    format_pictures,
    parse_files,
    plan_compaction,
    quote_messages,
    scale_tokens,
)
from ouro.memory.manager import MemoryManager
from ouro.memory.short_term import make_sendable, outputs_to_drop, remove_outputs
from ouro.memory.side_calls import ask_and_record
from ouro.memory.tokens import CHARACTERS_A_TOKEN, estimate, estimate_messages
from ouro.messages import Context, Message, ToolReply, Usage
from ouro.settings import CompactionSettings

if TYPE_CHECKING:
    from ouro.agent.summariser import Summariser

TOO_LONG_HINT = "Start a new session (`/clear`), or use a model with a larger window (`/model`)."
MIN_GAIN = 0.9
"""A compaction must make the request smaller than this share of itself."""
GROWTH_BEFORE_RETRY = 1.1
"""The request must grow by this factor before the next automatic attempt."""
LONG_MESSAGE = 0.25
"""A message counts as long if it takes more than this share of the limit."""
DROP_TARGET = 0.8
"""Outputs are dropped until the request has this share of the limit."""
Review = Callable[[str], Awaitable[str]]
"""Takes a summary, and returns the summary to use; if it is empty, nothing is compacted."""


async def _accept_summary(summary: str) -> str:
    """The default for `review`: the summary unchanged."""
    return summary


async def no_text(_about: object) -> str:
    """The default for callbacks that may add a text: nothing is added."""
    return ""


class Compactor(msgspec.Struct, eq=False):
    """Makes the request smaller; the session keeps every message."""

    memory: MemoryManager
    models: Callable[[], Sequence[Model]]
    """Returns the models that answer; the first has the window that counts."""
    summarisers: Callable[[], Sequence[Model]]
    """Returns the models that write summaries; the first is asked first."""
    system_prompt: Message
    tools: ToolRunner
    settings: CompactionSettings
    environment: Callable[[], Awaitable[str]]
    """Returns what is added to the model's summary: the plan, the environment, jobs."""
    on_compacted: Callable[[], None]
    """Called after older messages left the request: context that is sent only once must be sent
    again.
    """
    before_summary: Callable[[CompactionTrigger], Awaitable[str]] = no_text
    """Returns what the summary must keep, in addition to what the user names."""
    not_before: int = 0
    """No automatic attempt is made with fewer tokens."""

    def __post_init__(self) -> None:
        self.measure()

    def measure(self) -> None:
        """Measure system prompt and tools again, after a change of the model."""
        self.memory.constant = estimate(self.system_prompt.text) + self.tool_tokens
        self.not_before = 0

    @property
    def tool_tokens(self) -> int:
        """About how many tokens the tools are."""
        specs = self.tools.specs(self.models()[0].spec)
        return sum(estimate(f"{spec.name}{spec.description}{spec.parameters}") for spec in specs)

    @property
    def window(self) -> int:
        """The size of the window of the model that answers, in tokens."""
        return self.models()[0].spec.window

    @property
    def limit(self) -> int:
        """A request with more tokens is compacted automatically; 0 if that is off."""
        return compaction_limit(self.settings, self.window) if self.settings.auto else 0

    def tokens_after(self, plan: CompactionPlan) -> int:
        """About how many tokens the request would have after a compaction by this plan. Its summary
        is assumed to be half as long as it may be.
        """
        from ouro.agent.summariser import longest_summary

        summary = "x" * int(longest_summary(self.window) * CHARACTERS_A_TOKEN / 2)
        messages_after = plan.will_be_sent(summary, dropped=frozenset())
        return scale_tokens(
            self.memory.tokens,
            sent=self.memory.context(),
            will_be_sent=messages_after,
            constant=self.memory.constant,
        )

    def plan(self, trigger: CompactionTrigger = "manual") -> CompactionPlan | None:
        """What a compaction would do now; None if there is nothing to compact. If the user asks for
        the compaction, only the last round stays unchanged; otherwise also some messages before it.
        All limits are shares of the window of the model, in tokens.
        """
        window, transcript = self._usable_window(self.window, trigger), self.memory.transcript
        return plan_compaction(
            transcript.sent_entries(),
            transcript.compaction,
            transcript.pins,
            max_verbatim_tokens=min(self.settings.keep, window // 4),
            max_tail_tokens=0 if trigger == "manual" else min(MAX_TAIL, window // 8),
            max_last_round_tokens=window // 3,
        )

    @property
    def can_summarize(self) -> bool:
        """Whether an automatic compaction is on, and would find something to compact."""
        return self.settings.auto and self.plan("auto") is not None

    def size_to_confirm(self, message: Message) -> int:
        """The tokens that the request would have with a message, if the message is long and would
        cause an automatic compaction, or would not fit into the window. Otherwise 0.
        """
        size, present_tokens = estimate_messages([message]), self.memory.tokens
        limit = compaction_limit(self.settings, self.window)
        is_long = size > limit * LONG_MESSAGE
        is_compacted_anyway = present_tokens > limit  # also without this message
        if not is_long or is_compacted_anyway:
            return 0
        new_size = present_tokens + size
        causes_compaction = new_size > limit and self.can_summarize
        return new_size if causes_compaction or new_size > self.window else 0

    async def make_room(self, emit: Emit, coming_tokens: int = 0) -> None:
        """Called before a model call: compact if the request is larger than the limit. After an
        attempt the next one is made when the request has grown (to `not_before` tokens). Does
        nothing if automatic compaction is off.

        Args:
            coming_tokens: those of a message that is sent next; they count, too.
        """
        tokens = self.memory.tokens + coming_tokens
        if self.settings.auto and tokens > self.limit and tokens >= self.not_before:
            await self._compact_or_drop("auto", emit)
            self.postpone(coming_tokens)

    def postpone(self, coming_tokens: int) -> None:
        """Make no further automatic attempt until the request has grown by GROWTH_BEFORE_RETRY from
        its present size, with `coming_tokens` further tokens.
        """
        self.not_before = int((self.memory.tokens + coming_tokens) * GROWTH_BEFORE_RETRY)

    async def recover(self, refusal: ContextTooLong, emit: Emit) -> None:
        """Make the request smaller after the provider refused it as too long: compact, or drop
        outputs if automatic compaction is off.

        Raises ContextTooLong if nothing could be made smaller.
        """
        old_messages = self.memory.context()
        if self.settings.auto:
            await self._compact_or_drop("window", emit)
        else:
            await self._drop_outputs("window", emit)
        if self.memory.context() == old_messages:
            raise ContextTooLong(refusal.message, refusal.hint or TOO_LONG_HINT) from refusal

    async def compact(
        self, focus: str, emit: Emit, review: Review = _accept_summary, *, probe: bool = False
    ) -> TurnFinished | None:
        """Compact, because the user asked for it. Returns the end of a turn that failed if no
        summary could be written; otherwise None. That there is nothing to compact is a notice.

        Args:
            focus: what the user wants to keep; it may be empty.
            review: gets the summary before it is used, and returns the one to use.
            probe: whether the model is asked afterwards about what was cut, to report what was lost.
        """
        from ouro.agent.compaction_probe import report_lost, write_questions

        await self.memory.pager.finish_loading()
        plan = self.plan()
        if plan is None:
            emit(Notice("Nothing to compact: the newest messages stay as they are."))
            return None
        try:
            ask = partial(self._ask_probe, self.summarisers())
            # Written now: after the compaction the model does not see what they are about.
            questions = await write_questions(plan, ask) if probe else []
            is_compacted = await self._summarise(
                plan, trigger="manual", focus=focus, emit=emit, review=review
            )
            if is_compacted and probe:
                emit(Notice(await report_lost(questions, ask)))
        except ModelError as error:
            return TurnFinished("failed", f"Nothing was compacted. {error}")
        return None

    async def _ask_probe(self, models: Sequence[Model], text: str) -> str:
        """Ask a model the question `text` about the present request; returns its answer. The cost
        is recorded, but not the messages.

        Args:
            models: the model to ask, and those to ask if it does not answer.
        """
        messages = [self.system_prompt, *self.memory.context(), Message("user", (Context(text),))]
        tools = self.tools.specs(models[0].spec)
        return await ask_and_record(
            models, self.memory, purpose="probe", messages=messages, tools=tools
        )

    async def _compact_or_drop(self, trigger: CompactionTrigger, emit: Emit) -> None:
        """Compact with a summary. If that did not make the request smaller, drop tool outputs from
        it.
        """
        old_messages = self.memory.context()
        plan = self.plan(trigger)
        try:
            if plan is not None:
                await self._summarise(plan, trigger, focus="", emit=emit)
        except ModelError as error:
            emit(Notice(f"No summary could be written: {error.message}", "warning"))
        if self.memory.context() == old_messages:
            await self._drop_outputs(trigger, emit)

    async def _summarise(
        self,
        plan: CompactionPlan,
        trigger: CompactionTrigger,
        focus: str,
        emit: Emit,
        review: Review = _accept_summary,
    ) -> bool:
        """Compact with a summary. Returns whether it was done: not if the user discards the
        summary, or the request would not get smaller. Raises ModelError if there is no summary.

        Nothing changes before the record of the compaction is saved; it has the cost of the
        summary. If it is not saved, the cost is recorded by itself.
        """
        from ouro.agent.summariser import Summariser

        focus = "\n".join(filter(None, (focus, await self.before_summary(trigger))))
        models = self.summarisers()
        summariser = Summariser(
            models,
            self.system_prompt,
            tools=self.tools.specs(models[0].spec),
            focus=focus,
            emit=emit,
        )
        record = None
        try:
            model = models[0].spec
            window = model.window
            is_answering_model = model.name == self.models()[0].spec.name
            if is_answering_model:  # a refusal of a request may have shown that it is smaller
                window = self._usable_window(window, trigger)
            await summariser.run(self.memory.context(), self._request_size(trigger), window)

            make_record = partial(self._summary_record, plan, trigger, focus, summariser)
            record = await self._make_reviewed_record(make_record, summariser, review, emit)
        finally:
            if record is None:
                self.memory.note_cost("compaction", summariser.model, summariser.usage)
        if record is None:
            return False
        await self.save(record, emit)
        # A check: the messages that the compaction keeps must still be sent.
        if lost_numbers := plan.find_lost(self.memory.context()):
            numbers = ", ".join(map(str, lost_numbers))
            emit(Notice(f"Message {numbers} should still be sent verbatim, but is not.", "error"))
        return True

    async def _make_reviewed_record(
        self,
        make_record: Callable[[], Awaitable[CompactionRecord | None]],
        summariser: Summariser,
        review: Review,
        emit: Emit,
    ) -> CompactionRecord | None:
        """Let the user review the summary that was written, and return the record with the text that
        they want. None, and a notice, if they discard it, or if the request would not get smaller:
        in that case they are not even asked.

        Args:
            make_record: makes the record with the present text of `summariser`; returns None if the
                request would not get smaller.
        """
        record = await make_record()
        if record is not None:
            written_summary = summariser.text
            summariser.text = await review(written_summary)
            if not summariser.text.strip():
                emit(Notice("Nothing was compacted: the summary was discarded."))
                return None
            if summariser.text != written_summary:  # the user has edited it
                record = await make_record()
        if record is None:
            text = "Nothing was compacted: the summary would not have made the request smaller."
            emit(Notice(text))
        return record

    async def _summary_record(
        self, plan: CompactionPlan, trigger: CompactionTrigger, focus: str, summariser: Summariser
    ) -> CompactionRecord | None:
        """The record of a compaction with the text of `summariser`. None if the request would not get
        smaller; in an automatic compaction also if it would keep more than the share MIN_GAIN.
        """
        body = await self._summary_with_sections(plan, summariser.text)
        messages, tokens = self.memory.context(), self.memory.tokens
        # Outputs in the tail that were dropped before stay dropped.
        tail = make_sendable([entry.message for entry in plan.tail])
        results = chain.from_iterable(message.parts_of(ToolReply) for message in tail)
        ids = [result.call_id for result in results]
        dropped = tuple(call_id for call_id in ids if call_id in self.memory.transcript.dropped)
        messages_after = plan.will_be_sent(body, dropped=frozenset(dropped))
        tokens_after = scale_tokens(
            tokens, sent=messages, will_be_sent=messages_after, constant=self.memory.constant
        )
        max_share = 1 if trigger == "manual" else MIN_GAIN
        if tokens_after >= tokens * max_share:
            return None
        return replace(
            compaction_record(self.memory, trigger),
            dropped=dropped,
            tokens=(tokens, tokens_after),
            covers=plan.covers,
            kept=plan.kept,
            messages=len(plan.covered),
            summary=body,
            focus=focus,
            model=summariser.model,
            usage=summariser.usage,
            spent=self.memory.usage + (summariser.usage or Usage()),
        )

    async def _drop_outputs(self, trigger: CompactionTrigger, emit: Emit) -> None:
        """Compact without a model: drop tool outputs from the request, the oldest first, until it
        has at most the share DROP_TARGET of the limit. Does nothing if there are none to drop.
        """
        # The tokens that the messages may have afterwards.
        sent, tokens = self.memory.context(), self.memory.tokens
        constant, message_tokens = self.memory.constant, estimate_messages(sent)
        limit = compaction_limit(self.settings, self._usable_window(self.window, trigger))
        goal_tokens = int(limit * DROP_TARGET)
        # `tokens` and the goal are counted as the provider counts, the messages by our estimate:
        # the goal is scaled to the estimate. At least one token must go.
        goal_by_estimate = int((constant + message_tokens) * goal_tokens / max(1, tokens))
        max_tokens = max(0, goal_by_estimate - constant)
        dropped = outputs_to_drop(sent, min(max_tokens, message_tokens - 1))
        if not dropped:
            return

        messages_after = remove_outputs(sent, frozenset(dropped))
        tokens_after = scale_tokens(tokens, sent, will_be_sent=messages_after, constant=constant)
        record = compaction_record(self.memory, trigger)
        record = replace(record, dropped=tuple(dropped), tokens=(tokens, tokens_after))
        await self.save(record, emit)

    async def save(self, record: CompactionRecord, emit: Emit) -> None:
        """Add the record of a compaction to the session, so that it is in force from now on, and
        show it. If it is not on disk yet, that is shown, too.
        """
        try:
            await self.memory.record(record)
        except SaveFailed as error:  # it is in force all the same: the next save writes it
            emit(Notice(str(error), "error"))
        finally:  # also after an interrupt, because the record may be in force already
            self.on_compacted()
        emit(compaction_event(record))
        emit(UsageUpdated(self.memory.usage, self.memory.tokens, self.window))

    async def _summary_with_sections(self, plan: CompactionPlan, summary: str) -> str:
        """The summary of the model and the sections that are added to it: what the user said, the
        files that were read and changed, the pictures, and the environment. Empty sections are left
        out.
        """
        last_compaction = self.memory.transcript.compaction
        listed_files = parse_files(last_compaction.summary) if last_compaction else []
        files = self.tools.files_in([entry.message for entry in plan.covered])
        quotes = quote_messages(plan.quoted)
        sections = [
            summary,
            f"## Said by the user, too long to be kept whole\n{quotes}" if quotes else "",
            format_files([*listed_files, *files]),
            format_pictures(plan),
            await self.environment(),
        ]
        return "\n\n".join(section.strip() for section in sections if section.strip())

    def _usable_window(self, window: int, trigger: CompactionTrigger) -> int:
        """The tokens that the model can read. If the provider has just refused a request as too
        long (the trigger is `window`), these are not more than that request had.
        """
        return min(window, self._request_size(trigger)) if trigger == "window" else window

    def _request_size(self, trigger: CompactionTrigger) -> int:
        """The tokens of the request, as counted. If the provider has just refused it as too long
        (the trigger is `window`), the estimate if that is larger.
        """
        if trigger != "window":
            return self.memory.tokens
        estimated = self.memory.constant + estimate_messages(self.memory.context())
        return max(self.memory.tokens, estimated)


def compaction_record(memory: MemoryManager, trigger: CompactionTrigger) -> CompactionRecord:
    """The record of a compaction that covers nothing yet, with what a session needs to be loaded
    from it: title, pins, model and usage.
    """
    return CompactionRecord(
        memory.next_number,
        memory.now(),
        covers=(0, 0),
        kept=(),
        summary="",
        trigger=trigger,
        spent=memory.usage,
        title=memory.title,
        pins=tuple(sorted(memory.transcript.pins)),
        chosen=memory.model,
        captured=memory.transcript.captured,
    )


def compaction_event(record: CompactionRecord) -> Event:
    """The event that shows a compaction, when it is made and when the session is shown again. If the
    messages were only left out, the summary is a text of ouro's own, and the event is a notice.
    """
    before, after = record.tokens
    covered = record.messages
    if not covered and record.summary:  # earlier versions did not save the count
        covered = record.covers[1] - record.covers[0] + 1
    is_left_out = bool(record.summary) and not record.model  # no model wrote the summary
    if is_left_out:
        return Notice(
            f"{before:,} → {after:,} tokens: {covered} earlier messages are not sent any more. "
            "The session keeps them, and they can be searched."
        )
    return Compacted(
        before,
        after,
        covered,
        kept=len(record.kept),
        dropped=len(record.dropped),
        summary=record.summary,
        usage=record.usage,
    )
