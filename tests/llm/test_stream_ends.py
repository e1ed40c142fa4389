"""Where an answer ends, on servers that do not say so as the protocol asks."""

import pytest
from fakes.model_server import Raw, sse
from fakes.wires import READ, Wire

from ouro.errors import AnswerUnfinished, ContextTooLong, EmptyAnswer, TransientModelError
from ouro.llm import Catalog, ModelCall, ModelEntry, ModelsFile
from ouro.llm.model import NoticeChunk
from ouro.messages import Text, user

USAGE = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}


def chunk(delta, finish=None, **more):
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def call(arguments):
    function = {"name": "read", "arguments": arguments}
    return chunk({"tool_calls": [{"index": 0, "id": "c1", "function": function}]})


def block(kind, **delta):
    start = {"type": "content_block_start", "index": 0, "content_block": {"type": kind, **delta}}
    return [start, {"type": "content_block_stop", "index": 0}]


HELLO, WHOLE, HALF = chunk({"content": "Hello"}), call('{"path": "a"}'), call('{"path": "a')
START = {"type": "message_start", "message": {"usage": {"input_tokens": 3}}}
HELLO_BLOCK, LAST = block("text", text="Hello"), {"type": "message_stop"}
CALL_BLOCK = block("tool_use", id="t1", name="read", input={"path": "a"})
END_TURN = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
ENDS = {
    "the usage comes last": ("openai", [HELLO, USAGE]),
    "the usage is in the last chunk": ("openai", [{**HELLO, "usage": USAGE["usage"]}]),
    "only [DONE]": ("openai", [HELLO, "[DONE]"]),
    "finish_reason null": ("openai", [HELLO, chunk({}), "[DONE]"]),
    "finish_reason empty": ("openai", [HELLO, chunk({}, ""), "[DONE]"]),
    "a clean end after text": ("openai", [HELLO]),
    "a clean end after a call": ("openai", [WHOLE]),
    "a call, then the usage": ("openai", [WHOLE, USAGE]),
    "no message_stop": ("anthropic", [START, *HELLO_BLOCK, END_TURN]),
    "no reason": ("anthropic", [START, *HELLO_BLOCK, LAST]),
    "neither of them": ("anthropic", [START, *HELLO_BLOCK]),
    "neither after a call": ("anthropic", [START, *CALL_BLOCK]),
    "an error after the end": ("anthropic", [START, *HELLO_BLOCK, LAST, {"error": {}}]),
}
CUTS = {
    "a clean end in a call": ("openai", [HALF]),
    "text and half a call": ("openai", [HELLO, HALF]),
    "half a call, then the usage": ("openai", [HALF, USAGE]),
    "the usage first": ("openai", [USAGE, HALF]),
    "thinking only": ("openai", [chunk({"reasoning_content": "Hm."})]),
    "half a call of Anthropic": (
        "anthropic",
        [
            START,
            {**CALL_BLOCK[0], "content_block": {"type": "tool_use", "id": "t", "name": "read"}},
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": '{"path'},
            },
        ],
    ),
    **{
        f"finish_reason {word}": ("openai", [HELLO, chunk({}, word)])
        for word in ("error", "abort", "network_error", "insufficient_system_resource")
    },
}


async def run(model, on_chunk=None, on_retry=None):
    async def now(_seconds):
        pass

    made = ModelCall([model], [user("hi")], [], attempts=11, sleep=now)
    partial = []

    async def retry(_retrying):
        partial.append(made.partial().text)

    return await made.run(on_chunk, retry), partial


def server_answers(kind, server, events, then=None):
    raw = sse(*events)
    server.script([raw, *([then] * 20)] if then else [raw] * 20)
    return Wire(kind, server).model()


@pytest.mark.parametrize("name", ENDS)
async def test_an_answer_that_is_whole_takes_one_request(name, model_server):
    kind, events = ENDS[name]
    model = server_answers(kind, model_server, events)
    answer, _ = await run(model)
    await model.close()
    assert answer.text == "Hello" or [made.arguments for made in answer.tool_calls] == [
        {"path": "a"}
    ]
    assert len(model_server.requests) == 1


@pytest.mark.parametrize("name", CUTS)
async def test_an_answer_that_was_cut_is_asked_again_and_what_came_is_kept(name, model_server):
    kind, events = CUTS[name]
    model = server_answers(kind, model_server, events, then="whole")
    answer, partial = await run(model)
    await model.close()
    assert answer.text == "whole"
    assert len(model_server.requests) == 2
    assert partial == ["Hello" if HELLO in events else ""]


