"""`ouro acp`, the real program, as an editor starts it."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from fakes.editor import Editor, connected
from fakes.model_server import Call
from fakes.npm import program


async def test_a_session_of_an_editor_continues_in_the_terminal(ouro):
    async with connected(ouro, editor := Editor("yes"), spawn=True) as connection:
        await connection.new()
        assert await connection.say("run: echo from the shell > made.txt\nsay: one") == "end_turn"
    assert (ouro.folder / "made.txt").read_text() == "from the shell\n"
    assert editor.text.endswith("one")
    assert ouro.headless("-p", "say: two", "--resume", connection.session_id).out == "two\n"


def test_acpx_client_runs_a_command_and_changes_a_file(ouro):
    """acpx, of npm: one prompt with a command and a file change, both permitted by the client."""
    version = subprocess.run(
        [program("node"), "--version"], capture_output=True, text=True, check=True
    ).stdout
    if int(version.lstrip("v").partition(".")[0]) < 22:
        pytest.skip("acpx needs node 22")
    environment = {
        **ouro.environment,
        "PATH": f"{Path(program('node')).parent}:{os.environ['PATH']}",
    }
    shell, write = (
        Call("shell", {"command": "echo heron > made.txt"}),
        Call("write", {"path": "b.txt", "content": "x"}),
    )
    ouro.server.script([shell, write, "All done."])
    command = [
        program("acpx"),
        "--agent",
        shlex.join(ouro.command("acp")),
        "--approve-all",
        "exec",
        "make it",
    ]
    done = subprocess.run(
        command, env=environment, cwd=ouro.folder, capture_output=True, text=True, timeout=60
    )
    assert "All done." in done.stdout, done
    assert (ouro.folder / "made.txt").read_text() == "heron\n"
    assert (ouro.folder / "b.txt").read_text() == "x"
