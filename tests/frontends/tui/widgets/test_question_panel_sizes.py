"""Questions on small and changing screens, and long ones."""

import asyncio

from fakes.entered_functions import counted_calls
from fakes.fake_session import PUSH, FakeSession, Wait, asks_to_push
from fakes.screens import asked, opened, screen_of, screen_text, until
from textual.screen import Screen

from ouro.display import Diff, Display, FileChange, Question
from ouro.events import PermissionAsked, Permit, QuestionAsked, ToolStarted
from ouro.frontends.tui.blocks.diff import PAGE_ROWS
from ouro.frontends.tui.blocks.hunk_rows import HunkRows
from ouro.tools.file_tool import display_of, file_change


async def test_a_long_question_leaves_room_for_the_prompt_and_can_be_scrolled():
    details = "\n".join(f"- line {number}" for number in range(60))
    question = Question("Remember?", ("keep", "leave"), details=details)
    session = FakeSession([[QuestionAsked("q", question), Wait(asyncio.Event())]])
    async with screen_of(session).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        await until(pilot, lambda: pilot.app.conversation.status.region.bottom == 24)
        assert "line 0" in screen_text(pilot.app)
        await pilot.press("pagedown")
        await until(pilot, lambda: "line 0" not in screen_text(pilot.app))


