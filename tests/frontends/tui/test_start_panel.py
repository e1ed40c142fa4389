"""The start panel: what a new session shows until its first message."""

import pytest
from fakes.fake_session import FakeSession, Wait, says
from fakes.screens import opened, screen_of, screen_text, shown, until

from ouro.session import OpenRequest, SessionInfo

WHEN = "2026-01-0{}T03:04:05.000Z"


def info(number, title, *, project="/project", messages=4):
    at = WHEN.format(number)
    return SessionInfo(
        f"s-{number}", title, project, "fake/one", at, at, messages, 900, f"s{number}"
    )


KNOWN = [
    info(9, "mend the \x1b[31mimport"),
    info(8, "of another project", project="/other"),
    info(7, "nothing was said", messages=0),
    info(6, "über die Prüfung"),
    info(5, "write the docs"),
    info(4, "the fourth"),
]


def session_with(known=KNOWN, turns=()):
    session = FakeSession(turns, session_id="s-new")
    session.known = list(known)
    return session


class Requests:
    """Opens one session after another; `asked` has the requests."""

    def __init__(self, *sessions):
        self.sessions, self.asked = list(sessions), []

    async def __call__(self, request):
        self.asked.append(request)
        return self.sessions.pop(0)


async def test_a_new_session_shows_folder_model_and_the_last_three_sessions_here():
    async with screen_of(session_with(), shows_start=True).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "sessions" in screen_text(pilot.app))
        text = screen_text(pilot.app)
        rows = [line.split("2026-")[1][5:].strip() for line in text.splitlines() if "2026-" in line]
        assert rows == ["mend the import", "über die Prüfung", "write the docs"]
        assert "folder   /project" in text
        assert "fake/one · ask" in text
        assert "\ntip" in text.replace(" tip", "tip")


async def test_the_panel_follows_the_mode():
    app = screen_of(session_with(), shows_start=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "fake/one · ask" in screen_text(app))
        await pilot.press("shift+tab")
        await until(pilot, lambda: "fake/one · edit" in screen_text(app))


async def test_arrows_mark_a_session_and_enter_resumes_it():
    other = FakeSession(session_id="s-6")
    requests = Requests(session_with(), other)
    app = screen_of(open_session=requests, shows_start=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "sessions" in screen_text(app))
        await pilot.press("down", "down", "down", "down", "up")
        assert "❯ 2026-01-06 über die Prüfung" in screen_text(app)
        await pilot.press("enter")
        await until(pilot, lambda: app.turns.session is other)
        assert requests.asked == [OpenRequest(), OpenRequest("s-6")]
        assert not app.conversation.start.is_open


async def test_up_leaves_the_list_and_then_is_the_history():
    app = screen_of(session_with(), shows_start=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "sessions" in screen_text(app))
        app.conversation.prompt_history.add("typed before")
        await pilot.press("tab", "up")
        assert (app.conversation.start.is_marked, app.conversation.prompt.text) == (False, "")
        await pilot.press("down", "escape")
        assert not app.conversation.start.is_marked
        await pilot.press("up")
        assert app.conversation.prompt.text == "typed before"


@pytest.mark.parametrize("first", ["hello", "/keys"])
async def test_it_is_gone_with_the_first_message_or_command(first):
    session = session_with(turns=[says("the answer")])
    app = screen_of(session, shows_start=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "sessions" in screen_text(app))
        await pilot.press(*first, "enter")
        await until(pilot, lambda: not app.conversation.start.is_open)
        await pilot.pause()
        assert "mend the import" not in screen_text(app)


async def test_it_does_not_come_if_a_message_was_sent_at_once():
    wait = Wait()
    session = session_with(turns=[[wait, *says("the answer")]])
    app = screen_of(session, first_message="hello", shows_start=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await until(pilot, lambda: session.sent)
        await pilot.pause(0.3)
        assert not app.conversation.start.is_open
        wait.until.set()
        await until(pilot, lambda: "the answer" in shown(app))


@pytest.mark.parametrize("size", [(40, 24), (40, 10)])
async def test_a_small_terminal_cuts_lines_and_a_low_one_shows_nothing(size):
    async with screen_of(session_with(), shows_start=True).run_test(size=size) as pilot:
        await until(pilot, lambda: pilot.app.conversation.start.is_open)
        await pilot.pause()
        is_there = "über die Prüfung" in screen_text(pilot.app)
        assert is_there == (size[1] > 10)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_start_snapshot(snap_compare, size):
    async def before(pilot):
        await until(pilot, lambda: pilot.app.conversation.start.is_open)
        await pilot.press("down")

    assert snap_compare(
        screen_of(session_with(), shows_start=True), terminal_size=size, run_before=before
    )


@pytest.mark.parametrize(("size", "is_listed"), [((80, 20), False), ((80, 36), True)])
async def test_the_welcome_is_whole_and_sessions_are_listed_if_there_is_room(size, is_listed):
    app = screen_of(session_with(), shows_start=True, welcomes=True)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: "folder   /project" in screen_text(app))
        text = screen_text(app)
        assert "Welcome to ouro" in text
        assert ("mend the import" in text) is is_listed
        await pilot.press("down")
        assert app.conversation.start.is_marked is is_listed


async def test_the_panel_gets_its_sessions_when_the_terminal_grows():
    app = screen_of(session_with(), shows_start=True, welcomes=True)
    async with app.run_test(size=(80, 20)) as pilot:
        await until(pilot, lambda: "folder   /project" in screen_text(app))
        await pilot.resize_terminal(100, 40)
        await until(pilot, lambda: "mend the import" in screen_text(app))
        await pilot.resize_terminal(80, 20)
        await until(pilot, lambda: "mend the import" not in screen_text(app))
        await until(pilot, lambda: "Welcome to ouro" in screen_text(app))
