"""The screen on fake sessions, operated by keys."""

import asyncio
import re
from types import SimpleNamespace

import pytest
from fakes.fake_session import FakeSession, Wait, says
from fakes.screens import opened, screen_of, screen_text, shown, type_text, until
from msgspec.structs import replace
from textual import events

from ouro.display import Todo
from ouro.events import (
    NotesRecalled,
    Notice,
    RecalledNote,
    TodosChanged,
)
from ouro.frontends.history import PromptHistory
from ouro.frontends.tui.agents_app import AgentsApp
from ouro.frontends.tui.screen_settings import ScreenSettings
from ouro.frontends.tui.screens.dialogs import HelpSheet
from ouro.frontends.tui.screens.picker import Picker


@pytest.mark.parametrize(
    "make_app",
    [lambda: screen_of(FakeSession([])), lambda: AgentsApp(ScreenSettings(version="0.1.0"))],
)
async def test_tasks_do_not_start_before_they_are_kept_on_any_python(make_app):
    loop = asyncio.get_running_loop()
    loop.set_task_factory(lambda loop, coro, **more: asyncio.Task(coro, loop=loop, **more))
    async with make_app().run_test():
        assert loop.get_task_factory() is None


async def test_enter_sends_the_prompt_and_shows_the_answer():
    session = FakeSession([says("Hello, **you**.")])
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await type_text(pilot, "hi there")
        await pilot.press("enter")
        await until(pilot, lambda: "Hello, you." in shown(pilot.app))
    assert session.sent == ["hi there"]


async def test_a_message_that_is_begun_prepares_its_recall():
    calls = []
    session = FakeSession([])
    session.session_memory.recall = SimpleNamespace(prepare=lambda: calls.append(1))
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        assert not calls
        await pilot.press("h")
        await until(pilot, lambda: calls)


async def test_every_newline_key_inserts_a_newline():
    session = FakeSession([says("ok")])
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press(
            "a",
            "shift+enter",
            "b",
            "alt+enter",
            "c",
            "ctrl+j",
            "d",
            "backslash",
            "enter",
            "e",
            "enter",
        )
        await until(pilot, lambda: session.sent)
    assert session.sent == ["a\nb\nc\nd\ne"]


async def test_enter_steers_a_running_turn_and_tab_queues():
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


async def test_up_in_an_empty_prompt_withdraws_the_last_queued_message():
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
            "Deaf",
            (),
            {"wait": asyncio.Event().wait, "set": lambda self: None, "is_set": lambda self: False},
        )()
        await pilot.press("escape")
        assert (session.interrupts, session.background.kills) == (1, 0)
        await pilot.press("escape")
        assert (session.interrupts, session.background.kills) == (2, 1)


async def test_the_hint_at_a_program_ends_with_the_turn():
    gate = asyncio.Event()
    session = FakeSession([[Wait(gate)]])
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await until(pilot, lambda: session.running)
        conversation = pilot.app.conversation
        conversation.status.show_message(conversation._terminal_hint, seconds=60.0)
        gate.set()
        await until(pilot, lambda: not conversation.status.message)


async def test_esc_esc_without_a_message_is_a_hint_and_no_error():
    session = FakeSession()
    async with screen_of(session).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await pilot.press("escape", "escape")
        await until(pilot, lambda: "there is none yet" in screen_text(pilot.app))
        assert "/rewind" not in screen_text(pilot.app)
        assert pilot.app.screen is pilot.app.conversation


async def test_esc_esc_clears_the_text_and_up_brings_it_back():
    session = FakeSession()
    async with screen_of(session).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        prompt = pilot.app.conversation.prompt
        await type_text(pilot, "a draft")
        await pilot.press("escape")
        assert "Esc again clears" in screen_text(pilot.app)
        assert prompt.text == "a draft"
        await pilot.press("escape")
        assert prompt.text == ""
        await pilot.press("up")
        assert prompt.text == "a draft"


