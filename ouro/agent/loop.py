"""LoopAgent: ask the model, run its tools, repeat until it answers."""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ouro.agent.compactor import TOO_LONG_HINT, Compactor, no_text
from ouro.agent.tool_runner import ToolBatch, ToolRunner
from ouro.display import Question
from ouro.errors import (
    AuthenticationFailed,
    ContextTooLong,
    LimitReached,
    ModelError,
    PromptRefused,
    SaveFailed,
    StoppedByUser,
)
from ouro.events import (
    Emit,
    Notice,
    Prompted,
    QuestionAsked,
    Replied,
    Reply,
    Retrying,
    TextDelta,
    ThinkingDelta,
    TurnFinished,
    UsageUpdated,
)
from ouro.llm import (
    PATIENT_ATTEMPTS,
    Chunk,
    Model,
    ModelCall,
    NoticeChunk,
    TextChunk,
    ThinkingChunk,
    WaitLimits,
)
from ouro.memory.backend import MessageRecord, RewindRecord
from ouro.memory.manager import MemoryManager
from ouro.messages import Context, Image, Message, Text, ToolCall, ToolReply, tool, user
from ouro.settings import LimitSettings
from ouro.utils.late_pattern import late_pattern
from ouro.utils.text import plural

if TYPE_CHECKING:
    from ouro.agent.stuck_turn import ProgressWatch

WARN_AFTER = 3
STOP_AFTER = 6
"""Repetitions of a round of calls after which the model is warned, and the turn is stopped."""
_MAX_ROUND = 4
"""The maximum number of calls in a round that is recognized when it is repeated."""
CONTINUE, TRY_AGAIN, STOP = "Continue", "Try again", "Stop here"
SUMMARIZE, SEND_ALL, DO_NOT_SEND = (
    "Summarize the earlier messages first",
    "Send everything",
    "Do not send it",
)
CONTINUE_PROMPT = "Continue exactly where your answer was cut off. Do not repeat any of it."
MAX_RECOVERIES = 2
"""How often a request that is too long is made smaller and sent again."""
MAX_CONTINUATIONS = 5
"""How often hooks can make the agent continue in one turn."""
LAST_CHECK_SECONDS = 3.0
"""How long the end of a turn waits for checks of changed code that still run."""
NOT_DONE = "A hook of the user has checked your work, and says that it is not done:"
_DURATION = late_pattern(r", [0-9.]+ s\]")
"""The duration in the last line of a command's output, which differs each time."""


BeforeCall = Callable[[int], Awaitable[str]]
"""Called before each model call with the number of earlier calls in this turn.

Returns a warning, or raises LimitReached.
"""


class Prompt(msgspec.Struct, frozen=True):
    """A user message: text and images, and the context that ouro adds to it."""

    text: str
    images: tuple[Image, ...] = ()
    context: str = ""


async def keep_prompt(prompt: Prompt, _emit: Emit) -> Prompt:
    """The default for `add_attachments`: nothing is added."""
    return prompt


