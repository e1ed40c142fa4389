"""L3: every tool call of a model, however wrong, becomes one that can be answered and sent back."""

import pytest
from fakes.model_server import Call, Reply

from ouro.messages import ToolReply, tool, user


@pytest.mark.parametrize(
    "text", ['{"path": "a', "not json", "[1]", '"a"', "null", '{"a": NaN}', "[" * 50_000, "1e999"]
)
async def test_l3_non_object_arguments_are_kept_as_malformed(wire, text):
    if wire.kind == "litellm-anthropic" and text.startswith("[["):
        pytest.skip("slow there")
    wire.server.script([Reply("", calls=[Call("read", text), Call("read", {"path": "b"})])])
    reply = await wire.ask()
    assert [(call.arguments, call.malformed) for call in reply.tool_calls] == [
        ({}, text),
        ({"path": "b"}, ""),
    ]


@pytest.mark.parametrize("ids", [("t1", "t1"), (None, None), ("t1", None), (" ", "\n")])
async def test_l3_call_ids_are_made_unique(wire, ids):
    wire.server.script(
        [Reply("", calls=[Call("read", {"path": str(n)}, id=each) for n, each in enumerate(ids)])]
    )
    reply = await wire.ask()
    assert [call.arguments for call in reply.tool_calls] == [{"path": "0"}, {"path": "1"}]
    assert len({call.id for call in reply.tool_calls}) == 2
    assert all(call.id.strip() for call in reply.tool_calls)


async def test_l3_call_without_a_name_is_kept(wire):
    wire.server.script([Reply("", calls=[Call(None, {"path": "a"})]), "ok"])
    reply = await wire.ask()
    (call,) = reply.tool_calls
    assert (call.name, call.arguments) == ("", {"path": "a"})
    await wire.ask(
        user("hi"),
        reply,
        tool(ToolReply(call.id, call.name, "There is no such tool.", failed=True)),
    )
    assert b"unnamed" in wire.server.requests[1].raw


async def test_l3_lone_surrogates_are_replaced(wire):
    wire.server.script([Reply("a\ud800b", calls=[Call("read", '{"path": "x\\udc00"}')]), "ok"])
    reply = await wire.ask()
    assert (reply.text, reply.tool_calls[0].arguments) == ("a\ufffdb", {"path": "x\ufffd"})
    await wire.ask(
        user("lone \udfff"), reply, tool(ToolReply(reply.tool_calls[0].id, "read", "x\ud800"))
    )
    assert len(wire.server.requests) == 2


@pytest.mark.parametrize("depth", [101, 950])
async def test_l3_deep_arguments_are_kept_as_malformed(wire, depth):
    text = '{"a": ' * depth + "1" + "}" * depth
    wire.server.script(
        [Reply("", calls=[Call("read", text), Call("read", {"path": {"b": [{}]}})]), "ok"]
    )
    reply = await wire.ask()
    first, second = reply.tool_calls
    assert ((first.arguments, first.malformed), second.arguments) == (
        ({}, text),
        {"path": {"b": [{}]}},
    )
    await wire.ask(
        user("hi"),
        reply,
        tool(*(ToolReply(call.id, "read", "Wrong.") for call in reply.tool_calls)),
    )
    assert len(wire.server.requests) == 2
