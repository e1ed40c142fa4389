"""The process that a terminal waits for."""

import subprocess
import sys

from fakes.waiting import until

PROGRAM = """
import os, sys
from ouro.utils import terminal_parent

terminal_parent.continue_in_child()
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