class Repetition:
    """Notices that a model repeats a call, or a round of up to _MAX_ROUND calls, and gets the same
    results.
    """

    def __init__(self) -> None:
        self._batches: deque[str] = deque(maxlen=_MAX_ROUND)
        """The last batches, newest first."""
        self._repeated = [0] * _MAX_ROUND
        """For each length of a round (1, 2, …): how many of the last batches equal the batch that is one
        round before them.
        """

    def observe(self, calls: Sequence[ToolCall], results: Sequence[ToolReply]) -> str:
        """Add a batch: the calls of one answer, with their results. Returns a warning for the model
        if the last batches are the same round, made WARN_AFTER times in a row, otherwise an empty
        text. Raises LimitReached if it was made STOP_AFTER times.
        """
        outputs = (_DURATION.sub("", result.text) for result in results)
        pairs = zip(calls, outputs, strict=True)
        batch = json.dumps([[call.name, dict(call.arguments), output] for call, output in pairs])
        # For each length of a round: does this batch equal the one that is a round before it?
        for index, earlier in enumerate(self._batches):
            self._repeated[index] = self._repeated[index] + 1 if batch == earlier else 0
        self._batches.appendleft(batch)

        # Warn about it, or stop the turn.
        length, times = self._find_most_repeated_round()
        call_text, result_text = "call", "result"
        if length > 1:
            call_text, result_text = f"{length} calls in turn", "results"
        if times >= STOP_AFTER:
            raise LimitReached(
                f"Stopped: the model made the same {call_text} {times} times and got the same {result_text}.",
                "Tell it what to do differently.",
            )
        if times >= WARN_AFTER:
            return f"You made this same {call_text} {times} times with the same {result_text}. Do something else."
        return ""

    def _find_most_repeated_round(self) -> tuple[int, int]:
        """The round at the end that was made most often (of several, the shortest): its number of
        batches, and how often it was made in a row.
        """
        length, times = 0, 0
        for size, count in enumerate(self._repeated, 1):
            times_made = 1 + count // size  # it was made once before it was first repeated
            if times_made > times:
                length, times = size, times_made
        return length, times


class TurnBounds(NamedTuple):
    """When a turn must not continue without a question."""

    limits: LimitSettings = LimitSettings()
    watched_folder: Path | None = None
    """The folder whose changed files are progress."""


