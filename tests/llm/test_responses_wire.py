"""The Responses wire against a strict server, whose honesty the official SDK checks."""

import json

import pytest
from fakes.model_server import Call, Raw, Reply, Tokens, sse
from fakes.wires import READ, Wire, chunks_of
from msgspec.structs import replace

from ouro.errors import (
    AnswerUnfinished,
    ContextTooLong,
    ModelUnavailable,
    RateLimited,
    RequestRefused,
)
from ouro.llm.openai_responses import ResponsesWire
from ouro.llm.sealed_items import open_item, seal_item
from ouro.messages import Message, Text, Thinking, ToolReply, assistant, system, tool, user

LOOK = Call("read", {"path": "a.py"})


@pytest.fixture
def responses(model_server):
    return Wire("responses", model_server)


def sent(responses, number=-1):
    return responses.server.requests[number].body


def reasoning_in(body):
    return [item for item in body["input"] if item["type"] == "reasoning"]


async def ask_twice(responses, first: Reply, **more):
    """The answer with calls, and the answer after their results."""
    responses.server.script([first, "Done."])
    question = user("Look.")
    asked = await responses.ask(question, effort="high", **more)
    results = [ToolReply(call.id, call.name, "text") for call in asked.tool_calls]
    history = [question, asked, *([tool(*results)] if results else []), user("And?")]
    return history, await responses.ask(*history, effort="high", **more)


async def test_a_request_is_stateless_and_asks_for_sealed_reasoning(responses):
    responses.server.script(["ok"])
    await responses.ask(system("Be brief."), user("Hi"), effort="medium")
    body = sent(responses)
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])
    assert body["reasoning"] == {"effort": "medium", "summary": "auto"}
    assert body["instructions"] == "Be brief."
    assert body["max_output_tokens"] == 8192
    assert [tool["strict"] for tool in body["tools"]] == [False, False]


async def test_reasoning_goes_back_byte_for_byte_before_its_call(responses):
    first = Reply("Looking.", calls=[LOOK, LOOK], thinking=["Ich ", "überlege 漢字."])
    _, answer = await ask_twice(responses, first)
    assert answer.text == "Done."
    kinds = [item["type"] for item in sent(responses)["input"]]
    assert kinds == ["message", "reasoning", "message", "function_call", "function_call",
                     "function_call_output", "function_call_output", "message"]  # fmt: skip
    [item] = reasoning_in(sent(responses))
    assert item == responses.server.responses.sent[item["id"]]
    assert sent(responses)["input"][2]["phase"] == "commentary"
    assert not responses.server.refused


async def test_hidden_reasoning_without_a_summary_goes_back_too(responses):
    _, answer = await ask_twice(responses, Reply(calls=[LOOK], redacted="hidden"))
    assert (answer.text, len(reasoning_in(sent(responses)))) == ("Done.", 1)


async def test_reasoning_of_an_answer_without_calls_goes_back(responses):
    await ask_twice(responses, Reply("It is so.", thinking="Hm."))
    assert len(reasoning_in(sent(responses))) == 1


async def test_another_model_or_server_gets_no_reasoning(responses, model_server):
    history, _ = await ask_twice(responses, Reply(calls=[LOOK], thinking="Hm."))
    responses.server.script(["ok", "ok"])
    await responses.ask(*history, spec=replace(responses.spec, name="openai/other"))
    assert reasoning_in(sent(responses)) == []
    moved = model_server.openai_url.replace("127.0.0.1", "localhost")
    await responses.ask(*history, url=moved)
    assert reasoning_in(sent(responses)) == []


async def test_switching_back_sends_no_stale_reasoning(responses):
    history, answer = await ask_twice(responses, Reply(calls=[LOOK], thinking="Hm."))
    elsewhere = replace(assistant("I am another model."), model="anthropic/claude-sonnet-5")
    responses.server.script([Reply("New.", thinking="Fresh."), "ok"])
    history += [answer, user("Ask the other."), elsewhere, user("Back.")]
    fresh = await responses.ask(*history, effort="high")
    assert reasoning_in(sent(responses)) == []
    await responses.ask(*history, fresh, user("Go on."), effort="high")
    [item] = reasoning_in(sent(responses))
    assert item["summary"][0]["text"] == "Fresh."


