"""The session of the program's start, and a turn that begins before the screen exists."""

import asyncio

import pytest
from fakes.fake_session import FakeSession, Wait, opener, says
from fakes.screens import opened, screen_of, screen_text, shown, until

from ouro.errors import TrustNeeded
from ouro.events import Prompted, TextDelta, TurnFinished
from ouro.frontends.tui.app import OuroApp
from ouro.frontends.tui.screen_settings import ScreenSettings
from ouro.frontends.tui.session_start import SessionStart
from ouro.session import Draft, OpenRequest
from ouro.session.opening import PICK


def start_on(session, *messages, message="", request=None):
    """A start with these typed messages."""
    waiting = list(messages)
    return (
        SessionStart(
            opener(session),
            request or OpenRequest(),
            message,
            lambda: waiting.pop(0) if waiting else "",
        ),
        waiting,
    )


async def test_the_first_message_is_sent_before_the_session_is_asked_for():
    session = FakeSession([says("the answer")])
    start, waiting = start_on(session, "fix it", "and then")
    await start.begin()
    assert (session.sent, waiting, start.typed_message) == (["fix it"], ["and then"], "fix it")
    assert await start.open(OpenRequest()) is session
    assert (start.typed_message, start.sent_message) == ("fix it", "fix it")
    events = [event async for event in start.take_turn()]
    assert [type(event) for event in (events[0], events[-1])] == [Prompted, TurnFinished]
    assert start.take_turn() is None


async def test_command_line_message_goes_before_typed_text():
    session = FakeSession([says("the answer")])
    start, waiting = start_on(session, "typed", message="given")
    await start.begin()
    assert (session.sent, waiting, start.message, start.typed_message) == (
        ["given"],
        ["typed"],
        "",
        "",
    )


@pytest.mark.parametrize("case", ["resumed", "attached", "command", "picked", "asked"])
async def test_cases_that_need_the_screen_do_not_start_early(case):
    session = FakeSession([says("the answer")])
    session.resumed = object() if case == "resumed" else None
    start, waiting = start_on(
        session,
        "typed",
        message="/model" if case == "command" else "",
        request=OpenRequest({"picked": PICK, "attached": session.id}.get(case, "")),
    )
    if case == "asked":

        async def refuse(_request):
            raise TrustNeeded("The folder is not trusted.", "", ())

        start._open_session = refuse
    await start.begin()
    assert (session.sent, waiting, start.take_turn()) == ([], ["typed"], None)


async def test_a_session_that_is_not_used_is_closed():
    session = FakeSession([[TextDelta("at work"), Wait()]])
    start, _ = start_on(session, "fix it")
    await start.begin()
    await start.close()
    assert session.closed
    await start.close()


async def test_slow_opening_does_not_block_the_start(monkeypatch):
    monkeypatch.setattr("ouro.frontends.tui.session_start.OPEN_TIMEOUT", 0.01)
    session, ready = FakeSession(), asyncio.Event()

    async def open_late(_request):
        await ready.wait()
        return session

    start = SessionStart(open_late, OpenRequest())
    await start.begin()
    ready.set()
    assert await start.open(OpenRequest()) is session


async def test_early_turn_is_shown_once_and_later_messages_follow():
    session = FakeSession([says("the first answer"), says("the second answer")])
    start, _ = start_on(session, "one")
    await start.begin()
    app = OuroApp(start, ScreenSettings())
    async with app.run_test() as pilot:
        await opened(pilot)
        app.turns.say(Draft("two"))
        await until(pilot, lambda: "the second answer" in shown(app))
        assert session.sent == ["one", "two"]
        assert [shown(app).count(text) for text in ("one", "the first answer", "two")] == [1, 1, 1]
        assert app.conversation.prompt_history.entries()[-1] == "one"


async def test_the_answer_to_an_early_message_is_seen_below_a_long_welcome():
    start, _ = start_on(FakeSession([says("the first answer")]), "one")
    await start.begin()
    app = OuroApp(start, ScreenSettings(welcomes=True))
    async with app.run_test(size=(40, 10)) as pilot:
        await opened(pilot)
        await until(pilot, lambda: "the first answer" in shown(app))
        await pilot.pause(0.2)
        assert "the first answer" in screen_text(app)


@pytest.mark.parametrize("way", ["argument", "prompt"])
async def test_a_message_before_the_session_is_open_is_seen_below_a_long_welcome(way):
    gate = asyncio.Event()

    async def open_late(_request):
        await gate.wait()
        return FakeSession([says("the first answer")])

    app = screen_of(open_session=open_late, welcomes=True)
    async with app.run_test(size=(40, 10)) as pilot:
        if way == "argument":
            app.turns.say(Draft("one"))
        else:
            await pilot.press("o", "n", "e", "enter")
        gate.set()
        await until(pilot, lambda: "the first answer" in shown(app))
        await pilot.pause(0.2)
        assert "the first answer" in screen_text(app)


async def test_later_messages_do_not_overtake_earlier_ones():
    gate = asyncio.Event()

    async def open_late(_request):
        await gate.wait()
        return session

    session = FakeSession([[TextDelta("at work"), Wait()], says("2"), says("3")])
    app = screen_of(open_session=open_late)
    async with app.run_test() as pilot:
        for text in ("one", "two"):
            app.turns.say(Draft(text))
        gate.set()
        await until(pilot, lambda: session.sent == ["one"])
        app.turns.say(Draft("three"))
        assert session.steered == []
        app.turns.interrupt()
        await until(pilot, lambda: session.sent == ["one", "two", "three"])
