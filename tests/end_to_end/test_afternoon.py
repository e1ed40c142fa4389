"""An afternoon of a user at the full screen in a real terminal."""

import threading

from fakes.model_server import Call, Reply
from fakes.terminal import is_alive

CHECK = (
    'python -B -c \'import api; said = api.hello("Ada"); print("all well" if said == "Hello, Ada"'
    " else exit(said))'"
)
UNTIL_GO = "echo $$ > pid; while [ ! -e go ]; do sleep 0.05; done; echo gone"


def edit(old, new, path="api.py"):
    return Call("edit", {"path": path, "edits": [{"old_text": old, "new_text": new}]})


def test_keys_that_are_typed_before_the_prompt_are_sent(ouro):
    ouro.more = {"TEST_COLD_STARTS": "1"}
    terminal = ouro.start()
    terminal.send("say: typed ahead\rand more")
    terminal.until_shows("❯ and more", "  typed ahead")


def test_an_answer_streams_in_as_markdown(ouro):
    held = threading.Event()
    text = (
        "## What I found\n\nIt is **very** simple:\n\n```python\nprint('code')\n```\n\nThe end"
        " of it."
    )
    ouro.server.script([Reply(text, hold=held, after=16)])
    terminal = ouro.screen()
    terminal.say("hello")
    terminal.until_shows("What I found", "It is very simple:", "print('code')")
    assert not terminal.shows("The end of it")
    held.set()
    terminal.until_shows("The end of it.")
    assert not terminal.shows("**")
    assert not terminal.shows("```")


def test_bug_is_fixed_with_a_question_before_each_change(ouro):
    ouro.server.script(
        [
            Call("read", {"path": "api.py"}),
            Call("shell", {"command": CHECK}),
            edit("'hello ' + name", "'Hello, ' + name"),
            Call("shell", {"command": f"true; {CHECK}"}),
            "It greets as it should.",
        ]
    )
    terminal = ouro.screen()
    terminal.say("fix the greeting")
    terminal.answer("y", "Allow?  shell")
    terminal.until_shows("exit code 1", "hello Ada")
    terminal.until_shows("Allow?  edit", "return 'hello ' + name", "return 'Hello, ' + name")
    assert "'hello '" in (ouro.folder / "api.py").read_text()
    terminal.answer("y", "Allow?  edit")
    terminal.answer("y", "Allow?  shell")
    terminal.until_shows("all well", "It greets as it should.")
    assert "'Hello, '" in (ouro.folder / "api.py").read_text()


def test_a_refusal_with_a_comment_reaches_the_model_and_nothing_is_changed(ouro):
    ouro.server.script(
        [Call("read", {"path": "api.py"}), edit("'hello '", "'hi '"), "As you wish."]
    )
    terminal = ouro.screen()
    terminal.say("change it")
    terminal.comment("leave it as it is", "Allow?  edit")
    terminal.send("\x1b[B\x1b[B\x1b[B\r")
    terminal.until_shows("As you wish.")
    assert "leave it as it is" in ouro.server.requests[2].results[1]
    assert "'hello '" in (ouro.folder / "api.py").read_text()


def test_x5_esc_ends_a_turn_in_the_middle_of_an_answer_and_of_a_shell_line(ouro):
    held = threading.Event()
    ouro.server.script(
        [
            Reply("The first half, the second.", hold=held, after=4),
            Call("shell", {"command": UNTIL_GO}),
            "Still here.",
        ]
    )
    terminal = ouro.screen("--mode", "auto")
    terminal.say("hello")
    terminal.until_shows("The first half")
    terminal.send("\x1b")
    terminal.until_shows("Interrupted")
    held.set()
    terminal.say("run it")
    pid = ouro.number_in("pid", terminal)
    terminal.send("\x1b")
    terminal.until(lambda: not is_alive(pid))
    terminal.until(lambda: terminal.text().count("Interrupted") >= 2)
    terminal.say("and now?")
    terminal.until_shows("Still here.")
    assert len(ouro.server.requests[2].results) == 0
    roles = [message["role"] for message in ouro.server.requests[2].messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "tool", "user"]


