"""Opening a session on the screen: the trust question, no model, a resumed session."""

import asyncio
from pathlib import Path

from fakes.fake_session import FakeSession, Wait, asks_to_push, opener, says
from fakes.screens import asked, opened, screen_of, screen_text, shown, type_text, until

from ouro.errors import DemoRequested, NoModelError, SessionNotFound, TrustNeeded
from ouro.events import Notice, Prompted, TextDelta
from ouro.frontends.tui.widgets.question_panel import QuestionPanel
from ouro.session import Draft, OpenRequest


async def test_messages_before_the_session_opens_are_sent_afterwards():
    session, gate = FakeSession([says("first"), says("second")]), asyncio.Event()

    async def open_session(request):
        await gate.wait()
        return session

    async with screen_of(open_session=open_session, first_message="one").run_test() as pilot:
        await type_text(pilot, "two")
        await pilot.press("enter")
        assert session.sent == []
        gate.set()
        await until(pilot, lambda: session.sent == ["one", "two"])


async def test_resumed_session_shows_its_transcript_and_notices():
    session = FakeSession()
    session.shown_before = [TextDelta("what was said before")]
    session.emit_event(Notice("a torn record was set aside", "warning"))
    async with screen_of(session, request=OpenRequest("latest")).run_test() as pilot:
        await opened(pilot)
        await until(pilot, lambda: "a torn record was set aside" in shown(pilot.app))
        assert "what was said before" in shown(pilot.app)


async def test_trust_is_asked_before_instructions_are_used():
    session, requests = FakeSession(), []

    async def open_session(request):
        requests.append(request)
        if request.trust == "unknown":
            raise TrustNeeded(Path("/project"), [Path("/project/AGENTS.md")])
        return session

    async with screen_of(open_session=open_session).run_test() as pilot:
        await until(pilot, lambda: "Do you trust /project?" in screen_text(pilot.app))
        assert "AGENTS.md" in screen_text(pilot.app)
        await pilot.press("down", "enter")
        await opened(pilot)
    assert [request.trust for request in requests] == ["unknown", "no"]


async def test_e4_a_long_trust_question_can_be_read_to_its_end_above_its_answers():
    summary = [f"mcpServers.s{number}: run {number}" for number in range(60)]

    async def open_session(request):
        raise TrustNeeded(Path("/project"), [Path("/project/.mcp.json")], summary)

    async with screen_of(open_session=open_session).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "mcpServers.s0: run 0" in screen_text(pilot.app))
        assert "trust this folder" in screen_text(pilot.app)
        assert "mcpServers.s59" not in screen_text(pilot.app)
        await pilot.press(*["pagedown"] * 10)
        await until(pilot, lambda: "mcpServers.s59: run 59" in screen_text(pilot.app))
        assert "trust this folder" in screen_text(pilot.app)


async def test_the_last_line_says_that_escape_asks_before_it_leaves():
    async def open_session(request):
        raise TrustNeeded(Path("/project"), [Path("/project/AGENTS.md")])

    app = screen_of(open_session=open_session)
    async with app.run_test() as pilot:
        await until(pilot, lambda: "Do you trust /project?" in screen_text(app))
        assert "Esc asks to quit" in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: "Leave ouro?" in screen_text(app))
        assert "Esc goes back" in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: "Do you trust /project?" in screen_text(app))
        await pilot.press("ctrl+c")
        await until(pilot, lambda: "Leave ouro?" in screen_text(app))
        await pilot.press("ctrl+c")
        await until(pilot, lambda: app.return_value is not None)
    assert app.return_value == 0


async def test_x7_an_enter_that_came_too_early_does_not_trust(monkeypatch):
    async def open_session(request):
        raise TrustNeeded(Path("/project"), [Path("/project/AGENTS.md")])

    screen = screen_of(open_session=open_session)
    monkeypatch.setattr(QuestionPanel, "GRACE", 3600.0)
    async with screen.run_test() as pilot:
        await until(pilot, lambda: "Do you trust /project?" in screen_text(pilot.app))
        await pilot.press("enter")
        assert "Do you trust /project?" in screen_text(pilot.app)


async def test_keys_typed_during_the_trust_question_stay_in_the_prompt(monkeypatch):
    session = FakeSession()
    monkeypatch.setattr("ouro.frontends.tui.screens.picker.STRAY_GRACE", 3600.0)

    async def open_session(request):
        if request.trust == "unknown":
            raise TrustNeeded(Path("/project"), [Path("/project/AGENTS.md")])
        return session

    async with screen_of(open_session=open_session).run_test() as pilot:
        await until(pilot, lambda: "Do you trust /project?" in screen_text(pilot.app))
        await type_text(pilot, "mend test 12")
        await pilot.press(
            "backspace", "enter"
        )  # too soon after a letter: it neither answers nor sends
        assert session.sent == []
        await until(pilot, lambda: "❯ mend test 1" in screen_text(pilot.app))
        assert "Do you trust /project?" in screen_text(pilot.app)
        pilot.app.screen._accepts_from = 0.0
        await pilot.press("1")
        await opened(pilot)
        assert pilot.app.conversation.prompt.text == "mend test 1"
        assert session.sent == []


async def test_a_session_that_cannot_be_opened_ends_the_program_with_its_code():
    async def open_session(request):
        raise SessionNotFound("No session `nope`.")

    async with screen_of(open_session=open_session).run_test() as pilot:
        await until(pilot, lambda: pilot.app._exit)
    assert (pilot.app.return_value, str(pilot.app.failure)) == (2, "No session `nope`.")


