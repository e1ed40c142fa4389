"""The process that a terminal waits for."""

import contextlib
import os
import signal
import subprocess
import sys
import termios

import pytest
from fakes.waiting import PATIENCE, until

PROGRAM = """
import os, sys
from ouro.utils import terminal_parent

terminal_parent.continue_in_child("")
terminal_parent.close_terminal([1, 2])
terminal_parent.current_launcher().release(int(sys.argv[1]))
print("nobody reads this")
sys.stdin.readline()
with open(sys.argv[2], "w") as file:
    file.write(f"{os.getsid(0) == os.getpid()} {terminal_parent.current_launcher()}")
"""
"""It lets its launcher end with a code, and goes on when it may read a line."""


async def test_a_released_launcher_ends_with_the_code_while_its_child_goes_on(tmp_path):
    written = tmp_path / "written"
    launcher = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "3", written],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    output = launcher.stdout.read()  # it ends only when the child has given it up as well
    assert (launcher.wait(), output) == (3, "")
    assert not written.exists()
    launcher.stdin.write("go on\n")
    launcher.stdin.close()
    await until(lambda: written.exists() and written.read_text())
    assert written.read_text() == "True None"


KILLED_PROGRAM = """
import os, signal, sys, termios, tty
from ouro.utils import terminal_parent

terminal_parent.continue_in_child("reset")
tty.setraw(0)
os.kill(os.getpid(), getattr(signal, sys.argv[1]))
"""


@pytest.mark.parametrize(("name", "is_restored"), [("SIGKILL", True), ("SIGTERM", False)])
def test_the_terminal_of_a_child_that_was_killed_is_restored(name, is_restored):
    terminal, end = os.openpty()
    modes = termios.tcgetattr(end)
    command = [sys.executable, "-c", KILLED_PROGRAM, name]
    done = subprocess.run(command, stdin=end, stdout=end, timeout=PATIENCE, check=False)
    assert done.returncode == -getattr(signal, name)
    assert (termios.tcgetattr(end) == modes) is is_restored
    os.close(end)
    os.set_blocking(terminal, False)
    with contextlib.suppress(OSError):
        assert os.read(terminal, 1000).startswith(b"resetouro was killed.") is is_restored
    os.close(terminal)


STAYING_PROGRAM = """
from ouro.utils import terminal_parent

terminal_parent.continue_in_child("", may_leave=False)
print(terminal_parent.current_launcher())
"""


def test_a_child_that_may_not_leave_has_no_launcher_to_release():
    command = [sys.executable, "-c", STAYING_PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (0, "None\n")


SIGNALLED_PROGRAM = """
import os, signal, sys
from ouro.utils import terminal_parent

def end(number, _frame):
    signal.signal(number, signal.SIG_IGN)  # the launcher passes its own on, maybe just now
    print("ended by", number, flush=True)
    os._exit(7)

signal.signal(signal.SIGTERM, end)
fork, start = os.fork, os.getpid()

def fork_and_signal():
    child = fork()
    if sys.argv[1] == "both" or os.getpid() == start:
        os.kill(os.getpid(), signal.SIGTERM)
    return child

os.fork = fork_and_signal
terminal_parent.continue_in_child("")
signal.pause()
"""
"""A signal comes just after the fork, to both processes or to the launcher alone."""


@pytest.mark.parametrize("receivers", ["both", "launcher"])
def test_a_signal_during_the_fork_ends_both_processes_once(receivers):
    command = [sys.executable, "-c", SIGNALLED_PROGRAM, receivers]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (7, f"ended by {signal.SIGTERM}\n")
