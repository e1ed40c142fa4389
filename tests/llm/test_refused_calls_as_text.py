"""Calls that a server refuses in the messages are sent as text, on each wire."""

import pytest
from fakes.model_server import failure
from fakes.wires import ALL_WIRES, Wire, chunks_of

from ouro.llm import NoticeChunk
from ouro.messages import Image, Thinking, ToolCall, ToolReply, assistant, tool, user

NAMED = [
    "messages.2: `tool_use` ids were found without `tool_result` blocks immediately after: {id}."
    " Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
    "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each"
    " `tool_result` block must have a corresponding `tool_use` block in the previous message.",
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
    " 'tool_call_id'. The following tool_call_ids did not have response messages: {id}",
    "No tool output found for function call {id}.",
    "No tool call found for function call output with call_id {id}.",
    "Expected toolResult blocks at messages.2.content for the following Ids: {id}",
    "invalid params, tool result's tool id({id}) not found (2013)",
    "Invalid request: tool_call_id {id} is not found",
]
UNNAMED = [
    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with"
    " 'tool_calls'.",
    "The number of toolResult blocks at messages.2.content exceeds the number of toolUse blocks of"
    " previous turn.",
    "Please ensure that the number of function response parts is equal to the number of function"
    " call parts of the function call turn.",
    "Please ensure that function call turn comes immediately after a user turn or after a function"
    " response turn.",
    "Not the same number of function calls and responses",
    "invalid params, tool call result does not follow tool call (2013)",
    "insufficient tool messages following tool_calls message",
    "tool_calls 消息之后必须紧跟对应的工具消息",
]
FIRST, SECOND = "call_first_1", "call_second_2"
SESSION = [
    user("Look."),
    assistant("I look.", ToolCall(FIRST, "read", {"path": "ä.py"})),
    tool(ToolReply(FIRST, "read", "old text")),
    assistant("And here.", ToolCall(SECOND, "shell", {"command": "ls"})),
    tool(ToolReply(SECOND, "shell", "new text")),
    user("So?"),
]


def refuse_while(shown, text):
    """Refuse a request as long as it has this id."""
    return lambda request: failure(400, text) if shown in request.raw.decode() else "fine"


@pytest.mark.parametrize("kind", ALL_WIRES)
@pytest.mark.parametrize("text", [NAMED[0], NAMED[2], NAMED[3], NAMED[5]])
async def test_a_call_that_is_named_is_sent_as_text_and_the_others_are_not(
    kind, text, model_server, litellm_kept
):
    model_server.script(refuse_while(FIRST, text.replace("{id}", FIRST)))
    model_server.responses.problem = lambda _body: None
    reply = await Wire(kind, model_server).ask(*SESSION)
    sent = model_server.requests[-1].raw.decode()
    assert reply.text == "fine"
    assert SECOND in sent
    assert "old text" in sent
    assert "I look." in sent


@pytest.mark.parametrize("text", NAMED + UNNAMED)
async def test_each_wording_is_known(text, model_server):
    model_server.script(refuse_while('"tool_calls"', text.replace("{id}", "call_9")))
    assert (await Wire("openai", model_server).ask(*SESSION)).text == "fine"
    assert len(model_server.requests) == 2


async def test_the_notice_comes_once_and_the_next_request_is_right_at_once(model_server):
    model_server.script(refuse_while('"tool_calls"', UNNAMED[0]))
    model = Wire("openai", model_server).model()
    first, second = [await chunks_of(model, *SESSION) for _ in range(2)]
    await model.close()
    assert [
        len([chunk for chunk in chunks if isinstance(chunk, NoticeChunk)])
        for chunks in (first, second)
    ] == [1, 0]
    assert len(model_server.requests) == 3


async def test_pictures_of_a_result_stay_and_thinking_before_the_call_goes(model_server):
    call = ToolCall(FIRST, "read", {"path": "dot.png"})
    thought = assistant("", call)
    thought = type(thought)(
        "assistant", (Thinking("Hm.", "seal"), call), model="anthropic/claude-sonnet-4-5"
    )
    shown = tool(ToolReply(FIRST, "read", "", images=(Image("image/png", b"png", "dot.png"),)))
    model_server.script(refuse_while('"tool_use"', NAMED[0].replace("{id}", FIRST)))
    await Wire("anthropic", model_server).ask(user("Look."), thought, shown, user("So?"))
    sent = model_server.requests[-1].raw.decode()
    assert "image/png" in sent
    assert "seal" not in sent


async def test_what_does_not_help_is_undone(model_server):
    model_server.script(lambda _request: failure(400, UNNAMED[0]))
    wire = Wire("openai", model_server)
    model = wire.model()
    for _ in range(2):
        with pytest.raises(Exception, match="must be a response"):
            await chunks_of(model, *SESSION)
    await model.close()
    raws = [request.raw.decode() for request in model_server.requests]
    assert ['"tool_calls"' in raw for raw in raws] == [True, False, True, False]