async def test_a_cut_answer_loses_its_reasoning_and_its_calls(responses):
    history, _ = await ask_twice(responses, Reply("Well.", calls=[LOOK], thinking="Hm."))
    responses.server.script(["ok"])
    cut = replace(history[1], cut=True)
    assert (await responses.ask(history[0], cut, user("Go on."))).text == "ok"
    assert [item["type"] for item in sent(responses)["input"]] == ["message"] * 3


async def test_reasoning_that_the_server_cannot_read_any_more_is_left_out(responses):
    history, _ = await ask_twice(responses, Reply(calls=[LOOK], thinking="Hm."))
    responses.server.responses.sent.clear()  # the key that sealed it has changed
    responses.server.script(["ok"])
    assert (await responses.ask(*history)).text == "ok"
    assert len(responses.server.refused) == 1


async def test_a_damaged_signature_is_not_sent(responses):
    for signature in (
        '{"responses": "x',
        '{"responses": []}',
        "seal",
        '{"responses":' + "[" * 9999,
    ):
        assert open_item(signature, "127.0.0.1") is None
    assert open_item(seal_item({"id": "ä\ud83d"}, "host"), "host") == {"id": "ä\ud83d"}


async def test_usage_counts_cached_written_and_reasoning_tokens(responses):
    responses.server.script([Reply("ok", tokens=Tokens(1000, 50, cached=600, cache_written=100))])
    usage = (await responses.ask()).usage
    assert (usage.input, usage.cached, usage.cache_written, usage.output) == (1000, 600, 100, 50)


@pytest.mark.parametrize(
    ("finish", "reason"), [("length", "length"), ("content_filter", "filtered")]
)
async def test_an_incomplete_answer_names_its_reason(responses, finish, reason):
    responses.server.script([Reply("Half", finish=finish)])
    built = await responses.receive()
    assert (built.reason, built.message().text) == (reason, "Half")


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        ("rate_limit_exceeded", "Slow down.", RateLimited),
        ("server_error", "The server had an error.", ModelUnavailable),
        ("context_length_exceeded", "Your input exceeds the context window.", ContextTooLong),
        ("invalid_prompt", "Limited access to this content.", RequestRefused),
        ("image_too_large", "The image is too large.", RequestRefused),
    ],
)
@pytest.mark.parametrize("form", ["failed", "error"])
async def test_a_failure_in_the_stream_is_an_error(responses, form, code, message, kind):
    error = {"code": code, "message": message}
    failed = {"type": "response.failed", "response": {"status": "failed", "error": error}}
    event = failed if form == "failed" else {"type": "error", **error}
    responses.server.script([sse({"type": "response.created", "response": {}}, event)])
    failure, _ = await responses.failure()
    assert isinstance(failure, kind)
    assert message.rstrip(".") in str(failure)


async def test_a_refusal_of_the_model_is_its_answer(responses):
    events = [
        {"type": "response.refusal.delta", "output_index": 0, "delta": "I can't "},
        {"type": "response.refusal.delta", "output_index": 0, "delta": "do that."},
        {"type": "response.completed", "response": {"status": "completed"}},
    ]
    responses.server.script([sse(*events)])
    assert (await responses.ask()).text == "I can't do that."


async def test_a_stream_that_ends_early_is_cut(responses):
    responses.server.script([Reply("Half of it", fault="end", after=1)])
    failure, text = await responses.failure()
    assert (type(failure), text) == (AnswerUnfinished, "Half")


CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read"}
PATH = '{"path": "a.py"}'
DONE = {"type": "response.completed", "response": {"status": "completed"}}
ODD_STREAMS = {
    "only the end": [
        {"type": "response.completed", "response": {"output": [{**CALL, "arguments": PATH}]}}
    ],
    "items without pieces": [
        {"type": "response.output_item.done", "output_index": 0, "item": {**CALL, "arguments": PATH}},
        DONE,
    ],
    "no places, only ids": [
        {"type": "response.output_item.added", "item": {**CALL, "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": PATH},
        {"type": "response.output_item.done", "item": {**CALL, "arguments": PATH}},
        DONE,
    ],
    "unknown events": [
        {"type": "response.web_search_call.searching", "output_index": 0},
        {"type": "keepalive"},
        {"type": "response.output_item.added", "output_index": 1, "item": {**CALL, "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": PATH},
        {"type": "response.function_call_arguments.done", "output_index": 1, "arguments": PATH},
        {"type": "response.brand_new", "response": 7},
        DONE,
    ],
    "arguments only when they are done (lidge-jun/opencodex#4652)": [
        {"type": "response.output_item.added", "output_index": 0, "item": {**CALL, "arguments": ""}},
        {"type": "response.function_call_arguments.done", "output_index": 0, "arguments": PATH},
        {"type": "response.output_item.done", "output_index": 0, "item": {**CALL, "arguments": ""}},
        DONE,
    ],
    "an event after the end": [
        {"type": "response.output_item.done", "output_index": 0, "item": {**CALL, "arguments": PATH}},
        DONE,
        {"type": "response.output_text.delta", "output_index": 3, "delta": "late"},
    ],
    "no id of the call": [
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {"type": "function_call", "name": "read", "arguments": PATH},
        },
        DONE,
    ],
}  # fmt: skip


@pytest.mark.parametrize("events", ODD_STREAMS.values(), ids=ODD_STREAMS)
async def test_streams_of_other_servers_are_read(responses, events):
    responses.server.script([sse(*events)])
    answer = await responses.ask()
    assert [(call.name, call.arguments) for call in answer.tool_calls] == [
        ("read", {"path": "a.py"})
    ]
    assert answer.text == ""


async def test_two_messages_of_an_answer_are_two_paragraphs(responses):
    def message(place, text):
        content = [{"type": "output_text", "text": text}]
        item = {"type": "message", "role": "assistant", "content": content}
        return {"type": "response.output_item.done", "output_index": place, "item": item}

    responses.server.script([sse(message(0, "One."), message(1, "Two."), DONE)])
    assert (await responses.ask()).text == "One.\n\nTwo."


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("prompt_cache_key", "Unknown parameter: 'prompt_cache_key'."),
        ("service_tier", "Extra inputs are not permitted: service_tier"),
        ("include", "Encrypted content is not supported with this model."),
        ("summary", "Your organization must be verified to generate reasoning summaries."),
    ],
)
async def test_an_optional_field_that_is_refused_is_left_out(responses, field, words):
    def answer(request):
        flat = {**request.body, **request.body.get("reasoning", {})}
        if field not in flat:
            return "ok"
        return Raw(400, {"error": {"message": words, "type": "invalid_request_error"}})

    responses.server.script(answer)
    more = {"cache_key": "p1", "service_tier": "flex"}
    assert (await responses.ask(effort="high", **more)).text == "ok"
    assert len(responses.server.requests) == 2


async def test_the_cache_key_and_the_tier_are_sent(responses):
    responses.server.script(["ok"])
    await responses.ask(cache_key="p1", service_tier="flex")
    assert (sent(responses)["prompt_cache_key"], sent(responses)["service_tier"]) == ("p1", "flex")


async def test_an_answer_can_be_constrained_to_a_schema(responses):
    responses.server.script(["{}"])
    schema = {"type": "object", "properties": {}}
    model = responses.model().with_schema(schema)
    assert isinstance(model, ResponsesWire)
    await chunks_of(model)
    assert sent(responses)["text"]["format"]["schema"] == schema
    await model.close()


async def test_a_model_that_does_not_think_is_not_asked_for_reasoning(responses):
    responses.server.script(["ok"])
    await responses.ask(spec=replace(responses.spec, thinking=False), effort="high")
    assert not {"reasoning", "include"} & sent(responses).keys()


# The official SDK


def checked(kind, value):
    """`value` as the SDK's type; lazy parts are read, so that all of it is checked."""
    from pydantic import BaseModel, TypeAdapter

    adapter = TypeAdapter(kind)  # lazy parts need it

    def read(part):
        if isinstance(part, dict):
            return {key: read(item) for key, item in part.items()}
        if isinstance(part, str | bytes | BaseModel) or not hasattr(part, "__iter__"):
            return part
        return [read(item) for item in part]

    return read(adapter.validate_python(value))


