"""The page of `ouro serve`: real requests on loopback, real sockets of sessions."""

import asyncio
import json

import pytest
from fakes.fake_session import Wait, says
from fakes.screens import SESSION_ID, HostedSession, ServedPage
from fakes.waiting import until

from ouro.display import CommandOutput, Diff, Display, FileChange, Question
from ouro.events import (
    PermissionAsked,
    Permit,
    QuestionAsked,
    Reply,
    SubagentProgress,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from ouro.frontends.background.connection import HostConnection
from ouro.frontends.background.process import StartReport
from ouro.messages import ToolCall, Usage

CALL = ToolCall("c1", "edit", {"path": "api.py"})
EDIT = Diff((FileChange("api.py", "a = 1\nb = 2\n", "a = 1\nb = 3\n"),))
PERMISSION = PermissionAsked(
    "q1", CALL, "edit api.py", Display("1 line", EDIT), "a file is changed", "edit(api.py)"
)
MANY = QuestionAsked("q2", Question("Which ones?", ("red", "blue"), several=True))
PATH = f"/sessions/{SESSION_ID}"


@pytest.fixture
async def page(home):
    async with ServedPage() as page:
        yield await page.log_in()


async def test_the_list_shows_the_question_of_a_session(page):
    async with HostedSession([[PERMISSION]]) as hosted, page.events() as events:
        await events.until(lambda shown: "ready" in shown.list)
        assert f'href="#s/{SESSION_ID}"' in events.list
        await page.post(f"{PATH}/message", {"text": "fix the import"})
        await events.until(lambda shown: "needs you" in shown.list)
        assert "edit api.py" in events.list
        assert "$0.0123" in events.list
        assert [str(hosted.session.cwd)] * 2 in events.folders


async def test_an_empty_list_says_how_a_session_is_started(page):
    async with page.events() as events:
        await events.until(lambda shown: "ouro --bg" in shown.list)


async def test_a_question_is_shown_with_its_diff_and_answered(page):
    async with HostedSession([[PERMISSION, *says("done")]]) as hosted:
        async with page.events(SESSION_ID) as events:
            await events.until(lambda shown: shown.session)
            await page.post(f"{PATH}/message", {"text": "fix it"})
            await events.until(lambda shown: shown.question)
            assert (
                '<div class="removed"><b>2</b><i>-</i><span>b = 2</span></div>' in events.question
            )
            assert '<div class="added"><b>2</b><i>+</i><span>b = 3</span></div>' in events.question
            for choice in PERMISSION.choices:
                assert f'data-choice="{choice}"' in events.question
            assert "a file is changed" in events.question
            assert events.session["state"] == "waiting"

            given = {"question": "q1", "choice": "yes", "comment": "only once"}
            assert (await page.post(f"{PATH}/answer", given)).status == 200

            await events.until(lambda shown: "done" in shown.transcript and not shown.question)
        assert hosted.session.answers == [("q1", Permit("yes", "only once"))]


async def test_no_with_words_lets_the_agent_continue_with_them(page):
    async with HostedSession([[PERMISSION]]) as hosted:
        await page.post(f"{PATH}/message", {"text": "fix it"})
        await until(lambda: hosted.host.questions)
        given = {"question": "q1", "choice": "stop", "comment": "use uv"}
        assert (await page.post(f"{PATH}/answer", given)).status == 200
        assert hosted.session.answers == [("q1", Permit("no", "use uv"))]


async def test_several_choices_are_one_answer(page):
    async with HostedSession([[MANY]]) as hosted, page.events(SESSION_ID) as events:
        await events.until(lambda shown: shown.session)
        await page.post(f"{PATH}/message", {"text": "ask"})
        await events.until(lambda shown: 'type="checkbox" value="blue"' in shown.question)
        await page.post(f"{PATH}/answer", {"question": "q2", "answers": ["red", "blue"]})
        assert hosted.session.answers == [("q2", Reply(("red", "blue")))]


async def test_the_second_answer_is_refused_with_a_reason(page):
    async with HostedSession([[PERMISSION, Wait()]]) as hosted:
        await page.post(f"{PATH}/message", {"text": "fix it"})
        await until(lambda: hosted.host.questions)
        given = {"question": "q1", "choice": "yes"}
        assert (await page.post(f"{PATH}/answer", given)).status == 200
        await until(lambda: not hosted.host.questions)
        again = await page.post(f"{PATH}/answer", given)
        assert (again.status, "another viewer" in again.text) == (409, True)


async def test_a_turn_is_shown_while_it_runs(page):
    goes_on = Wait()
    turn = [
        TextDelta("I look at **it**"),
        goes_on,
        *says("I look at **it** first."),
        ToolStarted(ToolCall("c9", "shell", {}), "run the tests"),
        ToolProgress("c9", "3 passed"),
        Wait(),
    ]
    async with HostedSession([turn]), page.events(SESSION_ID) as events:
        await events.until(lambda shown: shown.session)
        await page.post(f"{PATH}/message", {"text": "look"})
        await events.until(lambda shown: "I look at <strong>it</strong>" in shown.transcript)
        assert 'class="answer open"' in events.transcript
        await events.until(lambda shown: shown.session["state"] == "working")
        goes_on.until.set()
        await events.until(lambda shown: "3 passed" in shown.transcript)
        assert "<strong>it</strong> first." in events.transcript
        assert events.transcript.count("I look at") == 1
        assert '<div class="typed">look</div>' in events.transcript

        assert (await page.post(f"{PATH}/interrupt")).status == 200
        await events.until(lambda shown: "Interrupted" in shown.transcript)


async def test_an_interrupted_turn_leaves_nothing_that_seems_to_run(page):
    turn = [ToolStarted(ToolCall("c9", "shell", {}), "run the tests"), TextDelta("half"), Wait()]
    async with HostedSession([turn, says("whole")]), page.events(SESSION_ID) as events:
        await events.until(lambda shown: shown.session)
        await page.post(f"{PATH}/message", {"text": "look"})
        await events.until(lambda shown: "half" in shown.transcript)
        await page.post(f"{PATH}/interrupt")
        await events.until(lambda shown: "Interrupted" in shown.transcript)
        assert "tool running" not in events.transcript
        await page.post(f"{PATH}/message", {"text": "again"})
        await events.until(lambda shown: "whole" in shown.transcript)
        assert "half" in events.transcript


async def test_results_of_tools_are_shown(page):
    output = Display("exit 1", CommandOutput("pytest -q", "1 failed\n", 1))
    turn = [
        ToolStarted(CALL, "edit api.py"),
        ToolFinished("c1", "edit", Display("1 line", EDIT), False, 0.1),
        ToolStarted(ToolCall("c1", "shell", {}), "pytest -q"),  # some providers repeat ids
        ToolFinished("c1", "shell", output, True, 3.0),
        SubagentProgress("c3", "explore-1", "find it", "done", "", 2, Usage(10, 0, 5)),
        *says("ready"),
    ]
    async with HostedSession([turn]), page.events(SESSION_ID) as events:
        await events.until(lambda shown: shown.session)
        await page.post(f"{PATH}/message", {"text": "look"})
        await events.until(lambda shown: "ready</p>" in shown.transcript)
        assert '<details class="tool" open>' in events.transcript
        assert "b = 3" in events.transcript
        assert "✗" in events.transcript
        assert "1 failed" in events.transcript
        assert "explore-1: find it" in events.transcript


async def test_two_pages_see_the_same(page):
    watching = page.events(SESSION_ID), page.events(SESSION_ID)
    async with HostedSession([says("for both")]) as hosted, watching[0] as one, watching[1] as two:
        await until(lambda: len(hosted.host.viewers) == 2)
        await page.post(f"{PATH}/message", {"text": "hello"})
        for events in (one, two):
            await events.until(lambda shown: "for both" in shown.transcript)


async def test_a_page_that_goes_away_is_no_viewer_any_more(page):
    async with HostedSession() as hosted:
        async with page.events(SESSION_ID) as events:
            await events.until(lambda shown: shown.session)
            assert len(hosted.host.viewers) == 1
        await until(lambda: not hosted.host.viewers)


async def test_a_page_that_comes_back_gets_the_whole_session(page):
    async with HostedSession([says("first"), says("second")]) as hosted:
        hosted.session.shown_before = says("from before")
        async with page.events(SESSION_ID) as events:
            await events.until(lambda shown: "from before" in shown.transcript)
        hosted.session.shown_before = says("from before and now")
        async with page.events(SESSION_ID) as events:
            await events.until(lambda shown: "and now" in shown.transcript)


async def test_a_session_that_ends_says_so_on_the_open_page(page):
    async with HostedSession([says("last words")]) as hosted, page.events(SESSION_ID) as events:
        await events.until(lambda shown: shown.session)
        await page.post(f"{PATH}/message", {"text": "hello"})
        await events.until(lambda shown: "last words" in shown.transcript)
        hosted.host.end("idle")
        await events.until(lambda shown: shown.session["ended"])
        assert "it was idle for long" in events.session["ended"]
        await events.until(lambda shown: "ended" in shown.list)


async def test_what_is_saved_is_shown_when_an_end_takes_a_while(page):
    page.sessions.saved = ["<p>saved words</p>"]
    hosted = HostedSession([])
    released = asyncio.Event()
    close = hosted.session.close

    async def close_later(on_released=None):
        await released.wait()
        await close(on_released)

    hosted.session.close = close_later
    async with hosted, page.events(SESSION_ID) as events:
        await events.until(lambda shown: shown.session)
        hosted.host.end("idle")
        await events.until(lambda shown: shown.problem)
        released.set()
        await events.until(lambda shown: "saved words" in shown.transcript)


async def test_a_session_that_ended_shows_what_is_saved_and_is_resumed_by_a_message(page, tmp_path):
    async with HostedSession(cwd=tmp_path):
        pass
    page.sessions.saved = ["<p>saved words</p>"]
    async with page.events(SESSION_ID) as events:
        await events.until(lambda shown: "saved words" in shown.transcript)
        assert events.session["state"] == "ended"
        assert (await page.post(f"{PATH}/message", {"text": "and now"})).status == 200
        assert page.sessions.started == [(str(tmp_path), "and now", SESSION_ID)]
        async with HostedSession([], cwd=tmp_path) as again:
            again.session.shown_before = says("resumed")
            await events.until(lambda shown: shown.session["state"] == "idle")


async def test_a_session_is_ended_from_the_page(page):
    async with HostedSession(), page.events() as events:
        await events.until(lambda shown: SESSION_ID in shown.list)
        assert (await page.post(f"{PATH}/end")).status == 200
        await events.until(lambda shown: SESSION_ID not in shown.list)


async def test_a_session_starts_in_a_known_folder_only(page):
    answer = await page.post("/start", {"folder": "/", "text": "look around"})
    assert json.loads(answer.text)["id"] == "new-session"
    assert page.sessions.started == [("/", "look around", "")]
    answer = await page.post("/start", {"folder": "/etc", "text": "look around"})
    assert (answer.status, "not one of the list" in answer.text) == (409, True)


async def test_a_folder_that_is_not_trusted_is_named(page):
    page.sessions.report = StartReport(error="no trust", trust={"folder": "/", "files": []})
    answer = await page.post("/start", {"folder": "/", "text": "look around"})
    assert "ouro asks whether to trust /" in answer.text


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        (f"{PATH}/message", {"text": " \n"}, "The message is empty."),
        (f"{PATH}/message", {"words": "hello"}, "not understood"),
        (f"{PATH}/answer", b"\xff{", "not understood"),
        (f"{PATH}/answer", {"question": "q1", "choice": "perhaps"}, "not an answer"),
        ("/sessions/nobody/message", {"text": "hello"}, "No background session"),
        (f"/sessions/{SESSION_ID[:8]}/message", {"text": "hello"}, "No background session"),
    ],
)
async def test_what_is_not_understood_is_refused_with_a_reason(page, path, body, words):
    async with HostedSession():
        answer = await page.post(path, body)
        assert (answer.status, words in answer.text) == (409, True), answer.text