async def test_esc_esc_during_a_turn_stops_it_and_leaves_the_text():
    session = FakeSession([[Wait()]])
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await type_text(pilot, "go")
        await pilot.press("enter")
        await until(pilot, lambda: session.running)
        await type_text(pilot, "a draft")
        await pilot.press("escape", "escape")
        await until(pilot, lambda: not session.running)
        assert pilot.app.conversation.prompt.text == "a draft"


async def test_esc_esc_with_the_keys_of_vim_leaves_the_text():
    session = FakeSession()
    async with screen_of(session, editing="vim").run_test() as pilot:
        await opened(pilot)
        await type_text(pilot, "a draft")
        await pilot.press("escape", "escape", "escape")
        assert pilot.app.conversation.prompt.text == "a draft"


async def test_escape_returns_queued_messages_to_the_prompt():
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


async def test_a_message_is_seen_while_its_turn_prepares_and_not_twice():
    session = FakeSession([says("Hello.")])
    session.before_prompt = hook = Wait()
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await type_text(pilot, "hi there")
        await pilot.press("enter")
        await until(pilot, lambda: screen_text(pilot.app).count("❯ hi there") == 1)
        assert session.running
        hook.until.set()
        await until(pilot, lambda: "Hello." in shown(pilot.app))
        await until(pilot, lambda: screen_text(pilot.app).count("❯ hi there") == 1)


async def test_escape_before_a_message_is_shown_returns_it_to_the_prompt_with_what_was_typed():
    session = FakeSession([says("Hello.")])
    session.before_prompt = Wait()
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await type_text(pilot, "hi there")
        await pilot.press("enter")
        await until(pilot, lambda: session.running)
        await type_text(pilot, "and more")
        await pilot.press("escape")
        await until(pilot, lambda: not session.running and not pilot.app.turns.busy)
        assert pilot.app.conversation.prompt.text == "hi there\nand more"
        assert "❯ hi there" not in shown(pilot.app)


async def test_up_brings_back_a_text_that_ctrl_c_cleared():
    async with screen_of(FakeSession()).run_test() as pilot:
        await opened(pilot)
        await type_text(pilot, "a long thought")
        await pilot.press("ctrl+c")
        assert pilot.app.conversation.prompt.text == ""
        await pilot.press("up")
        assert pilot.app.conversation.prompt.text == "a long thought"