async def test_an_answer_that_is_always_unfinished_costs_four_requests(model_server):
    model = server_answers("openai", model_server, [HALF])
    with pytest.raises(AnswerUnfinished, match="4 attempts"):
        await run(model)
    await model.close()
    assert len(model_server.requests) == 4


async def test_half_a_line_at_the_end_is_a_cut(model_server):
    half = sse(HELLO).bytes + b'data: {"choi'
    model_server.script([Raw(200, half, {"Content-Type": "text/event-stream"}), "whole"])
    model = Wire("openai", model_server).model()
    answer, partial = await run(model)
    await model.close()
    assert (answer.text, partial) == ("whole", ["Hello"])


@pytest.mark.parametrize(
    ("word", "incomplete"),
    [("sensitive", "filtered"), ("SAFETY", "filtered"), ("MAX_TOKENS", "length"), ("eos", "")],
)
async def test_other_words_for_a_reason_are_known(word, incomplete, model_server):
    model = server_answers("openai", model_server, [HELLO, chunk({}, word)])
    answer, _ = await run(model)
    await model.close()
    assert (answer.text, answer.incomplete) == ("Hello", incomplete)


async def test_a_full_window_at_the_end_is_an_overflow(model_server):
    full = {"type": "message_delta", "delta": {"stop_reason": "model_context_window_exceeded"}}
    model = server_answers("anthropic", model_server, [START, *HELLO_BLOCK, full, LAST])
    with pytest.raises(ContextTooLong):
        await run(model)
    await model.close()


async def test_an_end_without_a_sign_is_noticed_once(model_server):
    model = server_answers("openai", model_server, [HELLO])
    seen = []
    for _ in range(3):
        await run(model, seen.append)
    await model.close()
    notices = [made.text for made in seen if isinstance(made, NoticeChunk)]
    assert notices == ["The server closed the answer without saying that it is complete."]


async def test_an_end_with_a_sign_is_not_noticed(model_server):
    model = server_answers("openai", model_server, [HELLO, "[DONE]"])
    seen = []
    await run(model, seen.append)
    await model.close()
    assert [made for made in seen if isinstance(made, NoticeChunk)] == []


async def test_only_done_is_an_empty_answer(model_server):
    model = server_answers("openai", model_server, ["[DONE]"])
    with pytest.raises(EmptyAnswer):
        await run(model)
    await model.close()
    assert len(model_server.requests) == 4
    assert issubclass(EmptyAnswer, TransientModelError)


@pytest.mark.parametrize(
    ("reason", "native", "said"),
    [
        ("error", "MALFORMED_FUNCTION_CALL", "error MALFORMED_FUNCTION_CALL"),
        ("function_call_filter: MALFORMED_FUNCTION_CALL", None, "MALFORMED_FUNCTION_CALL"),
    ],
)
async def test_an_early_end_is_reported_with_its_reason(reason, native, said, model_server):
    """OpenRouterTeam/openrouter-examples#67: before, only the end of the stream was reported."""
    end = {"delta": {"content": "Half"}, "finish_reason": reason, "native_finish_reason": native}
    model_server.script([sse({"choices": [end]}, "[DONE]")])
    error, text = await Wire("openai", model_server).failure()
    assert isinstance(error, AnswerUnfinished)
    assert said in str(error)
    assert text == "Half"


@pytest.mark.parametrize("is_stream", [True, False])
async def test_an_error_of_minimax_is_reported(is_stream, model_server):
    """It comes beside a status of success: milind-soni/OpenMausBot#1200."""
    answer = {
        "choices": None,
        "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"},
    }
    model_server.script([sse(answer) if is_stream else Raw(200, answer)])
    error, _ = await Wire("openai", model_server).failure()
    assert "insufficient balance" in str(error)
    assert "credit" in error.hint


async def test_success_of_minimax_is_no_error(model_server):
    chunks = [{**HELLO, "base_resp": {"status_code": 0, "status_msg": ""}}, chunk({}, "stop")]
    model_server.script([sse(*chunks)])
    assert (await Wire("openai", model_server).ask()).text == "Hello"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"code": 40301, "msg": "your plan has ended"}, "stream: your plan has ended."),
        ("<html><title>Log in to the network</title></html>", "stream: Log in to the network."),
    ],
)
async def test_what_is_no_answer_is_quoted(body, said, model_server):
    model_server.script([Raw(200, body)])
    error, _ = await Wire("openai", model_server).failure()
    assert said in str(error)


