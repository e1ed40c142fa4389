"""The screen, key by key, on fake sessions."""

import asyncio
from pathlib import Path

from fakes.fake_session import FakeSession, Wait, opener, says
from fakes.screens import asked, opened, screen_of, screen_text, shown, until
from msgspec.structs import replace
from textual import events

from ouro.display import CommandOutput, Diff, Display, FileChange, Question, Todo
from ouro.errors import DemoRequested, NoModelError, SessionNotFound, TrustNeeded
from ouro.events import (
    NotesRecalled,
    PermissionAsked,
    Permit,
    QuestionAsked,
    Remembered,
    Reply,
    Said,
    TextDelta,
    TodosChanged,
    ToolStarted,
)
from ouro.frontends.tui.widgets.question_panel import QuestionPanel
from ouro.messages import ToolCall
from ouro.session import OpenRequest

CALL = ToolCall("c1", "shell", {"command": "git push"})


def permission(question_id="q1", command="git push", rule="shell(git push *)"):
    return PermissionAsked(
        question_id, CALL, command, Display(command, CommandOutput(command)), "reaches the network", rule
    )


async def type_text(pilot, text):
    await pilot.press(
        *({" ": "space", "/": "slash", "!": "exclamation_mark", "@": "at", "\\": "backslash"}.get(c, c) for c in text)
    )


async def test_enter_sends_what_was_typed_and_shows_the_answer():
    session = FakeSession([says("Hello, **you**.")])
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await type_text(pilot, "hi there")
        await pilot.press("enter")
        await until(pilot, lambda: "Hello, you." in shown(pilot.app))
    assert session.sent == ["hi there"]


async def test_what_is_said_before_the_session_is_open_waits_for_it():
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


async def test_every_way_to_write_a_new_line():
    session = FakeSession([says("ok")])
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("a", "shift+enter", "b", "alt+enter", "c", "ctrl+j", "d", "backslash", "enter", "e", "enter")
        await until(pilot, lambda: session.sent)
    assert session.sent == ["a\nb\nc\nd\ne"]


async def test_enter_while_it_runs_steers_and_tab_queues_for_the_next_turn():
    session = FakeSession([[busy := Wait()], says("done"), says("done")])
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("g", "o", "enter")
        await until(pilot, lambda: session.running)
        await pilot.press("n", "o", "w", "enter")
        await pilot.press("l", "a", "t", "e", "r", "tab")
        await until(pilot, lambda: pilot.app.turns.waiting == ("now", "later"))
        assert session.steered == ["now"]
        busy.until.set()
        await until(pilot, lambda: session.sent == ["go", "now", "later"])


async def test_up_on_empty_input_withdraws_what_waits_last_first():
    session = FakeSession([[Wait()]])
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await until(pilot, lambda: session.running)
        await pilot.press("a", "enter", "b", "tab")
        await until(pilot, lambda: pilot.app.turns.waiting == ("a", "b"))
        await pilot.press("up")
        assert pilot.app.conversation.prompt.text == "b"
        await pilot.press("ctrl+c", "up")
        assert pilot.app.conversation.prompt.text == "a"
        assert pilot.app.turns.waiting == ()


async def test_escape_interrupts_and_a_second_one_kills_the_children():
    session = FakeSession([[Wait(), Wait()]])
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await until(pilot, lambda: session.running)
        session._interrupted = type(
            "Deaf", (), {"wait": asyncio.Event().wait, "set": lambda self: None, "is_set": lambda self: False}
        )()
        await pilot.press("escape")
        assert (session.interrupts, session.kills) == (1, 0)
        await pilot.press("escape")
        assert (session.interrupts, session.kills) == (2, 1)


async def test_escape_gives_back_what_waited_to_be_said():
    session = FakeSession([[Wait()]])
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await type_text(pilot, "go")
        await pilot.press("enter")
        await until(pilot, lambda: session.running)
        for text, key in (("now", "enter"), ("later", "tab"), ("draft", "escape")):
            await type_text(pilot, text)
            await pilot.press(key)
        await until(pilot, lambda: not session.running)
        assert pilot.app.conversation.prompt.text == "now\nlater\ndraft"
    assert session.sent == ["go"]


