"""What only Anthropic has: cache marks, encrypted thinking, two ways to request thinking."""

import pytest
from fakes.model_server import Reply, failure, sse
from fakes.wires import READ, SHELL, Wire, chunks_of
from msgspec.structs import replace

from ouro.errors import RequestRefused
from ouro.llm import Endpoint, ModelSpec
from ouro.llm.anthropic import AnthropicWire
from ouro.messages import (
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolReply,
    assistant,
    system,
    tool,
    user,
)

MARK = {"type": "ephemeral"}


@pytest.fixture
def anthropic(model_server):
    return Wire("anthropic", model_server)


def request_body(anthropic, n=-1):
    return anthropic.server.requests[n].body


def thinking(name, effort, *messages):
    wire = AnthropicWire(
        ModelSpec(name, max_output=64_000, thinking=True), Endpoint("http://x"), effort=effort
    )
    body = wire._request(messages or [user("hi")], [])[2]
    return {key: body[key] for key in ("thinking", "output_config") if key in body}


async def test_request_matches_the_documentation(anthropic):
    anthropic.server.script(["ok"])
    await anthropic.ask(system("Be brief."), user("hi", context="Today."), tools=[READ])
    assert request_body(anthropic) == {
        "model": "claude-sonnet-4-5",
        "max_tokens": 8192,
        "tools": [
            {
                "name": "read",
                "description": "Read a file.",
                "input_schema": READ.parameters,
                "cache_control": MARK,
            }
        ],
        "system": [{"type": "text", "text": "Be brief.", "cache_control": MARK}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Today."},
                    {"type": "text", "text": "hi", "cache_control": MARK},
                ],
            }
        ],
        "stream": True,
    }
    request = anthropic.server.requests[0]
    assert (request.path, request.headers["anthropic-version"]) == ("/v1/messages", "2023-06-01")


@pytest.mark.parametrize("base", ["", "/", "/v1", "/v1/"])
async def test_address_may_include_the_version(anthropic, base):
    anthropic.server.script(["ok"])
    await anthropic.ask(url=anthropic.server.url + base)
    assert anthropic.server.requests[0].path == "/v1/messages"


async def test_at_most_four_cache_marks_end_the_stable_prefix(anthropic):
    anthropic.server.script(["ok"])
    turns = []
    for n in range(4):
        call = assistant("", ToolCall(f"a{n}", "read", {}))
        turns += [user(f"question {n}"), call, tool(ToolReply(f"a{n}", "read", "x"))]
    await anthropic.ask(system("Be brief."), *turns, tools=[READ, SHELL])
    body = request_body(anthropic)
    marked = [
        n
        for n, m in enumerate(body["messages"])
        if any("cache_control" in block for block in m["content"])
    ]
    assert marked == [9, 11]
    assert anthropic.server.requests[0].raw.count(b"cache_control") == 4


async def test_thinking_and_signatures_are_sent_back_unchanged(anthropic):
    anthropic.server.script(
        [Reply("Well.", thinking="I think.", signature="seal==", redacted="opaque"), "ok"]
    )
    reply = await anthropic.ask(effort="medium")
    assert reply.parts == (
        Thinking("", "opaque", redacted=True),
        Thinking("I think.", "seal=="),
        Text("Well."),
    )
    await anthropic.ask(user("hi"), reply, user("And?"), effort="medium")
    assert request_body(anthropic)["messages"][1]["content"] == [
        {"type": "redacted_thinking", "data": "opaque"},
        {"type": "thinking", "thinking": "I think.", "signature": "seal=="},
        {"type": "text", "text": "Well."},
    ]


async def test_only_its_own_whole_thinking_is_sent_back(anthropic):
    anthropic.server.script(["ok"])
    thought = (Thinking("I think.", "seal"), Text("Well."))
    own = anthropic.spec.name
    other, cut = (
        Message("assistant", thought, model="openai/x"),
        Message("assistant", thought, model=own, cut=True),
    )
    unsealed = Message("assistant", (Thinking("hm"), Text("Well.")), model=own)
    alone = Message("assistant", (Thinking("hm", "seal"),), model=own)
    await anthropic.ask(
        user("hi"), other, user("a"), cut, user("b"), unsealed, user("c"), alone, user("d")
    )
    assert b"thinking" not in anthropic.server.requests[0].raw


@pytest.mark.parametrize(
    ("name", "effort", "asked"),
    [
        ("anthropic/claude-sonnet-4-5", "off", {}),
        (
            "anthropic/claude-sonnet-4-5",
            "low",
            {"thinking": {"type": "enabled", "budget_tokens": 4000}},
        ),
        (
            "anthropic/claude-sonnet-4-20250514",
            "high",
            {"thinking": {"type": "enabled", "budget_tokens": 32000}},
        ),
        (
            "anthropic/claude-3-7-sonnet-latest",
            "medium",
            {"thinking": {"type": "enabled", "budget_tokens": 10000}},
        ),
        ("anthropic/claude-opus-5", "off", {}),
        (
            "anthropic/claude-opus-4-6",
            "medium",
            {
                "thinking": {"type": "adaptive", "display": "summarized"},
                "output_config": {"effort": "medium"},
            },
        ),
        (
            "anthropic/claude-opus-5",
            "high",
            {
                "thinking": {"type": "adaptive", "display": "summarized"},
                "output_config": {"effort": "high"},
            },
        ),
    ],
)
def test_thinking_request_depends_on_the_model(name, effort, asked):
    assert thinking(name, effort) == asked


