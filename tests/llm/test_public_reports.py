"""Refusals from public reports about other agents and servers: each ends with an answer.

Each case names its report. A request is refused until it has the form that the server takes.
"""

import itertools
import json

import pytest
from fakes.model_server import Raw, Reply, failure
from fakes.wires import READ, Wire

from ouro.errors import ContextTooLong, RequestRefused
from ouro.llm import ModelCall, ServerFacts, ToolSpec
from ouro.messages import Image, Message, Text, Thinking, ToolCall, ToolReply, system, tool, user

CALL = ToolCall("call_first_1", "read", {"path": "a.py"})
LATER = ToolSpec(
    "pick",
    "Pick.",
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"way": {"anyOf": [{"const": "a"}, {"const": "b"}]}},
        "additionalProperties": False,
    },
)


def session(model):
    """A system prompt, a question, thinking with a call, its result, and a steering message."""
    thought = Message("assistant", (Thinking("I must look."), Text("I look."), CALL), model=model)
    result = tool(ToolReply(CALL.id, "read", "x = 1"))
    return [system("Be brief."), user("Look."), thought, result, user("And now?")]


def lacks(*words):
    return lambda body: not any(word in json.dumps(body) for word in words)


def roles_alternate(body):
    roles = [message["role"] for message in body["messages"] if message["role"] != "system"]
    return all(first != second or first != "user" for first, second in itertools.pairwise(roles))


def no_user_after_tool(body):
    roles = [message["role"] for message in body["messages"]]
    return ("tool", "user") not in list(itertools.pairwise(roles))


def forbidden(*place, value=None):
    row = {
        "type": "extra_forbidden",
        "loc": ["body", *place],
        "msg": "Extra inputs are not permitted",
        "input": value,
    }
    return {
        "object": "error",
        "message": {"detail": [row]},
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }


def nested(text):
    """As OpenRouter wraps the error of a provider."""
    raw = json.dumps({"error": {"message": text, "type": "invalid_request_error", "code": None}})
    return {
        "error": {
            "message": "Provider returned error",
            "code": 400,
            "metadata": {"raw": raw, "provider_name": "X"},
        }
    }