async def test_x5_ctrl_c_clears_then_interrupts_then_quits():
    session = FakeSession([[Wait()]])
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await until(pilot, lambda: session.running)
        await pilot.press("x", "ctrl+c")
        assert (pilot.app.conversation.prompt.text, session.interrupts) == ("", 0)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: not session.running)
        assert "Ctrl+C again quits" in screen_text(pilot.app)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: pilot.app._exit)
    assert pilot.app.return_value == 0


async def test_ctrl_d_quits_on_empty_input_only():
    async with screen_of(FakeSession()).run_test() as pilot:
        await opened(pilot)
        await pilot.press("a", "b", "left", "ctrl+d")
        assert (pilot.app.conversation.prompt.text, pilot.app._exit) == ("a", False)
        await pilot.press("backspace", "ctrl+d")
        await until(pilot, lambda: pilot.app._exit)


async def test_shift_tab_goes_round_the_modes():
    session = FakeSession()
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        modes = []
        for _ in range(4):
            await pilot.press("shift+tab")
            modes.append(session.status().mode)
        assert modes == ["edit", "plan", "auto", "ask"]


async def test_a_permission_is_answered_by_letter_digit_arrow_and_with_a_comment():
    turn = [ToolStarted(CALL, "git push"), *(permission(f"q{n}") for n in range(5))]
    session = FakeSession([turn])
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        ways = (["y"], ["3"], ["down", "enter"], ["tab", "w", "h", "y", "enter"], ["up", "tab", "n", "o", "enter"])
        for number, keys in enumerate(ways):
            await until(pilot, lambda number=number: len(session.answers) == number)
            await until(
                pilot,
                lambda number=number: (
                    getattr(pilot.app.conversation.questions.panel, "question_id", "") == f"q{number}"
                ),
            )
            await asked(pilot)
            await pilot.press(*keys)
        await until(pilot, lambda: len(session.answers) == 5)
    assert session.answers == [
        ("q0", Permit("yes")),
        ("q1", Permit("no")),
        ("q2", Permit("always")),
        ("q3", Permit("yes", "why")),
        ("q4", Permit("no", "no")),
    ]


async def test_always_is_offered_only_with_its_rule():
    session = FakeSession([[permission(rule="")]])
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        assert "always" not in screen_text(pilot.app)
        await pilot.press("a", "2")
        await until(pilot, lambda: session.answers == [("q1", Permit("no"))])


async def test_the_prompt_has_the_keys_again_and_its_draft_after_a_question():
    gate = asyncio.Event()
    session = FakeSession([[Wait(gate), permission()]])
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await until(pilot, lambda: session.running)
        await pilot.press("d", "r")
        gate.set()
        await asked(pilot)
        await pilot.press("y")
        await until(pilot, lambda: pilot.app.conversation.questions.panel is None)
        await until(pilot, lambda: pilot.app.focused is pilot.app.conversation.prompt)
        await pilot.press("a")
        assert pilot.app.conversation.prompt.text == "dra"


async def test_a_question_of_the_agent_by_digit_in_own_words_several_and_waved_away():
    questions = [
        Question("Which?", ("red", "blue")),
        Question("Which?", ("red", "blue")),
        Question("Which?", ("red", "blue", "green"), several=True),
        Question("Why?"),
        Question("Which?", ("red",)),
    ]
    session = FakeSession([[QuestionAsked(f"q{n}", question) for n, question in enumerate(questions)]])
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        ways = (["2"], ["3", "p", "i", "n", "k", "enter"], ["1", "3", "5"], ["s", "o", "enter"], ["escape"])
        for number, keys in enumerate(ways):
            await until(
                pilot,
                lambda number=number: (
                    getattr(pilot.app.conversation.questions.panel, "question_id", "") == f"q{number}"
                ),
            )
            await asked(pilot)
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


async def test_a_message_typed_at_a_question_is_a_message_and_no_answer():
    session = FakeSession([[QuestionAsked("q", Question("Remember?", ("keep", "leave"))), Wait(asyncio.Event())]])
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        await pilot.press(*"Do 1 thing", "enter")
        await until(pilot, lambda: session.steered == ["Do 1 thing"])
        assert session.answers == []
        await asked(pilot)
        await pilot.press("2")
        await until(pilot, lambda: session.answers == [("q", Reply(("leave",)))])


