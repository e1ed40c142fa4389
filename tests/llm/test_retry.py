"""ModelCall: which model is tried again, after how long, and what is reported."""

import asyncio

import pytest

from ouro.errors import (
    AuthenticationFailed,
    ContextTooLong,
    EmptyAnswer,
    ModelUnavailable,
    RateLimited,
    RequestRefused,
    ServerUnreachable,
    StreamCut,
)
from ouro.events import Retrying
from ouro.llm import EndChunk, ModelCall, ModelSpec, TextChunk, WaitLimits
from ouro.llm.waits import NO_WAIT_HELPS
from ouro.messages import user

YES = (TextChunk("Yes."), EndChunk("stop"))


class Answers:
    """A model that yields or raises `answers` in order, one for each call."""

    def __init__(self, *answers, name="m"):
        self.spec = ModelSpec(name)
        self.answers = list(answers)
        self.asked = 0
        self.closed = 0

    async def stream(self, messages, tools=()):
        self.asked += 1
        answer = self.answers.pop(0)
        try:
            for chunk in answer if isinstance(answer, tuple) else (answer,):
                if isinstance(chunk, Exception):
                    raise chunk
                yield chunk
        finally:
            self.closed += 1

    async def close(self):
        pass


class Clock:
    def __init__(self):
        self.waits = []

    async def sleep(self, seconds):
        self.waits.append(seconds)


async def ask(*models, clock=None, **more):
    clock = clock or Clock()
    seen = []

    async def on_retry(retry):
        seen.append(retry)

    await ModelCall(models, [user("hi")], sleep=clock.sleep, **more).run(seen.append, on_retry)
    return seen


async def test_an_answer_is_passed_on():
    assert await ask(Answers(YES)) == list(YES)


@pytest.mark.parametrize(
    "failed",
    [
        (TextChunk("Y"),),
        (EndChunk("stop"),),
        ModelUnavailable("down"),
        (TextChunk("Y"), StreamCut("cut")),
    ],
)
async def test_failed_or_empty_answer_is_retried(failed):
    model, clock = Answers(failed, YES), Clock()
    chunks = await ask(model, clock=clock)
    (attempt,) = [chunk for chunk in chunks if isinstance(chunk, Retrying)]
    assert chunks[-3:] == [attempt, *YES]
    assert (attempt.model, attempt.attempt, [attempt.wait]) == ("m", 2, clock.waits)
    assert model.closed == 2


async def test_first_retry_includes_the_hint():
    told, *_rest = await ask(Answers(ModelUnavailable("down\nbadly", "Are you online?"), YES))
    assert told.reason == "down Are you online?"


async def test_waits_grow_with_jitter(monkeypatch):
    monkeypatch.setattr("ouro.llm.model_call.FIRST_WAIT", 1.0)
    clock = Clock()
    with pytest.raises(ModelUnavailable, match="5 attempts"):
        await ask(Answers(*[ModelUnavailable("down")] * 9), clock=clock)
    assert [
        longest / 2 <= wait <= longest
        for wait, longest in zip(clock.waits, (1, 2, 4, 8), strict=True)
    ] == [True] * 4


async def test_a_failing_server_is_asked_again_for_a_limited_time(monkeypatch):
    monkeypatch.setattr("ouro.llm.model_call.FIRST_WAIT", 1.0)
    clock, seen = Clock(), []

    async def on_retry(retry):
        seen.append(retry)

    model = Answers(*[ModelUnavailable("down")] * 99)
    call = ModelCall(
        [model], [user("hi")], attempts=99, waiting=WaitLimits(0, 120), sleep=clock.sleep
    )
    with pytest.raises(ModelUnavailable, match=r"down \(\d+ attempts in \d+ s, m\)") as failure:
        await call.run(on_retry=on_retry)

    assert 60 < sum(clock.waits) <= 120
    assert {retry.max_waited for retry in seen} == {120}
    assert "llm.max_retry_seconds" in failure.value.hint


@pytest.mark.parametrize(("failure", "patience", "limit"), [
    (ModelUnavailable("down"), 0, 120), (ServerUnreachable("refused"), 0, 0),
    (ServerUnreachable("refused"), 600, 600), (EmptyAnswer("nothing"), 0, 0),
])  # fmt: skip
async def test_a_limit_is_named_only_if_it_is_the_one_that_counts(failure, patience, limit):
    chunks = await ask(Answers(failure, YES), waiting=WaitLimits(patience, 120))
    assert [chunk.max_waited for chunk in chunks if isinstance(chunk, Retrying)] == [limit]


async def test_waits_that_the_provider_asks_for_are_not_limited():
    model = Answers(*[RateLimited("slow", retry_after=50)] * 8, YES)
    await ask(model, attempts=11, waiting=WaitLimits(0, 120))
    assert model.asked == 9


async def test_the_patience_for_a_starting_server_is_the_limit_if_it_is_more():
    starting = [ServerUnreachable("refused")] * 8
    model, clock = Answers(*starting, ModelUnavailable("loading"), YES), Clock()
    await ask(model, clock=clock, attempts=11, waiting=WaitLimits(600, 1))
    assert model.asked == 10


async def test_retry_after_of_the_provider_is_used():
    clock = Clock()
    await ask(Answers(RateLimited("slow", retry_after=7), YES), clock=clock)
    assert clock.waits == [7]