class LoopAgent(msgspec.Struct, frozen=True, eq=False):
    """Runs turns: asks the model, runs the tools that it calls, and repeats until it answers."""

    memory: MemoryManager
    models: Callable[[], Sequence[Model]]
    """Returns the model to ask now, then its fallbacks."""
    system_prompt: Message
    """It stays the same, as do the tools, so that providers cache both."""
    tools: ToolRunner
    compactor: Compactor
    steering: Callable[[], Sequence[Prompt]]
    """Returns the next user message that arrived during the turn: one by one, so that an interrupt
    loses none.
    """
    after_tools: Callable[[Sequence[str]], Awaitable[Sequence[str]]]
    """Returns what the model must know after tool calls, each text once: about the paths that they have
    used, the project instructions of their folders and notes; and what happened in the background.
    """
    before_call: BeforeCall
    late_errors: Callable[[float], Awaitable[str]] = no_text
    """Returns the errors in code that were found only after the tool result of the change was sent. The
    argument is how many seconds it may wait for them.
    """
    add_attachments: Callable[[Prompt, Emit], Awaitable[Prompt]] = keep_prompt
    """Adds to a message that arrived during the turn what it names."""

    waiting: WaitLimits = WaitLimits()
    """How long a failed call is repeated."""
    bounds: TurnBounds = TurnBounds()

    async def run(self, prompt: Prompt, emit: Emit) -> TurnFinished:
        """Run one turn. Emits what happens, and returns how the turn ended.

        If it is cancelled, it saves what was streamed, and adds a result to every tool call, so
        that the transcript is valid for providers.
        """
        try:
            why_incomplete = await self._run_turn(prompt, emit)
        except LimitReached as limit:
            return TurnFinished("limit", str(limit))
        except StoppedByUser as stopped:
            return TurnFinished("interrupted", str(stopped))
        except AuthenticationFailed as error:
            return TurnFinished("unauthorized", str(error))
        except ModelError as error:
            sent = self.memory.transcript.sent_entries()
            return TurnFinished("failed", _explain_refusal(error, sent))
        else:
            if why_incomplete:
                return TurnFinished("cut", why_incomplete)
            return TurnFinished("answered")
        finally:
            await self._answer_open_calls(emit)

    async def run_with_checks(
        self, prompt: Prompt, emit: Emit, why_not_done: Callable[[bool], Awaitable[str]]
    ) -> TurnFinished:
        """Run a turn. When it was answered and a hook says that the work is not done, the agent
        continues with the reason, up to MAX_CONTINUATIONS times. Returns how the last turn ended.

        Args:
            why_not_done: returns the reason of a hook, empty if the work is done. Its argument is
                whether the agent was made to continue before.
        """
        finished = await self.run(prompt, emit)
        for number in range(MAX_CONTINUATIONS):
            reason = await why_not_done(number > 0) if finished.outcome == "answered" else ""
            if not reason:
                break
            emit(Notice(f"A hook says that it is not done: {reason}"))
            finished = await self.run(Prompt(text="", context=f"{NOT_DONE}\n{reason}"), emit)
        return finished

    async def confirm_long_message(self, prompt: Prompt, emit: Emit) -> None:
        """Ask the user about a message that is so long that it would cause a compaction, or does not
        fit into the window, before it is sent: compact first, send everything, or do not send it.
        The answer is carried out; if the user gives none, nothing is done. Returns when the message
        may be sent; raises PromptRefused if the user does not want to send it.
        """
        message = user(prompt.text, prompt.images, prompt.context)
        size, window = self.compactor.size_to_confirm(message), self.compactor.window
        if not size:  # there is room
            return
        message_tokens = size - self.memory.tokens
        text = (
            f"With this message the request has about {size:,} tokens, and the window {window:,}."
        )
        summary_cannot_help = message_tokens > window or not self.compactor.can_summarize
        if summary_cannot_help:  # the default is then not to send it
            text += " A long text is better in a file: name it, and the agent reads what it needs."
            choices: tuple[str, ...] = (DO_NOT_SEND, SEND_ALL)
        elif size < window:
            choices = (SUMMARIZE, SEND_ALL, DO_NOT_SEND)
        else:  # everything together does not fit into the window
            choices = (SUMMARIZE, DO_NOT_SEND)
        question = Question(text, choices)
        reply = await self.tools.ask_user(QuestionAsked("long-message", question), emit)
        answers = reply.answers if isinstance(reply, Reply) else ()
        if DO_NOT_SEND in answers:
            raise PromptRefused("The message was not sent. It is in the input history.")
        if SEND_ALL in answers:
            self.compactor.postpone(message_tokens)
        elif SUMMARIZE in answers:
            await self.compactor.make_room(emit, message_tokens)

    async def _run_turn(self, prompt: Prompt, emit: Emit) -> str:
        """Run a turn to its last answer: the answer calls no tool, no message of the user steers
        the turn, and no new errors in code are found. Returns why this answer is incomplete, empty
        if it is complete.
        """
        await self._add_prompt(prompt, emit)
        # Errors of the last turn that were found after its end.
        await self._add_late_errors(emit, seconds=0)
        calls_made = 0
        repetition = Repetition()
        progress: ProgressWatch | None = None
        while True:
            if warning := await self.before_call(calls_made):
                emit(Notice(warning, "warning"))
            await self.compactor.make_room(emit)
            await self._ask_model(emit)
            if calls_made == 0:  # now the server has said what its model can do
                self._warn_of_hidden_images(prompt, emit)
            calls_made += 1
            answer = self.memory.transcript.entries[-1].message
            calls = answer.tool_calls
            if calls:
                progress = progress or self._watch_progress()
                await self._run_tools(calls, repetition, progress, emit)
                await self._check_progress(progress, calls_made, emit)
            is_done = not calls

            # Messages that the user sent meanwhile are answered in this turn.
            while prompts := self.steering():
                is_done = False
                for steering_prompt in prompts:
                    await self._add_steering(steering_prompt, emit)

            if not is_done or await self._offer_to_continue(answer, calls_made, emit):
                continue
            if await self._add_late_errors(emit, LAST_CHECK_SECONDS):
                emit(
                    Notice("New errors were found after the last change. The agent looks at them.")
                )
                continue
            return self._incomplete_reason(answer)

    async def _add_steering(self, prompt: Prompt, emit: Emit) -> None:
        """Save a message that arrived during the turn, with what it names, and show it. After an
        interrupt it is saved without that, because it waits nowhere else any more.
        """
        try:
            with_attachments = await self.add_attachments(prompt, emit)
        except asyncio.CancelledError:
            await self._add_prompt(prompt, emit, steered=True)
            raise
        await self._add_prompt(with_attachments, emit, steered=True)
        self._warn_of_hidden_images(with_attachments, emit)

    def _watch_progress(self) -> ProgressWatch:
        from ouro.agent.stuck_turn import ProgressWatch  # an answer without calls does not need it

        return ProgressWatch(self.bounds.watched_folder)

    def _warn_of_hidden_images(self, prompt: Prompt, emit: Emit) -> None:
        """Warn the user if a message has images, and the model gets only their names."""
        if not prompt.images:
            return
        try:
            spec = self.models()[0].spec
        except LimitReached:  # the budget has ended: the next request reports it
            return
        if spec.images:
            return
        warning = (
            f"{spec.name} is not known to see pictures: only their names were sent. Use another"
            " model (/model), or set `images: true` for it in models.yaml if it can."
        )
        emit(Notice(warning, "warning"))

    async def _add_late_errors(self, emit: Emit, seconds: float) -> bool:
        """Add to the messages the errors in code that were found only after the tool result of the
        change was sent. Returns whether there are any.

        Args:
            seconds: how long to wait for checks that still run.
        """
        errors = await self.late_errors(seconds)
        if errors:
            await self._save_message(Message("user", (Context(errors),)), emit)
        return bool(errors)

    async def _offer_to_continue(self, answer: Message, calls_made: int, emit: Emit) -> bool:
        """If an answer is incomplete, ask the user whether the turn continues, and prepare the next
        model call for that. Returns whether it continues; False for a complete answer.

        An answer that was too long is continued. One that a filter stopped is discarded and
        requested again, because the filter would also stop the rest.
        """
        if not answer.incomplete:
            return False
        offered_answer = CONTINUE if answer.incomplete == "length" else TRY_AGAIN
        question = Question(
            f"{self._incomplete_reason(answer)} {offered_answer}?", (offered_answer, STOP)
        )
        reply = await self.tools.ask_user(QuestionAsked(f"continue:{calls_made}", question), emit)
        if not (isinstance(reply, Reply) and offered_answer in reply.answers):
            return False
        if offered_answer == CONTINUE:
            await self._add_prompt(Prompt(CONTINUE_PROMPT), emit)
        else:
            transcript = self.memory.transcript
            number_before_answer = transcript.number_before(transcript.last_number)
            await self.memory.record(RewindRecord(number_before_answer, self.memory.now()))
        return True

    def _incomplete_reason(self, answer: Message) -> str:
        """A text for the user about what cut the answer; empty if it is complete."""
        match answer.incomplete:
            case "length":
                spec = next(
                    (model.spec for model in self.models() if model.spec.name == answer.model), None
                )
                limit = f" ({spec.max_output:,} tokens)" if spec else ""
                return f"The answer was cut: it reached max_output{limit}."
            case "filtered":
                return "The provider's filter stopped the answer. `/rewind 1` edits your message."
            case _:
                return ""

    async def _add_prompt(self, prompt: Prompt, emit: Emit, *, steered: bool = False) -> None:
        """Save a user message and show it. A prompt of only context is saved, but not shown."""
        if not prompt.text and not prompt.images:  # this is context from ouro, not a message
            await self._save_message(Message("user", (Context(prompt.context),)), emit)
            return
        message = user(prompt.text, prompt.images, prompt.context)
        await self._save_message(message, emit, steered=steered)
        emit(Prompted(prompt.text, prompt.images))

    async def _ask_model(self, emit: Emit) -> None:
        """Call the model, and save its answer. If the provider refuses the request as too long,
        make it smaller and call again, up to MAX_RECOVERIES times; then raise ContextTooLong.
        """
        for _ in range(MAX_RECOVERIES):
            try:
                return await self._call_model(emit)
            except ContextTooLong as refusal:
                await self.compactor.recover(refusal, emit)
        try:
            return await self._call_model(emit)
        except ContextTooLong as last:
            raise ContextTooLong(last.message, last.hint or TOO_LONG_HINT) from last

    async def _call_model(self, emit: Emit) -> None:
        """Call the model, or its fallbacks if it fails, and save and show the answer. Raises
        ModelError. After an interrupt or a failure, the text that was streamed is saved first.
        """
        models = self.models()
        call = ModelCall(
            models,
            [self.system_prompt, *self.memory.context()],
            self.tools.specs(models[0].spec),
            attempts=PATIENT_ATTEMPTS,
            waiting=self.waiting,
            taken=self.memory.transcript.call_ids,
        )

        def on_chunk(chunk: Chunk) -> None:
            """Emit a part of the answer as it comes."""
            if isinstance(chunk, TextChunk) and chunk.text:
                emit(TextDelta(chunk.text))
            elif isinstance(chunk, ThinkingChunk) and chunk.text:
                emit(ThinkingDelta(chunk.text))
            elif isinstance(chunk, NoticeChunk):
                emit(Notice(chunk.text, "warning"))

        async def on_retry(retry: Retrying) -> None:
            """Save what was streamed of the attempt that failed, and show that it is repeated."""
            await self._save_partial(call, emit)
            emit(retry)

        try:
            reply = self.tools.correct_calls(await call.run(on_chunk, on_retry))
        except (asyncio.CancelledError, ModelError):
            await self._save_partial(call, emit)
            raise
        await self._save_message(reply, emit)
        emit(Replied(reply))
        window = next(model.spec.window for model in models if model.spec.name == reply.model)
        emit(UsageUpdated(self.memory.usage, self.memory.tokens, window))

    async def _run_tools(
        self,
        calls: Sequence[ToolCall],
        repetition: Repetition,
        progress: ProgressWatch,
        emit: Emit,
    ) -> None:
        """Run the calls of an answer, and save the results, also after an interrupt. Then add a
        message with what the model must know: a warning about repetition, instructions and notes
        about the used paths, what happened in the background, new errors in code.
        """
        batch = self._make_batch(calls, emit)
        try:
            await batch.run()
        finally:
            await self._save_results(batch, emit)
        warning = repetition.observe(calls, batch.results())
        progress.observe(calls, batch.results())
        paths = batch.touched_paths()
        errors = await self.late_errors(0)
        # Last: what it returns is not returned again, so nothing may interrupt before it is saved.
        texts = (warning, *await self.after_tools(paths), errors)
        if context := tuple(Context(text) for text in texts if text):
            await self._save_message(Message("user", context), emit)

    async def _check_progress(self, progress: ProgressWatch, calls_made: int, emit: Emit) -> None:
        """Ask the user whether a turn continues that fails again and again, or brings nothing new.
        Returns if the turn continues, also without a question.

        Raises:
            LimitReached: the user gave no answer, or nobody can be asked.
            StoppedByUser: the user stopped it.
        """
        reason = await self._find_reason_to_ask(progress)
        if not reason:
            return
        question = Question(f"{reason} {CONTINUE}?", (CONTINUE, STOP))
        reply = await self.tools.ask_user(QuestionAsked(f"progress:{calls_made}", question), emit)
        answers = reply.answers if isinstance(reply, Reply) else ()
        if STOP in answers:
            raise StoppedByUser(f"Stopped: {reason}")
        if CONTINUE not in answers:
            raise LimitReached(f"Stopped: {reason}", "Tell it what to do differently.")
        progress.restart()

    async def _find_reason_to_ask(self, progress: ProgressWatch) -> str:
        """Why the user must be asked whether the turn continues: too many calls failed in a row,
        or brought nothing new. Empty if it continues without a question.
        """
        limits = self.bounds.limits
        if progress.failures >= limits.max_failures:
            return (
                f"{plural(progress.failures, 'tool call')} failed in a row (limits.max_failures)."
            )
        # Commands that print nothing may have changed files. To see that, the files are looked at
        # twice: halfway, and at the limit.
        if progress.idle < limits.max_idle_calls // 2:
            return ""
        needs_look = not progress.was_checked or progress.idle >= limits.max_idle_calls
        if needs_look and await asyncio.to_thread(progress.check_files):
            progress.restart_idle()
        if progress.idle < limits.max_idle_calls:
            return ""
        calls = plural(progress.idle, "tool call")
        return f"{calls} in a row brought nothing new (limits.max_idle_calls)."

    def _make_batch(self, calls: Sequence[ToolCall], emit: Emit) -> ToolBatch:
        return ToolBatch(
            self.tools, calls, emit, save=lambda reply: self._save_message(tool(reply), emit)
        )

    async def _answer_open_calls(self, emit: Emit) -> None:
        """If the turn has ended before the tools of its last answer ran, save a result for each of
        these calls, so that the transcript can be sent.
        """
        if calls := self.memory.transcript.entries[-1].message.tool_calls:
            await self._save_results(self._make_batch(calls, emit), emit)

    async def _save_results(self, batch: ToolBatch, emit: Emit) -> None:
        """Save those results of the batch that are not in the messages after the last answer yet."""
        saved: set[str] = set()
        for entry in reversed(self.memory.transcript.entries):
            if entry.message.role != "tool":
                break
            saved |= {reply.call_id for reply in entry.message.parts_of(ToolReply)}
        if missing := [reply for reply in batch.results() if reply.call_id not in saved]:
            await self._save_message(tool(*missing), emit)

    async def _save_partial(self, call: ModelCall, emit: Emit) -> None:
        """Save what was streamed of an answer, if it has any text."""
        partial = call.partial()
        if any(isinstance(part, Text) and part.text.strip() for part in partial.parts):
            await self._save_message(partial, emit)

    async def _save_message(self, message: Message, emit: Emit, *, steered: bool = False) -> None:
        """Write a message to disk. If that fails it stays in memory, and the user sees an error."""
        try:
            await self.memory.add(message, steered=steered)
        except SaveFailed as error:
            emit(Notice(str(error), "error"))