async def test_a_message_at_a_question_keeps_a_first_letter_that_answers_permissions():
    session = FakeSession([[QuestionAsked("q", Question("Remember?", ("keep", "leave"))), Wait(asyncio.Event())]])
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        await pilot.press(*"no, go on", "enter")
        await until(pilot, lambda: session.steered == ["no, go on"])
        assert session.answers == []


async def test_a_message_that_is_pasted_at_a_question_ends_with_its_enter(monkeypatch):
    session = FakeSession([[QuestionAsked("q", Question("Remember?", ("keep", "leave"))), Wait(asyncio.Event())]])
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        monkeypatch.setattr(QuestionPanel, "GRACE", 3600.0)  # every key comes right behind the one before it
        await pilot.press(*"do it", "enter")
        await until(pilot, lambda: session.steered == ["do it"])
        pilot.app.conversation.questions.panel._listens_from = 0.0
        await pilot.press("2")
        await until(pilot, lambda: session.answers == [("q", Reply(("leave",)))])


async def test_x7_a_key_just_after_the_question_came_does_not_answer_it(monkeypatch):
    session = FakeSession([[QuestionAsked("q", Question("Remember?", ("keep", "leave"))), Wait(asyncio.Event())]])
    screen = screen_of(session)
    monkeypatch.setattr(QuestionPanel, "GRACE", 3600.0)
    async with screen.run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        questions = pilot.app.conversation.questions
        await until(pilot, lambda: questions.panel is not None and questions.panel._listens_from < float("inf"))
        await pilot.press("1")
        assert session.answers == []


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


async def test_shell_lines_are_shared_with_one_mark_and_private_with_two():
    session = FakeSession()
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await type_text(pilot, "!ls -l")
        assert pilot.app.conversation.box.has_class("-shell")
        await pilot.press("enter")
        await type_text(pilot, "!!env")
        await pilot.press("enter")
        await until(pilot, lambda: len(session.shell_lines) == 2)
    assert session.shell_lines == [("ls -l", True), ("env", False)]


async def test_a_heading_is_ordinary_text():
    session = FakeSession([says("ok")])
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("number_sign", "number_sign", "space", "a", "enter")
        await until(pilot, lambda: session.sent == ["## a"])


