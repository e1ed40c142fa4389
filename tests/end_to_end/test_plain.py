"""The plain prompt in a real terminal: with `--plain`, and on a dumb terminal."""

import signal

import pytest
from fakes.model_server import Call, Reply
from fakes.terminal import is_alive


def test_session_of_the_plain_prompt_is_resumed(ouro):
    ouro.server.script(
        [Reply("I will.", [Call("shell", {"command": "touch made"})]), "It **is** made."]
    )
    terminal = ouro.start("--plain")
    terminal.until_shows("›")
    terminal.send("make it\r")
    terminal.until_shows("touch made", "y/s/a/n/d?")
    terminal.send("y\r")
    terminal.until_shows("It is made.")
    assert (ouro.folder / "made").exists()
    terminal.send("\x04")
    assert terminal.end() == 0
    assert b"\x1b[?1049h" not in terminal.raw
    again = ouro.start("--plain", "--resume", "latest")
    again.until_shows("make it", "It is made.")


def test_what_other_agents_know_is_offered_once_a_folder(ouro, tmp_path):
    home = tmp_path / "other-home"
    (home / ".gemini").mkdir(parents=True)
    known = "## Gemini Added Memories\n- I want short answers\n"
    (home / ".gemini" / "GEMINI.md").write_text(known)
    ouro.more = {"HOME": str(home)}
    terminal = ouro.start("--plain", size=(30, 160))
    terminal.until_shows("Not in memory yet: 1 entry of Gemini")
    [line] = [line for line in terminal.lines() if "/memory import --yes" in line]
    assert "short answers" not in ouro.headless("memory", "export").out
    terminal.send(f"{line.strip()}\r")
    terminal.until_shows("Imported")
    terminal.send("\x04")
    assert terminal.end() == 0
    again = ouro.start("--plain")
    again.until_shows("›")
    again.send("say: hello\r")
    again.until_shows("hello")
    assert not again.shows("Not in memory yet")


@pytest.mark.parametrize(("seconds", "rings"), [("1", True), ("0", False)])
def test_the_settings_of_the_status_line_and_the_bell_apply(ouro, seconds, rings):
    ouro.server.script([Reply("Soon done.", delay=1.3)])
    ouro.more = {"OURO_TUI_STATUS": "mode, model", "OURO_TUI_NOTIFY_SECONDS": seconds}
    terminal = ouro.start("--plain")
    terminal.until_shows("ask · test-model")
    terminal.send("go\r")
    terminal.until_shows("Soon done.")
    terminal.send("\x04")
    assert terminal.end() == 0
    assert (b"\x07" in terminal.raw) is rings


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_s5_signal_ends_the_plain_prompt_and_its_command(ouro, number):
    ouro.server.script([Call("shell", {"command": "echo $$ > pid; sleep 300"})])
    terminal = ouro.start("--plain", "--mode", "auto")
    terminal.until_shows("›")
    terminal.send("run it\r")
    pid = ouro.number_in("pid", terminal)
    terminal.signal(number)
    terminal.until(lambda: terminal.modes() == terminal.modes_before)
    assert terminal.end() == 128 + number
    terminal.until(lambda: not is_alive(pid))
    assert ouro.sessions()[0]["messages"] >= 2


@pytest.mark.parametrize("more", [{"TERM": "dumb"}, {"ACCESSIBLE": "1"}])
def test_u7_terminal_without_drawing_gets_no_escape_sequences(ouro, more):
    ouro.more = more
    terminal = ouro.start()
    terminal.until_shows(">")
    terminal.send("say: plain words\n")
    terminal.until_shows("plain words")
    terminal.until(lambda: terminal.text().count("plain words") >= 2)
    terminal.send("\x04")
    assert terminal.end() == 0
    assert b"\x1b" not in terminal.raw


def test_ctrl_c_at_the_first_question_does_not_take_it_away(ouro):
    (ouro.folder / "AGENTS.md").write_text("Prices are integers.\n")
    terminal = ouro.start("--plain")
    terminal.until_shows("Do you trust", "number:")
    terminal.send("\x03")
    terminal.until_shows("Press Ctrl+C again to quit.", "number:")
    terminal.send("1\r")
    terminal.until_shows("test-model · ask")
    terminal.send("say: hello\r")
    terminal.until(lambda: terminal.text().count("hello") >= 2)


def test_escape_and_a_key_are_two_keys_of_vim(ouro):
    ouro.more = {"OURO_TUI_EDITING": "vim"}
    terminal = ouro.start("--plain")
    terminal.until_shows("›", "test-model")
    terminal.send("say: onee\x1b0tnx\r")  # `tn` is a motion, and not Alt+T
    terminal.until_shows("› say: nee")
    terminal.until(lambda: ouro.server.requests)


def test_escape_in_the_insert_mode_of_vim_does_not_interrupt(ouro):
    ouro.more = {"OURO_TUI_EDITING": "vim"}
    ouro.server.script([Call("shell", {"command": "sleep 300"})])
    terminal = ouro.start("--plain", "--mode", "auto")
    terminal.until_shows("›", "test-model")
    terminal.send("go\r")
    terminal.until_shows("sleep 300")
    terminal.send("abc\x1b")
    terminal.send("x")  # the normal mode: it deletes the c
    terminal.until_shows("› ab")
    terminal.until_gone("abc")
    assert not terminal.shows("Interrupted")
    terminal.send("\x1b")
    terminal.until_shows("Interrupted")


def test_the_unsent_text_of_a_killed_plain_prompt_is_back(ouro):
    terminal = ouro.start("--plain")
    terminal.until_shows("›", "test-model")
    terminal.send("a draft of mine")
    terminal.until_shows("a draft of mine")
    terminal.until(lambda: any("a draft of mine" in text for text in drafts(ouro)))
    terminal.signal(signal.SIGKILL)
    again = ouro.start("--plain")
    again.until_shows("Your unsent text of last time is back.", "› a draft of mine")
    again.send("\x15say: one\r")
    again.until(lambda: "say: one" in str(ouro.server.requests[-1:]) and again.shows("one"))
    again.until(lambda: not any(drafts(ouro)))
    again.send("\x04")
    assert again.end() == 0


def drafts(ouro):
    """The texts of all files of drafts."""
    return [place.read_text() for place in (ouro.home / "drafts").rglob("*") if place.is_file()]


def test_a_message_that_was_undone_is_no_draft_of_the_next_session(ouro):
    ouro.server.script(["One."])
    terminal = ouro.start("--plain")
    terminal.until_shows("›", "test-model")
    terminal.send("say the first\r")
    terminal.until_shows("One.")
    terminal.send("/undo\r")
    terminal.until_shows("Rewound to here", "› say the first")
    terminal.send("!")
    terminal.until(lambda: drafts(ouro) == ["say the first!"])
    terminal.send("\x7f")  # now it is the undone message again
    terminal.until(lambda: not any(drafts(ouro)))