async def test_ctrl_home_goes_to_the_start_of_a_long_message_then_of_the_transcript():
    session = FakeSession([says("\n\n".join(map(str, range(60))))])
    async with screen_of(session).run_test(size=(60, 20)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await until(pilot, lambda: "59" in shown(pilot.app))
        prompt, transcript = pilot.app.conversation.prompt, pilot.app.conversation.transcript
        prompt.fill("one\ntwo\nthree")
        await pilot.press("ctrl+home")
        assert (prompt.cursor_location, transcript.following) == ((0, 0), True)
        await pilot.press("ctrl+end")
        assert prompt.cursor_location == (2, 5)
        await pilot.press("ctrl+home", "ctrl+home")
        await until(pilot, lambda: transcript.scroll_offset.y == 0)


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


async def test_x5_ctrl_c_after_another_message_interrupts_it_and_does_not_quit():
    session = FakeSession([[Wait()], [Wait()]])
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        for word in ("a", "b"):
            await pilot.press(word, "enter")
            await until(pilot, lambda: session.running)
            await pilot.press("ctrl+c")
            await until(pilot, lambda: not session.running)
        assert (session.sent, session.interrupts, pilot.app._exit) == (["a", "b"], 2, False)


async def test_x5_ctrl_c_returns_queued_messages_and_does_not_send_them():
    session = FakeSession([[Wait()]])
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await until(pilot, lambda: session.running)
        await pilot.press("b", "tab", "ctrl+c")
        await until(pilot, lambda: not session.running)
        assert (pilot.app.conversation.prompt.text, session.sent) == ("b", ["g"])
        assert "again quits" not in screen_text(pilot.app)  # the first Ctrl+C clears the prompt


async def test_ctrl_d_quits_on_empty_input_only():
    async with screen_of(FakeSession()).run_test() as pilot:
        await opened(pilot)
        await pilot.press("a", "b", "left", "ctrl+d")
        assert (pilot.app.conversation.prompt.text, pilot.app._exit) == ("a", False)
        await pilot.press("backspace", "ctrl+d")
        await until(pilot, lambda: pilot.app._exit)


async def test_shift_tab_cycles_the_modes():
    session = FakeSession()
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        modes = []
        for _ in range(4):
            await pilot.press("shift+tab")
            modes.append(session.status().mode)
        assert modes == ["edit", "plan", "ask", "edit"]


async def test_keys_for_the_session_wait_until_it_is_open():
    class Recording(FakeSession):
        def set_mode(self, mode):
            super().set_mode(mode)
            changes.append((mode, tuple(self.sent)))

    changes, may_open, session = [], asyncio.Event(), Recording([says("ok")])

    async def open_late(_request):
        await may_open.wait()
        return session

    async with screen_of(open_session=open_late).run_test(size=(80, 24)) as pilot:
        await pilot.press("shift+tab", "shift+tab", "alt+t", "h", "i", "enter")
        await until(pilot, lambda: "being opened" in screen_text(pilot.app))
        may_open.set()
        await until(pilot, lambda: session.sent == ["hi"])
        assert "being opened" not in screen_text(pilot.app)
    assert changes == [("edit", ()), ("plan", ())]
    assert session.status().effort == "minimal"


async def test_one_mark_shares_a_shell_line_and_two_keep_it_private():
    session = FakeSession()
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await type_text(pilot, "!ls -l")
        assert pilot.app.conversation.box.has_class("-shell")
        sign = pilot.app.conversation.box.query_one("#prompt-sign").content
        assert f"{sign}{pilot.app.conversation.prompt.text}" == "❯ !ls -l"
        await pilot.press("enter")
        await type_text(pilot, "!!env")
        await pilot.press("enter")
        await until(pilot, lambda: len(session.background.lines) == 2)
    assert session.background.lines == [("ls -l", True), ("env", False)]


async def test_heading_is_sent_as_a_message():
    session = FakeSession([says("ok")])
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("number_sign", "number_sign", "space", "a", "enter")
        await until(pilot, lambda: session.sent == ["## a"])


async def test_plan_is_shown_while_open_and_ctrl_t_hides_it():
    plan = (Todo("look", "done"), Todo("change", "in_progress"), Todo("test"))
    session = FakeSession(
        [
            [
                TodosChanged(plan),
                Wait(),
                TodosChanged(tuple(replace(todo, state="done") for todo in plan)),
            ]
        ]
    )
    async with screen_of(session).run_test(size=(80, 30)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await until(pilot, lambda: "▶ change" in screen_text(pilot.app))
        assert "☑ look" in screen_text(pilot.app)
        await pilot.press("ctrl+t")
        await until(pilot, lambda: "▶ change" not in screen_text(pilot.app))


async def test_exception_in_a_turn_is_shown_and_the_screen_continues():
    def broken(text):
        raise ValueError("boom")

    session = FakeSession([broken, says("still here")])
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await until(pilot, lambda: "ValueError: boom" in shown(pilot.app))
        await pilot.press("h", "enter")
        await until(pilot, lambda: "still here" in shown(pilot.app))


async def test_unknown_slash_command_is_reported():
    session = FakeSession()
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await type_text(pilot, "/nosuch")
        await pilot.press("escape", "enter")
        await until(pilot, lambda: "no command /nosuch" in shown(pilot.app))
    assert session.sent == []


async def test_command_output_follows_the_typed_line():
    async with screen_of(FakeSession([says("hello")])).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        for line, output in (
            ("/diff abc", "Error: git cannot show the changes"),
            ("/help undo", "/undo"),
        ):
            await type_text(pilot, line)
            await pilot.press("escape", "enter")
            await until(pilot, lambda output=output: output in screen_text(pilot.app))
            assert re.search(
                rf"❯ {line}[^\n]*\n *\n(.*\n){{0,3}}.*{output}", screen_text(pilot.app)
            ), line
        await type_text(pilot, "/usr/bin is full")
        await pilot.press("enter")
        await until(pilot, lambda: "hello" in screen_text(pilot.app))
        assert screen_text(pilot.app).count("/usr/bin is full") == 1


async def test_help_is_a_page_to_read_and_not_part_of_the_transcript():
    for size in ((80, 24), (40, 10)):
        async with screen_of(FakeSession([says("hello")])).run_test(size=size) as pilot:
            await opened(pilot)
            await pilot.press(*"/help", "escape", "enter")
            await until(pilot, lambda: isinstance(pilot.app.screen, HelpSheet))
            await until(pilot, lambda: "/resume" in screen_text(pilot.app))
            await pilot.press("end")
            await until(pilot, lambda: "/resume" not in screen_text(pilot.app))
            await pilot.press("q")
            await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
            assert "/resume" not in shown(pilot.app)


async def test_a_question_mark_on_empty_input_opens_the_help_sheet_at_the_keys():
    async with screen_of(FakeSession()).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("question_mark")
        await until(pilot, lambda: "Keys in the prompt" in screen_text(pilot.app))
        assert "/resume" not in screen_text(pilot.app)  # the commands are below the keys
        await pilot.press("end")
        await until(pilot, lambda: "/help memory shows more" in screen_text(pilot.app))
        await pilot.press("home")
        await pilot.resize_terminal(30, 5)
        await until(pilot, lambda: "At the" in screen_text(pilot.app))
        await pilot.press("escape")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
        await pilot.press("a", "question_mark")
        assert pilot.app.conversation.prompt.text == "a?"


async def test_sheets_use_the_configured_keys():
    keys = {"page_down": "f9", "help": "f8", "receipt": "f7"}
    async with screen_of(FakeSession(), keys={**keys, "select_all": [], "detach": []}).run_test(
        size=(100, 30)
    ) as pilot:
        await opened(pilot)
        await pilot.press("f8")
        await until(
            pilot, lambda: "↑↓ PageUp F9 · / searches · Esc closes" in screen_text(pilot.app)
        )
        while "Keys everywhere" not in screen_text(pilot.app):
            await pilot.press("f9")
        await pilot.press("f8")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
        pilot.app.conversation.writer.show(
            NotesRecalled((RecalledNote("mem_1", "", "loaded", "its words"),), "local")
        )
        await until(pilot, lambda: "1 memory · F7" in shown(pilot.app))


@pytest.mark.parametrize("bell_after", [60.0, 0.0])
async def test_bell_does_not_ring_for_a_short_turn_or_if_disabled(bell_after):
    rung = []
    session = FakeSession([says("quick")])
    app = screen_of(session, bell_after=bell_after)
    app.bell = lambda: rung.append("bell")
    async with app.run_test() as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await until(pilot, lambda: session.sent == ["g"] and not pilot.app.turns.running)
    assert rung == []


async def test_keys_can_be_changed():
    session = FakeSession([says("ok")])
    async with screen_of(
        session, keys={"send": "ctrl+n", "newline": ["enter"]}
    ).run_test() as pilot:
        await opened(pilot)
        await pilot.press("a", "enter", "b", "ctrl+n")
        await until(pilot, lambda: session.sent == ["a\nb"])


async def test_paste_is_inserted_at_once_and_sends_nothing():
    session = FakeSession()
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        pilot.app.post_message(events.Paste("one\r\ntwo\x07\r"))
        await until(pilot, lambda: pilot.app.conversation.prompt.text == "one\ntwo\n")
    assert session.sent == []


async def test_a_compaction_waits_for_a_shell_line_and_runs_as_a_turn():
    session, wait = FakeSession([]), Wait()

    async def line(text, share, *, in_terminal):
        assert in_terminal
        session.background.lines.append((text, share))
        await wait.until.wait()
        yield Notice("done")

    session.background.run_line = line
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await type_text(pilot, "!make")
        await pilot.press("enter")
        await until(pilot, lambda: session.background.lines)
        await type_text(pilot, "/compact the tests")
        await pilot.press("enter")
        await until(pilot, lambda: "Runs when the turn has ended" in shown(pilot.app))
        assert session.window.keeps == []
        wait.until.set()
        await until(pilot, lambda: "80,000 → 9,000" in shown(pilot.app))
        assert shown(pilot.app).index("done") < shown(pilot.app).index("80,000 → 9,000")
    assert session.window.keeps == ["the tests"]


async def test_steering_and_queued_messages_look_different_and_are_counted():
    session = FakeSession([[busy := Wait()], says("done"), says("done")])
    async with screen_of(session).run_test(size=(100, 24)) as pilot:
        await opened(pilot)
        await pilot.press("g", "o", "enter")
        await until(pilot, lambda: session.running)
        await pilot.press("n", "o", "w", "enter", "l", "a", "t", "e", "r", "tab")
        await until(pilot, lambda: "· 1 queued" in screen_text(pilot.app))
        await until(pilot, lambda: "→ steers: now" in screen_text(pilot.app))
        await until(pilot, lambda: "⋯ next turn: later" in screen_text(pilot.app))
        busy.until.set()
        await until(pilot, lambda: session.sent == ["go", "now", "later"])
        await until(pilot, lambda: "queued" not in screen_text(pilot.app))


async def test_message_too_late_to_steer_a_command_is_sent_afterwards():
    session = FakeSession([[busy := Wait()], says("done")])
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        task = asyncio.create_task(pilot.app.turns.run(session.send("a command's own turn")))
        await until(pilot, lambda: session.running)
        await pilot.press("n", "o", "w", "enter")
        busy.until.set()
        await task
        await until(pilot, lambda: session.sent[1:] == ["now"])


async def test_bell_rings_after_a_long_turn_unless_focused():
    rung = []
    session = FakeSession([[one := Wait()], [two := Wait()]])
    app = screen_of(session, bell_after=1e-6)
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


async def test_history_search_shortens_a_long_paste(monkeypatch):
    async with screen_of(FakeSession()).run_test() as pilot:
        await opened(pilot)
        monkeypatch.setattr(PromptHistory, "entries", lambda _history: ["word " * 100_000])
        await pilot.press("ctrl+r")
        await until(pilot, lambda: isinstance(pilot.app.screen, Picker))
        assert len(pilot.app.screen._choices[0].label) <= 2_000
        await pilot.press("enter")
        await until(pilot, lambda: len(pilot.app.conversation.prompt.text) == 500_000)


async def test_unsaved_session_is_marked_at_every_width():
    session = FakeSession()
    session._status = replace(session._status, is_saved=False)
    async with screen_of(session).run_test(size=(100, 24)) as pilot:
        await opened(pilot)
        await until(pilot, lambda: "one · ask · not saved · main" in screen_text(pilot.app))
        await pilot.resize_terminal(24, 10)
        await until(pilot, lambda: "ask · not saved" in screen_text(pilot.app))


async def test_alt_t_goes_to_the_next_effort_and_the_status_line_shows_it():
    session = FakeSession([])
    async with screen_of(session).run_test(size=(100, 24)) as pilot:
        await opened(pilot)
        before = session.status().effort
        await pilot.press("alt+t")
        await until(pilot, lambda: session.status().effort != before)
        await until(pilot, lambda: f"({session.status().effort})" in screen_text(pilot.app))


async def test_a_change_of_size_and_back_draws_all_again():
    app = screen_of(FakeSession())
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        drawn = []
        app.paint_all = lambda: drawn.append(app.size)
        app.post_message(events.Resize(app.size, app.size))
        await until(pilot, lambda: drawn)