async def test_the_plan_shows_itself_while_it_is_open_and_ctrl_t_hides_it():
    plan = (Todo("look", "done"), Todo("change", "in_progress"), Todo("test"))
    session = FakeSession(
        [[TodosChanged(plan), Wait(), TodosChanged(tuple(replace(todo, state="done") for todo in plan))]]
    )
    async with screen_of(session).run_test(size=(80, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await until(pilot, lambda: "▸ change" in screen_text(pilot.app))
        assert "✓ look" in screen_text(pilot.app)
        await pilot.press("ctrl+t")
        await until(pilot, lambda: "▸ change" not in screen_text(pilot.app))


async def test_a_resumed_session_shows_its_past_and_its_notices():
    session = FakeSession()
    session.shown_before = [TextDelta("what was said before")]
    session.notices = ("a torn record was set aside",)
    async with screen_of(session, request=OpenRequest("latest")).run_test() as pilot:
        await opened(pilot)
        await until(pilot, lambda: "a torn record was set aside" in shown(pilot.app))
        assert "what was said before" in shown(pilot.app)


async def test_trust_is_asked_before_anything_is_obeyed():
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


async def test_x7_an_enter_that_came_too_early_does_not_trust(monkeypatch):
    async def open_session(request):
        raise TrustNeeded(Path("/project"), [Path("/project/AGENTS.md")])

    screen = screen_of(open_session=open_session)
    monkeypatch.setattr(QuestionPanel, "GRACE", 3600.0)
    async with screen.run_test() as pilot:
        await until(pilot, lambda: "Do you trust /project?" in screen_text(pilot.app))
        await pilot.press("enter")
        assert "Do you trust /project?" in screen_text(pilot.app)


async def test_a_session_that_cannot_be_opened_ends_the_program_with_its_code():
    async def open_session(request):
        raise SessionNotFound("No session `nope`.")

    async with screen_of(open_session=open_session).run_test() as pilot:
        await until(pilot, lambda: pilot.app._exit)
    assert (pilot.app.return_value, str(pilot.app.failure)) == (2, "No session `nope`.")


async def test_without_a_model_the_set_up_is_offered_and_quitting_says_why():
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


async def test_a_fault_in_a_turn_is_told_and_the_screen_lives_on():
    def broken(text):
        raise ValueError("boom")

    session = FakeSession([broken, says("still here")])
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await until(pilot, lambda: "ValueError: boom" in shown(pilot.app))
        await pilot.press("h", "enter")
        await until(pilot, lambda: "still here" in shown(pilot.app))


async def test_slash_commands_run_and_unknown_ones_are_told():
    session = FakeSession()
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await type_text(pilot, "/nosuch")
        await pilot.press("escape", "enter")
        await until(pilot, lambda: "no command /nosuch" in shown(pilot.app))
    assert session.sent == []


async def test_a_question_mark_on_empty_input_opens_the_help_sheet():
    async with screen_of(FakeSession()).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("question_mark")
        await until(pilot, lambda: "/resume" in screen_text(pilot.app))
        await pilot.press("escape")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
        await pilot.press("a", "question_mark")
        assert pilot.app.conversation.prompt.text == "a?"


async def test_sheets_are_scrolled_and_closed_by_the_keys_of_the_user():
    keys = {"page_down": "f9", "help": "f8", "receipt": "f7"}
    async with screen_of(FakeSession(), keys={**keys, "select_all": []}).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("f8")
        await until(pilot, lambda: "↑↓ PageUp F9 · Esc closes" in screen_text(pilot.app))
        await pilot.press("f9", "f9")
        await until(pilot, lambda: "Commands · Memory" in screen_text(pilot.app))
        await pilot.press("f8")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
        pilot.app.conversation.writer.show(NotesRecalled((Remembered("mem_1", "", "loaded", "its words"),), "local"))
        await until(pilot, lambda: "1 memory · F7" in shown(pilot.app))


async def test_a_long_turn_rings_and_a_short_one_does_not():
    rung = []
    session = FakeSession([says("quick"), [Wait()]])
    app = screen_of(session, bell_after=0.05)
    app.bell = lambda: rung.append("bell")
    async with app.run_test() as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await until(pilot, lambda: session.sent == ["g"] and not pilot.app.turns.running)
        await pilot.press("h", "enter")
        await until(pilot, lambda: session.running)
        await asyncio.sleep(0.06)
        await pilot.press("escape")
        await until(pilot, lambda: not pilot.app.turns.running and rung)
    assert rung == ["bell"]


async def test_keys_can_be_changed():
    session = FakeSession([says("ok")])
    async with screen_of(session, keys={"send": "ctrl+n", "newline": ["enter"]}).run_test() as pilot:
        await opened(pilot)
        await pilot.press("a", "enter", "b", "ctrl+n")
        await until(pilot, lambda: session.sent == ["a\nb"])


async def test_a_paste_is_one_piece_and_sends_nothing():
    session = FakeSession()
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        pilot.app.post_message(events.Paste("one\r\ntwo\x07\r"))
        await until(pilot, lambda: pilot.app.conversation.prompt.text == "one\ntwo\n")
    assert session.sent == []


async def test_a_long_diff_is_shown_from_its_beginning_and_can_be_read_to_its_end():
    after = "".join(f"line {number}\n" for number in range(200))
    diff = Display("1 file", Diff((FileChange("long.txt", None, after),)))
    session = FakeSession([[PermissionAsked("q1", CALL, "write long.txt", diff, "mode ask", "")]])
    async with screen_of(session).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        await until(pilot, lambda: "line 0" in screen_text(pilot.app))
        for _ in range(60):
            await pilot.press("pagedown")
        await until(pilot, lambda: "line 199" in screen_text(pilot.app))
    assert session.answers == []


async def test_x5_ctrl_c_interrupts_also_while_a_permission_is_asked():
    session = FakeSession([[permission()]])
    async with screen_of(session).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: not session.running)
        assert (session.interrupts, pilot.app._exit) == (1, False)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: pilot.app._exit)