async def answer_twice(wire, first, second):
    """The texts of two answers of one model."""
    wire.server.script([sse(*first), sse(*second), "Hello again."])
    model = wire.model()
    try:
        texts = []
        for _ in range(2):
            texts.append((await ModelCall([model], [user("hi")], [READ], attempts=2).run()).text)
        return texts
    finally:
        await model.close()


async def test_a_text_without_an_end_is_cut_if_the_server_names_its_ends(model_server):
    """anomalyco/opencode#39968: half an answer counted as a whole one."""
    texts = await answer_twice(
        Wire("openai", model_server), first=[HELLO, chunk({}, "stop")], second=[HELLO]
    )
    assert texts == ["Hello", "Hello again."]


async def test_an_end_without_a_name_is_one_if_the_server_names_none(model_server):
    texts = await answer_twice(Wire("openai", model_server), first=[HELLO], second=[HELLO])
    assert texts == ["Hello", "Hello"]


def test_providers_are_known_to_name_the_end():
    entries = {
        "openai/gpt-5": ModelEntry(api_key="k", wire="chat"),
        "openai/m": ModelEntry(api_key="k", wire="chat", api_base="http://127.0.0.1:1/v1"),
    }
    catalog = Catalog(ModelsFile(models=entries), {})
    assert catalog.make("openai/gpt-5").facts.names_end
    assert not catalog.make("openai/m").facts.names_end


@pytest.mark.parametrize("kind", ["server_tool_use", "mcp_tool_use"])
async def test_a_call_that_the_server_runs_is_no_call_for_ouro(model_server, kind):
    """A gateway adds a tool of its own; before, its input became a call without a name."""
    call = {"type": kind, "id": "srvtoolu_1", "name": "web_search", "input": {}}
    events = [
        START,
        {"type": "content_block_start", "index": 0, "content_block": call},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": '{"query": "x"}'},
        },
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "text_delta", "text": "Found."},
        },
        END_TURN,
        LAST,
    ]
    model_server.script([sse(*events)])
    reply = await Wire("anthropic", model_server).ask()
    assert [type(part) for part in reply.parts] == [Text]
    assert reply.text == "Found."


PAUSED = {
    "type": "message_delta",
    "delta": {"stop_reason": "pause_turn"},
    "usage": {"output_tokens": 5},
}


def numbered(number, start, *deltas):
    """The events of one block."""
    pieces = [{"type": "content_block_delta", "index": number, "delta": delta} for delta in deltas]
    return [{"type": "content_block_start", "index": number, "content_block": start}, *pieces]


async def test_an_answer_that_is_paused_is_continued(model_server):
    """A tool of a gateway runs longer than one answer."""
    call = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    thinking = {"type": "thinking", "thinking": "", "signature": ""}
    first = [
        START,
        *numbered(
            0,
            thinking,
            {"type": "thinking_delta", "thinking": "Hm."},
            {"type": "signature_delta", "signature": "seal"},
        ),
        *numbered(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Searching."}),
        *numbered(2, {"type": "text", "text": ""}),
        *numbered(3, call, {"type": "input_json_delta", "partial_json": '{"query": "x"}'}),
        PAUSED,
        LAST,
    ]
    second = [
        START,
        *numbered(0, {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1"}),
        *numbered(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": " Found."}),
        END_TURN,
        LAST,
    ]
    model_server.script([sse(*first), sse(*second)])
    reply = await Wire("anthropic", model_server).receive()
    message = reply.finish()
    assert message.text == "Searching. Found."
    assert message.usage.output == 5 + END_TURN.get("usage", {}).get("output_tokens", 0)
    assert message.usage.input == 6  # of both requests
    [*_, sent] = model_server.requests[1].body["messages"]
    assert sent == {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "seal"},
            {"type": "text", "text": "Searching."},
            {**call, "input": {"query": "x"}},
        ],
    }


async def test_an_answer_that_is_paused_for_ever_is_not_complete(model_server):
    model_server.script([sse(START, *block("text", text="Searching."), PAUSED, LAST)] * 12)
    error, text = await Wire("anthropic", model_server).failure()
    assert isinstance(error, AnswerUnfinished)
    assert "pause_turn" in str(error)
    assert len(model_server.requests) == 11
    assert text == "Searching." * 11
