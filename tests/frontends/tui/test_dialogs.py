"""All dialogs are of one kind: title first, keys last, and the same keys."""

from pathlib import Path

import pytest
from fakes.fake_session import FakeSession
from fakes.screens import opened, screen_of, screen_text, until
from textual.css.stylesheet import Stylesheet
from textual.widgets import Input

from ouro.display import Choice
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.screens.dialogs import (
    HelpSheet,
    KeySheet,
    LineSheet,
    Sheet,
    title_content,
)
from ouro.frontends.tui.screens.diff_viewer import DiffViewer
from ouro.frontends.tui.screens.list_sheets import RedoSheet, TasksSheet
from ouro.frontends.tui.screens.picker import Picker
from ouro.frontends.tui.screens.plan_sheets import PlanComments
from ouro.frontends.tui.screens.queue_sheet import QueueSheet
from ouro.frontends.tui.screens.session_picker import SessionPicker
from ouro.frontends.tui.screens.text_edit_sheet import TextSheet
from ouro.session import BackgroundTask, ShownDiff
from ouro.utils.git_diff import DiffedFile


def test_only_the_first_line_of_a_title_stands_out():
    title = title_content("Do you trust it?\nIt has `AGENTS.md`.")
    assert title.plain == "Do you trust it?\nIt has AGENTS.md."
    assert min(span.start for span in title.spans) == len("Do you trust it?\n")


SIZES = [(120, 40), (80, 24), (40, 10)]
MANY = [Choice(f"c{number}", f"choice {number}") for number in range(30)]
TASKS = [
    BackgroundTask(f"job_{number}", f"sleep {number}", "running", True, True, "ready")
    for number in range(3)
]
FILE = DiffedFile("api.py", hunks=("@@ -1 +1 @@\n-one\n+two\n",))


def make_diff_viewer(shown, keymap):
    return DiffViewer(shown, None, keymap)


async def no_kill(task):
    raise AssertionError(task)


def dialogs(app):
    keymap = Keymap()
    queue = app.turns

    async def get_catalog():
        return FakeSession().session_catalog

    shown = ShownDiff("", "the last commit", "", Path("/project"), [FILE])
    return {
        "Help": HelpSheet(keymap, "word\n\n" * 60, "Help"),
        "A line": LineSheet("A line", secret=False),
        "Few": Picker("Few", MANY[:4]),
        "Many": Picker("Many", MANY),
        "A text": TextSheet("A text", "one\ntwo"),
        "Comment on lines": PlanComments("1. one\n2. two"),
        "Queued messages": QueueSheet(queue, print),
        "Tasks": TasksSheet(lambda: TASKS, no_kill),
        "Redo what was undone": RedoSheet({"files": "2 files"}),
        "Sessions": SessionPicker(get_catalog, keymap),
        "Changes since the last": make_diff_viewer(shown, keymap),
    }


PARTS = 3
NAMES = (
    "Help", "A line", "Few", "Many", "A text", "Comment on lines", "Queued messages", "Tasks",
    "Redo what was undone", "Sessions", "Changes since the last",
)  # fmt: skip
WRITING = {"A line", "A text"}
"""Here `?` is text."""


async def open_dialog(pilot, name):
    await opened(pilot)
    dialog = dialogs(pilot.app)[name]
    pilot.app.push_screen(dialog)
    await until(pilot, lambda: name in screen_text(pilot.app) and "Esc" in screen_text(pilot.app))
    return dialog


async def close_dialog(pilot):
    pilot.app.pop_screen()
    await until(pilot, lambda: not isinstance(pilot.app.screen, Sheet))


def inside(pilot):
    """The lines of the frame, without its border and blank lines."""
    at = pilot.app.screen.query_one(".sheet").region
    rows = screen_text(pilot.app).split("\n")[at.y : at.bottom]
    lines = [row[at.x : at.right].strip("│╭╮╰╯─ ") for row in rows]
    return [line for line in lines if line]


