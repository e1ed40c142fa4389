"""Ten turns over the Responses wire: reasoning goes back byte for byte through all that a session
does.
"""

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from fakes.model_server import Call, Reply
from PIL import Image

from ouro import AsyncAgent
from ouro.events import Compacted
from ouro.messages import Thinking

PROXY = os.environ.get("LITELLM_PROXY", "")  # a test has an environment of its own
THOUGHT = "Ich überlege 漢字 {}."


def thinks(number, text="", *calls, **more):
    return Reply(text, calls=calls, thinking=THOUGHT.format(number), **more)


def reasoning_in(request):
    return [item for item in request.body["input"] if item["type"] == "reasoning"]


def enable_thinking(ouro, **entry):
    path = ouro.home / "models.yaml"
    file = yaml.safe_load(path.read_text())
    file["models"]["openai/test-model"] |= {"thinking": True, "images": True, **entry}
    path.write_text(yaml.safe_dump(file))


class Script:
    """Replies in order; the request for a summary gets one, at any time."""

    def __init__(self, *replies):
        self.replies = list(replies)

    def __call__(self, request):
        if "summar" in request.prompt.lower() and "Turn" not in request.prompt:
            return Reply("## Goal\nLook at a.py.\n## Next\nGo on.")
        return self.replies.pop(0)


def start_bridge(url):
    command = [sys.executable, "-m", "fakes.litellm_bridge", url]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    return process, process.stdout.readline().strip()


