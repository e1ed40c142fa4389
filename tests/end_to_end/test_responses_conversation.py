"""Ten turns over the Responses wire: reasoning goes back byte for byte through all that a session
does.
"""

import threading

import yaml
from fakes.model_server import Call, Reply
from PIL import Image

from ouro import AsyncAgent
from ouro.events import Compacted
from ouro.messages import Thinking

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


async def test_ten_turns_with_a_resume_a_fork_and_a_compaction(ouro):
    enable_thinking(ouro, wire="responses")
    server, folder = ouro.server, ouro.folder
    (folder / "a.py").write_text("print('one')\n")
    Image.new("RGB", (8, 8), "red").save(folder / "shot.png")
    held = threading.Event()
    read, ls = Call("read", {"path": "a.py"}), Call("glob", {"pattern": "*.py"})
    script = Script(
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
    server.script(script)
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
    for name in ("rs_0001", "rs_0002", "rs_0003", "rs_0004", "rs_0005", "rs_0007"):
        assert written.count(name) == 1, name
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
            for message in agent.session.transcript.context()
            for part in message.parts_of(Thinking)
        ]
    assert script.replies == []
    assert server.refused == []  # each item came back byte for byte, with what follows it
    counts = [len(reasoning_in(request)) for request in server.requests]
    assert counts[:11] == [0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9]
    after = server.requests[before + 1 :]
    assert [len(reasoning_in(request)) for request in after] == [0, 1, 2]
    assert sum('"type": "reasoning"' in signature for signature in thoughts) == 3
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