@pytest.mark.parametrize("size", SIZES)
async def test_a_dialog_has_its_title_first_and_its_keys_last(size):
    async with screen_of(FakeSession()).run_test(size=size) as pilot:
        for name in NAMES:
            await open_dialog(pilot, name)
            assert inside(pilot)[0].startswith(name)
            assert "Esc" in inside(pilot)[-1], name
            has_frame = "╭" in screen_text(pilot.app)
            assert has_frame == (size != (40, 10)), name
            assert max(map(len, screen_text(pilot.app).split("\n"))) <= size[0], name
            await close_dialog(pilot)


@pytest.mark.parametrize("name", ["Sessions", "Changes since the last", "Few"])
async def test_nothing_is_drawn_below_a_dialog_that_covers_the_screen(name):
    async with screen_of(FakeSession()).run_test(size=(80, 24)) as pilot:
        await open_dialog(pilot, name)
        background = pilot.app.screen.styles.background
        assert (background.a == 1) == (name != "Few")


@pytest.mark.parametrize(("width", "fills"), [(96, True), (100, True), (111, True), (120, False)])
async def test_a_dialog_fills_a_width_of_which_it_would_leave_a_few_columns(width, fills):
    async with screen_of(FakeSession()).run_test(size=(width, 30)) as pilot:
        await open_dialog(pilot, "Many")
        assert (pilot.app.screen.query_one(".sheet").region.width == width) == fills
        await pilot.resize_terminal(216 - width, 30)
        other = 216 - width >= 112
        frame = pilot.app.screen.query_one(".sheet")
        await until(pilot, lambda: (frame.region.width == 216 - width) != other)


async def test_a_narrow_list_of_sessions_says_what_escape_does():
    keymap = Keymap()

    async def get_catalog():
        return FakeSession().session_catalog

    async with screen_of(FakeSession()).run_test(size=(40, 10)) as pilot:
        await opened(pilot)
        pilot.app.push_screen(SessionPicker(get_catalog, keymap, esc="new session"))
        await until(pilot, lambda: "Enter resumes · Esc new session" in screen_text(pilot.app))


async def test_a_low_terminal_shows_a_short_question_whole_and_scrolls_a_long_one():
    question = "May the agent of this session read what the folder says? It would obey AGENTS.md."
    details = [Choice("yes", "yes", "now and in every later session of this folder"), *MANY[:2]]
    async with screen_of(FakeSession()).run_test(size=(40, 10)) as pilot:
        await opened(pilot)
        pilot.app.push_screen(Picker(question, details))
        await until(pilot, lambda: "AGENTS.md." in screen_text(pilot.app))
        await until(pilot, lambda: "in every later" in screen_text(pilot.app))
        assert "choice 1" in screen_text(pilot.app)
        assert "Esc closes" in screen_text(pilot.app)
        await pilot.press("escape")
        words = " ".join(f"word{number}" for number in range(60))
        pilot.app.push_screen(Picker(words, details))
        await until(pilot, lambda: "word0" in screen_text(pilot.app))
        await until(pilot, lambda: "choice 1" in screen_text(pilot.app))
        await pilot.press(*["pagedown"] * 12)
        await until(pilot, lambda: "word59" in screen_text(pilot.app))
        assert "Esc closes" in screen_text(pilot.app)


async def test_a_short_list_that_hides_choices_says_which_one_of_how_many_is_marked():
    choices = [Choice("yes", "yes", "trust this folder, now and later"), *MANY[:2]]
    async with screen_of(FakeSession()).run_test(size=(20, 5)) as pilot:
        await opened(pilot)
        pilot.app.push_screen(Picker("Do you trust /home/me/projects/shop?", choices))
        await until(pilot, lambda: "1/3 ↑↓ trust this" in screen_text(pilot.app))
        await pilot.press("down")
        await until(pilot, lambda: "2/3 ↑↓" in screen_text(pilot.app))
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: "3 choice 1" in screen_text(pilot.app))
        await until(pilot, lambda: "/3 ↑↓" not in screen_text(pilot.app))


@pytest.mark.parametrize("part", range(PARTS))
async def test_a_question_mark_shows_the_keys_and_escape_goes_back_one_step(part):
    """Several tests, because all dialogs in one take 15 s of CPU."""
    names = [name for name in NAMES if name not in {*WRITING, "Help"}]
    async with screen_of(FakeSession()).run_test(size=(80, 24)) as pilot:
        for name in names[part::PARTS]:
            await check_that_a_question_mark_shows_the_keys(pilot, name)