def start_proxy(program, url, folder):
    """litellm's proxy; returns when it answers."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
    parameters = {"model": "lm_studio/test-model", "api_base": url, "api_key": "none"}
    models = [{"model_name": "test-model", "litellm_params": parameters}]
    (folder / "proxy.yaml").write_text(yaml.safe_dump({"model_list": models}))
    command = [program, "--config", "proxy.yaml", "--host", "127.0.0.1", "--port", port]
    environment = {
        **os.environ,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    }
    log = (folder / "proxy.log").open("w")
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    while not is_open(int(port)):  # its imports take half a minute
        assert process.poll() is None, (folder / "proxy.log").read_text()
        time.sleep(0.5)
    return process, f"http://127.0.0.1:{port}/v1"


def is_open(port):
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


class Conversation(NamedTuple):
    """What ten turns left, with a resume, a fork and a compaction."""

    written: str
    """The files of the home after five turns."""
    compacted_at: int
    """The number of requests before the compaction."""
    signatures: list[str]


async def hold_ten_turns(ouro, held):
    """Ten turns of real sessions; the server follows `ten_turns`."""
    server, folder = ouro.server, ouro.folder
    (folder / "a.py").write_text("print('one')\n")
    Image.new("RGB", (8, 8), "red").save(folder / "shot.png")
    options = {"model": "openai/test-model", "effort": "high", "memory": False, "trust": True}
    async with AsyncAgent(folder, **options) as agent:
        assert (await agent.run("Turn 1")).text == "Hello."
        assert (await agent.run("Turn 2")).text == "Both read."
        assert (await agent.run("Turn 3: look", [folder / "shot.png"])).text == "It is red."
        async for event in agent.send("Turn 4"):
            if type(event).__name__ == "TextDelta":
                agent.interrupt()
        held.set()
        assert (await agent.run("Turn 5")).text == "Yes."
        first_id = agent.session_id
    written = "".join(path.read_text() for path in ouro.home.rglob("*.yaml"))
    async with AsyncAgent(folder, resume=first_id, **options) as agent:
        assert (await agent.run("Turn 6")).text == "Read again."
        assert (await agent.run("Turn 7")).text == "Still here."
    async with AsyncAgent(folder, resume=first_id, fork=True, **options) as agent:
        assert (await agent.run("Turn 8")).text == "The fork."
        before = len(server.requests)
        compacting = [event async for event in agent.session.window.compact("")]
        assert any(isinstance(event, Compacted) for event in compacting), compacting
        assert (await agent.run("Turn 9")).text == "And on."
        assert (await agent.run("Turn 10")).text == "Last."
        thoughts = [
            part.signature
            for message in agent.session.memory.context()
            for part in message.parts_of(Thinking)
        ]
    return Conversation(written, before, thoughts)


def ten_turns(held):
    read, ls = Call("read", {"path": "a.py"}), Call("glob", {"pattern": "*.py"})
    return Script(
        thinks(1, "Hello."),
        thinks(2, "Looking.", read, ls),
        thinks(3, "", read),
        thinks(4, "Both read."),
        thinks(5, "It is red."),
        thinks(6, "This takes long", hold=held),
        thinks(7, "Yes."),
        thinks(8, "Resumed.", read),
        thinks(9, "Read again."),
        thinks(10, "Still here."),
        thinks(11, "The fork."),
        thinks(12, "After the summary.", read),
        thinks(13, "And on."),
        thinks(14, "Last."),
    )


async def test_ten_turns_with_a_resume_a_fork_and_a_compaction(ouro):
    enable_thinking(ouro, wire="responses")
    held, server = threading.Event(), ouro.server
    script = ten_turns(held)
    server.script(script)
    written, before, signatures = await hold_ten_turns(ouro, held)
    for name in ("rs_0001", "rs_0002", "rs_0003", "rs_0004", "rs_0005", "rs_0007"):
        assert written.count(name) == 1, name
    assert script.replies == []
    assert server.refused == []  # each item came back byte for byte, with what follows it
    counts = [len(reasoning_in(request)) for request in server.requests]
    assert counts[:11] == [0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9]
    after = server.requests[before + 1 :]
    assert [len(reasoning_in(request)) for request in after] == [0, 1, 2]
    assert sum('"type": "reasoning"' in signature for signature in signatures) == 3
    keys = {request.body["prompt_cache_key"] for request in server.requests}
    assert len(keys) == 1


async def test_the_first_turn_is_answered_where_chat_refuses_tools(ouro):
    enable_thinking(ouro)
    ouro.server.refuses_tools_on_chat = True
    ouro.server.script([thinks(1, "", Call("glob", {"pattern": "*"})), thinks(2, "Hello.")])
    done = ouro.headless("-p", "Hi")
    assert (done.code, done.out.strip()) == (0, "Hello.")
    assert [request.wire for request in ouro.server.requests] == ["responses"] * 2
    assert len(ouro.server.refused) == 1


def test_a_chat_only_server_answers_the_first_turn_with_a_notice(ouro):
    enable_thinking(ouro)
    ouro.server.refuses_tools_on_chat = True
    ouro.server.paths = ("/chat/completions",)
    ouro.server.script(["Hello."])
    done = ouro.headless("-p", "Hi")
    assert (done.code, done.out.strip()) == (0, "Hello.")
    assert "without thinking" in done.err


def test_a_secret_in_a_summary_of_reasoning_is_not_written(ouro):
    enable_thinking(ouro, wire="responses")
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    ouro.server.script([Reply("Done.", thinking=f"The token is {secret}, I see.")])
    assert ouro.headless("-p", "Hi").code == 0
    written = [path for path in ouro.home.rglob("*") if path.is_file()]
    assert not [path for path in written if secret.encode() in path.read_bytes()]


@pytest.fixture(params=["the function", "the proxy"])
def bridge(request, model_server, tmp_path):
    """litellm's Responses over the chat fake: by its function, and by its proxy program if
    LITELLM_PROXY is the path of one (`pip install 'litellm[proxy]'` in an environment of its own).
    """
    model_server.paths = ("/chat/completions",)
    if request.param == "the function":
        process, url = start_bridge(model_server.openai_url)
    elif PROXY:
        process, url = start_proxy(PROXY, model_server.openai_url, tmp_path)
    else:
        pytest.skip("LITELLM_PROXY is not set")
    yield url
    process.terminate()
    process.wait(20)


async def test_ten_turns_through_the_bridge_of_litellm(bridge, ouro):
    enable_thinking(ouro, wire="responses", api_base=bridge)
    held, server = threading.Event(), ouro.server
    script = ten_turns(held)
    server.script(script)
    conversation = await hold_ten_turns(ouro, held)
    assert script.replies == []
    assert server.refused == []
    assert {request.path for request in server.requests} == {"/v1/chat/completions"}
    before, at_summary = server.requests[: conversation.compacted_at], conversation.compacted_at
    expected = [thoughts_of(*range(1, count)) for count in range(1, 7)]
    expected += [thoughts_of(*range(1, 6), *range(7, last)) for last in range(7, 12)]
    assert [thoughts_in(request) for request in before] == expected
    after = server.requests[at_summary + 1 :]
    assert [thoughts_in(request) for request in after] == [
        [],
        thoughts_of(12),
        thoughts_of(12, 13),
    ]
    last = before[-1].messages
    texts = {message.get("reasoning_content"): message.get("content") for message in last}
    assert texts[THOUGHT.format(2)] == "Looking."
    assert texts[THOUGHT.format(8)] == "Resumed."
    assert "image_url" in before[4].raw.decode()
    [looking] = [message for message in last if message.get("content") == "Looking."]
    results = [message["tool_call_id"] for message in last if message["role"] == "tool"]
    assert [call["id"] for call in looking["tool_calls"]] == results[:2]


def thoughts_of(*numbers):
    return [THOUGHT.format(number) for number in numbers]


def thoughts_in(request):
    found = [message.get("reasoning_content") for message in request.messages]
    return [text for text in found if text]