_POSITION_IN_REQUEST = late_pattern(r"\b(?:messages|input|contents)\W{0,2}(\d+)", re.IGNORECASE)
"""How providers name a position in the request: `messages[3]`, `messages.3.content`, `input.3`."""
_MIN_ID = 6
"""A shorter id of a call may be in the text by chance."""
_REFUSAL_STATUSES = (400, 422)


def _explain_refusal(error: ModelError, entries: Sequence[MessageRecord]) -> str:
    """The text of an error for the user. If the provider refused the request because of one of its
    messages, the text also says what the user can do, and names the message if it was found.

    A refusal is about a message if its text has the id of a call in that message, or a position in
    the request.

    Args:
        entries: the messages that were sent.
    """
    answer = error.answer
    if answer is None or answer.status not in _REFUSAL_STATUSES:
        return str(error)
    refusal = f"{answer.param} {answer.text}"
    entry = _find_refused_message(refusal, entries)
    if entry is None and not _POSITION_IN_REQUEST.search(refusal):
        return str(error)
    message_text = f"message {entry.number}" if entry else "a message"
    return (
        f"{error} It refuses {message_text} of this session. `/rewind` goes back before it; `/context`"
        " lists what is sent, and `/context drop N` leaves out row N of that list."
    )


def _find_refused_message(refusal: str, entries: Sequence[MessageRecord]) -> MessageRecord | None:
    """The newest message with a tool call, or the result of one, whose id is in the text of a
    refusal. None if there is none.
    """
    for entry in reversed(entries):
        for part in entry.message.parts:
            if isinstance(part, ToolCall):
                call_id = part.id
            elif isinstance(part, ToolReply):
                call_id = part.call_id
            else:
                continue
            if len(call_id) >= _MIN_ID and call_id in refusal:
                return entry
    return None
