import asyncio
import json

import pytest

from ouro.errors import ModelUnavailable, RequestRefused, StreamCut
from ouro.llm import (
    CallChunk,
    EndChunk,
    ScriptedModel,
    ScriptedReply,
    TextChunk,
    ThinkingChunk,
    UsageChunk,
    call,
    calls,
)
from ouro.messages import ToolCall, Usage, user


async def chunks_of(model, *messages):
    return [chunk async for chunk in model.stream(messages)]


async def test_text_reply_is_streamed_in_chunks():
    model = ScriptedModel(["Hello there, you"])

    assert await chunks_of(model, user("hi")) == [
        TextChunk("Hello "),
        TextChunk("there, "),
        TextChunk("you"),
        UsageChunk(Usage(input=100, output=10)),
        EndChunk("stop"),
    ]
    assert model.requests[0].messages == (user("hi"),)


async def test_thinking_comes_first_and_ends_with_its_signature():
    model = ScriptedModel([ScriptedReply("Yes.", thinking="hm hm", signature="seal")])

    assert (await chunks_of(model))[:4] == [
        ThinkingChunk("hm "),
        ThinkingChunk("hm"),
        ThinkingChunk("", "seal"),
        TextChunk("Yes."),
    ]


async def test_calls_get_ids_and_stream_arguments_as_json_chunks():
    model = ScriptedModel(
        [calls(call("read", path="a" * 40), call("read", path="b.py")), call("glob")]
    )

    first = await chunks_of(model)
    second = await chunks_of(model)

    named = [chunk for chunk in first + second if isinstance(chunk, CallChunk) and chunk.name]
    assert [(chunk.index, chunk.id, chunk.name) for chunk in named] == [
        (0, "call_1", "read"),
        (1, "call_2", "read"),
        (0, "call_3", "glob"),
    ]
    pieces = [
        chunk.arguments for chunk in first if isinstance(chunk, CallChunk) and chunk.index == 0
    ]
    assert len(pieces) > 2
    assert json.loads("".join(pieces)) == {"path": "a" * 40}
    assert first[-1] == EndChunk("tools")


async def test_malformed_arguments_are_sent_unchanged():
    model = ScriptedModel([ToolCall("x", "read", {}, malformed='{"path": ')])

    assert CallChunk(0, arguments='{"path": ') in await chunks_of(model)


async def test_error_replaces_or_interrupts_a_reply():
    model = ScriptedModel(
        [ModelUnavailable("down"), ScriptedReply("half an", error=StreamCut("cut"))]
    )

    with pytest.raises(ModelUnavailable, match="down"):
        await chunks_of(model)
    stream = model.stream([])
    assert await anext(stream) == TextChunk("half ")
    with pytest.raises(StreamCut):
        [chunk async for chunk in stream]


async def test_a_cut_reply_has_no_end():
    assert await chunks_of(ScriptedModel([ScriptedReply("half", cut=True)])) == [TextChunk("half")]


async def test_a_function_sees_the_messages():
    model = ScriptedModel([lambda messages: messages[-1].text.upper()])

    assert (await chunks_of(model, user("hi")))[0] == TextChunk("HI")


async def test_held_reply_waits_between_text_and_calls():
    gate = asyncio.Event()
    stream = ScriptedModel([ScriptedReply("word", (call("glob"),), hold=gate.wait)]).stream([])
    assert await anext(stream) == TextChunk("word")
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    assert not waiting.done()
    gate.set()
    assert await waiting == CallChunk(0, "call_1", "glob")
    await stream.aclose()


async def test_end_of_the_script_raises():
    with pytest.raises(RequestRefused, match="has no more replies"):
        await chunks_of(ScriptedModel([]))


async def test_close_is_recorded():
    model = ScriptedModel([])
    await model.close()
    assert model.closed
