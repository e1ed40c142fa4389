import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pexpect
import pyte
import pytest
from fakes.waiting import PATIENCE

TESTS = Path(__file__).parents[2]
SGR = re.compile(r"\x1b\[[0-9;]*m")
FORBIDDEN = [b"\x1b]0;", b"\x1b]52", b"\x1bP", b"\x9b31m", "\u202e".encode(), "\x9b".encode()]


class Terminal:
    """The plain prompt in a pseudo-terminal that answers queries like a real terminal."""

    def __init__(self, turns, term="xterm-256color"):
        environment = {**os.environ, "TERM": term, "PYTHONPATH": str(TESTS)}
        command = [sys.executable, "-m", "fakes.repl_program", turns]
        self.child = pexpect.spawn(
            command[0], command[1:], env=environment, dimensions=(30, 100), timeout=PATIENCE
        )
        self.child.delaybeforesend = None
        self.screen = pyte.Screen(100, 30)
        self.screen.write_process_input = self.child.send
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._read_up_to = 0

    def wait_for(self, text):
        """Read until this text is printed, after the last text that was waited for."""
        end = time.monotonic() + PATIENCE
        while (place := self.printed.find(text, self._read_up_to)) < 0:
            assert time.monotonic() < end, f"{text!r} was not printed:\n" + "\n".join(
                self.screen.display
            )
            assert self._read(), f"{text!r} was not printed before the end:\n{self.printed}"
        self._read_up_to = place + len(text)

    @property
    def printed(self):
        """The complete output without colours."""
        return SGR.sub("", self.raw.decode(errors="replace"))

    def _read(self):
        try:
            data = self.child.read_nonblocking(1_000_000, timeout=0.05)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.raw += data
        self._stream.feed(data)
        return True

    def type(self, text):
        self.child.send(text)

    def end(self):
        """The complete output when the program has ended."""
        end = time.monotonic() + PATIENCE
        while self._read():
            assert time.monotonic() < end, "it did not end:\n" + "\n".join(self.screen.display)
        return self.printed


@pytest.fixture
def terminal():
    opened = []

    def start(turns, term="xterm-256color"):
        opened.append(Terminal(turns, term))
        opened[-1].wait_for("> " if term == "dumb" else "1% of")
        return opened[-1]

    yield start
    for screen in opened:
        screen.child.close(force=True)


def test_a_message_is_answered_in_markdown_and_ctrl_d_leaves(terminal):
    screen = terminal("answers")
    screen.type("hi there\r")
    screen.wait_for("Hello you.")
    screen.type("\x04")
    screen.wait_for("ouro --resume s-1")
    assert "sent=['hi there']" in screen.end()


def test_compact_runs_as_a_turn_and_shows_its_result(terminal):
    screen = terminal("answers")
    screen.type("/compact the tests\r")
    screen.wait_for("Compacted: 80,000")
    screen.type("/exit\r")
    assert "Compacting the session" in screen.end()


def test_permission_answer_is_parsed_and_a_wrong_line_asked_again(terminal):
    screen = terminal("permission")
    screen.type("go\r")
    screen.wait_for("edit(api.py)")
    screen.wait_for("y/s/a/n/d? ")
    screen.type("maybe\r")
    screen.wait_for("Type y (yes)")
    screen.type("y only this\r")
    screen.wait_for("All done.")
    screen.type("/exit\r")
    assert "Permit(choice='yes', comment='only this')" in screen.end()


def test_draft_is_restored_after_a_question(terminal):
    screen = terminal("permission")
    screen.type("go\rmy draft")
    screen.wait_for("y/s/a/n/d? ")
    screen.type("a\r")
    screen.wait_for("All done.")
    screen.wait_for("my draft")
    screen.type("\x15/exit\r")
    assert "Permit(choice='always', comment='')" in screen.end()


def test_a_question_is_answered_by_its_number(terminal):
    screen = terminal("question")
    screen.type("go\r")
    screen.wait_for("2. beta")
    screen.type("2\r")
    screen.wait_for("Right.")
    screen.type("/exit\r")
    assert "Reply(answers=('beta',))" in screen.end()


def test_typed_text_steers_a_turn_and_ctrl_c_interrupts(terminal):
    screen = terminal("waiting")
    screen.type("go\r")
    screen.wait_for("Working.")
    screen.type("mind the tests\r")
    screen.wait_for("1 queued")
    screen.type("\x03")
    screen.wait_for("Interrupted.")
    screen.wait_for("1 message queued. Up edits it; the next message sends it.")
    screen.type("\x1b[A and the docs\r")
    screen.wait_for("mind the tests and the docs")
    screen.type("\x03")
    screen.wait_for("Ctrl+C again to quit")
    screen.type("\x03")
    out = screen.end()
    assert "interrupts=1" in out
    assert "code=0" in out


def test_several_lines_are_one_message(terminal):
    screen = terminal("answers")
    screen.type("one\\\rtwo\x0athree\x1b\rfour\r")
    screen.wait_for("Hello")
    screen.type("/exit\r")
    assert "sent=['one\\ntwo\\nthree\\nfour']" in screen.end()


