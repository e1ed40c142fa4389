"""Compactor: makes the request smaller, before the window is full, when it is full, and on
`/compact`; the probe.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain

import msgspec
from msgspec.structs import replace

from ouro.agent.tool_runner import ToolRunner
from ouro.errors import ContextTooLong, ModelError, SaveFailed
from ouro.events import Compacted, Compacting, Emit, Event, Notice, Retrying, UsageUpdated
from ouro.llm import Chunk, Model, ModelCall, TextChunk, ToolSpec
from ouro.memory.backend import CompactionRecord, CompactionTrigger
from ouro.memory.compaction import (
    MAX_TAIL,
    CompactionPlan,
    ask_for_part,
    ask_for_summary,
    compaction_limit,
    cut_summary,
    format_files,
    format_pictures,
    is_summary,
    parse_files,
    part_limit,
    plan_compaction,
    quote_messages,
    scale_tokens,
    split_messages,
    word_limit,
)
from ouro.memory.manager import MemoryManager
from ouro.memory.short_term import make_sendable, outputs_to_drop, remove_outputs
from ouro.memory.side_calls import ask_and_record
from ouro.memory.tokens import CHARACTERS_A_TOKEN, estimate, estimate_messages
from ouro.messages import Context, Message, Part, Text, ToolCall, ToolReply, Usage
from ouro.settings import CompactionSettings
from ouro.utils.decoding import decode_json
from ouro.utils.text import one_line

TOO_LONG = "Start a new session (`/clear`), or use a model with a larger window (`/model`)."
MIN_GAIN = 0.9
"""A compaction must make the request smaller than this share of itself."""
GROWTH_BEFORE_RETRY = 1.1
"""The request must grow by this factor before the next automatic attempt."""
LONG_MESSAGE = 0.25
"""A message counts as long if it takes more than this share of the limit."""
DROP_TARGET = 0.8
"""Outputs are dropped until the request has this share of the limit."""
Review = Callable[[str], Awaitable[str]]
"""Called with a summary, returns the summary to use; empty: nothing is compacted."""


async def _accept(summary: str) -> str:
    return summary


async def no_text(_about: object) -> str:
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
        """Measure system prompt and tools again: another model answers now."""
        self.memory.constant = estimate(self.system_prompt.text) + self.tool_tokens
        self.not_before = 0

    @property
    def tool_tokens(self) -> int:
        """About how many tokens the tools are."""
        specs = self.tools.specs(self.models()[0].spec)
        return sum(estimate(f"{spec.name}{spec.description}{spec.parameters}") for spec in specs)

    @property
    def window(self) -> int:
        return self.models()[0].spec.window

    @property
    def limit(self) -> int:
        """A request with more tokens is compacted automatically; 0 if that is off."""
        return compaction_limit(self.settings, self.window) if self.settings.auto else 0

    def tokens_after(self, plan: CompactionPlan) -> int:
        """About how many tokens the request would have, with a summary of medium length."""
        sent = self.memory.context()
        summary = "x" * int(longest_summary(self.window) * CHARACTERS_A_TOKEN / 2)
        return scale_tokens(
            self.memory.tokens, sent, plan.will_be_sent(summary, frozenset()), self.memory.constant
        )

    def plan(self, trigger: CompactionTrigger = "manual") -> CompactionPlan | None:
        """What a compaction would do now; None if there is nothing to compact."""
        window, transcript = self._room(self.window, trigger), self.memory.transcript
        return plan_compaction(
            transcript.sent_entries(),
            transcript.compaction,
            transcript.pins,
            words=min(self.settings.keep, window // 4),
            tail=0 if trigger == "manual" else min(MAX_TAIL, window // 8),
            last=window // 3,
        )

    def size_with(self, message: Message) -> int:
        """Tokens of the request with a long message that alone would cause a compaction; 0 if it
        causes none.
        """
        size, now = estimate_messages([message]), self.memory.tokens
        is_cause = size > self.limit * LONG_MESSAGE and now <= self.limit < now + size
        return (
            now + size if self.settings.auto and is_cause and self.plan("auto") is not None else 0
        )

    async def make_room(self, emit: Emit, coming: int = 0) -> None:
        """Before a model call: compact if the request, with `coming` tokens, reaches the share of
        the window.
        """
        tokens = self.memory.tokens + coming
        if self.settings.auto and tokens > self.limit and tokens >= self.not_before:
            await self._compact_or_drop("auto", emit)
            self.postpone(coming)

    def postpone(self, coming: int) -> None:
        """Compact again only after the request, with `coming` tokens, has grown."""
        self.not_before = int((self.memory.tokens + coming) * GROWTH_BEFORE_RETRY)

    async def recover(self, refusal: ContextTooLong, emit: Emit) -> None:
        """After the provider refused a request as too long: compact, or drop outputs if automatic
        compaction is off.

        Raises ContextTooLong if nothing could be made smaller.
        """
        before = self.memory.context()
        if self.settings.auto:
            await self._compact_or_drop("window", emit)
        else:
            await self._drop("window", emit)
        if self.memory.context() == before:
            raise ContextTooLong(refusal.message, refusal.hint or TOO_LONG) from refusal

    async def compact(
        self, focus: str, emit: Emit, review: Review = _accept, *, probe: bool = False
    ) -> None:
        """Compact because the user asked.

        Args:
            focus: what the user wants to keep.
            review: receives the summary before it is used.
            probe: ask the model afterwards about what was cut, and report what was lost.
        """
        await self.memory.pager.finish_loading()
        plan = self.plan()
        if plan is None:
            emit(Notice("Nothing to compact: the newest messages stay as they are."))
            return
        try:
            ask = partial(self._ask_probe, self.summarisers())
            questions = await write_questions(plan, ask) if probe else []
            if await self._summarise(plan, "manual", focus, emit, review) and probe:
                emit(Notice(await report_lost(questions, ask)))
        except ModelError as error:
            emit(Notice(f"Nothing was compacted. {error}", "error"))

    async def _ask_probe(self, models: Sequence[Model], text: str) -> str:
        messages = [self.system_prompt, *self.memory.context(), Message("user", (Context(text),))]
        tools = self.tools.specs(models[0].spec)
        return await ask_and_record(models, self.memory, "probe", messages, tools=tools)

    async def _compact_or_drop(self, trigger: CompactionTrigger, emit: Emit) -> None:
        before = self.memory.context()
        plan = self.plan(trigger)
        try:
            if plan is not None:
                await self._summarise(plan, trigger, "", emit)
        except ModelError as error:
            emit(Notice(f"No summary could be written: {error.message}", "warning"))
        if self.memory.context() == before:
            await self._drop(trigger, emit)

    async def _summarise(
        self,
        plan: CompactionPlan,
        trigger: CompactionTrigger,
        focus: str,
        emit: Emit,
        review: Review = _accept,
    ) -> bool:
        """Compact with a summary; returns whether it was done. Raises ModelError if there is no
        summary.

        Nothing changes before the record is saved.
        """
        focus = "\n".join(filter(None, (focus, await self.before_summary(trigger))))
        models = self.summarisers()
        summariser = Summariser(
            models, self.system_prompt, self.tools.specs(models[0].spec), focus, emit
        )
        record = None
        try:
            model = models[0].spec
            is_same = model.name == self.models()[0].spec.name
            room = self._room(model.window, trigger) if is_same else model.window
            await summariser.run(self.memory.context(), self._size(trigger), room)
            fitting = await self._summary_record(plan, trigger, focus, summariser)
            written = summariser.text
            summariser.text = await review(written) if fitting else written
            if not summariser.text.strip():
                emit(Notice("Nothing was compacted: the summary was discarded."))
                return False
            is_edited = summariser.text != written
            record = (
                await self._summary_record(plan, trigger, focus, summariser)
                if is_edited
                else fitting
            )
        finally:
            if record is None:
                self.memory.note_cost("compaction", summariser.model, summariser.usage)
        if record is None:
            emit(
                Notice(
                    "Nothing was compacted: the summary would not have made the request smaller."
                )
            )
            return False
        await self.save(record, emit)
        if lost := plan.lost(self.memory.context()):
            numbers = ", ".join(map(str, lost))
            emit(Notice(f"Message {numbers} should still be sent verbatim, but is not.", "error"))
        return True

    async def _summary_record(
        self, plan: CompactionPlan, trigger: CompactionTrigger, focus: str, summary: Summariser
    ) -> CompactionRecord | None:
        """The record with this summary; None if the request would not become smaller."""
        body = await self._body(plan, summary.text)
        sent, tokens = self.memory.context(), self.memory.tokens
        tail = make_sendable([entry.message for entry in plan.tail])
        results = chain.from_iterable(message.parts_of(ToolReply) for message in tail)
        ids = [result.call_id for result in results]
        dropped = tuple(call_id for call_id in ids if call_id in self.memory.transcript.dropped)
        after = scale_tokens(
            tokens, sent, plan.will_be_sent(body, frozenset(dropped)), self.memory.constant
        )
        if after >= tokens * (1 if trigger == "manual" else MIN_GAIN):
            return None
        return replace(
            compaction_record(self.memory, trigger),
            dropped=dropped,
            tokens=(tokens, after),
            covers=plan.covers,
            kept=plan.kept,
            messages=len(plan.covered),
            summary=body,
            focus=focus,
            model=summary.model,
            usage=summary.usage,
            spent=self.memory.usage + (summary.usage or Usage()),
        )

    async def _drop(self, trigger: CompactionTrigger, emit: Emit) -> None:
        """Compact without a model: leave the oldest tool outputs out of the request."""
        sent, tokens = self.memory.context(), self.memory.tokens
        constant, whole = self.memory.constant, estimate_messages(sent)
        goal = int(compaction_limit(self.settings, self._room(self.window, trigger)) * DROP_TARGET)
        target = int((constant + whole) * goal / max(1, tokens)) - constant
        dropped = outputs_to_drop(sent, min(max(0, target), whole - 1))
        if dropped:
            after = scale_tokens(tokens, sent, remove_outputs(sent, frozenset(dropped)), constant)
            record = compaction_record(self.memory, trigger)
            await self.save(replace(record, dropped=tuple(dropped), tokens=(tokens, after)), emit)

    async def save(self, record: CompactionRecord, emit: Emit) -> None:
        """Use a compaction from now on; if it cannot be saved, this is reported."""
        try:
            await self.memory.record(record)
        except SaveFailed as error:
            emit(Notice(str(error), "error"))
        finally:
            self.on_compacted()
        emit(compaction_event(record))
        emit(UsageUpdated(self.memory.usage, self.memory.tokens, self.window))

    async def _body(self, plan: CompactionPlan, summary: str) -> str:
        """The summary of the model, with quotes, files, pictures and the environment."""
        before = self.memory.transcript.compaction
        listed = parse_files(before.summary) if before else []
        files = self.tools.files_in([entry.message for entry in plan.covered])
        quoted = quote_messages(plan.quoted)
        sections = [
            summary,
            f"## Said by the user, too long to be kept whole\n{quoted}" if quoted else "",
            format_files([*listed, *files]),
            format_pictures(plan),
            await self.environment(),
        ]
        return "\n\n".join(section.strip() for section in sections if section.strip())

    def _room(self, window: int, trigger: CompactionTrigger) -> int:
        """The size of the window; at most the size of a request that the provider has just refused."""
        return min(window, self._size(trigger)) if trigger == "window" else window

    def _size(self, trigger: CompactionTrigger) -> int:
        """Tokens of the request; the larger of two figures if the provider has just refused it."""
        if trigger != "window":
            return self.memory.tokens
        return max(
            self.memory.tokens, self.memory.constant + estimate_messages(self.memory.context())
        )


def compaction_record(memory: MemoryManager, trigger: CompactionTrigger) -> CompactionRecord:
    """The record of a compaction, without a summary yet."""
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
    """The event that shows a compaction: when it is made, and when the session is shown again."""
    (before, after), kept = record.tokens, len(record.kept)
    covered = record.messages or (record.covers[1] - record.covers[0] + 1 if record.summary else 0)
    if record.summary and not record.model:
        return Notice(
            f"{before:,} → {after:,} tokens: {covered} earlier messages are not sent any more. "
            "The session keeps them, and they can be searched."
        )
    return Compacted(
        before, after, covered, kept, len(record.dropped), record.summary, record.usage
    )


ATTEMPTS = 3
HALVINGS = 3
"""How often the size of the parts is halved if a part does not fit."""
MAX_SUMMARY = 8_000
"""Maximum tokens of a summary; never more than an eighth of the window."""
REQUEST_TOKENS = 600
"""Tokens that are reserved for the request for a summary, and for the error of the estimate."""
PROGRESS = 400
"""Characters between two progress events."""


def longest_summary(window: int) -> int:
    return min(MAX_SUMMARY, window // 8)


class Summariser:
    """Asks `models`, the fallbacks after the first, for one summary of a conversation, and shows
    the progress.
    """

    def __init__(
        self,
        models: Sequence[Model],
        system_prompt: Message,
        tools: Sequence[ToolSpec],
        focus: str,
        emit: Emit,
    ) -> None:
        self.text, self.model = "", ""
        self.usage: Usage | None = None
        """The usage, which counts also if there is no summary."""
        self._models = models
        self._system_prompt = system_prompt
        self._tools = tools
        self._focus = focus
        self._emit = emit
        self._longest = longest_summary(models[0].spec.window)

    async def run(self, sent: Sequence[Message], tokens: int, window: int) -> None:
        """Summarise what is `sent`, about `tokens`, with a model that holds `window`, into `text`.

        Raises ModelError if there is no summary; the message says why.
        """
        if tokens + REQUEST_TOKENS + self._longest <= window:
            # The request for a summary begins with the same bytes that the provider has in its
            # cache.
            messages = [
                self._system_prompt,
                *sent,
                ask_for_summary(self._focus, word_limit(self._longest)),
            ]
            try:
                return await self._ask(messages, self._tools, Compacting())
            except ContextTooLong:
                window = min(window, tokens)
        for _ in range(HALVINGS):
            self.text = ""
            longest = min(self._longest, window // 8)
            parts = split_messages(sent, part_limit(window))
            try:
                for number, part in enumerate(parts, 1):
                    messages = ask_for_part(
                        part, number, len(parts), self.text, self._focus, word_limit(longest)
                    )
                    await self._ask(messages, (), Compacting(0, number, len(parts)))
                return None
            except ContextTooLong:
                window //= 2
        raise ContextTooLong("The model does not accept even a part of the session.")

    async def _ask(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], progress: Compacting
    ) -> None:
        written = 0

        def on_chunk(chunk: Chunk) -> None:
            nonlocal written
            if isinstance(chunk, TextChunk):
                before, written = written, written + len(chunk.text)
                if written // PROGRESS > before // PROGRESS:
                    self._emit(replace(progress, written=written))

        async def on_retry(retry: Retrying) -> None:
            nonlocal written
            written = 0
            self._emit(retry)

        self._emit(progress)
        reply = await ModelCall(self._models, messages, tools, attempts=ATTEMPTS).run(
            on_chunk, on_retry
        )
        usage = reply.usage or Usage(estimate_messages(messages), output=estimate_messages([reply]))
        self.usage = (self.usage or Usage()) + usage
        self.model = reply.model
        if not is_summary(reply.text):
            answer = (
                f": it answered “{' '.join(reply.text.split())[:80]}”" if reply.text.strip() else ""
            )
            raise ModelError(f"{reply.model} wrote no summary{answer}.")
        self.text = cut_summary(reply.text, int(self._longest * CHARACTERS_A_TOKEN))


QUESTIONS = 5
_ASK = """\
[This message is from ouro, the program that you run in, not from the user.]

