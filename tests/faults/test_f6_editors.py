"""F6: editors that send invalid messages, and links and pipes in the way of their files."""

from __future__ import annotations

import asyncio
import json
import subprocess

import pytest
from acp import PROTOCOL_VERSION, RequestError
from fakes.editor import Editor, connected
from fakes.model_server import Call, Reply, agent
from fakes.ouro_program import OuroProgram
from fakes.waiting import PATIENCE

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": PROTOCOL_VERSION},
}


@pytest.fixture
def ouro(model_server, repository, monkeypatch):
    model_server.script(agent)
    monkeypatch.setenv("OURO_SESSIONS_TITLES", "false")
    program = OuroProgram(model_server, repository)
    yield program
    program.close()


def new_session(ouro):
    return {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "session/new",
        "params": {"cwd": str(ouro.folder), "mcpServers": []},
    }


def test_f6_invalid_lines_get_protocol_errors(ouro):
    """Standard output contains only protocol messages."""
    unknown = {"jsonrpc": "2.0", "id": 3, "method": "no/such", "params": {}}
    wrong = {"jsonrpc": "2.0", "id": 4, "method": "session/new", "params": {"cwd": 7}}
    messages = [json.dumps(message) for message in (INITIALIZE, unknown, wrong, new_session(ouro))]
    rows = ["{broken", "[1, 2]", "7", '{"method": 5}', *messages]
    process = ouro.begin("acp", stdin=subprocess.PIPE)
    process.stdin.write("\n".join(rows).encode() + b"\n")
    process.stdin.flush()
    answers = {}
    for line in process.stdout:
        message = json.loads(line)
        if "id" in message:
            answers.setdefault(message["id"], []).append(message)
        if 2 in answers:
            break
    assert [answer["error"]["code"] for answer in answers[None]] == [-32700] * 4
    assert answers[1][0]["result"]["protocolVersion"] == PROTOCOL_VERSION
    assert (answers[3][0]["error"]["code"], answers[4][0]["error"]["code"]) == (-32601, -32602)
    assert answers[2][0]["result"]["sessionId"]
    process.stdin.close()
    assert process.wait(20) == 0
    assert process.stderr.read() == b""


def test_f6_a_pipe_that_closes_in_a_turn_saves_the_session(ouro):
    process = ouro.begin("acp", stdin=subprocess.PIPE)

    def write(message):
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()

    write(INITIALIZE)
    write(new_session(ouro))
    for line in process.stdout:
        if (message := json.loads(line)).get("id") == 2:
            break
    text = 'call: glob {"pattern": "*.py"}\nrun: sleep 60'
    prompt = [{"type": "text", "text": text}]
    params = {"sessionId": message["result"]["sessionId"], "prompt": prompt}
    write({"jsonrpc": "2.0", "id": 3, "method": "session/prompt", "params": params})
    for line in process.stdout:
        if b"sleep 60" in line:
            break
    process.stdin.close()
    process.stdout.close()
    assert process.wait(20) == 0
    [saved] = ouro.sessions()
    assert (saved["id"], saved["messages"]) == (params["sessionId"], 5)


async def test_f6_a_cancel_at_any_moment_ends_the_prompt_as_cancelled(ouro):
    ouro.server.script(lambda request: Reply("Word by word.", delay=20))
    async with connected(ouro, Editor()) as connection:
        await connection.new()
        for steps in (1, 2, 3, 4, 6, 9, 14, 20):
            prompt = asyncio.create_task(connection.say("Go."))
            for _ in range(steps):
                await asyncio.sleep(0)
            await connection.agent.cancel(connection.session_id)
            async with asyncio.timeout(PATIENCE):
                assert await prompt == "cancelled"


async def test_f6_path_outside_of_the_workspace_is_not_read_from_the_editor(ouro, tmp_path):
    outside = tmp_path / "outside.txt"
    outside.write_text("on disk\n")
    (ouro.folder / "link").symlink_to(tmp_path)
    read = [Call("read", {"path": str(outside)}), Call("read", {"path": "link/outside.txt"})]
    ouro.server.script([Reply(calls=read), "Done."])
    editor = Editor("no", "no")
    editor.buffers = {str(outside): "unsaved\n", str(ouro.folder / "link/outside.txt"): "unsaved\n"}
    async with connected(ouro, editor, files=True) as connection:
        await connection.new()
        await connection.say("Go.")
    assert all("refused" in result for result in ouro.server.requests[-1].results)
    with pytest.raises(RequestError):
        async with connected(ouro, Editor()) as connection:
            await connection.new(additional_directories=["../elsewhere"])


async def test_f6_an_editor_that_never_answers_does_not_stop_the_tool(ouro, monkeypatch):
    monkeypatch.setattr("ouro.frontends.acp.editor_client.ANSWER_TIMEOUT", 0.05)

    class Silent(Editor):
        async def read_text_file(self, session_id, path, **_more):
            await asyncio.Event().wait()

    ouro.server.script([Call("read", {"path": "api.py"}), "Done."])
    async with connected(ouro, Silent(), files=True) as connection:
        await connection.new()
        assert await connection.say("Go.") == "end_turn"
    assert "import os" in ouro.server.requests[-1].results[0]
