"""ouro is killed, terminated or suspended, or its window is closed: the next start shows what was
on the screen.
"""

import contextlib
import os
import shlex
import signal
import threading

import pytest
from fakes.model_server import Call, Reply
from fakes.ouro_program import OuroTerminal
from fakes.terminal import is_alive

AT_WORK = "echo $$ > pid; sleep 300 & echo $! > child; wait"


def streaming(ouro, terminal):
    held = threading.Event()
    ouro.server.script([Reply("The first half, the second.", hold=held, after=4)])
    terminal.say("hello")
    terminal.until_shows("The first half")
    return []


def at_work(ouro, terminal):
    ouro.server.script([Reply("I will wait.", [Call("shell", {"command": AT_WORK})])])
    terminal.say("run it")
    return [ouro.number_in("pid", terminal), ouro.number_in("child", terminal)]


def idle(ouro, terminal):
    terminal.say("say: all done")
    terminal.until_shows("  all done")
    return []


def asking(ouro, terminal):
    terminal.send("\x1b[Z")  # from auto
    terminal.until_shows("· ask ·")
    ouro.server.script([Reply("May I?", [Call("shell", {"command": "touch made"})])])
    terminal.say("run it")
    terminal.until_shows("Allow?  shell")
    return []


MOMENTS = {"idle": idle, "streaming": streaming, "at work": at_work, "asking": asking}


@pytest.fixture(params=list(MOMENTS))
def moment(request):
    return MOMENTS[request.param]


def after(ouro):
    """The next start, after its first message."""
    ouro.server.script(lambda request: "Here again.")
    terminal = ouro.screen("--resume", "latest")
    terminal.until_shows("say: before", "the answer before")
    terminal.say("go on")
    terminal.until_shows("Here again.")
    return terminal


def is_still_there(ouro):
    """Whether the next start, headless, sends the earlier messages."""
    ouro.server.script(lambda request: "Here again.")
    done = ouro.headless("-p", "go on", "--continue")
    return done.out == "Here again.\n" and "the answer before" in str(
        ouro.server.requests[-1].messages
    )


def start_with_answer(ouro):
    """ouro after its first answer."""
    terminal = ouro.start("--mode", "auto")
    terminal.until_shows("test-model")
    terminal.say("say: before the answer before")
    terminal.until_shows("  before the answer before")
    return terminal


def test_s9_kill_at_any_moment_loses_nothing_shown_as_complete(ouro, moment):
    terminal = start_with_answer(ouro)
    children = moment(ouro, terminal)
    terminal.signal(signal.SIGKILL)
    assert terminal.end() == 128 + signal.SIGKILL
    for child in children:
        with contextlib.suppress(ProcessLookupError):  # in a sandbox the processes end with ouro
            os.kill(child, signal.SIGKILL)
    again = after(ouro)
    request = ouro.server.requests[-1]
    if moment is idle:
        again.until_shows("  all done")
    if moment in (at_work, asking):
        assert "interrupted" in request.messages[-2]["content"]
        assert request.messages[-2]["role"] == "tool"
    if moment is asking:
        assert not (ouro.folder / "made").exists()


def test_s3_a_torn_tail_is_reported_and_the_rest_is_loaded(ouro):
    ouro.headless("-p", "say: before the answer before")
    ouro.headless("-p", "say: torn", "-c")
    (file,) = ouro.home.glob("sessions/*/session.yaml")
    data = file.read_bytes()
    file.write_bytes(data[:-20])
    terminal = after(ouro)
    assert terminal.shows("torn") or terminal.shows("set aside")
    assert list(file.parent.glob("*.torn*"))


def test_s5_a_signal_ends_ouro_and_its_children_and_restores_the_terminal(ouro, moment):
    number = signal.SIGHUP if moment is idle else signal.SIGTERM
    terminal = start_with_answer(ouro)
    children = moment(ouro, terminal)
    terminal.signal(number)
    terminal.until(lambda: terminal.modes() == terminal.modes_before)
    assert terminal.end() == 128 + number
    terminal.until(lambda: not any(map(is_alive, children)))
    assert terminal.raw.rfind(b"\x1b[?1049l") > terminal.raw.rfind(b"\x1b[?1049h")
    assert terminal.raw.rfind(b"\x1b[?25h") > terminal.raw.rfind(b"\x1b[?25l")
    assert is_still_there(ouro)