async def test_without_a_model_setup_is_offered_and_quitting_exits_with_3():
    async def open_session(request):
        raise NoModelError("No model is usable.", "Try `ouro demo`.")

    async with screen_of(open_session=open_session).run_test() as pilot:
        await until(pilot, lambda: "No model is usable." in screen_text(pilot.app))
        await pilot.press("down", "down", "enter")
        await until(pilot, lambda: pilot.app._exit)
    assert pilot.app.return_value == 3


async def test_without_a_model_the_demo_can_be_chosen():
    async def open_session(request):
        raise NoModelError("No model is usable.")

    async with screen_of(open_session=open_session).run_test() as pilot:
        await until(pilot, lambda: "see the demo" in screen_text(pilot.app))
        await pilot.press("down", "enter")
        await until(pilot, lambda: pilot.app._exit)
    assert isinstance(pilot.app.failure, DemoRequested)


async def test_opening_another_session_shows_it_and_closes_the_first():
    first, second = FakeSession(session_id="s-1"), FakeSession(session_id="s-2")
    second.shown_before = [TextDelta("the second")]
    async with screen_of(open_session=opener(first, second)).run_test() as pilot:
        await opened(pilot)
        await pilot.app.front_end.open(OpenRequest("s-2"))
        await until(pilot, lambda: "the second" in shown(pilot.app))
    assert (first.closed, pilot.app.turns.session) == (True, second)


async def test_a_question_of_the_session_before_does_not_stay_on_the_screen():
    first, second = FakeSession(), FakeSession(session_id="s-2")
    async with screen_of(first, second).run_test() as pilot:
        await opened(pilot)
        first.emit_event(asks_to_push("of a subagent in the background"))
        await asked(pilot)
        await pilot.app.front_end.open(OpenRequest("s-2"))
        assert pilot.app.conversation.questions.panel is None
        await type_text(pilot, "yes")
        assert pilot.app.conversation.prompt.text == "yes"
    assert first.closed
    assert second.answers == []


async def test_files_of_the_session_before_are_not_completed():
    first, second = FakeSession(), FakeSession(session_id="s-2", cwd=Path("/other"))
    first.files, second.files = ["only-in-first.py"], ["only-in-second.py"]
    async with screen_of(first, second).run_test() as pilot:
        await opened(pilot)
        await type_text(pilot, "@only")
        await until(pilot, lambda: "only-in-first.py" in screen_text(pilot.app))
        await pilot.app.front_end.open(OpenRequest("s-2"))
        await type_text(pilot, "-")
        await until(pilot, lambda: "only-in-second.py" in screen_text(pilot.app))
        assert "only-in-first.py" not in screen_text(pilot.app)


async def test_a_running_answer_is_still_shown_after_a_jump_to_a_message():
    more = Wait()
    *_, replied = says("The beginning and the end.")
    session = FakeSession([[TextDelta("The beginning"), more, TextDelta(" and the end."), replied]])
    session.shown_before = [Prompted("an earlier message")]
    async with screen_of(session, request=OpenRequest("latest")).run_test() as pilot:
        await opened(pilot)
        await type_text(pilot, "go")
        await pilot.press("enter")
        await until(pilot, lambda: "The beginning" in shown(pilot.app))
        await pilot.app.front_end.go_to(1)
        assert "The beginning" in shown(pilot.app)
        more.until.set()
        await until(pilot, lambda: not pilot.app.turns.running)
        assert "The beginning and the end." in shown(pilot.app)


async def test_of_two_sessions_that_are_opened_at_once_only_one_stays_open():
    first, second, third = (FakeSession(session_id=f"s-{number}") for number in (1, 2, 3))
    sessions = {"": first, "s-2": second, "s-3": third}

    async def open_session(request):
        await asyncio.sleep(0.01)
        return sessions[request.resume]

    async with screen_of(open_session=open_session).run_test() as pilot:
        await opened(pilot)
        front_end = pilot.app.front_end
        await asyncio.gather(front_end.open(OpenRequest("s-2")), front_end.open(OpenRequest("s-3")))
        assert pilot.app.turns.session is third
        assert first.closed
        assert second.closed


async def test_a_queued_message_goes_to_the_session_that_is_opened():
    first = FakeSession([[Wait()], says("of the first session")])
    second, gate = FakeSession(session_id="s-2"), asyncio.Event()

    async def open_session(request):
        if request.resume:
            await gate.wait()
            return second
        return first

    async with screen_of(open_session=open_session).run_test() as pilot:
        await opened(pilot)
        turns = pilot.app.turns
        turns.say(Draft("go"))
        await until(pilot, lambda: turns.running)
        turns.queue(Draft("for later"))
        opening = asyncio.create_task(pilot.app.front_end.open(OpenRequest("s-2")))
        await until(pilot, lambda: first.interrupts and not turns.running)
        turns.say(Draft("sent meanwhile"))
        gate.set()
        await opening
        await until(pilot, lambda: second.sent == ["for later", "sent meanwhile"])
        assert first.sent == ["go"]


async def test_an_error_of_a_key_is_shown_and_does_not_end_the_program():
    app = screen_of(FakeSession())

    async def fail():
        raise PermissionError(13, "Permission denied", "/memory")

    async with app.run_test() as pilot:
        await opened(pilot)
        app.attempt_later(fail)
        await until(pilot, lambda: "Permission denied" in app.conversation.status.message)
        assert app.is_running
