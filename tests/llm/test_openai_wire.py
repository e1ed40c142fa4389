"""What only OpenAI-compatible servers have: dialects, and fields that some of them do not support."""

import base64

import pytest
from fakes.model_server import Call, Reply, Tokens, failure, sse
from fakes.wires import READ, Wire
from msgspec.structs import replace

from ouro.llm import Catalog, Endpoint, ModelCall, ModelSpec, ServerFacts, ThinkingChunk
from ouro.llm.openai import OpenAIChunks, OpenAIWire
from ouro.llm.portable import THINKING_NAMES
from ouro.llm.text_tools import call_schema
from ouro.messages import Image, Message, Text, Thinking, ToolCall, ToolReply, assistant, tool, user


@pytest.fixture
def openai(model_server):
    return Wire("openai", model_server)


def request_body(openai, n=-1):
    return openai.server.requests[n].body


async def test_request_matches_the_documentation(openai):
    openai.server.script(["ok"])
    await openai.ask(user("hi"), tools=[READ])
    assert request_body(openai) == {
        "model": "test-model",
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "read",
                    "description": "Read a file.",
                    "parameters": READ.parameters,
                },
            }
        ],
        "max_tokens": 8192,
        "reasoning_effort": "none",
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert openai.server.requests[0].path == "/v1/chat/completions"


async def test_fields_rejected_by_the_server_are_left_out(openai):
    refusals = [
        failure(400, "Unknown field: stream_options"),
        failure(
            400,
            "Unsupported parameter: 'max_tokens' is not supported here. Use 'max_completion_tokens'"
            " instead.",
        ),
        failure(400, "Unsupported value: 'reasoning_effort' does not support 'none'"),
        failure(422, "reasoning_effort: extra fields not permitted"),
    ]
    openai.server.script([*refusals, "ok", "ok"])
    model = openai.model()
    from fakes.wires import chunks_of

    for _ in range(2):
        await chunks_of(model)
    await model.close()
    kept = {"max_completion_tokens": 8192, "stream": True}
    assert len(openai.server.requests) == 6
    for body in (request_body(openai, 4), request_body(openai, 5)):
        assert {
            key: value for key, value in body.items() if key not in ("model", "messages")
        } == kept


async def test_text_tools_request_uses_a_schema_and_temperature_0(openai):
    openai.server.script(['{"name": "answer", "arguments": {"text": "ok"}}', "ok"])
    model = openai.model(replace(openai.spec, text_tools="on"))
    message = await ModelCall([model], [user("go")], [READ]).run()
    body = request_body(openai)
    assert message.text == "ok"
    assert (body["temperature"], "tools" in body) == (0, False)
    assert body["response_format"]["json_schema"]["schema"] == call_schema([READ])
    await ModelCall([openai.model()], [user("go")], [READ]).run()
    assert not {"temperature", "response_format"} & request_body(openai).keys()
    await model.close()


async def test_rejected_schema_is_left_out(openai):
    from fakes.wires import chunks_of

    schema = {"type": "object", "properties": {"keep": {"type": "boolean"}}}
    openai.server.script(["{}", failure(400, "response_format is not supported"), "{}", "ok"])
    model = openai.model()
    await chunks_of(openai.model(replace(openai.spec, text_tools="on")).with_schema(schema))
    assert request_body(openai)["temperature"] == 0
    named = {"name": "answer", "strict": True, "schema": schema}
    assert request_body(openai)["response_format"] == {"type": "json_schema", "json_schema": named}
    constrained = model.with_schema(schema)
    await chunks_of(constrained)
    assert "response_format" not in request_body(openai)
    await chunks_of(model)
    assert "response_format" not in request_body(openai)
    (client,) = model._clients
    assert constrained._clients == [client]
    await model.close()
    assert client.is_closed


async def test_other_400_errors_are_reported(openai):
    openai.server.script([failure(400, "I do not like your messages")])
    error, _ = await openai.failure()
    assert "I do not like your messages" in str(error)
    assert len(openai.server.requests) == 1


def test_token_limit_field_is_a_fact_of_the_provider():
    catalog = Catalog(environ={"OPENAI_API_KEY": "k"})
    facts = catalog.make("openai/gpt-5").wire.facts
    own = OpenAIWire(ModelSpec("openai/gpt"), Endpoint("https://api.openai.com/v1"), facts=facts)
    assert "max_completion_tokens" in own.prepare([user("hi")])[2]
    elsewhere = OpenAIWire(ModelSpec("openai/gpt"), Endpoint("http://127.0.0.1:1/v1"))
    assert "max_tokens" in elsewhere.prepare([user("hi")])[2]


