"""U3, U4, U5, U7: the screen under resizes, huge pastes, random input, and without a real terminal."""

import os
import re
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from fakes.terminal import TESTS, job_in
from fakes.waiting import until, wait

from ouro.frontends.tui.widgets.folded_pastes import Placeholders


def resize(terminal, rows, columns):
    terminal.resize(rows, columns)
    terminal.read()


def test_u3_layout_recovers_after_any_size_while_streaming(start):
    terminal = start("stream")
    terminal.send("go\r")
    terminal.until(lambda: terminal.shows("word1"))
    for size in ((1, 1), (1, 500), (500, 1), (10, 40), (200, 500), (2, 2), (24, 80)):
        resize(terminal, *size)
    terminal.until(lambda: terminal.shows("word299"))
    terminal.until(lambda: terminal.shows("1% of 128k"))
    terminal.until(lambda: terminal.lines()[-4].startswith("╭"))
    assert terminal.child.isalive()


def test_u3_screen_is_redrawn_after_a_tiny_size(start):
    terminal = start("plain")
    terminal.until_shows("1% of 128k")
    before = terminal.lines()
    terminal.screen.resize(2, 2)
    terminal.screen.resize(24, 80)  # the program sees an unchanged size
    terminal.signal(signal.SIGWINCH)
    terminal.until(lambda: terminal.lines() == before)


def test_u3_last_of_two_quick_resizes_wins(start):
    terminal = start("resized")
    terminal.until_shows("1% of 128k")
    terminal.child.setwinsize(24, 60)
    terminal.until((terminal.folder / "resized").exists)
    for end in range(1, 12):  # after these keys the screen is drawn in the last size
        terminal.send("still there"[end - 1])
        terminal.until_shows("❯ " + "still there"[:end].rstrip())
    assert terminal.lines()[-4] == f"╭{'─' * 78}╮"


def test_u3_screen_is_restored_after_a_failing_editor(start):
    terminal = start("plain", VISUAL="false")
    terminal.send("a draft\x07")
    terminal.until_shows("false ended with exit code 1")
    terminal.send("!")
    terminal.until_shows("❯ a draft!")


def test_u3_turn_continues_while_the_terminal_takes_no_output(start):
    terminal = start("flood")
    terminal.until_shows("1% of 128k")
    terminal.send("go\r")
    terminal.until(lambda: terminal.calls("sent"))
    wait(until(lambda: terminal.calls("flooded")))  # meanwhile nobody reads
    terminal.until_shows("the end of it")
    terminal.send("still here")
    terminal.until_shows("❯ still here")


