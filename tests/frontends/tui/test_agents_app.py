"""The screen of `ouro agents` on a list of sessions; the real program is in tests/end_to_end."""

from fakes.screens import screen_text, until

from ouro.display import Question
from ouro.events import QuestionAsked
from ouro.frontends.background.background_sessions import AgentRow
from ouro.frontends.background.event_codec import encode
from ouro.frontends.background.state import SessionState
from ouro.frontends.tui.agents_app import AgentsApp
from ouro.frontends.tui.screen_settings import ScreenSettings
from ouro.messages import Usage
from ouro.session import Status
from ouro.session.background_record import BackgroundRecord, present_time


def row_of(number, title, last_line="", questions=()):
    started = present_time()
    record = BackgroundRecord(f"{number:08}-0", 1, "/shop", started, title)
    activity = "waiting" if questions else "idle"
    events = tuple(encode(QuestionAsked("q", question)) for question in questions)
    status = Status("one", "medium", "ask", "main", 0, 0, Usage())
    live = SessionState(
        record.id, 1, "/shop", started, title, activity, 1.0, last_line, 0, status, questions=events
    )
    return AgentRow(record, activity, live)


def app_with(*rows):
    app = AgentsApp(ScreenSettings(version="0.1.0"))

    async def read():
        return list(rows)

    app._watch.rows = read
    return app


async def test_a_narrow_list_has_the_titles_and_the_way_out():
    question = Question("Which version?", ("0.3.0", "1.0.0"))
    row = row_of(1, "prepare the release", questions=[question])
    async with app_with(row).run_test(size=(40, 12)) as pilot:
        await until(pilot, lambda: "a digit answers · x end · q leave" in screen_text(pilot.app))
        shown = screen_text(pilot.app)
        assert "prepare the" in shown
        assert "00000001" not in shown
        await pilot.press("x")
        await until(pilot, lambda: "any other key: no" in " ".join(screen_text(pilot.app).split()))
        await pilot.press("n")
        await pilot.resize_terminal(100, 24)
        await until(pilot, lambda: "00000001" in screen_text(pilot.app))
        await until(pilot, lambda: "Tab another answer" in screen_text(pilot.app))


async def test_the_last_line_of_an_answer_has_no_marks_of_markdown():
    async with app_with(row_of(1, "fix it", "It is **done**, see `a.py`.")).run_test() as pilot:
        await until(pilot, lambda: "It is done, see a.py." in screen_text(pilot.app))