@pytest.mark.parametrize(("effort", "value"), [("off", "none"), ("low", "low"), ("high", "high")])
async def test_effort_is_asked_of_models_that_think(openai, effort, value):
    openai.server.script(["ok", "ok"])
    await openai.ask(effort=effort)
    assert request_body(openai)["reasoning_effort"] == value
    await openai.ask(effort=effort, spec=replace(openai.spec, thinking=False))
    assert "reasoning_effort" not in request_body(openai)


def test_model_name_is_sent_without_the_provider():
    for name, wire_name in (
        ("openai/gpt-x", "gpt-x"),
        ("openrouter/a/b", "a/b"),
        ("plain", "plain"),
    ):
        assert (
            OpenAIWire(ModelSpec(name), Endpoint("http://x"))._request([], [])[2]["model"]
            == wire_name
        )


async def test_pictures_of_tools_follow_all_replies(openai):
    openai.server.script(["ok"])
    dot = Image("image/png", b"dot", "dot.png")
    calls = assistant("", ToolCall("a", "read", {}), ToolCall("b", "read", {}))
    await openai.ask(
        user("Look"),
        calls,
        tool(ToolReply("a", "read", "1", images=(dot,)), ToolReply("b", "read", "2")),
    )
    *_, first, second, pictures = request_body(openai)["messages"]
    assert [first["tool_call_id"], second["tool_call_id"], pictures["role"]] == ["a", "b", "user"]
    url = f"data:image/png;base64,{base64.b64encode(b'dot').decode()}"
    assert pictures["content"] == [
        {"type": "text", "text": "Pictures from the tool results above: read (dot.png)"},
        {"type": "image_url", "image_url": {"url": url}},
    ]


def test_thinking_is_sent_back_to_servers_that_want_it_and_only_that_of_their_model():
    spec = ModelSpec("x/y", thinking=True)
    for wanted, model, sent in (
        ("yes", "x/y", "hm"),
        ("yes", "other/z", " "),
        ("", "x/y", None),
    ):
        parts = (Thinking("hm"), Text("Yes"), ToolCall("a", "read", {}))
        thought = Message("assistant", parts, model=model)
        facts = ServerFacts({"thinking_back": wanted})
        wire = OpenAIWire(spec, Endpoint("http://127.0.0.1:1/v1"), facts=facts)
        assert wire.prepare([thought])[2]["messages"][0].get("reasoning_content") == sent