CASES = {
    "cerebras, Kilo-Org/kilocode#10375": (
        400,
        {
            "message": "messages.2.assistant.reasoning_content: property 'messages.2.assistant.reasoning_content' is unsupported",
            "type": "invalid_request_error",
            "param": "validation_error",
            "code": "wrong_api_format",
        },
        lacks("reasoning_content"),
    ),
    "Groq, janhq/jan#8136": (
        400,
        "'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' : property 'reasoning_content' is unsupported)]",
        lacks("reasoning_content"),
    ),
    "gpt-oss in LM Studio, lmstudio-bug-tracker#842": (
        400,
        'Error rendering prompt with jinja template: "Cannot pass both content and thinking in an assistant message with tool calls! Put the analysis message in one or the other, but not both."',
        lacks("reasoning_content"),
    ),
    "Gemini, zed-industries/zed#44875": (
        400,
        "Invalid JSON payload received. Unknown name \"const\" at 'tools[0].function_declarations[5].parameters.properties[8].value.any_of[0]': Cannot find field.",
        lacks('"const"'),
    ),
    "Gemini, openswarm-ai/openswarm#24": (
        400,
        "[gemini/gemini-3.1-pro-preview] [400]: Invalid JSON payload received. Unknown name \"$schema\" at 'tools[0].function_declarations[0].parameters': Cannot find field.",
        lacks("$schema"),
    ),
    "Gemini, MinLL/SkyrimNet-GamePlugin#77": (
        400,
        [
            {
                "error": {
                    "code": 400,
                    "message": 'Invalid JSON payload received. Unknown name "stream_options": Cannot find field.',
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
        lacks("stream_options"),
    ),
    "a relay of Gemini, su-kaka/gcli2api#200": (
        400,
        "Tool message must have a 'name' field. The 'name' field is required to match the tool call with its response in Gemini API. tool_call_id=call_first_1",
        lambda body: all(
            message.get("name") for message in body["messages"] if message["role"] == "tool"
        ),
    ),
    "Gemini, langflow-ai/langflow#9437": (
        400,
        "* GenerateContentRequest.contents[3].parts[0].function_response.name: Name cannot be empty.",
        lambda body: all(
            message.get("name") for message in body["messages"] if message["role"] == "tool"
        ),
    ),
    "Mistral, editor-code-assistant/eca#231": (
        422,
        forbidden("max_tokens", value=8192),
        lacks('"max_tokens"'),
    ),
    "Mistral: a message after a result": (
        400,
        {
            "object": "error",
            "message": "Unexpected role 'user' after role 'tool'",
            "type": "invalid_request_message_order",
            "param": None,
            "code": "3230",
        },
        no_user_after_tool,
    ),
    "vLLM without tools, vllm-project/vllm#6631": (
        400,
        "[{'type': 'extra_forbidden', 'loc': ('body', 'tool_choice'), 'msg': 'Extra inputs are not permitted', 'input': 'auto'}, {'type': 'extra_forbidden', 'loc': ('body', 'tools'), 'msg': 'Extra inputs are not permitted', 'input': []}]",
        "tools",
    ),
    "vLLM, a comment there": (
        400,
        "[{'type': 'value_error', 'loc': ('body',), 'msg': 'Value error, Currently only named tools are supported.'}]",
        "tools",
    ),
    "LM Studio, zed-industries/zed#45379": (
        400,
        'Error rendering prompt with jinja template: "Unknown test: sequence". This is usually an issue with the model\'s prompt template.',
        "tools",
    ),
    "Devstral in LM Studio, lmstudio-bug-tracker#1342": (
        400,
        '[mistralai/devstral-small-2-2512] Error rendering prompt with jinja template: "After the optional system message, conversation roles must alternate user and assistant roles except for tool calls and results.".',
        roles_alternate,
    ),
    "OpenRouter, openclaw/openclaw#85921": (
        400,
        "This endpoint's maximum context length is 10000 tokens. However, you requested about 11192 tokens (1000 of text input, 2000 of tool input, 8192 in the output). Please reduce the length of either one.",
        lambda body: body["max_tokens"] <= 7000,
    ),
    "a company's server, anomalyco/opencode#17748": (
        400,
        {
            "error": {
                "message": "You passed 3001 input tokens and requested 8192 output tokens. However, the model's context length is only 11192 tokens, resulting in a maximum input length of 3000 tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=3001)",
                "type": "invalid_request_error",
                "param": None,
                "code": "context_length_exceeded",
            }
        },
        lambda body: body["max_tokens"] <= 8191,
    ),
    "Azure, langgenius/dify-official-plugins#2263": (
        400,
        "Unrecognized request argument supplied: stream_options (request id: 2025)",
        lacks("stream_options"),
    ),
    "Azure, webbrain-one/webbrain#2806": (
        400,
        {
            "error": {
                "message": "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
                "type": "invalid_request_error",
                "param": "max_tokens",
                "code": "unsupported_parameter",
            }
        },
        lacks('"max_tokens"'),
    ),
    "OpenRouter, ymichael/open-codex#5": (
        400,
        nested(
            "Missing parameter 'tool_call_id': messages with role 'tool' must have a 'tool_call_id'."
        ),
        lacks('"role": "tool"'),
    ),
    "OpenRouter with a nested refusal": (
        400,
        nested("Unsupported value: 'messages[0].role' does not support 'system' with this model."),
        lacks('"role": "system"'),
    ),
    "antigravity, NoeFabris/opencode-antigravity-auth#2": (
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "messages.1.content.0.tool_use.id: Field required",
            },
        },
        lacks('"tool_calls"'),
    ),
    "Bedrock's gateway, langgenius/dify#17545": (
        400,
        "ValidationException: The toolConfig field must be defined when using toolUse and toolResult content blocks.",
        lacks('"tool_calls"'),
    ),
    "DeepSeek: a picture": (
        400,
        "Failed to deserialize the JSON body into the target type: messages[4]: unknown variant `image_url`, expected `text` at line 1 column 12",
        lacks("image_url"),
    ),
    "Kimi: thinking that is missing": (
        400,
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2",
        lambda body: "reasoning_content" in json.dumps(body),
    ),
    "Continue with Cohere: no stream_options": (
        422,
        {"message": "invalid request: unknown parameter 'stream_options'"},
        lacks("stream_options"),
    ),
}
OVERFLOWS = {
    "vllm-project/vllm#4667": "max_tokens must be at least 1, got -186.",
    "earendil-works/pi#4943": "Input length 131393 exceeds the maximum allowed input length of 131040 tokens.",
    "earendil-works/pi#5677": "Input length (265330) exceeds model's maximum context length (262144).",
    "openclaw/openclaw#129352": "The input (263000 tokens) is longer than the model's context length (262144 tokens).",
    "SGLang there": "Requested token count exceeds the model's maximum context length of 262144 tokens. You requested a total of 270000 tokens.",
    "anomalyco/opencode#45834": "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 98304]",
    "Bedrock, openclaw/openclaw#58839": "ValidationException: Input exceeds the max input token limit",
    "Cohere there": "total tokens exceeds the model's max of 4096",
    "Ollama there": "ollama: context length exceeded for llama3",
    "llama.cpp": "the request exceeds the available context size. try increasing the context size or enable context shift",
    "openai/codex#20866": "Your input exceeds the context window of this model. Please adjust your input and try again.",
}


def refusing(status, body, is_right):
    if isinstance(body, str):
        refusal = failure(status, body)
    else:
        refusal = Raw(status, json.dumps(body), {"Content-Type": "application/json"})
    return lambda request: Reply("fine") if is_right(request.body) else refusal


@pytest.mark.parametrize("name", CASES)
async def test_a_refusal_that_was_reported_ends_with_an_answer(name, model_server):
    status, body, is_right = CASES[name]
    is_right = lacks('"tools"') if is_right == "tools" else is_right
    wire = Wire("openai", model_server)
    given = {} if "is missing" in str(body) else {"thinking_back": "yes"}
    model_server.script(refusing(status, body, is_right))
    messages = session(wire.spec.name)
    if "alternate" in str(body):
        messages.append(user("At once."))
    if "image_url" in str(body):
        messages.append(user("See?", [Image("image/png", b"png", "dot.png")]))
    model = wire.model(facts=ServerFacts(given), effort="medium")
    reply = await ModelCall([model], messages, [READ, LATER], attempts=1).run()
    await model.close()
    assert "fine" in reply.text
    assert len(model_server.requests) <= 3


@pytest.mark.parametrize("name", OVERFLOWS)
@pytest.mark.parametrize("kind", ["openai", "responses", "anthropic"])
async def test_an_overflow_that_was_reported_is_one(name, kind, model_server):
    model_server.script(lambda _request: failure(400, OVERFLOWS[name]))
    error, _ = await Wire(kind, model_server).failure()
    assert isinstance(error, ContextTooLong)
    assert len(model_server.requests) == 1


async def test_gemini_takes_a_session_that_another_model_began(model_server):
    """lbjlaq/Antigravity-Manager#3202: 400 for each call without a signature."""
    words = (
        "Function call is missing a thought_signature in functionCall parts. This is required for"
        " tools to work correctly. Additional data, function call `default_api:read`, position 2."
    )

    def are_signed(body):
        calls = [m["tool_calls"][0] for m in body["messages"] if m.get("tool_calls")]
        return all("extra_content" in call for call in calls)

    model_server.script(refusing(400, words, are_signed))
    wire = Wire("openai", model_server)
    model = wire.model()
    messages = session("anthropic/claude-sonnet-5")
    reply = await ModelCall([model], messages, [READ], attempts=1).run()
    await model.close()
    assert (reply.text, len(model_server.requests)) == ("fine", 2)
    assert "tools" in model_server.requests[-1].body


async def test_calls_that_need_a_signature_become_text_and_tools_stay(model_server):
    """mastra-ai/mastra#23433: a signature of another Google endpoint is refused, and the placeholder is
    not taken by each relay. Before, the tools of this model were then described in the prompt for
    30 days.
    """
    words = (
        "Function call is missing a thought_signature in functionCall parts. This is required for"
        " tools to work correctly. Additional data, function call `default_api:read`, position 2."
        " INVALID_ARGUMENT"
    )
    model_server.script(refusing(400, words, lacks('"tool_calls"')))
    model = Wire("openai", model_server).model()
    reply = await ModelCall([model], session("openai/test-model"), [READ], attempts=1).run()
    await model.close()
    assert reply.text == "fine"
    assert "tools" in model_server.requests[-1].body
    assert model.facts.get("tools") == ""


async def test_sealed_thinking_of_another_key_is_left_out(model_server):
    """anomalyco/opencode#48864: no message of the session was answered any more."""
    wire = Wire("responses", model_server)
    model_server.script([Reply("One.", thinking="Hm.")])
    thought = await wire.ask(user("hi"), effort="medium")
    text = "reasoning `encrypted_content` was not issued to this caller"
    model_server.script(refusing(400, text, lacks('"type": "reasoning"')))
    model_server.responses.problem = lambda _body: None
    assert (await wire.ask(user("hi"), thought, user("More."), effort="medium")).text == "fine"


async def test_a_429_of_a_relay_for_a_field_is_changed_and_not_waited_for(model_server):
    """tashfeenahmed/freellmapi#422: the pool of a relay is used up by a request that none takes."""
    text = (
        "All models rate-limited. Last error: Google API error 400: Invalid JSON payload received."
        " Unknown name \"$schema\" at 'tools[0].function_declarations[0].parameters'"
    )
    model_server.script(refusing(429, text, lacks("$schema")))
    model = Wire("openai", model_server).model()
    reply = await ModelCall([model], [user("hi")], [READ, LATER], attempts=1).run()
    await model.close()
    assert (reply.text, len(model_server.requests)) == ("fine", 2)


@pytest.mark.parametrize("kind", ["openai", "responses", "anthropic"])
async def test_a_429_for_a_fault_that_no_change_helps_is_asked_once(kind, model_server):
    text = "upstream error 400: Conflict in definitions: bad request"
    model_server.script(lambda _request: failure(429, text))
    wire = Wire(kind, model_server)
    model = wire.model()
    with pytest.raises(RequestRefused, match="answered 429"):
        await ModelCall([model], [user("hi")], [READ], attempts=11).run()
    await model.close()
    assert len(model_server.requests) == 1