async def test_too_long_retry_after_raises_instead_of_waiting():
    clock, model = Clock(), Answers(RateLimited("Too many requests.", retry_after=3600))
    with pytest.raises(
        RateLimited, match=r"m asks to wait 60 minutes; ouro waits at most 60 s"
    ) as failure:
        await ask(model, clock=clock)
    assert (clock.waits, failure.value.retry_after, "/model" in failure.value.hint) == (
        [],
        3600,
        True,
    )


async def test_a_limit_of_days_is_reported_at_once_without_a_number_of_seconds():
    clock, model = Clock(), Answers(RateLimited("Weekly limit.", retry_after=NO_WAIT_HELPS))
    with pytest.raises(RateLimited, match=r"^Weekly limit\.") as failure:
        await ask(model, clock=clock)
    assert (clock.waits, "/model" in failure.value.hint) == ([], True)
    assert "inf" not in str(failure.value)


@pytest.mark.parametrize(
    "error", [AuthenticationFailed("no"), RequestRefused("no"), ContextTooLong("no")]
)
async def test_permanent_errors_are_not_retried(error):
    model, other = Answers(error, YES), Answers(YES, name="n")
    with pytest.raises(type(error)):
        await ask(model, other)
    assert (model.asked, other.asked) == (1, 0)


async def test_fallback_is_used_after_all_attempts_failed():
    first, second = (
        Answers(*[ModelUnavailable("down")] * 2),
        Answers(EmptyAnswer("nothing"), YES, name="n"),
    )
    chunks = await ask(first, second, attempts=2)
    told = [(chunk.model, chunk.attempt) for chunk in chunks if isinstance(chunk, Retrying)]
    assert told == [("m", 2), ("n", 1), ("n", 2)]
    assert chunks[-2:] == list(YES)


async def test_long_retry_after_switches_to_the_fallback_at_once():
    clock = Clock()
    chunks = await ask(
        Answers(RateLimited("slow", retry_after=600)), Answers(YES, name="n"), clock=clock
    )
    assert chunks == [Retrying("slow", 1, 0.0, "n"), *YES]
    assert clock.waits == []


async def test_a_wait_can_be_cancelled():
    model, waiting = Answers(ModelUnavailable("down"), YES), asyncio.Event()

    async def sleep(_):
        waiting.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(ModelCall([model], [user("hi")], sleep=sleep).run())
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert model.asked == model.closed == 1


async def test_cancelling_closes_the_model_and_keeps_the_partial_answer():
    class Holds(Answers):
        async def stream(self, messages, tools=()):
            try:
                yield TextChunk("Half")
                reached.set()
                await asyncio.Event().wait()
            finally:
                self.closed += 1

    model, reached = Holds(), asyncio.Event()
    call = ModelCall([model], [user("hi")])
    task = asyncio.create_task(call.run())
    await reached.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (model.closed, call.partial().text, call.partial().cut) == (1, "Half", True)


async def test_partial_answer_is_available_before_a_retry():
    kept = []

    async def on_retry(retry):
        kept.append((call.partial().text, retry.attempt))

    call = ModelCall(
        [Answers((TextChunk("Half"), StreamCut("cut")), YES)], [user("hi")], sleep=Clock().sleep
    )
    answer = await call.run(on_retry=on_retry)
    assert (kept, answer.text) == ([("Half", 2)], "Yes.")


async def test_real_server_is_retried_until_it_answers(model_server):
    from fakes.model_server import Reply, failure
    from fakes.wires import Wire

    model_server.script([failure(503, "busy"), Reply("Hal", fault="cut"), Reply(""), "Yes."])
    model = Wire("openai", model_server).model()
    chunks = await ask(model)
    await model.close()
    numbers = [chunk.attempt for chunk in chunks if isinstance(chunk, Retrying)]
    after = chunks[max(n for n, chunk in enumerate(chunks) if isinstance(chunk, Retrying)) + 1 :]
    assert numbers == [2, 3, 4]
    assert "".join(chunk.text for chunk in after if isinstance(chunk, TextChunk)) == "Yes."


async def test_a_server_that_cannot_be_reached_is_asked_twice():
    model, clock = Answers(*[ServerUnreachable("refused")] * 9), Clock()
    with pytest.raises(ServerUnreachable, match="2 attempts"):
        await ask(model, clock=clock, attempts=11)
    assert (model.asked, len(clock.waits)) == (2, 1)
    assert sum(clock.waits) <= 5


async def test_patience_waits_for_a_server_that_is_starting():
    model, clock = Answers(*[ServerUnreachable("refused")] * 8, YES), Clock()
    await ask(model, clock=clock, attempts=2, waiting=WaitLimits(600))
    assert model.asked == 9


async def test_patience_ends(monkeypatch):
    monkeypatch.setattr("ouro.llm.model_call.FIRST_WAIT", 1.0)
    model, clock = Answers(*[ServerUnreachable("refused")] * 99), Clock()
    with pytest.raises(ServerUnreachable):
        await ask(model, clock=clock, waiting=WaitLimits(30))
    assert 10 < sum(clock.waits) <= 30


async def test_empty_answers_are_not_paid_for_eleven_times():
    model = Answers(*[(EndChunk("stop"),)] * 20)
    with pytest.raises(EmptyAnswer):
        await ask(model, attempts=11)
    assert model.asked == 4
