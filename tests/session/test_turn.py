"""A turn as a task: TurnFinished comes last, exactly once, whatever happened."""

import asyncio

from ouro.events import Permit, Reply, Said, TurnFinished
from ouro.session.turn import Questions, Turn


async def collect(turn):
    return [event async for event in turn.events()]


async def test_the_turns_own_end_comes_last():
    async def events():
        yield Said("one")
        yield TurnFinished("answered")

    assert await collect(Turn(events)) == [Said("one"), TurnFinished("answered")]


async def test_a_stream_that_ends_without_an_end_has_failed():
    async def events():
        yield Said("one")

    assert [type(event) for event in await collect(Turn(events))] == [Said, TurnFinished]


async def test_a_defect_ends_the_turn_and_is_told():
    async def events():
        yield Said("one")
        raise KeyError("x")

    last = (await collect(Turn(events)))[-1]
    assert last == TurnFinished("failed", "ouro failed: KeyError: 'x'. See `ouro.log`.")


async def test_an_interrupted_turn_tidies_before_it_ends():
    tidied = asyncio.Event()

    async def events():
        yield Said("one")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            tidied.set()

    turn, seen = Turn(events), []
    async for event in turn.events():
        seen.append(event)
        turn.interrupt()
    assert seen == [Said("one"), TurnFinished("interrupted")]
    assert tidied.is_set()


async def test_closing_the_stream_ends_the_task():
    ended = asyncio.Event()

    async def events():
        try:
            yield Said("one")
            await asyncio.Event().wait()
        finally:
            ended.set()

    stream = Turn(events).events()
    assert await anext(stream) == Said("one")
    await stream.aclose()
    assert ended.is_set()


async def test_an_answer_before_its_question_is_dropped():
    questions = Questions()
    assert not questions.answer("1", Permit("yes"))
    waiting = asyncio.create_task(questions.inquire("1"))
    await asyncio.sleep(0)
    assert questions.answer("1", Reply(("blue",)))
    assert await waiting == Reply(("blue",))
    assert not questions.answer("1", Reply(("late",)))
