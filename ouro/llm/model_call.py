"""ModelCall: one answer of a model, requested with retries and fallbacks."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing

import msgspec

from ouro.errors import AnswerUnfinished, EmptyAnswer, ServerUnreachable, TransientModelError
from ouro.events import Retrying
from ouro.llm.model import Chunk, Model, ToolSpec
from ouro.llm.reply_builder import ReplyBuilder
from ouro.llm.text_tools import TextToolsModel
from ouro.messages import Message
from ouro.utils.event_loop import FairLoop

ATTEMPTS = 5
"""The number of attempts for background work, and for a model that has a fallback."""
PATIENT_ATTEMPTS = 11
"""The number of attempts for the last model of a turn: in two to five minutes a restart or a short
outage ends.
"""
UNREACHABLE_ATTEMPTS = 2
"""A second attempt helps if a server has just been restarted; a wrong name stays wrong."""
EMPTY_ATTEMPTS = 4
"""Each answer that is empty or ends early costs money, and the same request seldom gets another
one.
"""
FIRST_WAIT = 1.0
"""Seconds before the second attempt; later waits are longer."""
MAX_WAIT = 60.0
"""Seconds; a longer wait is not made, but reported."""
OTHER_MODEL = "Try again later, or choose another model: `/model`."
"""The hint for a wait that is too long."""


class WaitLimits(msgspec.Struct, frozen=True):
    """How many seconds the attempts with one model may wait together."""

    for_server: float = 0
    """For a server that cannot be reached, such as one that is starting; 0: there are two attempts."""
    after_failures: float | None = None
    """After failures of a server that answers; None: only the attempts are counted."""

    @property
    def longest(self) -> float:
        """The seconds after which ouro gives up; 0 if only the attempts are counted."""
        return 0 if self.after_failures is None else max(self.after_failures, self.for_server)

    def longest_after(self, failure: TransientModelError) -> float:
        """The same for a kind of failure: some kinds have few attempts, whatever they wait."""
        if isinstance(failure, ServerUnreachable):
            return self.for_server
        return self.longest if _max_attempts(failure) == sys.maxsize else 0

    def is_used_up(self, waited: float) -> bool:
        """Whether this is more than all attempts may wait."""
        return self.after_failures is not None and waited > self.longest


DEFAULT_WAITING = WaitLimits()


class ModelCall:
    """One answer of a model, requested with retries. Once the attempts of a model are used up, the
    next one of `models` is asked.

    Only this class retries. `taken` are the ids of tool calls that are already in the transcript.
    """

    def __init__(
        self,
        models: Sequence[Model],
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        *,
        attempts: int = ATTEMPTS,
        waiting: WaitLimits = DEFAULT_WAITING,
        taken: Iterable[str] = (),
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._models = [
            TextToolsModel(model) if tools and model.spec.text_tools != "off" else model
            for model in models
        ]
        self._messages = messages
        self._tools = tools
        self._attempts = attempts
        self._waiting = waiting
        self._taken = frozenset(taken)
        """The ids of calls that are in the transcript: the calls of the answer get others."""
        self._sleep = sleep
        self._builder = ReplyBuilder(models[0].spec.name, self._taken)

    def partial(self) -> Message:
        """The answer so far of the current attempt, without tool calls, marked as cut."""
        return self._builder.message(cut=True)

    async def run(
        self,
        on_chunk: Callable[[Chunk], None] | None = None,
        on_retry: Callable[[Retrying], Awaitable[None]] | None = None,
    ) -> Message:
        """Return the whole answer.

        Args:
            on_chunk: is called with each chunk, also of attempts that fail later.
            on_retry: is called before each further attempt, also with the next model. `partial`
                then still returns the text of the failed attempt.

        Raises:
            TransientModelError: the last attempt of the last model failed.
            ModelError: a model failed in a way that another attempt does not fix.
        """
        failure: TransientModelError | None = None
        """The last failure, of this model or of the one before."""
        for model in self._models:
            attempts = self._attempts_with(model)
            attempt = 0
            wait = 0.0  # seconds before the next attempt
            waited = 0.0  # seconds of all waits with this model that no provider has asked for
            began = time.monotonic()
            while attempt < attempts:
                attempt += 1
                if failure is not None:  # not the first attempt of all
                    if on_retry:
                        await on_retry(self._describe_retry(failure, attempt, wait, model))
                    self._builder = ReplyBuilder(model.spec.name, self._taken)
                if attempt > 1:
                    await self._sleep(wait)
                try:
                    return await self._request_answer(model, on_chunk or (lambda _chunk: None))
                except TransientModelError as error:
                    failure = error

                # How long to wait, and how many attempts this failure allows.
                wait = _wait_seconds(failure, attempt)
                # The provider asks for a longer wait than this: the next model is asked.
                if wait > MAX_WAIT:
                    break
                if failure.retry_after is None:
                    waited += wait
                if self._waiting.is_used_up(waited):
                    break
                if isinstance(failure, ServerUnreachable) and waited < self._waiting.for_server:
                    attempts = max(attempts, attempt + 1)  # it may be starting: the call waits
                else:  # some kinds of failures get fewer attempts
                    attempts = min(attempts, _max_attempts(failure))
        assert failure is not None, "no model was given"
        seconds = time.monotonic() - began
        is_over = self._waiting.is_used_up(waited)
        raise _describe_attempts(failure, model.spec.name, attempt, seconds, is_over=is_over)

    def _describe_retry(
        self, failure: TransientModelError, attempt: int, wait: float, model: Model
    ) -> Retrying:
        """The event about a further attempt, `wait` seconds after this failure."""
        first_line, _, _ = failure.message.partition("\n")
        reason = f"{first_line} {failure.hint}".rstrip()
        limit = self._waiting.longest_after(failure)
        return Retrying(reason, attempt, wait, model.spec.name, limit)

    def _attempts_with(self, model: Model) -> int:
        """How often a model is asked at most: the last model with all attempts of this call. A
        model with a fallback gets no more than ATTEMPTS, so that the fallback is asked soon.
        """
        is_last = model is self._models[-1]
        return self._attempts if is_last else min(self._attempts, ATTEMPTS)

    async def _request_answer(self, model: Model, on_chunk: Callable[[Chunk], None]) -> Message:
        """Ask a model once. Raises ModelError."""
        async with aclosing(model.stream(self._messages, self._tools)) as chunks:
            fair = FairLoop()
            async for chunk in chunks:
                self._builder.add(chunk)
                on_chunk(chunk)
                await fair.step()
        return self._builder.finish()


def _max_attempts(failure: TransientModelError) -> int:
    """How often a model that fails in this way is asked at most; sys.maxsize if this failure sets no
    limit of its own.
    """
    if isinstance(failure, ServerUnreachable):  # a wrong address is reported soon
        return UNREACHABLE_ATTEMPTS
    if isinstance(failure, EmptyAnswer | AnswerUnfinished):
        return EMPTY_ATTEMPTS
    return sys.maxsize


def _wait_seconds(failure: TransientModelError, attempt: int) -> float:
    """Seconds to wait after an attempt (the first is 1): what the provider asked for, which may be
    longer than MAX_WAIT; else a wait that doubles each time up to MAX_WAIT, with jitter.
    """
    if failure.retry_after is not None:
        return failure.retry_after
    max_wait: float = min(MAX_WAIT, FIRST_WAIT * 2 ** (attempt - 1))
    import random  # imported late: five modules that a call without a retry does not need

    return max_wait * random.uniform(0.5, 1)  # noqa: S311 (no secret depends on it)


def _describe_attempts(
    failure: TransientModelError, model: str, attempts: int, seconds: float, *, is_over: bool
) -> TransientModelError:
    """The same error, with a message that also says how many attempts were made, if several, and in
    how many seconds, or that the provider asks for a wait that is too long.

    Args:
        is_over: whether the time for attempts is used up; the hint names its setting.
    """
    from ouro.llm.waits import NO_WAIT_HELPS, describe_wait  # imported late, as `random` above

    wait = failure.retry_after
    message, hint = failure.message, failure.hint
    if wait == NO_WAIT_HELPS:
        hint = hint or OTHER_MODEL
    elif wait is not None and wait > MAX_WAIT:
        message += (
            f" {model} asks to wait {describe_wait(wait)}; ouro waits at most {MAX_WAIT:.0f} s."
        )
        hint = OTHER_MODEL
    elif attempts > 1:
        message += f" ({attempts} attempts in {seconds:.0f} s, {model})"
    if is_over:
        hint = f"{hint} `llm.max_retry_seconds` sets how long a failed call is repeated.".lstrip()
    described = type(failure)(message, hint, wait)
    described.answer = failure.answer
    return described