def test_x5_ctrl_c_at_a_question_interrupts_and_a_second_one_quits(ouro):
    ouro.server.script([Call("shell", {"command": "touch made"})])
    terminal = ouro.screen()
    terminal.say("run it")
    terminal.until_shows("Allow?  shell")
    terminal.send("\x03")
    terminal.until_shows("Ctrl+C again quits")
    terminal.until_gone("Allow?")
    terminal.send("\x03")
    assert terminal.end() == 0
    assert not (ouro.folder / "made").exists()


def test_one_message_steers_the_turn_and_another_waits_for_the_next(ouro):
    ouro.server.script(
        [Call("shell", {"command": UNTIL_GO}), "The first is done.", "The second is done."]
    )
    terminal = ouro.screen("--mode", "auto")
    terminal.say("run it")
    ouro.number_in("pid", terminal)
    terminal.say("steer it so")
    terminal.until_gone("❯ steer it so")
    terminal.say("then the next", key="\t")
    terminal.until_shows("steer it so", "then the next", "❯ Ask for anything")
    (ouro.folder / "go").touch()
    terminal.until_shows("The first is done.", "The second is done.")
    second, third = ouro.server.requests[1:]
    assert second.prompt.endswith("steer it so")
    assert [message["role"] for message in second.messages[-2:]] == ["tool", "user"]
    assert third.prompt.endswith("then the next")


def test_slash_commands_work_and_the_chosen_model_is_used(ouro):
    terminal = ouro.screen()
    terminal.say("say: one")
    terminal.until_shows("  one")
    terminal.say("/usage")
    terminal.until_shows("This session", "All sessions")
    terminal.say("/status")
    terminal.until_shows("Model: openai/test-model", "Branch: main")
    terminal.say("/help")
    helped = ("Continue an earlier session", "next category, or all")  # its top or its end
    terminal.until(lambda: any(map(terminal.shows, helped)))
    terminal.press("q", lambda: not any(map(terminal.shows, helped)))
    terminal.say("/model")
    terminal.until_shows("Which model?", "openai/other-model")
    terminal.press("2", lambda: terminal.shows(" other-model"))
    terminal.say("say: two")
    terminal.until_shows("  two")
    assert ouro.server.requests[-1].body["model"] == "other-model"
    terminal.say("/modle")
    terminal.until_shows("/model")


def test_window_can_be_resized_while_an_answer_streams(ouro):
    held = threading.Event()
    ouro.server.script([Reply("word " * 200 + "the last of it", hold=held, after=100)])
    terminal = ouro.screen()
    terminal.say("hello")
    terminal.until_shows("word word")
    terminal.resize(10, 40)
    terminal.until(
        lambda: terminal.lines()[-1].startswith(" test-model") and terminal.shows("word word")
    )
    terminal.resize(1, 1)
    terminal.resize(3, 200)
    terminal.resize(30, 100)
    held.set()
    terminal.until_shows("the last of it")
    terminal.until(
        lambda: (
            terminal.lines()[-1].startswith(" test-model")
            and terminal.lines()[0].startswith(" ouro")
        )
    )


def test_exit_with_settings_that_became_wrong_names_them_after_the_resume_command(ouro):
    terminal = ouro.start()
    terminal.until_shows("test-model")
    terminal.say("say: an answer to remember")
    terminal.until_shows("  an answer to remember")
    (ouro.home / "config.yaml").write_text("memory: {sync: often}\n")
    terminal.send("\x15\x04")
    terminal.until_shows("Continue with: ouro --resume", "memory.sync")
    assert terminal.end() == 2


