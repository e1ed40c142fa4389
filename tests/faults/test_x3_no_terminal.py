"""X3: commands that read input, ask for a password, or need the terminal."""

import os
import pty
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "line", ["cat", 'read x; echo "got:$x"', "python3 -c 'print(repr(input()))'", "head -c 1"]
)
async def test_x3_input_is_empty(bench, line):
    result = await bench.run(line)
    assert "time limit" not in result.text


async def test_x3_git_does_not_prompt_for_credentials(bench):
    line = (
        "git -c credential.helper= ls-remote https://127.0.0.1:9/x.git; echo $GIT_TERMINAL_PROMPT"
    )
    result = await bench.run(line)
    assert "\n0\n" in result.text


async def test_x3_pagers_and_editors_do_not_wait(bench):
    line = "git init -q . && git commit -q --allow-empty -m one && git log"
    line += " && git commit --amend -q --allow-empty && git log --format=%s"
    result = await bench.run(line)
    assert "\none\n[exit code 0" in result.text


TYPES = """python3 - <<'EOF'
import fcntl, os, termios
terminal = os.open("/dev/tty", os.O_RDWR)
for letter in b"typed":
    fcntl.ioctl(terminal, termios.TIOCSTI, bytes([letter]))
EOF"""
PROGRAM = textwrap.dedent("""
    import asyncio, fcntl, sys, termios
    from pathlib import Path
    from fakes.tool_benches import ShellBench
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    assert open("/dev/tty")
    result = asyncio.run(ShellBench(Path(sys.argv[1])).run(sys.argv[2]))
    print("FAILED" if result.failed else "SUCCEEDED", result.text)
    """)


def in_a_terminal(folder: Path, line: str) -> str:
    """The result of the shell tool for a line, in a program whose standard input is its controlling
    terminal.
    """
    main, side = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(folder), line],
            stdin=side,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            timeout=30,
            text=True,
        )
    finally:
        os.close(main)
        os.close(side)
    return done.stdout


@pytest.mark.parametrize(
    "line", [TYPES, "cat < /dev/tty", "echo x > /dev/tty", "stty -echo < /dev/tty", "tty"]
)
def test_x3_child_cannot_access_the_users_terminal(tmp_path, line):
    assert "FAILED" in (printed := in_a_terminal(tmp_path, line))
    assert "time limit" not in printed


@pytest.mark.parametrize("line", ["cat", "head -c 1"])
def test_x3_a_child_does_not_read_what_the_user_types(tmp_path, line):
    assert "SUCCEEDED" in in_a_terminal(tmp_path, line)