The oldest part of this session is about to be replaced by a summary. Write {count} questions about facts in it that the
work ahead may need: names, numbers, decisions, error texts. Each has one short answer that stands word for word in the
messages above. Answer with {count} lines of JSON and nothing else. Do not call a tool.
{{"question": "...", "answer": "..."}}"""
_ANSWER = """\
[This message is from ouro, the program that you run in, not from the user.]

Answer these questions from what you know of this session, one line each, with the number in front. Write `unknown`
where you do not know. Do not call a tool.

{questions}"""


class ProbeQuestion(msgspec.Struct, frozen=True):
    question: str
    answer: str


async def write_questions(
    plan: CompactionPlan, ask: Callable[[str], Awaitable[str]]
) -> list[ProbeQuestion]:
    """Let the model write questions about what is cut, while the messages are still sent. Raises
    ModelError.
    """
    covered = chain.from_iterable(entry.message.parts for entry in plan.covered)
    cut = _normalize(" ".join(map(_text, covered)))
    questions: list[ProbeQuestion] = []
    for line in (await ask(_ASK.format(count=QUESTIONS))).splitlines():
        with suppress(msgspec.DecodeError):
            asked = decode_json(line.strip().strip("`,"), ProbeQuestion)
            expected = _normalize(asked.answer)
            # An answer that is not in the messages was invented: it would be reported as lost.
            if asked.question.strip() and expected and expected in cut:
                questions.append(asked)
    return questions[:QUESTIONS]


async def report_lost(
    questions: Sequence[ProbeQuestion], ask: Callable[[str], Awaitable[str]]
) -> str:
    """Ask the model the questions after the compaction; returns lines about what it knows and what
    was lost.
    """
    if not questions:
        return "Probe: the model wrote no question whose answer is in the messages."
    listed = "\n".join(f"{number}. {asked.question}" for number, asked in enumerate(questions, 1))
    try:
        answer = await ask(_ANSWER.format(questions=listed))
    except ModelError as error:
        return f"Probe: the questions were not answered: {error.message}"
    found = re.findall(r"^[^\w\n]*(\d+)[.:)]?\W(.*)$", answer, re.MULTILINE)
    said = {int(number): _normalize(text) for number, text in found}
    lost = [
        asked
        for at, asked in enumerate(questions, 1)
        if _normalize(asked.answer) not in said.get(at, "")
    ]
    lines = [f"Probe: {len(questions) - len(lost)} of {len(questions)} questions answered."]
    lines += [f"Lost: {one_line(asked.question)} — {one_line(asked.answer)}" for asked in lost]
    return "\n".join(lines)


def _text(part: Part) -> str:
    match part:
        case Text(text) | ToolReply(text=text):
            return text
        case ToolCall(arguments=arguments):
            return json.dumps(dict(arguments), ensure_ascii=False, default=str)
        case _:
            return ""


def _normalize(text: str) -> str:
    """Only letters and digits, in lower case, for comparison."""
    return " ".join(re.findall(r"\w+", text.lower()))