def test_exit_restores_the_terminal_and_prints_the_resume_command(ouro):
    terminal = ouro.start()
    terminal.until_shows("test-model")
    terminal.say("say: an answer to remember")
    terminal.until_shows("  an answer to remember")
    assert terminal.modes() != terminal.modes_before
    terminal.send("\x15\x03")
    terminal.until_shows("Ctrl+C again quits")
    terminal.send("\x03")
    terminal.until(lambda: terminal.shows("Continue with:"))
    assert terminal.modes() == terminal.modes_before
    assert terminal.end() == 0
    assert terminal.shows(f"Continue with: ouro --resume {ouro.sessions()[0]['id'][:8]}")
    assert terminal.shows("an answer to remember")
    for entered, left in (
        (b"?1049h", b"?1049l"),
        (b"?25l", b"?25h"),
        (b"?2004h", b"?2004l"),
        (b"?1000h", b"?1000l"),
    ):
        assert terminal.raw.rfind(b"\x1b[" + left) > terminal.raw.rfind(b"\x1b[" + entered)


def test_a_session_is_resumed_in_three_ways(ouro):
    ouro.headless("-p", "read: api.py\nsay: the first answer")
    latest = ouro.screen("--resume", "latest")
    latest.until_shows("read: api.py", "→ read api.py", "the first answer")
    latest.say("say: the second answer")
    latest.until_shows("  the second answer")
    assert latest.leave() == 0
    roles = [message["role"] for message in ouro.server.requests[-1].messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    asked = len(ouro.server.requests)
    continued = ouro.screen("--continue")
    continued.until_shows("the first answer", "  the second answer")
    assert continued.leave() == 0
    assert len(ouro.server.requests) == asked  # a resume makes no model call
    picking = ouro.start("--resume")
    picking.until_shows("type to search", "this project · 1")
    picking.send("\r")
    picking.until_shows("  the second answer")
    assert [info["messages"] for info in ouro.sessions()] == [6]


def test_f1_trust_is_asked_before_instructions_are_used(ouro):
    (ouro.folder / "AGENTS.md").write_text("Answer in rhyme.\n")
    terminal = ouro.start()
    terminal.until_shows("Do you trust", "AGENTS.md")
    terminal.press("\r", lambda: terminal.shows("test-model"))
    terminal.say("say: one")
    terminal.until_shows("  one")
    assert "Answer in rhyme." in ouro.server.requests[0].raw.decode()
    terminal.leave()
    again = ouro.screen()
    assert not again.shows("Do you trust")


def test_f1_instructions_of_an_untrusted_folder_are_not_sent(ouro):
    (ouro.folder / "AGENTS.md").write_text("Answer in rhyme.\n")
    terminal = ouro.start()
    terminal.until_shows("Do you trust", "AGENTS.md")
    terminal.send("\x1b[B")
    terminal.press("\r", lambda: terminal.shows("test-model"))
    terminal.say("say: one")
    terminal.until_shows("  one")
    assert "Answer in rhyme." not in ouro.server.requests[0].raw.decode()


def test_escape_ends_a_shell_line_of_the_user_and_its_card(ouro):
    terminal = ouro.screen()
    terminal.say("!echo it began; sleep 60")
    terminal.until_shows("    it began", "Esc interrupts")
    terminal.send("\x1b")
    terminal.until_shows("✗ echo it began; sleep 60 · interrupted", "    it began")
    terminal.until_gone("Esc interrupts")


def test_background_jobs_are_in_the_status_line_and_leaving_asks(ouro):
    ouro.server.script([Call("shell", {"command": "sleep 60", "background": True}), "It runs."])
    terminal = ouro.screen("--mode", "auto")
    terminal.say("start it")
    terminal.until_shows("It runs.", "1 job")
    terminal.send("\x04")
    terminal.until_shows("1 background task still runs: sleep 60")
    terminal.press("\x1b", lambda: not terminal.shows("still runs"))
    terminal.say("/exit")
    terminal.until_shows("end it and leave")
    terminal.send("\r")
    assert terminal.end() == 0