def test_shell_lines_commands_and_modes(terminal):
    screen = terminal("answers")
    screen.type("!ls -l\r")
    screen.wait_for("exit 0")
    screen.type("!!secret\r")
    screen.wait_for("exit 0")
    screen.type("!\r")
    screen.wait_for("Usage: !COMMAND")
    screen.type("\x1b[Z")
    screen.wait_for("Mode edit")
    screen.type("/modle\r")
    screen.wait_for("/model")
    screen.type("/clear\r")
    screen.wait_for("A new session")
    screen.type("/exit\r")
    assert "shell=[('ls -l', True), ('secret', False)]" in screen.end()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signal_closes_the_session_and_sets_the_exit_code_s5(terminal, number, code):
    screen = terminal("waiting")
    screen.type("go\r")
    screen.wait_for("Working.")
    screen.child.kill(number)
    out = screen.end()
    assert f"code={code}" in out
    assert "closed=True" in out


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_closed_terminal_ends_the_program_s5(terminal, term):
    screen = terminal("waiting", term)
    screen.type("go\r")
    screen.wait_for("Working.")
    screen.child.ptyproc.fileobj.close()
    end = time.monotonic() + PATIENCE
    while screen.child.isalive():
        assert time.monotonic() < end, "it lives on without its terminal"


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_hostile_output_is_not_interpreted_by_the_terminal_u1_u2(terminal, term):
    screen = terminal("hostile", term)
    screen.type("go\r")
    screen.wait_for("y/s/a/n/d? ")
    screen.type("n\r")
    screen.wait_for("✗ ")
    screen.type("/exit\r")
    screen.end()
    for sequence in FORBIDDEN:
        assert sequence not in screen.raw, sequence
    assert b"[red]z[/red]" in screen.raw
    assert b"[link=http://x]l[/link]" in screen.raw


def test_a_dumb_terminal_gets_lines_without_any_control_u7(terminal):
    screen = terminal("permission", "dumb")
    screen.type("go\r")
    screen.wait_for("y/s/a/n/d? ")
    screen.type("y\r")
    screen.wait_for("All **done**.")
    screen.type("\x04")
    screen.end()
    assert b"\x1b" not in screen.raw
    assert "code=0" in screen.printed


def test_ctrl_c_in_a_dumb_terminal_interrupts_then_leaves_u7(terminal):
    screen = terminal("waiting", "dumb")
    screen.type("go\r")
    screen.wait_for("Working.")
    screen.type("\x03")
    screen.wait_for("Interrupted.")
    screen.type("\x03")
    screen.wait_for("again to quit")
    screen.type("\x03")
    assert "interrupts=1" in screen.end()


def run_piped(given, *arguments):
    """The output of the plain prompt for input from a pipe."""
    command = [sys.executable, "-m", "fakes.repl_program", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(
        command, input=given, env=environment, capture_output=True, text=True, timeout=30, check=True
    )  # fmt: skip
    return done.stdout


def test_first_message_is_sent_before_piped_input_is_read_u7():
    assert "sent=['hi'] steered=[]" in run_piped("", "answers", "hi")
    printed = run_piped("n not now\n", "permission", "go")
    assert "sent=['go'] steered=[]" in printed
    assert "Permit(choice='no', comment='not now')" in printed


def test_a_shell_line_during_a_turn_waits_for_its_end(terminal):
    screen = terminal("waiting")
    screen.type("go\r")
    screen.wait_for("Working.")
    screen.type("!ls\r")
    screen.wait_for("1 queued")
    screen.type("\x03")
    screen.wait_for("1 message queued.")
    screen.type("more\r")
    screen.wait_for("exit 0")
    screen.type("/exit\r")
    assert "shell=[('ls', True)]" in screen.end()


def test_no_prompt_is_printed_for_piped_input_u7():
    lines = run_piped("hi\n\nmore\n", "answers").splitlines()
    assert [line for line in lines if line.startswith(">")] == []


def test_a_signal_ends_piped_input_in_a_turn_s5():
    command = [sys.executable, "-u", "-m", "fakes.repl_program", "waiting"]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    pipes = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "env": environment,
        "text": True,
        "bufsize": 1,
    }
    with subprocess.Popen(command, **pipes) as program:
        program.stdin.write("go\n")
        while "Working." not in program.stdout.readline():
            pass
        program.terminate()
        try:
            assert "code=143" in program.communicate(timeout=PATIENCE)[0]
        finally:
            program.kill()


def test_piped_lines_are_processed_in_order_u7():
    printed = run_piped("go\ny\n!ls\n/status\nlast", "permission")
    assert "sent=['go', 'last']" in printed
    assert "shell=[('ls', True)]" in printed
    assert printed.index("All **done**.") < printed.index("exit 0") < printed.index("**Model**")
    assert "\x1b" not in printed


def test_history_is_shared_and_excludes_answers_to_questions(terminal, home):
    screen = terminal("permission")
    screen.type("go\r")
    screen.wait_for("y/s/a/n/d? ")
    screen.type("y\r")
    screen.wait_for("All done.")
    screen.type("/exit\r")
    screen.end()
    assert (home / ".ouro" / "history").read_text() == "go\n/exit\n"