async def test_a_session_that_does_not_answer_has_a_row_and_a_reason(page, monkeypatch):
    monkeypatch.setattr("ouro.frontends.background.background_sessions.STATE_TIMEOUT", 0.2)
    monkeypatch.setitem(HostConnection.call.__kwdefaults__, "timeout", 0.5)
    async with HostedSession() as hosted:
        stuck = asyncio.Event()
        monkeypatch.setattr(hosted.host, "_import_protocol", stuck.wait)
        async with page.events(SESSION_ID) as events:
            await events.until(lambda shown: "no answer" in shown.list and shown.problem)
        stuck.set()


async def test_a_rewind_shows_the_session_again(page):
    async with HostedSession([says("one")]) as hosted, page.events(SESSION_ID) as events:
        await events.until(lambda shown: shown.session)
        await page.post(f"{PATH}/message", {"text": "hello"})
        await events.until(lambda shown: "one</p>" in shown.transcript)
        hosted.session.shown_before = says("what is left")
        hosted.host.show_again("hello")
        await events.until(lambda shown: "what is left" in shown.transcript)
        assert "one</p>" not in events.transcript
        assert events.session["draft"] == "hello"


async def test_what_a_command_has_found_is_shown(page):
    async with HostedSession(), page.events(SESSION_ID) as events:
        await events.until(lambda shown: shown.session)
        await page.post(f"{PATH}/message", {"text": "/running"})
        await events.until(lambda shown: '<div class="found">' in shown.transcript)
        assert SESSION_ID[:8] in events.transcript


async def test_of_a_long_session_the_end_is_shown(page):
    async with HostedSession() as hosted:
        hosted.session.shown_before = [event for n in range(400) for event in says(f"line {n}.")]
        async with page.events(SESSION_ID) as events:
            await events.until(lambda shown: "line 399." in shown.transcript)
            assert "line 0." not in events.transcript
            assert "Earlier messages" in events.transcript
