"""The model server of the tests."""

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from fakes.model_server import Call, ModelServer, Raw, Reply, Tokens, agent, failure, markdown
from fakes.waiting import PATIENCE


def ask(server, *messages, wire="openai", stream=True, tools=(), **more):
    messages = [
        {"role": "user", "content": text} if isinstance(text, str) else text for text in messages
    ] or [{"role": "user", "content": "hi"}]
    path = "/v1/chat/completions" if wire == "openai" else "/v1/messages"
    body = {"model": "m", "messages": messages, "stream": stream, **more}
    return httpx.post(server.url + path, json=body, timeout=PATIENCE)


def events(answer):
    return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]


def openai_text(answer):
    return "".join(
        e["choices"][0]["delta"].get("content") or "" for e in events(answer) if e["choices"]
    )


@pytest.mark.parametrize(
    "text",
    [
        "Hello there, you.",
        ["Hel", "lo there, ", "you."],
        (piece for piece in ["Hello there", ", you."]),
    ],
)
def test_a_text_is_streamed_in_pieces(model_server, text):
    model_server.script([Reply(text)])
    assert openai_text(ask(model_server)) == "Hello there, you."


def test_the_anthropic_stream_has_its_events_in_order(model_server):
    model_server.script(
        [
            Reply(
                "Hi",
                calls=[Call("read", {"path": "a"}, pieces=1)],
                thinking="hm",
                tokens=Tokens(10, 5, 4, 3),
            )
        ]
    )
    answer = ask(model_server, wire="anthropic")
    kinds = [line[7:] for line in answer.text.splitlines() if line.startswith("event: ")]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert [kind for kind in kinds if kind != "ping"] == [
        "message_start",
        *(
            "content_block_start",
            "content_block_delta",
            "content_block_delta",
            "content_block_stop",
        ),
        *block,
        *block,
        "message_delta",
        "message_stop",
    ]
    assert events(answer)[0]["message"]["usage"] == {
        "input_tokens": 3,
        "cache_read_input_tokens": 4,
        "cache_creation_input_tokens": 3,
        "output_tokens": 1,
    }


def test_unstreamed_answer_is_one_object(model_server):
    model_server.script([Reply("Hi", calls=[Call("read", {"path": "a"})])] * 2)
    openai = ask(model_server, stream=False).json()["choices"][0]
    assert openai["message"]["content"] == "Hi"
    assert openai["finish_reason"] == "tool_calls"
    anthropic = ask(model_server, stream=False, wire="anthropic").json()
    assert [block["type"] for block in anthropic["content"]] == ["text", "tool_use"]
    assert anthropic["content"][1]["input"] == {"path": "a"}


def test_requests_are_recorded_unchanged(model_server):
    model_server.script(["one", "two"])
    ask(model_server, "first")
    ask(model_server, "first", {"role": "assistant", "content": "one"}, "second", tools=[])
    assert [request.prompt for request in model_server.requests] == ["first", "second"]
    assert model_server.requests[0].headers["content-type"] == "application/json"
    assert model_server.requests[0].wire == "openai"


def test_the_end_of_a_script_is_an_error(model_server):
    answer = ask(model_server)
    assert (answer.status_code, "no more replies" in answer.text) == (400, True)


@pytest.mark.parametrize("fault", ["cut", "reset"])
@pytest.mark.parametrize("after", [0, 1, None])
def test_broken_stream_raises(model_server, fault, after):
    model_server.script([Reply("Hello there", fault=fault, after=after)])
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        ask(model_server)


@pytest.mark.parametrize(
    ("fault", "broken"),
    [("end", None), ("error", b'"error"'), ("bad_json", b'"h\n'), ("bad_utf8", b"\xff\xfe")],
)
def test_fault_comes_at_its_configured_place(model_server, fault, broken):
    model_server.script([Reply("Hello there", fault=fault, after=1)])
    answer = ask(model_server).content
    assert b'"Hell"' in answer
    assert broken is None or broken in answer
    assert (b"[DONE]" in answer) == fault.startswith("bad")


