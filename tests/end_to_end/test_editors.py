"""`ouro acp`, the real program, as an editor starts it."""

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest
from acp import RequestError
from acp import schema as acp
from fakes.editor import Editor, connected
from fakes.model_server import Call
from fakes.npm import program


def git(folder, *words):
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


async def test_a_session_of_an_editor_continues_in_the_terminal(ouro):
    async with connected(ouro, editor := Editor("yes"), spawn=True) as connection:
        await connection.new()
        assert await connection.say("run: echo from the shell > made.txt\nsay: one") == "end_turn"
    assert (ouro.folder / "made.txt").read_text() == "from the shell\n"
    assert editor.text.endswith("one")
    assert ouro.headless("-p", "say: two", "--resume", connection.session_id).out == "two\n"


async def test_safe_leaves_the_instructions_of_the_folder_out(ouro):
    (ouro.folder / "AGENTS.md").write_text("Answer in verse.\n")
    async with connected(ouro, editor := Editor(), spawn=True, flags=["--safe"]) as connection:
        await connection.new()
        assert await connection.say("say: one") == "end_turn"
    assert editor.asked == [], "nothing is to be trusted"
    assert "in verse" not in str(ouro.server.requests)


async def test_worktree_keeps_the_changes_of_an_editor_on_a_branch_of_its_own(ouro):
    flags = ["--worktree", "idea"]
    link = acp.ResourceContentBlock(
        type="resource_link", uri=(ouro.folder / "api.py").as_uri(), name="api.py"
    )
    async with connected(ouro, Editor("yes", "yes"), spawn=True, flags=flags) as connection:
        await connection.new()
        assert await connection.say("run: echo hi > made.txt\nsay: one", link) == "end_turn"
        first = connection.session_id
        listed = await connection.agent.list_sessions(cwd=str(ouro.folder))
        [place] = {session.cwd for session in listed.sessions}
        await connection.agent.load_session(place, first, mcp_servers=[])
        assert await connection.say("run: cat made.txt\nsay: two") == "end_turn"
    assert "@api.py" in str(ouro.server.requests[0].messages), "the file of the worktree"
    assert not (ouro.folder / "made.txt").exists()
    assert (Path(place) / "made.txt").read_text() == "hi\n"
    assert "ouro/idea" in git(ouro.folder, "branch", "--list", "ouro/*")

    (Path(place) / "made.txt").unlink()
    async with connected(ouro, Editor(), spawn=True, flags=flags) as connection:
        await connection.new()
        assert await connection.say("say: three") == "end_turn"
    assert not Path(place).exists(), "it has no changes any more"


async def test_worktree_in_a_folder_without_commits_is_an_error_of_the_session(ouro, tmp_path):
    (tmp_path / "empty").mkdir()
    flags = ["--worktree", "idea"]
    async with connected(ouro, Editor(), spawn=True, flags=flags) as connection:
        connection.cwd = tmp_path / "empty"
        with pytest.raises(RequestError, match="needs a git repository with a commit"):
            await connection.new()


@pytest.mark.parametrize("servers", [{}, {"mcpServers": None}])
def test_an_editor_without_mcp_servers_may_leave_out_their_list(ouro, servers):
    lines = (
        {"id": 1, "method": "initialize", "params": {"protocolVersion": 1}},
        {"id": 2, "method": "session/new", "params": {"cwd": str(ouro.folder), **servers}},
    )
    given = "".join(json.dumps({"jsonrpc": "2.0", **line}) + "\n" for line in lines)
    process = ouro.begin("acp", stdin=subprocess.PIPE)
    process.stdin.write(given.encode())
    process.stdin.flush()
    answers = (json.loads(line) for line in process.stdout)
    opened = next(answer for answer in answers if answer.get("id") == 2)
    process.communicate()
    assert opened["result"]["sessionId"]


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