def calls_read(delta):
    function = {"name": "read", "arguments": "{}"}
    call = {"index": 0, "id": "c1", "type": "function", "function": function}
    thinks = {"choices": [{"delta": delta}]}
    calls = {"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    return sse(thinks, calls, "[DONE]")


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content", "reasoning_text"])
async def test_thinking_goes_back_to_an_own_server_in_the_field_in_which_it_came(openai, name):
    openai.server.script([calls_read({name: "I read it."}), "ok"])
    facts = ServerFacts()
    reply = await openai.ask(facts=facts)
    read = tool(ToolReply(reply.tool_calls[0].id, "read", "x"))
    await openai.ask(user("hi"), reply, read, facts=facts)
    _, asked, _ = request_body(openai)["messages"]
    assert {key: text for key, text in asked.items() if key in THINKING_NAMES} == {
        name: "I read it."
    }


async def test_thinking_is_not_sent_again_to_an_own_server_that_refuses_it(openai):
    refusal = "body.messages.1.assistant.reasoning: Extra inputs are not permitted"
    openai.server.script([calls_read({"reasoning": "Hm."}), failure(400, refusal), "ok", "ok"])
    facts = ServerFacts()
    reply = await openai.ask(facts=facts)
    read = tool(ToolReply(reply.tool_calls[0].id, "read", "x"))
    for _ in range(2):
        await openai.ask(user("hi"), reply, read, facts=facts)
        assert "reasoning" not in request_body(openai)["messages"][1]
    assert len(openai.server.requests) == 4


async def test_an_address_without_a_path_finds_the_requests_below_v1(openai):
    openai.server.paths = ("/v1/chat/completions",)
    openai.server.script(["one", "two"])
    facts = ServerFacts()
    asks = [await openai.ask(url=openai.server.url, facts=facts) for _ in range(2)]
    assert [reply.text for reply in asks] == ["one", "two"]
    paths = [request.path for request in openai.server.requests]
    assert paths == ["/v1/chat/completions"] * 2


async def test_a_model_that_is_nowhere_is_reported_with_the_address_of_the_user(openai):
    openai.server.script([failure(404, "no such model"), failure(404, "no such model"), "ok"])
    facts = ServerFacts()
    error, _ = await openai.failure(url=openai.server.url, facts=facts)
    assert "no such model" in str(error)
    assert not facts.has("path")
    assert len(openai.server.requests) == 2
    await openai.ask(url=openai.server.url, facts=facts)
    assert openai.server.requests[-1].path == "/chat/completions"


def test_thinking_stays_here_if_a_remote_server_has_not_asked_for_it():
    parts = (Thinking("hm"), ToolCall("a", "read", {}))
    thought = Message("assistant", parts, model="x/y")
    facts = ServerFacts({"thinking_name": "reasoning"})
    wire = OpenAIWire(
        ModelSpec("x/y", thinking=True), Endpoint("https://api.example.com/v1"), facts=facts
    )
    assert "reasoning" not in wire.prepare([thought])[2]["messages"][0]


async def test_thought_signature_of_a_call_is_sent_back(openai):
    extra = {"google": {"thought_signature": "abc+/=="}}
    call = {
        "index": 0,
        "id": "c1",
        "type": "function",
        "function": {"name": "read", "arguments": "{}"},
        "extra_content": extra,
    }
    openai.server.script(
        [
            sse(
                {"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "stop"}]}, "[DONE]"
            ),
            "ok",
        ]
    )
    reply = await openai.ask()
    await openai.ask(user("hi"), reply, tool(ToolReply(reply.tool_calls[0].id, "read", "x")))
    _, asked, answered = request_body(openai)["messages"]
    assert (asked["tool_calls"][0]["id"], asked["tool_calls"][0]["extra_content"]) == ("c1", extra)
    assert answered["tool_call_id"] == "c1"


async def test_nonstandard_stream_formats_are_parsed(openai):
    """No index, arguments as an object, thinking under another name, a complete message instead of
    a delta.
    """
    events = [
        {"choices": [{"delta": {"reasoning": "hm"}}]},
        {"choices": [{"message": {"content": "Hello"}}]},
        {
            "choices": [
                {
                    "delta": {
                        "tool_calls": [
                            {"id": "a", "function": {"name": "read", "arguments": {"path": "x"}}}
                        ]
                    }
                }
            ]
        },
        {
            "choices": [
                {
                    "delta": {
                        "tool_calls": [{"id": "b", "function": {"name": "read", "arguments": "{}"}}]
                    }
                }
            ]
        },
        {
            "choices": [{"delta": {"content": None, "tool_calls": None}, "finish_reason": "eos"}],
            "usage": {"prompt_tokens": 3, "cost": 0.5},
        },
    ]
    openai.server.script([sse(*events)])
    reply = await openai.ask(spec=replace(openai.spec, prices=None))
    assert [part for part in reply.parts if not isinstance(part, ToolCall)] == [
        Thinking("hm"),
        Text("Hello"),
    ]
    assert [call.arguments for call in reply.tool_calls] == [{"path": "x"}, {}]
    assert (reply.usage.input, reply.usage.cost) == (3, 0.5)


async def test_stream_left_open_after_the_answer_does_not_block(openai, monkeypatch):
    monkeypatch.setattr("ouro.llm.wire.USAGE_TIMEOUT", 0.05)
    openai.server.script([Reply("Yes.", fault="linger", done=False)])
    reply = await openai.ask()
    assert (reply.text, reply.usage.input) == ("Yes.", 100)


async def test_cost_is_unknown_without_price_or_usage(openai):
    openai.server.script([Reply("x", tokens=Tokens(5, 5)), Reply("x", tokens=None)])
    unpriced = replace(openai.spec, prices=None)
    assert (await openai.ask(spec=unpriced)).usage.cost is None
    assert (await openai.ask(spec=unpriced)).usage is None


async def test_calls_in_an_answer_ended_by_an_error_do_not_run(openai):
    event = {"choices": [{"delta": {"content": "x"}, "finish_reason": "error"}]}
    openai.server.script([sse(event, "[DONE]"), Reply("", calls=[Call("read", {})])])
    error, _ = await openai.failure()
    assert "ended the answer early: error" in str(error)


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning_content": "I think."},
        {"reasoning": "I think."},
        {"reasoning": "I think.", "reasoning_details": [{"text": "I think."}]},
        {"reasoning_text": "I think."},
        {"thinking": "I think.", "content": ""},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "I think."}]}]},
        {"content": [{"type": "thinking", "thinking": "I think."}, {"type": "text", "text": ""}]},
    ],
)
def test_thinking_is_read_under_each_of_its_names(delta):
    reader = OpenAIChunks(ModelSpec("openai/x"))
    chunks = list(reader.read({"choices": [{"delta": delta}]}))
    assert chunks == [ThinkingChunk("I think.")]


@pytest.mark.parametrize(
    "delta", [{"reasoning": {"a": 1}}, {"thinking": 7}, {"content": [{"thinking": [7]}]}]
)
def test_odd_thinking_is_ignored(delta):
    assert list(OpenAIChunks(ModelSpec("x/x")).read({"choices": [{"delta": delta}]})) == []
