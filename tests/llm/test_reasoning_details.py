"""Reasoning details, in OpenRouter's format: the server that sent them gets them back."""

import pytest
from fakes.model_server import failure, sse
from fakes.wires import READ, Wire, chunks_of
from msgspec.structs import replace

from ouro.llm import ModelCall
from ouro.llm.sealed_items import join_details
from ouro.messages import Thinking, ToolReply, end_reasoning, tool, user

FIRST = {"type": "reasoning.text", "text": "I must ", "format": "anthropic-claude-v1", "index": 0}
SECOND = {"type": "reasoning.text", "text": "look.", "signature": "c2ln", "index": 0}
LOCKED = {"type": "reasoning.encrypted", "data": "bG9jaw==", "id": "call_1", "index": 1}
WHOLE = {**FIRST, "text": "I must look.", "signature": "c2ln"}
CALL = {"index": 0, "id": "call_1", "function": {"name": "read", "arguments": '{"path": "a"}'}}


def delta(finish=None, **fields):
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


EVENTS = [
    delta(reasoning="I must ", reasoning_details=[FIRST]),
    delta(reasoning="look.", reasoning_details=[SECOND]),
    delta(tool_calls=[CALL], reasoning_details=[LOCKED]),
    delta(finish="tool_calls"),
]


@pytest.fixture
async def openrouter(model_server):
    return Wire("openai", model_server)


async def answer_with_call(wire):
    """The answer of a model that thinks and calls `read`, and the messages after the call."""
    wire.server.script([sse(*EVENTS), "done"])
    model = wire.model()
    question = user("Look.")
    answer = await ModelCall([model], [question], [READ]).run()
    call = answer.tool_calls[0]
    return model, answer, [question, answer, tool(ToolReply(call.id, "read", "x = 1"))]


def sent_answer(wire):
    return next(m for m in wire.server.requests[-1].body["messages"] if m["role"] == "assistant")


async def test_the_server_gets_its_reasoning_details_back_after_a_call(openrouter):
    model, answer, messages = await answer_with_call(openrouter)
    assert "".join(part.text for part in answer.parts_of(Thinking)) == "I must look."
    await chunks_of(model, *messages, tools=[READ])
    assert sent_answer(openrouter)["reasoning_details"] == [WHOLE, LOCKED]
    await model.close()


async def test_another_server_and_another_model_get_no_reasoning_details(openrouter):
    model, answer, messages = await answer_with_call(openrouter)
    foreign = replace(answer, model="openai/other")
    sealed = next(part for part in answer.parts_of(Thinking) if part.signature)
    moved = sealed.signature.replace(model._endpoint.address, "models.example.com")
    elsewhere = replace(answer, parts=(Thinking("", moved), *answer.tool_calls))
    for changed in (foreign, elsewhere, end_reasoning(answer)):
        openrouter.server.script(["done"])
        await chunks_of(model, messages[0], changed, messages[2], tools=[READ])
        assert "reasoning_details" not in sent_answer(openrouter)
    await model.close()


async def test_refused_reasoning_details_are_left_out(openrouter):
    model, _, messages = await answer_with_call(openrouter)
    refusal = "messages.1.assistant.reasoning_details: property is unsupported"
    openrouter.server.script([failure(400, refusal), "done"])
    await chunks_of(model, *messages, tools=[READ])
    assert "reasoning_details" not in sent_answer(openrouter)
    await model.close()


def test_pieces_of_one_detail_are_joined_and_others_stay_apart():
    other = {"type": "reasoning.summary", "summary": "Short.", "index": 1}
    assert join_details([FIRST, SECOND, other, LOCKED]) == [WHOLE, other, LOCKED]
    assert join_details([LOCKED, LOCKED]) == [LOCKED, LOCKED]
