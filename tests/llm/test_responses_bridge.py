"""The Responses wire against a server that is not ours: litellm's bridge over chat completions."""

import base64
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.model_server import Call, Reply
from fakes.wires import KEY, READ, SHELL, chunks_of

from ouro.llm import Endpoint, ModelSpec, ReplyBuilder
from ouro.llm.openai_responses import ResponsesWire
from ouro.messages import Image, ToolReply, system, tool, user

SPEC = ModelSpec("openai/test-model", thinking=True, images=True)
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def bridge(model_server):
    model_server.paths = ("/chat/completions",)
    command = [sys.executable, "-m", "fakes.litellm_bridge", model_server.openai_url]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    yield process.stdout.readline().strip()
    process.terminate()
    process.wait(20)


async def ask(model, *messages):
    builder = ReplyBuilder(SPEC.name)
    for chunk in await chunks_of(model, *messages, tools=[READ, SHELL]):
        builder.add(chunk)
    return builder.finish()


async def test_a_conversation_runs_through_the_bridge_of_litellm(bridge, model_server):
    calls = [Call("read", {"path": "ä.py"}), Call("shell", {"command": "ls"})]
    model_server.script(
        [
            Reply("Looking.", calls=calls, thinking="I must look."),
            Reply("Two files.", thinking="So it is."),
            Reply("It is a dot."),
            Reply("Half", finish="length"),
        ]
    )
    model = ResponsesWire(SPEC, Endpoint(bridge, KEY), effort="medium")
    messages = [system("Be brief."), user("Look.")]
    looked = await ask(model, *messages)
    assert [(call.name, call.arguments) for call in looked.tool_calls] == [
        ("read", {"path": "ä.py"}),
        ("shell", {"command": "ls"}),
    ]
    assert looked.text == "Looking."
    assert "I must look." in "".join(part.text for part in looked.parts if hasattr(part, "text"))
    results = [ToolReply(call.id, call.name, f"of {call.name}") for call in looked.tool_calls]
    messages += [looked, tool(*results)]
    found = await ask(model, *messages)
    assert found.text == "Two files."
    messages += [found, user("And this?", [Image("image/png", PIXEL, "dot.png")])]
    dot = await ask(model, *messages)
    assert dot.text == "It is a dot."
    assert dot.usage.input > 0
    half = await ask(model, *messages, dot, user("More."))
    assert (half.text, half.incomplete) == ("Half", "length")
    await model.close()
    sent = [request.messages for request in model_server.requests]
    assert [message["role"] for message in sent[1]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
    ]
    assert model_server.requests[2].raw.count(base64.b64encode(PIXEL)) == 1