async def test_every_request_has_the_types_of_the_sdk(responses):
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

    schema = {"type": "object", "properties": {}}
    first = Reply("Looking.", calls=[LOOK, LOOK], thinking="Hm.")
    await ask_twice(responses, first, cache_key="p", service_tier="flex")
    responses.server.script(["{}"])
    await chunks_of(responses.model().with_schema(schema), user("Hi"), tools=[READ])
    assert len(responses.server.requests) == 3
    for request in responses.server.requests:
        read = checked(ResponseCreateParamsStreaming, request.body)
        assert read.keys() == request.body.keys()


async def test_the_sdk_reads_the_same_answer_from_the_server(responses):
    from openai import AsyncOpenAI
    from openai.types.responses import ResponseStreamEvent

    calls = [LOOK, Call("shell", {"command": "ls ä"})]
    reply = Reply("Looking at it.", calls=calls, thinking="Hm, well.")
    responses.server.script([reply, reply])
    ours = await responses.ask(user("Look."), effort="high")
    client = AsyncOpenAI(base_url=responses.server.openai_url, api_key="none", max_retries=0)
    events = []
    async with client.responses.stream(
        model="test-model",
        input="Look.",
        store=False,
        include=["reasoning.encrypted_content"],
        reasoning={"effort": "high"},
    ) as stream:
        async for event in stream:
            events.append(event)
        final = await stream.get_final_response()
    await client.close()
    assert final.output_text == ours.text == "Looking at it."
    theirs = [item for item in final.output if item.type == "function_call"]
    assert [(item.name, json.loads(item.arguments)) for item in theirs] == [
        (call.name, call.arguments) for call in ours.tool_calls
    ]
    [reasoning] = [item for item in final.output if item.type == "reasoning"]
    assert reasoning.summary[0].text == ours.parts[0].text
    assert reasoning.encrypted_content
    for number, event in enumerate(events):
        if event.type != "response.completed":
            checked(ResponseStreamEvent, event.to_dict(exclude_unset=True))
        assert event.sequence_number == number


async def test_every_event_of_the_server_has_the_types_of_the_sdk(responses):
    import httpx
    from openai.types.responses import ResponseStreamEvent

    reply = Reply("Looking.", calls=[LOOK], thinking="Hm.")
    responses.server.script([reply, Reply("Half", finish="length")])
    body = {"model": "m", "input": "Look.", "stream": True}
    async with httpx.AsyncClient() as client:
        for _ in range(2):
            answer = await client.post(responses.server.openai_url + "/responses", json=body)
            lines = [line for line in answer.text.splitlines() if line.startswith("data: ")]
            assert len(lines) > 6
            for line in lines:
                event = json.loads(line.removeprefix("data: "))
                assert checked(ResponseStreamEvent, event).type == event["type"]


async def test_the_server_refuses_what_openai_refuses(responses):
    import httpx

    first = Reply(calls=[LOOK], thinking="Hm.")
    history, _ = await ask_twice(responses, first)
    body = sent(responses)
    assert [part.text for part in history[1].parts_of(Thinking)] == ["Hm."]
    url = responses.server.openai_url + "/responses"

    async def refusal(items, **more):
        async with httpx.AsyncClient() as client:
            answer = await client.post(url, json={**body, "input": items, **more})
        assert answer.status_code == 400
        return answer.json()["error"]["message"]

    message, reasoning, call, output, question = body["input"]
    assert "No tool output found" in await refusal([message, reasoning, call, question])
    assert "No tool call found" in await refusal([message, output])
    assert "without its required following item" in await refusal([message, reasoning, question])
    changed = {**reasoning, "encrypted_content": reasoning["encrypted_content"] + "x"}
    assert "could not be verified" in await refusal([message, changed, call, output])
    unsealed = {**reasoning, "encrypted_content": None}
    assert "`store` is set to false" in await refusal([message, unsealed, call, output])
    assert "Unknown parameter" in await refusal(body["input"], messages=[])
    assert "Unknown parameter" in await refusal([{**message, "name": "x"}])
    assert "Supported values are" in await refusal(body["input"], reasoning={"effort": "huge"})


def test_a_message_of_another_version_is_read():
    """An answer whose Thinking parts have no signature is sent without reasoning."""
    from ouro.llm.openai_responses import ResponsesFormat

    spec = Wire("responses", None).spec
    said = Message("assistant", (Thinking("Hm."), Text("Yes.")), model=spec.name)
    assert [item["type"] for item in ResponsesFormat(spec, "host").items([user("?"), said])] == [
        "message",
        "message",
    ]