def test_failures_are_sent_with_their_headers(model_server):
    model_server.script([failure(429, "slow down", retry_after=1), Raw(200, "<html>")])
    first, second = ask(model_server), ask(model_server)
    assert (first.status_code, first.headers["Retry-After"], first.json()["error"]["message"]) == (
        429,
        "1",
        "slow down",
    )
    assert (second.status_code, second.text) == (200, "<html>")


def test_disconnected_client_is_noticed(model_server):
    model_server.script([Reply("Hello", fault="stall", after=1)])
    with httpx.stream(
        "POST", model_server.openai_url + "/chat/completions", json={"messages": [], "stream": True}
    ) as answer:
        next(answer.iter_lines())
    assert model_server.requests[0].gone.wait(5)


def test_agent_mode_follows_the_lines(model_server):
    model_server.script(agent)
    prompt = {"role": "user", "content": "please\nrun: ls & read: api.py\nsay: well"}
    first = events(ask(model_server, prompt))
    names = [
        c["function"]["name"]
        for e in first
        for choice in e["choices"]
        for c in choice["delta"].get("tool_calls", ())
        if "id" in c
    ]
    assert names == ["shell", "read"]
    replies = [
        {"role": "assistant", "content": None},
        {"role": "tool", "content": "a"},
        {"role": "tool", "content": "b"},
    ]
    assert openai_text(ask(model_server, prompt, *replies)) == "well"
    done = [*replies, {"role": "assistant", "content": "well"}]
    assert openai_text(ask(model_server, prompt, *done)).startswith("Done: 2 tool calls.")
    assert len(markdown(20_000)) == 20_000


@pytest.mark.parametrize("suffix", [".py", ".json", ".yaml"])
def test_the_server_runs_as_its_own_process(tmp_path, suffix):
    script = tmp_path / f"script{suffix}"
    steps = [
        "Hello",
        {"text": "Hm", "calls": [{"call": "read", "arguments": {"path": "a"}}]},
        {"status": 503, "body": "no"},
    ]
    script.write_text("script = ['Hello']" if suffix == ".py" else json.dumps(steps))
    tests = Path(__file__).parent.parent
    command = [sys.executable, "-m", "fakes.model_server", "--script", str(script)]
    with subprocess.Popen(command, cwd=tests, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().strip()
            answer = httpx.post(f"{url}/v1/chat/completions", json={"messages": [], "stream": True})
            assert openai_text(answer) == "Hello"
        finally:
            process.terminate()
    assert process.returncode


def test_two_servers_are_independent():
    with ModelServer(["one"]) as one, ModelServer(["two"]) as two:
        assert (openai_text(ask(one)), openai_text(ask(two))) == ("one", "two")


def test_agent_mode_continues_after_messages_of_ouro_and_echoes_plain_text(model_server):
    model_server.script(agent)
    said = {"role": "user", "content": "repeat: 2 true"}
    call, result = {"role": "assistant"}, {"role": "tool", "content": "ok"}
    added = {"role": "user", "content": "AGENTS.md says: be brief."}
    chunks = [
        each
        for event in events(ask(model_server, said, call, result, added))
        for each in event["choices"]
    ]
    pieces = [
        piece["function"]["arguments"]
        for each in chunks
        for piece in each["delta"].get("tool_calls", ())
    ]
    assert json.loads("".join(pieces)) == {"command": "true # 2"}
    done = [said, call, result, call, result]
    assert openai_text(ask(model_server, *done)).startswith("Done: 2 tool calls.")
    assert (
        openai_text(ask(model_server, *done, {"role": "assistant", "content": "Done"}, "hello"))
        == "You said: hello"
    )


def test_a_script_that_fails_answers_with_its_error(model_server):
    model_server.script(lambda request: 1 / 0)
    assert "ZeroDivisionError" in ask(model_server).text
