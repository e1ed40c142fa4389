"""The screen that selects a session: at the start, from /resume, and if a name matches several."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest
from fakes.fake_session import FakeCatalog, FakeSession
from fakes.screens import opened, screen_of, screen_text, until
from msgspec.structs import replace

from ouro.errors import SessionInUse, SeveralSessions
from ouro.frontends.session_format import preview_lines
from ouro.frontends.tui.app import OuroApp
from ouro.frontends.tui.screen_settings import ScreenSettings
from ouro.frontends.tui.screens.dialogs import LineSheet
from ouro.frontends.tui.screens.session_picker import SessionPicker
from ouro.frontends.tui.session_start import SessionStart
from ouro.memory.backend import DailyUsage
from ouro.messages import Usage
from ouro.session import OpenRequest, SessionExcerpt, SessionHit, SessionInfo
from ouro.session.opening import PICK

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


def info(number, title, *, hours=1.0, project="/project", **other):
    at = (NOW - timedelta(hours=hours)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    values = {
        "id": f"{number:08d}-7e1b-4d0a-9a55-3b8f0c1d2e4f",
        "title": title,
        "project": project,
        "model": "anthropic/claude-sonnet-5",
        "created_at": at,
        "updated_at": at,
        "messages": 4 * number,
        "size": 2500 * number,
        "spent": (DailyUsage(at[:10], "anthropic/claude-sonnet-5", Usage(cost=0.11 * number)),),
        "folder": f"2026-11-22_{number:08d}",
    }
    return SessionInfo(**{**values, **other})


KNOWN = [
    info(1, "mend the broken import", hours=0.05),
    info(2, "write the documentation", hours=3),
    info(3, "try another parser", hours=50, fork_of="00000001-7e1b-4d0a-9a55-3b8f0c1d2e4f"),
    info(4, "of another project", hours=1, project="/elsewhere/api"),
]


@pytest.fixture
def session_catalog():
    made = FakeCatalog(KNOWN)
    made.hits = [SessionHit(KNOWN[2].id, 7, "the lexer drops its last token")]
    made.previews = {
        KNOWN[0].id: SessionExcerpt("The import was cyclic.", "mend it", (("assistant", "done"),))
    }
    return made


class Requests:
    """Opens a session for each request, and records the requests."""

    def __init__(self, *failures):
        self.failures = list(failures)
        self.asked = []

    async def __call__(self, request):
        self.asked.append(request)
        if self.failures:
            raise self.failures.pop(0)
        return FakeSession(session_id=request.resume or "new")


def app_on(session_catalog, open_session, request=None):
    async def open_catalog():
        return session_catalog

    look = ScreenSettings(version="0.1.0", folder="/project")
    return OuroApp(
        SessionStart(open_session, request or OpenRequest(PICK)), look, open_catalog=open_catalog
    )


@pytest.fixture(autouse=True)
def at_noon(monkeypatch):
    monkeypatch.setattr("ouro.frontends.tui.screens.session_picker.now", lambda: NOW)


async def wait_for_picker(pilot):
    """Wait until the picker has its list."""
    await until(
        pilot, lambda: isinstance(pilot.app.screen, SessionPicker) and pilot.app.screen._is_loaded
    )
    return pilot.app.screen


def titles(picker):
    return [match.info.title for match in picker._list.rows]


async def test_picker_opens_first_and_continues_with_the_chosen_session(session_catalog):
    requests = Requests()
    async with app_on(session_catalog, requests).run_test(size=(80, 24)) as pilot:
        picker = await wait_for_picker(pilot)
        assert requests.asked == []
        assert titles(picker) == [
            "mend the broken import",
            "write the documentation",
            "try another parser",
        ]

        await pilot.press("down", "enter")
        await opened(pilot)
        await pilot.press(*"hi")
        assert requests.asked == [OpenRequest(KNOWN[1].id)]
        assert pilot.app.conversation.prompt.text == "hi"


async def test_typing_searches_titles_first_then_messages(session_catalog):
    async with app_on(session_catalog, Requests()).run_test(size=(80, 24)) as pilot:
        picker = await wait_for_picker(pilot)
        await pilot.press(*"import")
        assert titles(picker) == ["mend the broken import"]
        picker._search.value = "lexer"
        await until(pilot, lambda: titles(picker) == ["try another parser"])
        assert "the lexer drops its" in screen_text(pilot.app)
        await until(pilot, lambda: picker._is_loaded and picker._matches.is_fuzzy)
        picker._search.value = "documantation"
        await until(pilot, lambda: titles(picker) == ["write the documentation"])


async def test_text_typed_before_the_list_loads_is_searched(session_catalog):
    async with app_on(session_catalog, Requests()).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: isinstance(pilot.app.screen, SessionPicker))
        await pilot.press(*"docum")
        picker = await wait_for_picker(pilot)
        await until(pilot, lambda: titles(picker) == ["write the documentation"])


@pytest.mark.parametrize("width", [80, 100, 120])
async def test_ctrl_a_shows_the_sessions_of_all_projects(session_catalog, width):
    async with app_on(session_catalog, Requests()).run_test(size=(width, 24)) as pilot:
        picker = await wait_for_picker(pilot)
        await pilot.press("ctrl+a")
        assert "of another project" in titles(picker)
        assert "/elsewhere/api" in screen_text(pilot.app)
        await pilot.press("ctrl+a")
        assert "of another project" not in titles(picker)


async def test_all_sessions_are_shown_if_the_project_has_none(session_catalog):
    session_catalog.project = "/new"
    async with app_on(session_catalog, Requests()).run_test(size=(80, 24)) as pilot:
        assert len(titles(await wait_for_picker(pilot))) == 4
        await until(
            pilot, lambda: "none in this folder · all projects · 4" in screen_text(pilot.app)
        )


async def test_the_cursor_of_the_terminal_is_on_the_marked_row(session_catalog):
    async with app_on(session_catalog, Requests()).run_test(size=(80, 24)) as pilot:
        await wait_for_picker(pilot)
        await pilot.press("down")
        row = screen_text(pilot.app).splitlines()[pilot.app.cursor_position.y]
        assert "❯" in row
        assert "write the documentation" in row


async def test_esc_opens_a_new_session_and_ctrl_c_quits(session_catalog):
    requests = Requests()
    async with app_on(session_catalog, requests).run_test() as pilot:
        await wait_for_picker(pilot)
        await pilot.press("escape")
        await opened(pilot)
        assert requests.asked == [OpenRequest()]

    requests = Requests()
    async with app_on(session_catalog, requests).run_test() as pilot:
        await wait_for_picker(pilot)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: not pilot.app.is_running or pilot.app._exit)
        assert requests.asked == []


async def test_text_typed_while_the_session_opens_stays_in_the_prompt(session_catalog):
    gate, asked = asyncio.Event(), []

    async def open_session(request):
        asked.append(request)
        await gate.wait()
        return FakeSession()

    async with app_on(session_catalog, open_session).run_test() as pilot:
        await wait_for_picker(pilot)
        await pilot.press("escape")
        await until(pilot, lambda: asked != [])
        await pilot.press(*"hi")
        gate.set()
        await opened(pilot)
        assert pilot.app.conversation.prompt.text == "hi"


async def test_a_session_is_renamed_and_stays_marked(session_catalog):
    async with app_on(session_catalog, Requests()).run_test(size=(80, 24)) as pilot:
        picker = await wait_for_picker(pilot)
        await pilot.press("down", "f2")
        await until(pilot, lambda: isinstance(pilot.app.screen, LineSheet))
        await pilot.press(*" now", "enter")
        await until(pilot, lambda: "write the documentation now" in titles(picker))
        assert picker._list.marked.info.title == "write the documentation now"


async def test_preview_shows_the_new_title_after_a_rename(session_catalog):
    async with app_on(session_catalog, Requests()).run_test(size=(120, 30)) as pilot:
        picker = await wait_for_picker(pilot)
        await until(pilot, lambda: "The import was cyclic." in screen_text(pilot.app))
        await pilot.press("f2")
        await until(pilot, lambda: isinstance(pilot.app.screen, LineSheet))
        await pilot.press("ctrl+u", *"another name", "enter")
        await until(pilot, lambda: "another name" in titles(picker))
        await until(pilot, lambda: screen_text(pilot.app).count("another name") == 2)


async def test_keys_to_press_are_shown_in_a_narrow_terminal(session_catalog):
    async with app_on(session_catalog, Requests()).run_test(size=(40, 10)) as pilot:
        await wait_for_picker(pilot)
        await pilot.press("ctrl+d")
        await until(pilot, lambda: "Move to trash? y yes · other keys no" in screen_text(pilot.app))
        await pilot.press("y")
        await until(pilot, lambda: "In the trash. Ctrl+U restores it." in screen_text(pilot.app))


async def test_open_session_renames_itself(session_catalog):
    session = FakeSession(session_id=KNOWN[0].id)
    session.known = KNOWN
    async with screen_of(session).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await pilot.press(*"/resume", "enter")
        await wait_for_picker(pilot)
        await pilot.press("f2")
        await until(pilot, lambda: isinstance(pilot.app.screen, LineSheet))
        await pilot.press("ctrl+u", *"other", "enter")
        await until(pilot, lambda: session.title == "other")


async def test_deletion_asks_moves_to_the_trash_and_can_be_undone(session_catalog):
    async with app_on(session_catalog, Requests()).run_test(size=(80, 24)) as pilot:
        picker = await wait_for_picker(pilot)
        await pilot.press("ctrl+d", "n")
        assert (len(titles(picker)), session_catalog.trash) == (3, [])
        await pilot.press("ctrl+d")
        assert "Move to trash? y yes · other keys no · “mend the broken import”" in screen_text(
            pilot.app
        )
        await pilot.press("y")
        await until(
            pilot, lambda: titles(picker) == ["write the documentation", "try another parser"]
        )
        assert "In the trash. Ctrl+U restores it. “mend the broken import”" in screen_text(
            pilot.app
        )
        await pilot.press("ctrl+u")
        await until(pilot, lambda: len(titles(picker)) == 3)


async def test_letters_are_keys_while_the_list_has_focus(session_catalog):
    requests = Requests()
    async with app_on(session_catalog, requests).run_test(size=(80, 24)) as pilot:
        picker = await wait_for_picker(pilot)
        await pilot.press("tab", "d", "y")
        await until(pilot, lambda: len(titles(picker)) == 2)
        await pilot.press("u")
        await until(pilot, lambda: len(titles(picker)) == 3)
        await pilot.press("slash", *"parser")
        assert picker._search.value == "parser"
        await pilot.press("tab", "f")
        await opened(pilot)
        assert requests.asked == [OpenRequest(KNOWN[2].id, fork=True)]


async def test_errors_are_shown_in_the_footer(session_catalog):
    async def refuse(session_id):
        raise SessionInUse("This session is in use by process 7.", "Close it there first.")

    session_catalog.delete_session = refuse
    async with app_on(session_catalog, Requests()).run_test(size=(80, 24)) as pilot:
        picker = await wait_for_picker(pilot)
        await pilot.press("ctrl+d", "y")
        await until(pilot, lambda: "in use by process 7" in screen_text(pilot.app))
        assert len(titles(picker)) == 3


async def test_preview_of_the_marked_session_is_beside_or_over_the_list(session_catalog):
    async with app_on(session_catalog, Requests()).run_test(size=(120, 30)) as pilot:
        await wait_for_picker(pilot)
        await until(pilot, lambda: "The import was cyclic." in screen_text(pilot.app))
        await pilot.press("down")
        await until(pilot, lambda: "The session is empty." in screen_text(pilot.app))
        await pilot.resize_terminal(60, 20)
        await pilot.press("tab", "up", "space")
        await until(pilot, lambda: "The import was cyclic." in screen_text(pilot.app))
        assert "write the documentation" not in screen_text(pilot.app)
        assert "Esc back" in screen_text(pilot.app)
        assert not pilot.app.screen.query_one("#browser-heading").display  # the list is covered
        await pilot.press("down")
        await until(pilot, lambda: "The session is empty." in screen_text(pilot.app))
        await pilot.press("escape", "up")
        await until(pilot, lambda: "❯ mend the broken" in screen_text(pilot.app))
        assert "write the documentation" in screen_text(pilot.app)
        await until(pilot, lambda: "Esc back" not in screen_text(pilot.app))
        assert pilot.app.screen.query_one("#browser-heading").display


async def test_picker_lists_the_sessions_of_an_ambiguous_query(session_catalog):
    several = SeveralSessions("Several sessions match:", "", [KNOWN[1].id, KNOWN[3].id])
    requests = Requests(several)
    request = OpenRequest("the", fork=True)
    async with app_on(session_catalog, requests, request).run_test(size=(80, 24)) as pilot:
        picker = await wait_for_picker(pilot)
        assert titles(picker) == ["write the documentation", "of another project"]
        await pilot.press("enter")
        await opened(pilot)
        assert requests.asked == [request, OpenRequest(KNOWN[1].id, fork=True)]


@pytest.mark.parametrize(
    ("key", "asked"),
    [("enter", OpenRequest("x", read_only=True)), ("down", OpenRequest("x", fork=True))],
)
async def test_a_session_in_use_is_offered_read_only_or_as_a_copy(session_catalog, key, asked):
    requests = Requests(SessionInUse("This session is in use by process 7 since 10:00."))
    async with app_on(session_catalog, requests, OpenRequest("x")).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "in use by process 7 since 10:00" in screen_text(pilot.app))
        await until(pilot, lambda: 0 < pilot.app.screen._accepts_from < time.monotonic())
        await pilot.press(*dict.fromkeys((key, "enter")))
        await opened(pilot)
        assert requests.asked == [OpenRequest("x"), asked]


async def test_ten_thousand_sessions_need_few_widgets(session_catalog):
    session_catalog.known = [
        info(number, f"session {number}", hours=number) for number in range(1, 10_001)
    ]
    async with app_on(session_catalog, Requests()).run_test(size=(80, 24)) as pilot:
        picker = await wait_for_picker(pilot)
        await pilot.press("tab", "end")
        assert picker._list.marked.info.title == "session 10000"
        assert "❯ session 10000" in screen_text(pilot.app)
        assert len(list(picker.walk_children())) < 20


@pytest.mark.parametrize("size", [(80, 24), (120, 30), (40, 10)])
def test_picker_snapshot(session_catalog, size, snap_compare):
    async def before(pilot):
        await wait_for_picker(pilot)
        await pilot.press("down", "up")
        await until(
            pilot, lambda: size[0] < 112 or "The import was cyclic." in screen_text(pilot.app)
        )

    assert snap_compare(app_on(session_catalog, Requests()), terminal_size=size, run_before=before)


async def test_first_page_is_shown_before_the_whole_list_was_read(session_catalog):
    session_catalog.first = KNOWN[:2]
    session_catalog.is_readable.clear()
    async with app_on(session_catalog, Requests()).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: isinstance(pilot.app.screen, SessionPicker))
        picker = pilot.app.screen
        await until(pilot, lambda: titles(picker) == [info.title for info in KNOWN[:2]])
        assert "reading the list" in screen_text(pilot.app)
        await pilot.press("down", *"write")
        session_catalog.is_readable.set()
        await until(pilot, lambda: titles(picker) == ["write the documentation"])


async def test_session_of_the_first_page_can_be_opened_at_once(session_catalog):
    requests = Requests()
    session_catalog.first = KNOWN[:2]
    session_catalog.is_readable.clear()
    async with app_on(session_catalog, requests).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: isinstance(pilot.app.screen, SessionPicker))
        picker = pilot.app.screen
        await until(pilot, lambda: len(picker._list.rows) == 2)
        await pilot.press("down", "enter")
        await opened(pilot)
        assert requests.asked == [OpenRequest(KNOWN[1].id)]


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (72, 24)])
async def test_there_is_no_column_of_costs_if_no_price_is_known(session_catalog, size):
    async with app_on(session_catalog, Requests()).run_test(size=size) as pilot:
        picker = await wait_for_picker(pilot)
        assert " cost" in picker._heading_text()

    free = FakeCatalog([info(1, "a local model", spent=()), info(2, "another", spent=())])
    async with app_on(free, Requests()).run_test(size=size) as pilot:
        picker = await wait_for_picker(pilot)
        assert "cost" not in picker._heading_text()
        assert "size" in picker._heading_text()


async def test_sessions_of_scripts_are_hidden_until_f6():
    of_script = info(5, "from a script", hours=0.01, headless=True)
    catalog = FakeCatalog([of_script, *KNOWN])
    async with app_on(catalog, Requests()).run_test(size=(80, 24)) as pilot:
        picker = await wait_for_picker(pilot)
        assert "from a script" not in titles(picker)
        assert "this project · 3 · 1 headless hidden" in screen_text(pilot.app)
        assert "F6 headless" in screen_text(pilot.app)
        await pilot.press("f6")
        assert titles(picker)[0] == "from a script"
        assert "F6 hide headless" in screen_text(pilot.app)
        await pilot.press("f6")
        assert "from a script" not in titles(picker)
        picker._search.value = "from"
        await until(pilot, lambda: titles(picker) == [])
        assert "F6 also shows 1 session of scripts" in screen_text(pilot.app)


async def test_a_session_of_a_script_is_shown_if_it_was_asked_for():
    of_script = info(5, "import from a script", headless=True)
    catalog = FakeCatalog([of_script, *KNOWN])
    several = SeveralSessions("Several", "Name one.", ids=(of_script.id, KNOWN[0].id))
    async with app_on(catalog, Requests(several), OpenRequest("import")).run_test() as pilot:
        picker = await wait_for_picker(pilot)
        assert "import from a script" in titles(picker)


async def test_sessions_of_scripts_are_shown_if_the_project_has_no_others():
    catalog = FakeCatalog([info(5, "from a script", headless=True), KNOWN[3]])
    async with app_on(catalog, Requests()).run_test(size=(80, 24)) as pilot:
        picker = await wait_for_picker(pilot)
        assert titles(picker) == ["from a script"]
        assert "this project · 1" in screen_text(pilot.app)


async def test_sessions_of_scripts_are_shown_if_there_are_no_others():
    elsewhere = replace(KNOWN[3], title="from a script", headless=True)
    async with app_on(FakeCatalog([elsewhere]), Requests()).run_test(size=(80, 24)) as pilot:
        picker = await wait_for_picker(pilot)
        assert titles(picker) == ["from a script"]
        assert "none in this folder" in screen_text(pilot.app)


def test_a_preview_has_no_marks_of_markdown():
    answers = (("assistant", "## Part 1\n**All** tests pass, see [it](a.md)."),)
    lines = preview_lines(SessionExcerpt(first="`make`", last=answers), 40)
    assert lines == [("you", "make"), ("ouro", "Part 1 All tests pass, see it.")]


async def test_ctrl_c_clears_the_search_before_it_leaves(session_catalog):
    async with app_on(session_catalog, Requests()).run_test(size=(80, 24)) as pilot:
        picker = await wait_for_picker(pilot)
        await pilot.press(*"docum", "ctrl+c")
        assert (picker._search.value, picker.wants_to_leave) == ("", False)
        await until(pilot, lambda: len(titles(picker)) == 3)
        await pilot.press("ctrl+c")
        assert picker.wants_to_leave
