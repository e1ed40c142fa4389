"""X3: commands that read their input, ask for a password, or want the terminal."""

import os
import pty
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from fakes.shells import ShellBench


@pytest.fixture
def bench(tmp_path) -> ShellBench:
    return ShellBench(tmp_path)


@pytest.mark.parametrize("line", ["cat", 'read x; echo "got:$x"', "python3 -c 'print(repr(input()))'", "head -c 1"])
async def test_x3_input_is_empty(bench, line):
    result = await bench.run(line, timeout=5)
    assert "time limit" not in result.text


@pytest.mark.parametrize("line", ["cat < /dev/tty", "echo x > /dev/tty", "stty -echo < /dev/tty", "tty"])
async def test_x3_there_is_no_terminal(bench, line):
    assert (await bench.run(line, timeout=5)).failed


async def test_x3_git_does_not_ask_for_a_name(bench):
    line = "git -c credential.helper= ls-remote https://127.0.0.1:9/x.git; echo $GIT_TERMINAL_PROMPT"
    result = await bench.run(line, timeout=5)
    assert "\n0\n" in result.text


async def test_x3_pagers_and_editors_do_not_wait(bench):
    line = "git init -q . && git commit -q --allow-empty -m one && git log"
    line += " && git commit --amend -q --allow-empty && git log --format=%s"
    result = await bench.run(line, timeout=5)
    assert "\none\n[exit code 0" in result.text


def test_x3_a_child_cannot_type_into_the_users_terminal(tmp_path):
    """The whole program has a terminal; the shell line tries to push characters into it."""
    program = textwrap.dedent(
        """
        import asyncio, sys
        from pathlib import Path
        from fakes.shells import ShellBench
        line = '''python3 - <<'EOF'
        import fcntl, os, termios
        try:
            fd = os.open("/dev/tty", os.O_RDWR)
            for c in b"typed": fcntl.ioctl(fd, termios.TIOCSTI, bytes([c]))
            print("PUSHED")
        except OSError as error:
            print("refused", error.errno)
        EOF'''
        result = asyncio.run(ShellBench(Path(sys.argv[1])).run(line, timeout=10))
        print(result.text)
        """
    )
    main, side = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
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
    assert "refused" in done.stdout
    assert "PUSHED" not in done.stdout
