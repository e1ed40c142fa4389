"""Permission questions and questions of the agent, operated by keys."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fakes.entered_functions import counted_calls
from fakes.fake_session import PUSH, FakeSession, Wait, asks_to_push
from fakes.screens import asked, opened, screen_of, screen_text, until
from textual import events

from ouro.display import CommandOutput, Diff, Display, FileChange, Question
from ouro.errors import TrustNeeded
from ouro.events import (
    PermissionAsked,
    Permit,
    QuestionAsked,
    Reply,
    ToolStarted,
)
from ouro.frontends.tui.screens.dialogs import HelpSheet
from ouro.frontends.tui.widgets import prompt
from ouro.frontends.tui.widgets.question_panel import QuestionPanel


@asynccontextmanager
async def asked_beside_draft(size):
    """An open question, and a draft that was written before it: the pilot and the session."""
    gate = asyncio.Event()
    session = FakeSession([[Wait(gate), asks_to_push("q1"), Wait(asyncio.Event())]])
    async with screen_of(session).run_test(size=size) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await until(pilot, lambda: session.running)
        await pilot.press(*"happ")
        gate.set()
        await asked(pilot)
        yield pilot, session


@pytest.mark.parametrize(("command", "reason", "shown_reason"), [
    ("git push 'origin' main", "it runs git push origin main", "no rule allows it"),
    ("make && git push", "it runs make and 1 more", "it runs make and 1 more"),
    ("git status", "it runs git with the repository's filter", "it runs git with the repository's filter"),
])  # fmt: skip
def test_the_reason_does_not_repeat_the_command(command, reason, shown_reason):
    display = Display("", CommandOutput(command))
    asked_event = PermissionAsked("q1", PUSH, f"run {command}", display, reason, "")
    assert asked_event.shown_reason == shown_reason


async def test_a_permission_is_answered_by_letter_digit_arrow_and_with_a_comment():
    turn = [ToolStarted(PUSH, "git push"), *(asks_to_push(f"q{n}") for n in range(6))]
    session = FakeSession([turn])
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        ways = (
            ["y"],
            ["5"],
            ["s"],
            ["down", "down", "enter"],
            ["tab", "w", "h", "y", "enter"],
            ["up", "up", "tab", "n", "o", "enter"],
        )
        for number, keys in enumerate(ways):
            await until(pilot, lambda number=number: len(session.answers) == number)
            await until(
                pilot,
                lambda number=number: (
                    getattr(pilot.app.conversation.questions.panel, "question_id", "")
                    == f"q{number}"
                ),
            )
            await asked(pilot)
            await pilot.press(*keys)
        await until(pilot, lambda: len(session.answers) == 6)
    assert session.answers == [
        ("q0", Permit("yes")),
        ("q1", Permit("no")),
        ("q2", Permit("session")),
        ("q3", Permit("always")),
        ("q4", Permit("yes", "why")),
        ("q5", Permit("no", "no")),
    ]


async def test_escape_closes_an_empty_comment_and_keeps_a_begun_one():
    session = FakeSession([[ToolStarted(PUSH, "git push"), asks_to_push()]])
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        field = pilot.app.conversation.questions.panel.field
        await pilot.press("tab")
        await until(pilot, lambda: field.has_focus)
        await pilot.press("escape")
        assert (field.display, field.has_focus) == (False, False)
        await pilot.press("tab", "x", "escape")
        assert (field.display, field.has_focus, session.answers) == (True, False, [])
        await pilot.press("n")
        await until(pilot, lambda: session.answers == [("q1", Permit("no", "x"))])


async def test_marked_answer_says_what_enter_does_with_the_comment():
    session = FakeSession([[ToolStarted(PUSH, "git push"), asks_to_push()]])
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        panel = pilot.app.conversation.questions.panel

        def choices():
            return [
                line
                for line in panel.options.render().plain.split("\n")
                if "tell the agent" in line
            ]

        assert choices() == []
        await pilot.press("tab")
        await until(pilot, lambda: choices() == ["❯ 1 yes (y), and tell the agent: …"])
        await pilot.press(*"not")
        await until(pilot, lambda: choices() == ["❯ 1 yes (y), and tell the agent: not"])
        await pilot.press("up", "up")
        await until(
            pilot,
            lambda: choices() == ["❯ 4 no: say what to do instead (n), and tell the agent: not"],
        )
        await pilot.press("enter")
        await until(pilot, lambda: session.answers == [("q1", Permit("no", "not"))])


async def test_ctrl_d_at_a_question_quits_on_empty_input_only():
    session = FakeSession([[ToolStarted(PUSH, "git push"), asks_to_push()]])
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        await pilot.press("x", "ctrl+d")
        await until(pilot, lambda: pilot.app.conversation.prompt.text == "x")
        assert (pilot.app._exit, session.answers) == (False, [])
        await pilot.press("backspace")
        await until(pilot, lambda: not pilot.app.conversation.prompt.text)
        await pilot.press("ctrl+d")
        await until(pilot, lambda: pilot.app._exit)


async def test_card_shows_the_call_as_changed_by_a_hook():
    changed = asks_to_push(command="git push --dry-run")
    session = FakeSession(
        [
            [
                ToolStarted(PUSH, "git push origin main"),
                ToolStarted(PUSH, "git push --dry-run"),
                changed,
            ]
        ]
    )
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        shown = screen_text(pilot.app)
        assert shown.count("git push --dry-run") == 2  # in the tool card and in the question
        assert "origin main" not in shown


async def test_always_is_offered_only_with_its_rule():
    session = FakeSession([[asks_to_push(rule="")]])
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        assert not {"always", "session (s)"} & set(screen_text(pilot.app).split())
        await pilot.press("a", "s", "2")
        await until(pilot, lambda: session.answers == [("q1", Permit("stop"))])


async def test_a_key_that_is_not_offered_is_the_first_letter_of_a_message(monkeypatch):
    session = FakeSession([[asks_to_push(rule="")]])
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        monkeypatch.setattr(QuestionPanel, "GRACE", 3600.0)  # the test may be slow
        await pilot.press(*"also")  # `a` would be `always`, which needs a rule
        await until(pilot, lambda: pilot.app.conversation.prompt.text == "also")
        assert session.answers == []


async def test_prompt_regains_focus_and_draft_after_a_question():
    gate = asyncio.Event()
    session = FakeSession([[Wait(gate), asks_to_push()]])
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await until(pilot, lambda: session.running)
        await pilot.press("d", "r")
        gate.set()
        await asked(pilot)
        await pilot.press("y", "y")
        await until(pilot, lambda: pilot.app.conversation.questions.panel is None)
        await until(pilot, lambda: pilot.app.focused is pilot.app.conversation.prompt)
        await pilot.press("a")
        assert pilot.app.conversation.prompt.text == "dra"


async def test_question_is_answered_by_digit_text_or_several_or_dismissed():
    questions = [
        Question("Which?", ("red", "blue")),
        Question("Which?", ("red", "blue")),
        Question("Which?", ("red", "blue", "green"), several=True),
        Question("Why?"),
        Question("Which?", ("red",)),
    ]
    session = FakeSession(
        [[QuestionAsked(f"q{n}", question) for n, question in enumerate(questions)]]
    )
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        ways = (
            ["2"],
            ["3", "p", "i", "n", "k", "enter"],
            ["1", "3", "5"],
            ["s", "o", "enter"],
            ["escape"],
        )
        for number, keys in enumerate(ways):
            await until(
                pilot,
                lambda number=number: (
                    getattr(pilot.app.conversation.questions.panel, "question_id", "")
                    == f"q{number}"
                ),
            )
            await asked(pilot)
            hint = "type your answer · Esc: no answer" if number == 3 else " · Esc: no answer"
            await until(pilot, lambda hint=hint: hint in screen_text(pilot.app))
            await pilot.press(*keys)
        await until(pilot, lambda: len(session.answers) == 5)
    assert [answer for _, answer in session.answers] == [
        Reply(("blue",)),
        Reply(("pink",)),
        Reply(("red", "green")),
        Reply(("so",)),
        Reply(()),
    ]
    assert session.interrupts == 0


async def test_only_what_can_be_ticked_has_a_box():
    question = Question("Which?", ("red", "blue"), several=True)
    async with screen_of(FakeSession([[QuestionAsked("q", question)]])).run_test() as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await until(pilot, lambda: "send the answer" in screen_text(pilot.app))
        assert screen_text(pilot.app).count("[ ]") == 2


@pytest.mark.parametrize("size", [(80, 24), (40, 12), (40, 7)])
@pytest.mark.parametrize(
    "question", [Question("Why? " * 900), Question("Why?", details="a\n\n" * 90)]
)
async def test_a_long_question_without_choices_keeps_its_field_on_the_screen(question, size):
    session = FakeSession([[QuestionAsked("q", question)]])
    async with screen_of(session).run_test(size=size) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await until(pilot, lambda: "your answer" in screen_text(pilot.app))
        await asked(pilot)
        await pilot.press("pagedown", "s", "o", "enter")
        await until(pilot, lambda: session.answers == [("q", Reply(("so",)))])


@pytest.mark.parametrize(
    ("question", "keys"),
    [
        (Question("Why?"), "type your answer · Esc: no answer"),
        (Question("Which?", ("red",), several=True), "digits tick · Esc: no answer"),
        (Question("Which? " * 40, ("red",)), ""),
    ],
)
async def test_a_low_terminal_shows_the_keys_of_a_question_if_it_has_room(question, keys):
    session = FakeSession([[QuestionAsked("q", question)]])
    async with screen_of(session).run_test(size=(40, 12)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        await pilot.pause(0.1)
        shown = screen_text(pilot.app)
        assert keys in shown
        assert ("Esc" in shown) == bool(keys)
        await pilot.resize_terminal(40, 7)
        await until(pilot, lambda: "Esc" not in screen_text(pilot.app))


async def test_a_message_typed_at_a_question_is_a_message_and_no_answer():
    session = FakeSession(
        [[QuestionAsked("q", Question("Remember?", ("keep", "leave"))), Wait(asyncio.Event())]]
    )
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        await pilot.press(*"Do 1 thing", "enter")
        await until(pilot, lambda: session.steered == ["Do 1 thing"])
        assert session.answers == []
        await asked(pilot)
        await pilot.press(*"Do 3 things", "left", "ctrl+w", "ctrl+k")
        await until(pilot, lambda: pilot.app.conversation.prompt.text == "Do 3 ")
        await pilot.press("ctrl+u")
        await until(pilot, lambda: pilot.app.conversation.prompt.text == "")
        await pilot.press("2")
        await until(pilot, lambda: session.answers == [("q", Reply(("leave",)))])


async def test_message_at_a_question_keeps_its_first_letter():
    session = FakeSession(
        [[QuestionAsked("q", Question("Remember?", ("keep", "leave"))), Wait(asyncio.Event())]]
    )
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        await pilot.press(*"no, continue", "enter")
        await until(pilot, lambda: session.steered == ["no, continue"])
        assert session.answers == []


async def test_pasted_message_at_a_question_is_sent_by_enter(monkeypatch):
    session = FakeSession(
        [[QuestionAsked("q", Question("Remember?", ("keep", "leave"))), Wait(asyncio.Event())]]
    )
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        monkeypatch.setattr(
            QuestionPanel, "GRACE", 3600.0
        )  # all keys come immediately after one another
        await pilot.press(*"do it", "enter")
        await until(pilot, lambda: session.steered == ["do it"])
        monkeypatch.setattr(QuestionPanel, "GRACE", 0.0)
        pilot.app.conversation.questions.panel._listens_from = 0.0
        await pilot.press("2")
        await until(pilot, lambda: session.answers == [("q", Reply(("leave",)))])


@pytest.mark.parametrize("text", ["y", "y\n", "next: fix the test", "row\n" * 40])
async def test_a_paste_at_a_question_goes_to_the_prompt_and_answers_nothing(monkeypatch, text):
    monkeypatch.setattr(prompt, "PASTE_GAP", 0.0)  # the keys come at once
    session = FakeSession(
        [[QuestionAsked("q", Question("Remember?", ("keep", "leave"))), Wait(asyncio.Event())]]
    )
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        pilot.app.post_message(events.Paste(text))
        await until(pilot, lambda: pilot.app.conversation.prompt.text)
        assert session.answers == []
        await pilot.press(*" 2", "enter")
        await until(pilot, lambda: session.steered)
        assert [" ".join(message.split()) for message in session.steered] == [
            " ".join(f"{text} 2".split())
        ]
        assert session.answers == []


@pytest.mark.parametrize(
    ("size", "hint"), [((100, 30), "press the key again"), ((40, 10), "new: press again")]
)
async def test_x7_a_key_just_after_the_question_came_does_not_answer_it(monkeypatch, size, hint):
    session = FakeSession([[asks_to_push(), Wait(asyncio.Event())]])
    screen = screen_of(session)
    monkeypatch.setattr(QuestionPanel, "GRACE", 3600.0)
    async with screen.run_test(size=size) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        questions = pilot.app.conversation.questions
        await until(
            pilot,
            lambda: questions.panel is not None and questions.panel._listens_from < float("inf"),
        )
        await pilot.press("1")
        await until(pilot, lambda: hint in screen_text(pilot.app))
        assert (session.answers, pilot.app.conversation.prompt.text) == ([], "")


async def test_x7_what_is_being_written_stays_together_when_a_question_comes(monkeypatch):
    gate = asyncio.Event()
    session = FakeSession([[Wait(gate), asks_to_push()]])
    screen = screen_of(session)
    monkeypatch.setattr(QuestionPanel, "GRACE", 3600.0)
    async with screen.run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        prompt, questions = pilot.app.conversation.prompt, pilot.app.conversation.questions
        await pilot.press("g", "enter")
        await until(pilot, lambda: session.running)
        await pilot.press(*"happ")
        gate.set()
        await until(pilot, lambda: questions.panel is not None and questions.panel.has_focus)
        await pilot.press("y")
        await until(pilot, lambda: prompt.text == "happy")
        assert session.answers == []


@pytest.mark.parametrize(
    ("size", "hint"), [((100, 30), "press the key again to answer"), ((40, 10), "draft: press")]
)
@pytest.mark.parametrize("key", ["a", "1", "enter"])
async def test_x7_a_key_beside_a_draft_answers_when_it_is_pressed_again(size, hint, key):
    async with asked_beside_draft(size) as (pilot, session):
        await pilot.press(key)
        await until(pilot, lambda: hint in screen_text(pilot.app))
        assert (session.answers, pilot.app.conversation.prompt.text) == ([], "happ")
        await pilot.press(key)
        await until(pilot, lambda: bool(session.answers))


async def test_x7_a_draft_that_is_continued_later_answers_nothing(monkeypatch):
    async with asked_beside_draft((100, 30)) as (pilot, session):
        monkeypatch.setattr(QuestionPanel, "GRACE", 3600.0)
        await pilot.press(*"ady")
        await until(pilot, lambda: pilot.app.conversation.prompt.text == "happady")
        assert session.answers == []


async def test_x7_arrows_beside_a_draft_are_for_the_question():
    async with asked_beside_draft((100, 30)) as (pilot, session):
        await pilot.press("down", "enter")
        await until(pilot, lambda: session.answers == [("q1", Permit("session"))])
        assert pilot.app.conversation.prompt.text == "happ"


async def test_a_text_that_begins_with_an_early_answer_is_a_text(monkeypatch):
    session = FakeSession([[asks_to_push()]])
    screen = screen_of(session)
    monkeypatch.setattr(QuestionPanel, "GRACE", 3600.0)
    async with screen.run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        questions = pilot.app.conversation.questions
        await until(
            pilot,
            lambda: questions.panel is not None and questions.panel._listens_from < float("inf"),
        )
        await pilot.press(*"add tests")
        await until(pilot, lambda: pilot.app.conversation.prompt.text == "add tests")
        assert session.answers == []


async def test_the_cursor_of_the_terminal_is_on_the_marked_choice():
    session = FakeSession([[asks_to_push()]])
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        for _ in range(2):
            await pilot.press("down")
            row = screen_text(pilot.app).splitlines()[pilot.app.cursor_position.y]
            assert "❯" in row


async def test_an_edit_offers_all_edits_of_the_session():
    edit = PermissionAsked(
        "q1", PUSH, "edit a.py", Display("+1"), "it changes a.py", "", edits=True
    )
    session = FakeSession([[edit]])
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        await until(pilot, lambda: "2 yes, all edits in this session (s)" in screen_text(pilot.app))
        await pilot.press("s")
        await until(pilot, lambda: session.answers == [("q1", Permit("edits"))])


async def test_question_behind_a_sheet_is_indicated():
    session = FakeSession([[busy := Wait(), asks_to_push(rule="")]])
    async with screen_of(session).run_test(size=(100, 30), notifications=True) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await until(pilot, lambda: session.running)
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(pilot.app.screen, HelpSheet))
        busy.until.set()
        await until(pilot, lambda: "ouro waits for your answer" in screen_text(pilot.app))
        await pilot.press("escape")
        await asked(pilot)
        await until(pilot, lambda: "ouro waits for your answer" not in screen_text(pilot.app))


async def test_diff_in_a_question_has_the_line_numbers_of_the_file():
    diff = Display(
        "1 file", Diff((FileChange("long.txt", "a\nold\n", "a\nnew\n", first_line=1480),))
    )
    session = FakeSession([[PermissionAsked("q1", PUSH, "edit long.txt", diff, "mode ask", "")]])
    async with screen_of(session).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        await until(pilot, lambda: "1481 + new" in screen_text(pilot.app))


async def test_x5_ctrl_c_interrupts_also_while_a_permission_is_asked():
    session = FakeSession([[asks_to_push()]])
    async with screen_of(session).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: not session.running)
        assert (session.interrupts, pilot.app._exit) == (1, False)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: pilot.app._exit)


async def test_digit_chooses_from_a_short_list_and_typed_text_does_not():
    answers = []

    async def open_session(request):
        answers.append(request.trust)
        if request.trust == "unknown":
            raise TrustNeeded(Path("/project"), [Path("/project/AGENTS.md")])
        return FakeSession()

    async with screen_of(open_session=open_session).run_test() as pilot:
        await until(pilot, lambda: "2 no" in screen_text(pilot.app))
        pilot.app.screen._accepts_from = 0.0
        await pilot.press(*"say hi", "enter")
        assert answers == ["unknown"]
        pilot.app.screen._accepts_from = 0.0
        await pilot.press("2")
        await until(pilot, lambda: answers == ["unknown", "no"])


async def test_a_new_question_is_drawn_once_by_itself():
    """It does not wait for the next frame of Textual."""
    session = FakeSession([[ToolStarted(PUSH, "git push"), asks_to_push()]])
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        with counted_calls(QuestionPanel._draw_at_once) as counts:
            await pilot.press("g", "enter")
            await asked(pilot)
            await pilot.press("tab", "escape")
        assert counts["QuestionPanel._draw_at_once"] == 1
