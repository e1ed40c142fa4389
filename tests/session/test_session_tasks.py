"""A turn as a task: TurnFinished is the last event, exactly once, in every case."""

import asyncio

import pytest

from ouro.display import Question
from ouro.errors import LimitReached, ModelUnavailable, UsageError
from ouro.events import Notice, Permit, QuestionAsked, QuestionClosed, Reply, TurnFinished
from ouro.session.session_tasks import SessionTasks


async def collect(work):
    return [event async for event in SessionTasks().run(work)]


async def test_emitted_events_come_first_and_turn_finished_last():
    async def work(emit):
        emit(Notice("one"))
        return TurnFinished("answered")

    assert await collect(work) == [Notice("one"), TurnFinished("answered")]


async def test_a_turn_excludes_a_second_one():
    async def work(emit):
        emit(Notice("one"))
        return TurnFinished("limit")

    tasks = SessionTasks()
    events = tasks.run(work)
    assert await anext(events) == Notice("one")
    with pytest.raises(UsageError):
        await anext(tasks.run(work))
    assert [event async for event in events] == [TurnFinished("limit")]
    assert not tasks.running


async def test_exception_ends_the_turn_and_is_shown():
    async def work(emit):
        emit(Notice("one"))
        raise KeyError("x")

    last = (await collect(work))[-1]
    assert last == TurnFinished("failed", "ouro failed: KeyError: 'x'. See `ouro.log`.")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (LimitReached("$1.00 of $1.00 are spent.", "Raise it."), "limit"),
        (ModelUnavailable("The server is down."), "failed"),
    ],
)
async def test_an_error_for_the_user_is_no_defect_of_ouro(error, outcome):
    async def work(emit):
        raise error

    assert (await collect(work))[-1] == TurnFinished(outcome, str(error))


async def test_interrupted_turn_runs_its_cleanup():
    tidied = asyncio.Event()

    async def work(emit):
        emit(Notice("one"))
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            tidied.set()

    tasks, seen = SessionTasks(), []
    async for event in tasks.run(work):
        seen.append(event)
        tasks.interrupt()
    assert seen == [Notice("one"), TurnFinished("interrupted")]
    assert tidied.is_set()


async def test_closing_the_stream_ends_the_task():
    ended = asyncio.Event()

    async def work(emit):
        try:
            emit(Notice("one"))
            await asyncio.Event().wait()
        finally:
            ended.set()

    stream = SessionTasks().run(work)
    assert await anext(stream) == Notice("one")
    await stream.aclose()
    assert ended.is_set()


async def test_an_answer_before_its_question_is_dropped():
    tasks, seen = SessionTasks(), []
    asked = QuestionAsked("1", Question("Which?"))
    tasks.answer("1", Permit("yes"))
    waiting = asyncio.create_task(tasks.ask_user(asked, seen.append))
    await asyncio.sleep(0)
    tasks.answer("1", Reply(("blue",)))
    assert await waiting == Reply(("blue",))
    tasks.answer("1", Reply(("late",)))
    assert seen == [asked, QuestionClosed("1")]