def test_u4_a_paste_of_a_megabyte_with_control_bytes_becomes_a_chip(start):
    terminal = start("plain")
    line = b"rm -rf / \x07\x03\x1b[31m\x00 pasted\r"
    terminal.send(b"\x1b[200~" + line * (1_000_000 // len(line)) + b"\x1b[201~")
    terminal.until(lambda: terminal.shows("[pasted"))
    terminal.send("hello")
    terminal.until(lambda: terminal.shows("hello"))
    assert terminal.calls("sent") == []


def test_u4_a_paste_is_sent_without_control_characters():
    attachments = Placeholders()
    assert attachments.fold("a\x1b[31m\x00\x7fb\r\nc\rd\x07\t") == "a[31mb\nc\nd\t"
    folded = attachments.fold("line\x1b\x03\n" * 1000)
    assert attachments.expand_text(folded) == "line\n" * 1000


def test_u4_paste_containing_a_paste_end_sends_nothing(start):
    terminal = start("plain")
    terminal.send(b"\x1b[200~one\x1b[201~\rtwo\r/exit\r\x1b[201~")
    terminal.until(lambda: terminal.shows("/exit"))
    assert terminal.calls("sent") == []
    assert terminal.child.isalive()


def test_u5_output_of_libraries_and_threads_goes_to_the_log(start, home):
    terminal = start("noisy")
    terminal.send("go\r")
    terminal.until(lambda: terminal.shows("quiet here"))
    log = home / ".ouro" / "logs" / "ouro.log"
    for noise in ("printed noise", "stderr noise", "raw noise", "logged noise", "thread noise"):
        terminal.until(lambda noise=noise: noise in log.read_text())
        assert noise.encode() not in terminal.raw
    assert log.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("term", ["dumb", "xterm-256color"])
def test_u7_without_a_terminal_there_is_no_full_screen(term, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "fakes.screen_program", "plain", str(tmp_path)],
        env={**os.environ, "TERM": term, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr, done.stdout) == (1, "no full screen here\n", "")


def test_u7_suspend_and_resume_restores_screen_and_modes(start):
    terminal = start("plain", is_job=True)
    pid = job_in(terminal)
    terminal.send(b"\x1a")
    terminal.until(lambda: state_of(pid) == "T")
    terminal.until(lambda: b"\x1b[?1049l" in terminal.raw)
    os.kill(pid, signal.SIGCONT)
    terminal.until(lambda: terminal.raw.count(b"\x1b[?1049h") == 2)
    terminal.until(
        lambda: not terminal.modes()[0] & termios.ICRNL
    )  # before that, Enter would be a line feed
    terminal.send("hello\r")
    terminal.until(lambda: terminal.calls("sent") == ["hello"])
    terminal.until(lambda: terminal.shows("the answer"))


def test_u7_without_a_shell_ctrl_z_stops_nothing_and_says_so(start):
    terminal = start("plain")
    terminal.send(b"\x1a")
    terminal.until_shows("no shell could continue ouro")
    assert state_of(terminal.child.pid) != "T"
    terminal.send("hello\r")
    terminal.until(lambda: terminal.calls("sent") == ["hello"])
    terminal.until_shows("the answer")


def test_u7_a_second_continue_leaves_one_reader_of_the_terminal(start):
    terminal = start("plain", is_job=True)
    pid = job_in(terminal)
    os.kill(pid, signal.SIGCONT)  # of a program that has not stopped
    terminal.send(b"\x1a")
    terminal.until(lambda: state_of(pid) == "T")
    os.kill(pid, signal.SIGCONT)
    terminal.until(lambda: terminal.raw.count(b"\x1b[?1049h") == 2)
    terminal.until(lambda: not terminal.modes()[0] & termios.ICRNL)
    os.kill(pid, signal.SIGCONT)
    for said in ("one", "two", "three"):
        terminal.send(f"{said}\r")
        terminal.until(lambda said=said: said in terminal.calls("sent"))
    terminal.send(b"\x04")
    assert terminal.end() == 0
    assert terminal.raw.count(b"\x1b[?1049h") == 2


def test_u7_a_second_continue_in_the_midst_of_the_first_leaves_one_reader(start):
    terminal = start("continued twice", is_job=True)
    pid = job_in(terminal)
    terminal.send(b"\x1a")
    terminal.until(lambda: state_of(pid) == "T")
    os.kill(pid, signal.SIGCONT)
    terminal.until(lambda: not terminal.modes()[0] & termios.ICRNL)
    terminal.send("one\r")
    terminal.until(lambda: terminal.calls("sent") == ["one"])
    terminal.send(b"\x04")
    assert terminal.end() == 0
    assert terminal.raw.count(b"\x1b[?1049h") == 2


def title_of(raw):
    """The title of a window with a stack of titles, to which this was written; at first `mine`."""
    title, stack = b"mine", []
    for written in re.finditer(rb"\x1b\]2;([^\x07]*)\x07|\x1b\[(22|23);2t", raw):
        if written[2] == b"22":
            stack.append(title)
        elif written[2] == b"23":
            title = stack.pop() if stack else title
        else:
            title = written[1]
    return title


def test_u7_the_title_of_the_window_is_given_back(start):
    terminal = start("plain", is_job=True)
    pid = job_in(terminal)
    terminal.until(lambda: title_of(terminal.raw) == b"ouro")
    terminal.send(b"\x1a")
    terminal.until(lambda: state_of(pid) == "T")
    terminal.until(lambda: title_of(terminal.raw) == b"mine")
    os.kill(pid, signal.SIGCONT)
    terminal.until(lambda: title_of(terminal.raw) == b"ouro")
    terminal.until(lambda: not terminal.modes()[0] & termios.ICRNL)
    terminal.send(b"\x04")
    assert terminal.end() == 0
    assert title_of(terminal.raw) == b"mine"


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_u7_the_conversation_and_how_to_resume_stay_in_the_terminal(start):
    terminal = start("plain")
    terminal.send("hello\r")
    terminal.until(lambda: terminal.shows("the answer"))
    terminal.send(b"\x04")
    assert terminal.end() == 0
    left = terminal.raw.rpartition(b"\x1b[?1049l")[2].decode()
    assert "the answer" in left
    assert "ouro --resume 0d9f3c52" in left
    assert terminal.calls("closed") == [True]