async def test_smallest_screen_shows_the_question_and_the_marked_choice():
    session = FakeSession([[asks_to_push(command="git push origin main\n" * 40)]])
    async with screen_of(session).run_test(size=(20, 5)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        panel = await asked(pilot)
        await until(pilot, lambda: "❯ 1 yes" in screen_text(pilot.app))
        assert "Allow?  shell" in screen_text(pilot.app)
        assert "git push" in screen_text(pilot.app)
        await pilot.press("up")
        await until(pilot, lambda: "❯↑5 no," in screen_text(pilot.app))
        await pilot.click(panel.options, offset=(4, 0))
        await until(pilot, lambda: session.answers)
    assert session.answers == [("q1", Permit("no"))]


async def test_hidden_choices_are_indicated_above_and_below():
    session = FakeSession([[asks_to_push(command="git push origin main\n" * 40)]])
    async with screen_of(session).run_test(size=(20, 5)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        await until(
            pilot,
            lambda: (
                "❯ 1 yes" in screen_text(pilot.app) and " ↓2 yes, for" in screen_text(pilot.app)
            ),
        )
        await pilot.press("down", "down")
        await until(pilot, lambda: "❯↑3 always" in screen_text(pilot.app))
        await pilot.press("down")
        await pilot.press("down")
        await until(pilot, lambda: "❯↑5 no," in screen_text(pilot.app))
        await pilot.resize_terminal(20, 3)
        await pilot.press("up")
        await until(
            pilot,
            lambda: "❯↕4 no" in screen_text(pilot.app) and "git push" in screen_text(pilot.app),
        )
        await pilot.resize_terminal(20, 8)
        await until(pilot, lambda: "Allow?  shell" in screen_text(pilot.app))
        await pilot.resize_terminal(40, 12)
        await until(
            pilot,
            lambda: (
                "5 no, continue" in (text := screen_text(pilot.app))
                and not {"↑", "↓", "↕"} & set(text)
            ),
        )


async def test_question_has_its_choices_even_before_the_layout(monkeypatch):
    lay_out = Screen._refresh_layout

    def ask_first(screen, *arguments, **options):
        screen._compositor._full_map_invalidated = True  # as after scrolling
        assert screen._compositor.full_map or screen.app.conversation.session is None
        lay_out(screen, *arguments, **options)

    monkeypatch.setattr(Screen, "_refresh_layout", ask_first)
    async with screen_of(FakeSession([[asks_to_push(command="git push\n" * 40)]])).run_test(
        size=(80, 24)
    ) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        await until(pilot, lambda: "❯ 1 yes" in screen_text(pilot.app))


async def test_low_screen_gives_room_to_the_question_and_hints_scrolling():
    session = FakeSession([[asks_to_push(command="git push\n" * 40, rule="")]])
    async with screen_of(session).run_test(size=(40, 10)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        await until(pilot, lambda: "PageDown: 41 lines" in screen_text(pilot.app))
        await until(pilot, lambda: screen_text(pilot.app).count("git push") > 3)
        await until(pilot, lambda: "2 no: say" in screen_text(pilot.app))


async def test_a_question_has_all_its_choices_on_fifteen_lines_too():
    session = FakeSession([[asks_to_push(command="git push\n" * 40, rule="shell(make *)")]])
    async with screen_of(session).run_test(size=(40, 15)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        await until(pilot, lambda: "5 no, continue" in screen_text(pilot.app))
        assert screen_text(pilot.app).count("git push") == 2
        assert "Ask for anything" in screen_text(pilot.app)


async def test_resize_while_a_question_appears_is_harmless():
    async with screen_of(FakeSession()).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        questions = pilot.app.conversation.questions
        questions.ask(asks_to_push(rule=""))
        questions.panel._fit()
        await asked(pilot)
        await until(pilot, lambda: "❯ 1 yes" in screen_text(pilot.app))


async def test_narrow_and_low_screens_show_all_of_a_question_and_of_its_choices():
    text = (
        "Which database should the new service of the shop use for its orders, and where does it"
        " run in the end?"
    )
    choices = (
        "SQLite, one file beside the program and nothing to install",
        "Postgres, with a nightly backup",
        "none",
    )
    question = Question(text, choices, details="- a line\n- another line")
    session = FakeSession([[QuestionAsked("q", question), Wait(asyncio.Event())]])
    async with screen_of(session).run_test(size=(40, 10)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        await until(
            pilot,
            lambda: "nothing to install" in _joined(pilot.app) and "none" in _joined(pilot.app),
        )
        await pilot.resize_terminal(20, 5)
        await until(
            pilot,
            lambda: "Which database" in _joined(pilot.app) and "❯ 1 SQLite" in _joined(pilot.app),
        )
        for _ in range(12):
            await pilot.press("pagedown")
        await until(pilot, lambda: "end?" in _joined(pilot.app) and "another" in _joined(pilot.app))
        await pilot.press("up", "enter", *"mine")
        await until(pilot, lambda: "mine" in screen_text(pilot.app))


def _joined(app):
    return " ".join(screen_text(app).split())


async def test_question_keys_are_shown_completely_when_the_text_scrolls():
    for width, keys in (
        (80, "PageUp PageDown: 41 lines · ↑↓ Enter · Tab adds a comment · Esc interrupts"),
        (60, "PageUp PageDown: 41 lines · ↑↓ Enter · Esc interrupts"),
    ):
        session = FakeSession([[asks_to_push(command="git push\n" * 40)]])
        async with screen_of(session).run_test(size=(width, 24)) as pilot:
            await opened(pilot)
            await pilot.press("g", "enter")
            await asked(pilot)
            await until(pilot, lambda keys=keys: keys in screen_text(pilot.app))
            await pilot.press("tab")
            await until(
                pilot, lambda: "41 lines · ↑↓ Enter sends · Esc back" in screen_text(pilot.app)
            )
            await pilot.press("escape")
            await until(pilot, lambda keys=keys: keys in screen_text(pilot.app))
            await pilot.press("y")
            await until(pilot, lambda session=session: not session.running)


async def test_long_diff_starts_at_the_top_and_scrolls_to_the_end():
    after = "".join(f"line {number}\n" for number in range(200))
    diff = Display("1 file", Diff((FileChange("long.txt", None, after),)))
    session = FakeSession([[PermissionAsked("q1", PUSH, "write long.txt", diff, "mode ask", "")]])
    async with screen_of(session).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        await until(pilot, lambda: "line 0" in screen_text(pilot.app))
        for _ in range(60):
            await pilot.press("pagedown")
        await until(pilot, lambda: "line 199" in screen_text(pilot.app))
    assert session.answers == []


async def test_layout_while_a_question_closes_is_harmless():
    async with screen_of(FakeSession([[asks_to_push()]])).run_test() as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        panel = await asked(pilot)
        await panel.query(".question--keys").remove()
        panel._fit()


async def test_a_question_about_a_long_file_draws_what_is_seen():
    code = "".join(f"value_{n} = 'one of many'\n" for n in range(5_000))
    display = display_of([file_change("a.py", None, code)])
    question = PermissionAsked("q1", PUSH, "write a.py", display, "it writes", "write(a.py)")
    session = FakeSession([[ToolStarted(PUSH, "write a.py"), question]])
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g")
        with counted_calls(HunkRows._row_lines) as counts:
            await pilot.press("enter")
            panel = await asked(pilot)
            await until(pilot, lambda: "5 + value_4 = 'one of many'" in screen_text(pilot.app))
        assert counts["HunkRows._row_lines"] <= 4 * PAGE_ROWS
        keys = panel.query_one(".question--keys")
        await until(pilot, lambda: "5001 lines" in str(keys.content))
        with counted_calls(HunkRows._row_lines) as counts:
            panel.query_one(".question--body").action_scroll_end()
            await until(pilot, lambda: "value_4999" in screen_text(pilot.app))
        assert counts["HunkRows._row_lines"] <= 4 * PAGE_ROWS


async def test_a_low_terminal_shows_the_first_changed_line_of_an_edit():
    before = "\n".join(f"line {number}" for number in range(20))
    change = file_change("api.py", before, before.replace("line 9\n", "line nine\n"))
    shown = Display("", Diff((change,)))
    asks = PermissionAsked("q1", PUSH, "edit api.py", shown, "it changes api.py", "write(api.py)")
    async with screen_of(FakeSession([[asks]])).run_test(size=(40, 10)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        await until(pilot, lambda: "- line 9" in screen_text(pilot.app))
        await until(pilot, lambda: "it changes api.py" in screen_text(pilot.app))
        assert "line 6" not in screen_text(pilot.app)
