"""The wires against aimock, a mock of model servers that others write: its own scenarios, and ours
with thinking, a cut and a limit. Needs `npm install @copilotkit/aimock` (see `fakes.npm`).
"""

import json
import re
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
from fakes.npm import program
from fakes.wires import KEY

from ouro.errors import RateLimited
from ouro.llm import Endpoint, ModelCall, ModelSpec, ToolSpec
from ouro.llm.anthropic import AnthropicWire
from ouro.llm.ollama import OllamaWire
from ouro.llm.openai import OpenAIWire
from ouro.llm.openai_responses import ResponsesWire
from ouro.messages import Thinking, ToolReply, tool, user

WIRES = {
    "openai": (OpenAIWire, "/v1"),
    "responses": (ResponsesWire, "/v1"),
    "anthropic": (AnthropicWire, ""),
    "ollama": (OllamaWire, ""),
}
BACKGROUND = ToolSpec(
    "change_background",
    "Change the background.",
    {
        "type": "object",
        "properties": {"background": {"type": "string"}},
        "required": ["background"],
    },
)
OURS = {
    "fixtures": [
        {
            "match": {"userMessage": "think about it"},
            "response": {"content": "Forty-two.", "reasoning": "Six times seven."},
        },
        {
            "match": {"userMessage": "both at once"},
            "response": {
                "toolCalls": [
                    {"name": "change_background", "arguments": {"background": color}}
                    for color in ("red", "grün")
                ]
            },
        },
        {"match": {"toolCallId": "call_told"}, "response": {"content": "It is done. ✓"}},
    ]
}


@contextmanager
def aimock(folder: Path, fixtures: str | Path):
    """aimock with fixtures: a file, or the name of one in its package."""
    command = program("aimock")
    shipped = Path(command).resolve().parents[1] / "fixtures"
    llm = Path(command).resolve().with_name("cli.js")  # the program for models alone
    path = fixtures if isinstance(fixtures, Path) else shipped / fixtures
    log = folder / "aimock.log"
    arguments = ["node", str(llm), "--port", "0", "--fixtures", str(path), "--strict"]
    with log.open("w") as output:
        process = subprocess.Popen(arguments, stdout=output, stderr=subprocess.STDOUT)
    try:
        while not (found := re.search(r"http://[\d.]+:\d+", log.read_text())):
            assert process.poll() is None, log.read_text()
        yield found[0]
    finally:
        process.kill()
        process.wait()


async def ask(url, wire, *messages):
    kind, path = WIRES[wire]
    name = "anthropic/claude-sonnet-4-5" if wire == "anthropic" else f"{wire}/gpt-5"
    model = kind(ModelSpec(name, thinking=True), Endpoint(url + path, KEY), effort="low")
    try:
        return await ModelCall([model], messages, [BACKGROUND], attempts=1).run(lambda _: None)
    finally:
        await model.close()


@pytest.fixture(scope="module")
def greeting(tmp_path_factory):
    with aimock(tmp_path_factory.mktemp("aimock"), "example-greeting.json") as url:
        yield url


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    folder = tmp_path_factory.mktemp("aimock")
    path = folder / "ours.json"
    path.write_text(json.dumps(OURS))
    with aimock(folder, path) as url:
        yield url


@pytest.mark.parametrize("wire", WIRES)
async def test_the_greeting_of_aimock_is_answered(greeting, wire):
    reply = await ask(greeting, wire, user("hello"))
    assert reply.text == "Hello! How can I help you today?"
    second = await ask(greeting, wire, user("hello"), reply, user("goodbye"))
    assert second.text == "Goodbye! Have a great day!"


@pytest.mark.parametrize("wire", WIRES)
async def test_the_tool_call_of_aimock_is_a_call(tmp_path, wire):
    with aimock(tmp_path, "example-multi-turn.json") as url:
        reply = await ask(url, wire, user("change background to blue"))
    [call] = reply.tool_calls
    assert (call.name, dict(call.arguments)) == ("change_background", {"background": "blue"})


@pytest.mark.parametrize("wire", WIRES)
async def test_thinking_of_aimock_is_thinking(ours, wire):
    reply = await ask(ours, wire, user("think about it"))
    assert reply.text == "Forty-two."
    assert "".join(part.text for part in reply.parts_of(Thinking)) == "Six times seven."


@pytest.mark.parametrize("wire", WIRES)
async def test_parallel_calls_of_aimock_and_their_results(ours, wire):
    asked = user("both at once")
    reply = await ask(ours, wire, asked)
    assert [call.arguments["background"] for call in reply.tool_calls] == ["red", "grün"]
    results = [ToolReply(call.id, call.name, "done") for call in reply.tool_calls]
    told = await ask(ours, wire, asked, reply, tool(*results), user("think about it"))
    assert told.text == "Forty-two."


@pytest.mark.parametrize("wire", WIRES)
async def test_the_error_of_aimock_is_a_limit(tmp_path, wire):
    fixture = {"error": {"message": "Slow down.", "type": "rate_limit_error"}, "status": 429}
    path = tmp_path / "limit.json"
    path.write_text(
        json.dumps({"fixtures": [{"match": {"userMessage": "hello"}, "response": fixture}]})
    )
    with aimock(tmp_path, path) as url, pytest.raises(RateLimited, match="Slow down"):
        await ask(url, wire, user("hello"))