async def check_that_a_question_mark_shows_the_keys(pilot, name):
    dialog = await open_dialog(pilot, name)
    await pilot.press("question_mark")
    await until(pilot, lambda: isinstance(pilot.app.screen, KeySheet))
    assert inside(pilot)[0] == "Keys", name
    assert ("PageUp PageDown", "one page") in dialog.all_keys(), name
    await pilot.press("escape")
    await until(pilot, lambda: pilot.app.screen is dialog)
    await pilot.press("f1")
    await until(pilot, lambda: isinstance(pilot.app.screen, KeySheet))
    await pilot.press("escape", "escape")
    await until(pilot, lambda: not isinstance(pilot.app.screen, Sheet))


@pytest.mark.parametrize("name", sorted(WRITING))
async def test_in_a_text_a_question_mark_is_text(name):
    async with screen_of(FakeSession()).run_test(size=(80, 24)) as pilot:
        dialog = await open_dialog(pilot, name)
        await pilot.press("question_mark")
        assert pilot.app.screen is dialog
        assert "?" in screen_text(pilot.app)


async def test_a_question_mark_after_other_letters_is_searched():
    async with screen_of(FakeSession()).run_test(size=(80, 24)) as pilot:
        dialog = await open_dialog(pilot, "Many")
        await pilot.press("a", "question_mark")
        assert pilot.app.screen is dialog
        assert dialog.query_one(Input).value == "a?"


async def test_letters_move_where_nothing_is_searched():
    async with screen_of(FakeSession()).run_test(size=(80, 24)) as pilot:
        dialog = await open_dialog(pilot, "Tasks")
        await until(pilot, lambda: len(dialog._list.rows) == 3)
        places = []
        for key in ("j", "j", "k", "G", "g", "end", "home", "pagedown"):
            await pilot.press(key)
            places.append(dialog._list.marked_index)
        assert places == [1, 2, 1, 2, 0, 2, 0, 2]


async def test_a_short_list_moves_by_letters_and_gives_a_message_to_the_prompt(monkeypatch):
    monkeypatch.setattr("ouro.frontends.tui.screens.picker.STRAY_GRACE", 60)
    async with screen_of(FakeSession()).run_test(size=(80, 24)) as pilot:
        dialog = await open_dialog(pilot, "Few")
        dialog._reads_from = 0.0
        await pilot.press("j", "j", "k")
        assert dialog._list.marked_index == 1
        await pilot.press("e")
        await until(pilot, lambda: pilot.app.conversation.prompt.text == "jjke")


async def test_a_page_of_help_is_searched():
    async with screen_of(FakeSession()).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        text = "\n\n".join(f"line {number}" for number in range(80))
        pilot.app.push_screen(HelpSheet(Keymap(), text, "Help"))
        await until(pilot, lambda: "line 1" in screen_text(pilot.app))
        await pilot.press("slash", *"77", "enter")
        await until(pilot, lambda: "line 77" in screen_text(pilot.app))
        assert "n N next, previous" in screen_text(pilot.app)
        await pilot.press("slash", "x", "escape")
        assert isinstance(pilot.app.screen, HelpSheet)
        await pilot.press("slash", *"nowhere", "enter")
        await until(pilot, lambda: "No match for “nowhere”." in screen_text(pilot.app))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(pilot.app.screen, HelpSheet))


async def test_styles_of_a_screen_are_made_once_when_it_opens(monkeypatch):
    """Textual makes them two more times: when the screen is shown, and after the first layout."""
    styled = []

    def update_nodes(sheet, nodes, animate=False):
        nodes = list(nodes)
        styled.append((len(nodes), nodes[0]))
        make_styles(sheet, nodes, animate)

    make_styles = Stylesheet.update_nodes
    monkeypatch.setattr(Stylesheet, "update_nodes", update_nodes)
    async with screen_of(FakeSession()).run_test() as pilot:
        dialog = await open_dialog(pilot, "A text")
        assert max(count for count, _ in styled) == 1
        assert dialog.has_class("-fills", "-normal")
        styled.clear()
        pilot.app.theme = "light"
        await until(pilot, lambda: any(count > 1 for count, _ in styled))