def test_s5_a_window_that_is_closed_ends_ouro_and_its_children(ouro, moment):
    terminal = start_with_answer(ouro)
    children = moment(ouro, terminal)
    terminal.hang_up()
    terminal.until(lambda: not terminal.child.isalive())
    terminal.until(lambda: not any(map(is_alive, children)))
    assert is_still_there(ouro)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_s5_a_signal_to_the_job_of_the_shell_ends_ouro(ouro, number):
    terminal = start_with_answer(ouro)
    assert terminal.pid != terminal.child.pid
    os.kill(terminal.child.pid, number)
    assert terminal.end() == 128 + number
    # The shell has its prompt now, so the terminal must be its own again.
    assert terminal.modes() == terminal.modes_before
    assert terminal.raw.rfind(b"\x1b[?1049l") > terminal.raw.rfind(b"\x1b[?1049h")
    assert is_still_there(ouro)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_s5_signal_during_the_start_restores_the_terminal(ouro, number):
    ouro.more = {"TEST_COLD_STARTS": "1"}
    terminal = ouro.start()
    terminal.until(lambda: b"opening the session" in terminal.raw)
    terminal.signal(number)
    terminal.until(lambda: terminal.modes() == terminal.modes_before)
    assert terminal.end() == 128 + number
    assert terminal.raw.rfind(b"\x1b[?1049l") > terminal.raw.rfind(b"\x1b[?1049h")
    assert terminal.raw.rfind(b"\x1b[?25h") > terminal.raw.rfind(b"\x1b[?25l")


def test_u7_ouro_can_be_suspended_and_resumed_by_the_shell(ouro):
    ouro.more = {"RUN": shlex.join(ouro.command("--mode", "auto"))}
    line = (
        "set -m; eval $RUN; for _ in 1 2 3; do echo it has stopped; read -r; fg; done; echo it has"
        " ended"
    )
    terminal = OuroTerminal(["bash", "-c", line], ouro.environment, ouro.folder)
    ouro.terminals.append(terminal)
    terminal.until_shows("❯", "test-model")
    terminal.say("say: before the answer before")
    terminal.until_shows("  before the answer before")
    terminal.send("\x1a")
    terminal.until_shows("it has stopped")
    terminal.send("\n")
    terminal.until_shows("before the answer before", "test-model")
    ouro.server.script([Call("shell", {"command": "touch made"}), "It is made."])
    terminal.send("\x1b[Z")  # from auto
    terminal.until_shows("· ask ·")
    terminal.say("make it")
    terminal.until_shows("Allow?  shell", "touch made")
    terminal.send("\x1a")
    terminal.until_shows("it has stopped")
    terminal.send("\n")
    terminal.until_shows("Allow?  shell", "touch made")
    assert not (ouro.folder / "made").exists()
    terminal.answer("y", "touch made")
    terminal.until_shows("It is made.")
    terminal.send("\x1bOP")  # F1
    terminal.until_shows("Help ·")
    terminal.send("\x1a")
    terminal.until_shows("it has stopped")
    terminal.send("\n")
    terminal.until_shows("Help ·")
    terminal.send("\x1b")
    terminal.until(lambda: not terminal.shows("Help ·"))
    ouro.server.script(["back again"])
    terminal.say("are you back?")
    terminal.until_shows("  back again")
    assert terminal.leave() == 0
    assert terminal.shows("it has ended")


def test_ctrl_c_in_the_editor_goes_to_the_editor_and_keeps_the_draft(ouro):
    editor = ouro.home / "editor"
    editor.write_text(
        "#!/bin/bash\ntrap 'echo \" and more\" >> $1' INT\necho editing\nread -r; read -r\n"
    )
    editor.chmod(0o700)
    ouro.more = {"VISUAL": str(editor)}
    terminal = ouro.screen()
    terminal.send("a draft\x07")
    terminal.until_shows("editing")
    terminal.send("\x03")
    terminal.until_shows("^C")
    terminal.send("\n\n")
    terminal.until_shows("❯ a draft and more")
    assert terminal.leave() == 0


def test_alt_enter_sent_as_escape_return_inserts_a_newline(ouro):
    terminal = ouro.screen()
    terminal.send("one\x1b\rtwo\x1b[27;2;13~three")
    terminal.until_shows("❯ one", "  two", "  three")
    assert not ouro.server.requests


def test_welcome_is_shown_only_at_the_first_start(ouro):
    terminal = ouro.screen()
    terminal.until_shows("Welcome to ouro. Three tips:", "/memory undo undoes a change")
    terminal.say("say: hello")
    terminal.until_shows("  hello")
    assert terminal.leave() == 0
    again = ouro.screen()
    assert not again.shows("Welcome")


def test_welcome_shows_its_beginning_on_a_small_terminal(ouro):
    terminal = ouro.screen(size=(10, 40))
    terminal.until_shows("Welcome to ouro.", "Write what you want")


def test_unknown_model_offers_the_known_ones(ouro):
    terminal = ouro.start("-m", "tset-model")
    terminal.until_shows("No model tset-model", "use openai/test-model", "use openai/other-model")
    terminal.press("\x1b[B\r", lambda: terminal.shows("other-model · ask"))
