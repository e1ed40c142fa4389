"""The table of refusals: each rule with its example, and wordings of servers that it has not seen."""

import pytest

from ouro.errors import ProviderAnswer
from ouro.llm.rejected_requests import RULES, Refused, find_changes
from ouro.llm.server_facts import ServerFacts

BODY = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "call_abc"}]},
        {"role": "tool", "tool_call_id": "call_abc", "content": "x"},
    ],
    "tools": [{"type": "function", "function": {"name": "edit", "parameters": {}}}],
    "max_tokens": 8192,
    "reasoning_effort": "none",
    "thinking": {"type": "adaptive"},
    "temperature": 0,
    "stream": True,
    "stream_options": {"include_usage": True},
}


def changes(text, status=400, *, body=BODY, images=True, facts=None, param="", **more):
    answer = ProviderAnswer(status, text, param)
    limits = ("max_tokens", "max_completion_tokens")
    more = {"limit_names": limits, "thinking_styles": ("adaptive", "budget"), **more}
    return dict(find_changes(Refused(answer, body, facts or ServerFacts(), images, **more)))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_applies_to_its_example_and_not_to_its_counterexample(rule):
    found = []
    for text in (rule.example, rule.counterexample):
        answer = ProviderAnswer(400, text)
        limits = ("max_tokens", "max_completion_tokens")
        asked = Refused(
            answer, BODY, ServerFacts(), True, ("adaptive", "budget"), "responses", limits
        )
        found.append(bool(rule.apply(asked)))
    assert found == [True, False]


@pytest.mark.parametrize(
    ("text", "effort", "sent"),
    [
        (
            "Unsupported value: 'xhigh'. Supported values are: 'low', 'medium', and 'high'.",
            "xhigh",
            "high",
        ),
        ("reasoning_effort: Input should be 'low', 'medium' or 'high'", "minimal", "low"),
        ("`reasoning_effort` must be one of `none` or `default`", "medium", "default"),
        ("`reasoning_effort` must be one of `none` or `default`", "low", "default"),
        ("reasoning effort max is invalid, expected one of: low, high", "max", "high"),
        (
            "Function tools with reasoning_effort are not supported; set reasoning_effort to 'none'.",
            "medium",
            "none",
        ),
    ],
)
def test_a_refused_effort_becomes_the_nearest_one_that_is_named(text, effort, sent):
    body = {**BODY, "reasoning_effort": effort}
    assert changes(text, body=body) == {f"effort.{effort}": sent}


def test_an_effort_that_must_be_none_is_sent_also_where_none_was_sent():
    body = {key: value for key, value in BODY.items() if key != "reasoning_effort"}
    text = "Tools are not supported with reasoning_effort. Set reasoning_effort to 'none'."
    assert changes(text, body=body) == {"effort.unset": "none"}


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("max_tokens: 8192 > 4096, which is the maximum allowed number of output tokens", 4096),
        ("Invalid max_tokens value, the valid range of max_tokens is [1, 4096]", 4096),
        (
            "`max_tokens` must be less than or equal to `4096`, the maximum value for `max_tokens`",
            4096,
        ),
        ("Range of max_tokens should be [1, 2048]", 2048),
        (
            "The maximum tokens you requested exceeds the model limit of 4096. Try a lower value.",
            4096,
        ),
        ("max_tokens=8192 cannot be greater than 4,096", 4096),
    ],
)
def test_a_limit_that_is_named_is_used(text, limit):
    assert changes(text) == {"max_output": str(limit)}


@pytest.mark.parametrize(
    "text",
    [
        "This model's maximum context length is 16384 tokens. However, you requested 17783 tokens"
        " (9591 in the messages, 8192 in the completion).",
        "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context"
        " length is 16384 tokens and your request has 9591 input tokens (8192 > 16384 - 9591).",
    ],
)
def test_an_answer_is_shortened_to_the_room_that_the_window_has(text):
    assert changes(text) == {"window": "16384", "max_output": "6793"}


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, "this model does not support image input (ref: b8bd630e)"),
        (400, "Model does not support images. Please use a model that does."),
        (500, "image input is not supported - hint: you may need to provide the mmproj"),
        (404, "No endpoints found that support image input"),
        (400, "Invalid content type. image_url is only supported by certain models."),
        (
            400,
            "'messages.1' : for 'role:user' the following must be satisfied[('messages.1.content' : value must be a string)]",
        ),
        (
            400,
            "Failed to deserialize: messages[0].content: invalid type: sequence, expected a string",
        ),
        (400, "模型不支持图片输入"),
        (400, "Das Modell akzeptiert keine Bilder"),
        (400, "At most 0 image(s) may be provided in one request."),
    ],
)
def test_a_model_without_pictures_is_known_by_many_words(status, text):
    assert changes(text, status) == {"images": "no"}