def test_no_thinking_budget_after_calls_made_without_thinking():
    name = "anthropic/claude-sonnet-4-5"
    replies = tool(ToolReply("a", "read", "x"))
    call = ToolCall("a", "read", {})
    unthought = Message("assistant", (call,), model=name)
    thought = Message("assistant", (Thinking("hm", "seal"), call), model=name)
    assert thinking(name, "low", user("hi"), unthought, replies) == {}
    assert thinking(name, "low", user("hi"), thought, replies) != {}
    assert thinking(name, "low", user("hi"), unthought, replies, user("Go on")) != {}


async def test_rejected_thinking_mode_falls_back_to_the_other(anthropic):
    spec = replace(anthropic.spec, name="anthropic/claude-future")
    anthropic.server.script(
        [failure(400, '"thinking.type.enabled" is not supported for this model.'), "ok", "ok"]
    )
    model = anthropic.model(spec, effort="low")
    for _ in range(2):
        await chunks_of(model)
    await model.close()
    kinds = [request.body["thinking"]["type"] for request in anthropic.server.requests]
    assert kinds == ["enabled", "adaptive", "adaptive"]


async def test_rejected_signatures_are_left_out(anthropic):
    anthropic.server.script(
        [failure(400, "messages.1.content.0: Invalid `signature` in `thinking` block"), "ok"]
    )
    own = Message("assistant", (Thinking("hm", "old"), Text("Well.")), model=anthropic.spec.name)
    await anthropic.ask(user("hi"), own, user("And?"))
    assert [b"hm" in request.raw for request in anthropic.server.requests] == [True, False]


async def test_failed_tool_result_is_marked_as_error(anthropic):
    anthropic.server.script(["ok"])
    call = assistant("", ToolCall("a", "read", {}))
    await anthropic.ask(user("hi"), call, tool(ToolReply("a", "read", "no such file", failed=True)))
    (block,) = request_body(anthropic)["messages"][-1]["content"]
    assert (block["is_error"], block["content"]) == (
        True,
        [{"type": "text", "text": "no such file"}],
    )


@pytest.mark.parametrize(
    ("model", "effort", "thinking"),
    [
        ("claude-opus-4-7", "minimal", "low"),
        ("claude-opus-4-7", "max", "max"),
        ("claude-sonnet-4-5", "minimal", 1_024),
        ("claude-sonnet-4-5", "high", 32_000),
        ("claude-sonnet-4-5", "xhigh", 48_000),
        ("claude-haiku-4-5", "max", 64_000),
    ],
)
def test_each_effort_is_asked_for_in_the_way_of_the_model(model, effort, thinking):
    spec = ModelSpec(f"anthropic/{model}", max_output=128_000, thinking=True)
    wire = AnthropicWire(spec, Endpoint("http://localhost"), effort=effort)
    _, headers, body = wire._request([user("Hi")], [])
    if isinstance(thinking, str):
        assert body["thinking"]["type"] == "adaptive"
        assert body["output_config"] == {"effort": thinking}
    else:
        assert body["thinking"] == {"type": "enabled", "budget_tokens": thinking}
        assert "interleaved" in headers["anthropic-beta"]


async def test_a_vendor_gets_unsigned_thinking_back_if_it_asks_for_it(anthropic):
    words = "The `content[].thinking` in the thinking mode must be passed back to the API."
    anthropic.server.script([failure(400, words), "done", "done"])
    model = anthropic.model()
    name = model.spec.name
    call = ToolCall("t1", "read", {"path": "a"})
    thought = Message("assistant", (Thinking("Hm."), call), model=name)
    result = tool(ToolReply("t1", "read", "x"))
    await chunks_of(model, user("go"), thought, result, tools=[READ])
    sent = request_body(anthropic)["messages"][1]["content"]
    assert [block["type"] for block in sent] == ["thinking", "tool_use"]
    assert "thinking" not in str(request_body(anthropic, 0)["messages"])
    foreign = replace(thought, model="anthropic/other")
    await chunks_of(model, user("go"), foreign, result, tools=[READ])
    assert [block["type"] for block in request_body(anthropic)["messages"][1]["content"]] == [
        "tool_use"
    ]
    await model.close()


def refusal_after(*events, **details):
    delta = {"stop_reason": "refusal", "stop_details": {"type": "refusal", **details}}
    return sse(*events, {"type": "message_delta", "delta": delta}, {"type": "message_stop"})


async def test_a_refusal_is_shown_in_the_words_of_the_provider(model_server):
    wire = Wire("anthropic", model_server)
    why = {"category": "cyber", "explanation": "The request asks for an attack."}
    wire.server.script([refusal_after(**why)])
    with pytest.raises(RequestRefused, match=r"asks for an attack\. Category: cyber\."):
        await wire.ask(user("go"))


async def test_calls_before_a_refusal_are_not_run(model_server):
    wire = Wire("anthropic", model_server)
    text = {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "text", "text": "I"},
    }
    use = {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}}
    call = {"type": "content_block_start", "index": 1, "content_block": use}
    wire.server.script([refusal_after(text, call)])
    answer = await wire.ask(user("go"))
    assert (answer.text, answer.tool_calls, answer.incomplete) == ("I", (), "filtered")