async def test_a_compaction_runs_as_a_turn_and_not_beside_a_shell_line():
    session, wait = FakeSession([]), Wait()

    async def line(text, share):
        session.shell_lines.append((text, share))
        await wait.until.wait()
        yield Said("done")

    session.run_shell = line
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await type_text(pilot, "!make")
        await pilot.press("enter")
        await until(pilot, lambda: session.shell_lines)
        await type_text(pilot, "/compact")
        await pilot.press("enter")
        await until(pilot, lambda: "A turn is running" in shown(pilot.app))
        assert session.window.keeps == []
        wait.until.set()
        await until(pilot, lambda: "done" in shown(pilot.app))
        await type_text(pilot, "/compact the tests")
        await pilot.press("enter")
        await until(pilot, lambda: "80,000 → 9,000" in shown(pilot.app))
    assert session.window.keeps == ["the tests"]


async def test_what_steers_and_what_is_queued_look_different_and_are_counted():
    session = FakeSession([[busy := Wait()], says("done"), says("done")])
    async with screen_of(session).run_test(size=(100, 24)) as pilot:
        await opened(pilot)
        await pilot.press("g", "o", "enter")
        await until(pilot, lambda: session.running)
        await pilot.press("n", "o", "w", "enter", "l", "a", "t", "e", "r", "tab")
        await until(pilot, lambda: "2 queued" in screen_text(pilot.app))
        assert "→ steers: now" in screen_text(pilot.app)
        assert "⋯ next turn: later" in screen_text(pilot.app)
        busy.until.set()
        await until(pilot, lambda: session.sent == ["go", "now", "later"])
        assert "queued" not in screen_text(pilot.app)


async def test_a_message_that_came_too_late_to_steer_a_command_is_sent_afterwards():
    session = FakeSession([[busy := Wait()], says("done")])
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        task = asyncio.create_task(pilot.app.turns.run(session.send("a command's own turn")))
        await until(pilot, lambda: session.running)
        await pilot.press("n", "o", "w", "enter")
        busy.until.set()
        await task
        await until(pilot, lambda: session.sent[1:] == ["now"])


async def test_a_digit_chooses_from_a_short_list_and_letters_that_came_by_chance_do_not():
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


async def test_no_bell_for_a_user_who_is_looking():
    rung = []
    session = FakeSession([[one := Wait()], [two := Wait()]])
    app = screen_of(session, bell_after=0.0)
    app.bell = lambda: rung.append("bell")
    async with app.run_test() as pilot:
        await opened(pilot)
        for gate, event, count in ((one, events.AppFocus(), 0), (two, events.AppBlur(), 1)):
            await pilot.press("g", "enter")
            await until(pilot, lambda: session.running)
            app.post_message(event)
            await pilot.pause()
            gate.until.set()
            await until(pilot, lambda: not pilot.app.turns.busy)
            assert len(rung) == count


async def test_a_long_message_is_folded_in_the_transcript():
    session = FakeSession([says("ok")])
    async with screen_of(session, first_message="\n".join(f"row {n}" for n in range(600))).run_test(
        size=(60, 40)
    ) as pilot:
        await until(pilot, lambda: "ok" in shown(pilot.app))
        assert "… 580 more lines · Ctrl+O" in shown(pilot.app)
        assert "row 599" not in shown(pilot.app)
        await pilot.press("ctrl+o")
        await until(pilot, lambda: "row 599" in shown(pilot.app))


async def test_the_theme_list_shows_each_theme_and_esc_brings_back_the_old_one():
    saved = []
    async with screen_of(FakeSession()).run_test() as pilot:
        await opened(pilot)
        pilot.app.front_end._save_theme = saved.append
        before = pilot.app.theme
        await pilot.press(*"/theme", "enter")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 2)
        await pilot.press("down")
        await until(pilot, lambda: pilot.app.theme != before)
        shown_then = pilot.app.theme
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.theme == before)
        assert saved == []
        await pilot.press(*"/theme", "enter")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 2)
        await pilot.press("down", "enter")
        await until(pilot, lambda: saved == [shown_then])