@pytest.mark.parametrize(
    "text",
    [
        "messages.3.content.1.image.source.base64: image exceeds 5 MB maximum: 6 MB > 5 MB",
        "Could not process image",
        "At least one of the image dimensions exceed max allowed size: 8000 pixels",
        "Unable to process input image. Please retry.",
        "Invalid image: the media_type is image/png, but the picture is image/jpeg",
    ],
)
def test_a_refused_picture_does_not_mean_that_pictures_are_refused(text):
    assert "images" not in changes(text)


@pytest.mark.parametrize(
    "text",
    [
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "Missing `reasoning_content` field in the assistant message at message index 2.",
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 7",
        "[deepseek/deepseek-reasoner] [400]: Missing reasoning_content field",
        "assistant 消息缺少 reasoning_content 字段",
        "messages.4.reasoning_content: Field required",
    ],
)
def test_thinking_is_sent_back_first_with_calls_then_with_each_answer(text):
    facts = ServerFacts()
    assert changes(text, facts=facts) == {"thinking_back": "yes"}
    facts.try_changes({"thinking_back": "yes"}, text)
    assert changes(text, facts=facts) == {"thinking_back": "all"}


def test_thinking_that_a_server_does_not_take_is_not_sent_back():
    facts = ServerFacts({"thinking_back": "yes"})
    text = "property 'reasoning_content' is unsupported"
    assert changes(text, facts=facts) == {"thinking_back": "no"}


@pytest.mark.parametrize(
    ("text", "param", "field"),
    [
        ("Unknown field: stream_options", "", "stream_options"),
        ('json: unknown field "stream_options"', "", "stream_options"),
        (
            "extra_forbidden body stream_options Extra inputs are not permitted",
            "",
            "stream_options",
        ),
        ("include_usage is not a valid option", "", "stream_options"),
        ("`temperature` is deprecated for this model.", "", "temperature"),
        (
            "Unsupported value: only the default (1) value is supported.",
            "temperature",
            "temperature",
        ),
        ("参数 temperature 不支持", "", "temperature"),
    ],
)
def test_an_optional_field_that_is_named_is_left_out(text, param, field):
    assert changes(text, 422, param=param) == {f"without.{field}": ""}


@pytest.mark.parametrize("field", ["parallel_tool_calls", "prompt_cache_key", "store", "include"])
def test_fields_that_no_rule_knows_are_left_out(field):
    body = {**BODY, field: True}
    text = f"Unsupported parameter: '{field}' is not supported with this model."
    assert changes(text, body=body) == {f"without.{field}": ""}


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, "registry.ollama.ai/library/codellama:latest does not support tools"),
        (
            400,
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        ),
        (500, "Unsupported param: tools"),
        (500, "tools param requires --jinja flag"),
        (404, "No endpoints found that support tool use."),
        (400, "当前模型不支持工具调用"),
    ],
)
def test_a_model_without_tools_gets_them_as_text(status, text):
    assert changes(text, status) == {"tools": "text"}


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("System role not supported", {"system_role": "user"}),
        ("Only user, assistant and tool roles are supported, got system.", {"system_role": "user"}),
        (
            "Conversation roles must alternate user/assistant/user/assistant/...",
            {"roles": "joined"},
        ),
        (
            "Tool call id was call_abc but must be a-z, A-Z, 0-9, with a length of 9.",
            {"call_ids": "9"},
        ),
        ("messages.2.content: Input should be a valid string, got null", {"empty_content": "yes"}),
        ("content is a required field, nil given", {"empty_content": "yes"}),
        (
            "Invalid schema for function 'edit': 'anyOf' is not permitted in tools",
            {"tool_schema": "simple"},
        ),
    ],
)
def test_messages_and_schemas_take_the_form_that_is_asked_for(text, fact):
    assert changes(text, images=False) == fact


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, "I do not like your messages"),
        (400, "Invalid JSON in the request."),
        (500, "Internal server error: invalid tool output"),
        (500, "image backend crashed"),
        (429, "Unsupported parameter: stream_options"),
        (401, "stream_options is not supported"),
        (400, "Unknown model: gpt-9"),
        (400, "Your organization has no access to this model."),
        (400, ""),
    ],
)
def test_a_refusal_about_something_else_changes_nothing(status, text):
    assert changes(text, status, images=False) == {}


def test_a_refused_id_of_a_call_may_have_the_status_of_a_broken_server():
    text = "Tool call id was call_abc but must be a-z, A-Z, 0-9, with a length of 9"
    assert changes(text, 500) == {"call_ids": "9"}  # jundot/omlx#1995


def test_no_change_is_tried_twice():
    facts, text = ServerFacts(), "Unknown field: stream_options"
    facts.try_changes(changes(text, facts=facts), text)
    assert changes(text, facts=facts) == {}
