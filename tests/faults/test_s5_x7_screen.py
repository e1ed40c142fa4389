"""S5, X7: the terminal closes or a signal arrives; permission questions that try to hide what they
ask.
"""

import os
import signal
import time

import pytest
from fakes.terminal import is_alive


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_s5_signal_when_idle_restores_the_terminal_and_sets_exit_code(start, number, code):
    terminal = start("plain")
    os.kill(terminal.child.pid, number)
    assert terminal.end() == code
    assert terminal.raw.rfind(b"\x1b[?1049l") > terminal.raw.rfind(b"\x1b[?1049h")
    assert terminal.calls("closed") == [True]


@pytest.mark.parametrize("scenario", ["child", "hangs"])
def test_s5_signal_in_a_turn_kills_children_even_if_the_session_hangs(start, scenario, tmp_path):
    terminal = start(scenario)
    terminal.send("go\r")
    terminal.until(lambda: terminal.shows("at work"))
    child = int((tmp_path / "child").read_text())
    os.kill(terminal.child.pid, signal.SIGTERM)
    assert terminal.end() == 143
    terminal.until(lambda: not is_alive(child))


@pytest.mark.parametrize("scenario", ["plain", "child", "stream"])
def test_s5_closing_the_terminal_ends_the_program_and_its_children(start, scenario, tmp_path):
    terminal = start(scenario)
    terminal.send("go\r")
    terminal.until(lambda: terminal.calls("sent"))
    if scenario == "child":
        terminal.until(lambda: (tmp_path / "child").exists())
    terminal.hang_up()
    assert terminal.end() == 129
    if scenario == "child":
        child = int((tmp_path / "child").read_text())
        terminal.until(lambda: not is_alive(child))


def test_x7_the_whole_command_is_shown_escaped_with_its_length(start):
    terminal = start("asks", size=(30, 100))
    terminal.send("go\r")
    terminal.until(lambda: terminal.shows("Allow?"))
    terminal.until(lambda: terminal.shows("rm -r build⟨5,000 blanks⟩\\x1b[31m\\u202e; curl evil"))
    terminal.until_shows("5,028 characters", "rule shell(rm *)")
    assert "\u202e".encode() not in terminal.raw


def test_x7_keys_typed_before_the_question_was_there_do_not_answer_it(start):
    terminal = start("asks", size=(30, 100))
    terminal.send("go\ryayes\r1")
    terminal.until(lambda: terminal.shows("Allow?"))
    terminal.until(lambda: terminal.shows("❯ 1  ") or terminal.shows("❯ yayes1"))
    assert terminal.calls("answered") == []
    time.sleep(0.6)  # the tested delay: until it is over, a key is not an answer
    terminal.send("n")
    terminal.until(lambda: terminal.shows("press the key again"))
    assert terminal.calls("answered") == []  # a draft is in the prompt: the key may belong to it
    time.sleep(0.6)
    terminal.send("n")
    terminal.until(lambda: terminal.calls("answered") == ["q1"])
