"""Answers that come as one JSON object, although a stream was requested (earendil-works/pi#2481)."""

import json

import pytest
from fakes.model_server import Raw
from fakes.wires import READ, Wire

from ouro.errors import ModelError, RequestRefused
from ouro.llm import ModelCall
from ouro.messages import Thinking, user

ARGUMENTS = '{"path": "a.txt"}'
FUNCTION = {"name": "read", "arguments": ARGUMENTS}
WHOLE = {
    "openai": {
        "choices": [
            {
                "message": {
                    "content": "I look.",
                    "reasoning_content": "Hm.",
                    "tool_calls": [{"id": "c1", "type": "function", "function": FUNCTION}],
                },
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2},
    },
    "responses": {
        "status": "completed",
        "output": [
            {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"type": "message", "content": [{"type": "output_text", "text": "I look."}]},
            {"type": "function_call", "call_id": "c1", **FUNCTION},
        ],
        "usage": {"input_tokens": 5, "output_tokens": 2},
    },
    "anthropic": {
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a.txt"}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 5, "output_tokens": 2},
    },
}


def as_json(answer):
    return Raw(200, json.dumps(answer), {"Content-Type": "application/json; charset=utf-8"})


@pytest.mark.parametrize("kind", WHOLE)
async def test_a_whole_answer_is_read_like_a_stream(kind, model_server):
    wire = Wire(kind, model_server)
    wire.server.script([as_json(WHOLE[kind])])
    model = wire.model()
    answer = await ModelCall([model], [user("Look.")], [READ]).run()
    await model.close()
    [call] = answer.tool_calls
    assert (answer.text, call.name, dict(call.arguments)) == ("I look.", "read", {"path": "a.txt"})
    assert [part.text for part in answer.parts_of(Thinking)] == ["Hm."]
    assert (answer.usage.input, answer.usage.output) == (5, 2)


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("other", [{"status": "ok"}, {"choices": [], "output": [], "content": []}])
async def test_another_object_is_no_answer(kind, other, model_server):
    wire = Wire(kind, model_server)
    wire.server.script([as_json(other)])
    error, _ = await wire.failure()
    assert isinstance(error, RequestRefused)
    assert "application/json instead of a stream" in str(error)


EVENTS = {
    "openai": [{"choices": [{"delta": {"content": "Hello."}, "finish_reason": "stop"}]}],
    "responses": [
        {"type": "response.output_text.delta", "delta": "Hello."},
        {"type": "response.completed", "response": {"status": "completed"}},
    ],
    "anthropic": [
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "Hello."},
        },
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ],
}


@pytest.mark.parametrize("kind", EVENTS)
@pytest.mark.parametrize("content_type", ["application/json", "text/html; charset=utf-8"])
async def test_a_stream_with_another_content_type_is_read(kind, content_type, model_server):
    """vllm-project/vllm-ascend#5033: a proxy names each stream `application/json`."""
    events = "".join(f"data: {json.dumps(event)}\n\n" for event in EVENTS[kind])
    model_server.script([Raw(200, ": hello\n\n" + events, {"Content-Type": content_type})])
    assert (await Wire(kind, model_server).ask(user("hi"))).text == "Hello."


@pytest.mark.parametrize("status", [200, 401])
async def test_an_answer_in_an_unknown_encoding_is_asked_for_once(status, model_server):
    """A gateway that compresses each answer does not stop that at the next attempt."""
    model_server.script(lambda _request: Raw(status, b"\x1b\x00\x00", {"Content-Encoding": "br"}))
    model = Wire("openai", model_server).model()
    with pytest.raises(ModelError, match=r"'br', which was not requested|does not accept the key"):
        await ModelCall([model], [user("hi")], [READ], attempts=11).run()
    await model.close()
    assert len(model_server.requests) == 1
