"""Which refusals mean that the messages are too long, and which do not."""

import pytest
from fakes.model_server import Raw, failure
from fakes.wires import Wire, chunks_of

from ouro.errors import ContextTooLong, ProviderAnswer, RequestRefused
from ouro.llm import ModelSpec
from ouro.llm.overflow import find_window, is_too_long
from ouro.messages import Image, Message, Text, user

SMALL = 0.05
"""The share of the window that a small request has."""
TOO_LONG = [
    (500, "context shift is disabled"),  # llama.cpp: ikawrakow/ik_llama.cpp#2051
    (400, "Prompt 超长"),
    (400, "Your request exceeded model token limit: 262144 (requested: 269030)"),
    (400, "tokens in request more than max tokens allowed"),
    (
        400,
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    ),
    (400, "invalid params, context window exceeds limit (2013)"),
    (400, "The prompt has 65673 tokens, which is too large for the model"),
    (422, "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000"),
    (422, "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 and 200"),
    (500, "Requested tokens (9120) exceed context window of 8192"),
    (413, "Request Entity Too Large"),
    (413, ""),
    (400, "code: 400 message: the input is longer than the model's context (8192)"),
    (400, "Invalid 'messages[1].content': string too long. Maximum length 1048576, got 1500000."),
    (400, "请求内容过长，请精简后重试"),
    (400, "入力が長すぎます。最大トークン数は8192です。"),
    (400, "입력이 너무 깁니다"),
    (400, "Превышена максимальная длина контекста"),
    (400, "Die Eingabe ist zu lang: 9000 Tokens, erlaubt sind 8192"),
    (400, "L'entrée dépasse la longueur maximale du contexte"),
    (400, "La entrada supera el límite de tokens del modelo"),
    (400, "A entrada é muito longa para o modelo: troppo 9000 tokens"),
    (400, "Girdi çok uzun: en fazla 8192 token"),
    (400, "Dữ liệu đầu vào quá dài"),
]
SOMETHING_ELSE = [
    (400, "max_tokens must be greater than 0"),
    (400, "Invalid value for max_tokens: 100000. Must be less than 4096."),
    (400, "`max_tokens` must be greater than `thinking.budget_tokens`."),
    (400, "max_tokens 超过模型最大输出长度"),
    (413, "Request too large on tokens per minute (TPM): Limit 6000, please reduce your message"),
    (400, "tokens per min (TPM): Limit 6000, Requested 5000"),
    (400, "You have reached your specified API usage limits until 2026-12-01"),
    (400, "Your account has exceeded its monthly limit of 1000000 tokens"),
    (400, "Unexpected token < in JSON at position 4000"),
    (400, "Invalid 'tools[0].function.name': string too long. Maximum length 64, got 80."),
    (400, "Invalid 'input[3].id': string too long. Expected maximum length 64, but got 600."),
    (400, "tools: array too long. Expected maximum length 128, but got 200."),
    (400, "too many images: limit 20 images, 21 given"),
    (400, "Schema nesting exceeds maximum depth of 10"),
    (400, "The prompt was blocked by the content filter in this context"),
    (400, "Unknown field `context` in request 20260101"),
    (500, "context deadline exceeded"),
    (500, "connection limit exceeded, 1000 connections"),
    (500, "failed to load model: context creation failed over the network"),
    (429, "Rate limit reached on tokens per min (TPM): Limit 10000, Used 9000"),
    (401, "token limit exceeded"),
    (404, "The model `context-32768` does not exist"),
]


@pytest.mark.parametrize(("status", "text"), TOO_LONG)
def test_it_is_known_by_its_words_in_many_languages(status, text):
    assert is_too_long(ProviderAnswer(status, text, ""), SMALL)


@pytest.mark.parametrize(("status", "text"), SOMETHING_ELSE)
def test_a_small_request_that_is_refused_for_something_else_is_not_too_long(status, text):
    assert not is_too_long(ProviderAnswer(status, text, ""), SMALL)


@pytest.mark.parametrize("status", [400, 413, 422, 500])
@pytest.mark.parametrize("text", ["", "Bad Request", "invalid argument", "kérés elutasítva"])
def test_near_the_window_the_size_alone_decides(status, text):
    assert is_too_long(ProviderAnswer(status, text, ""), 0.9)


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, "Rate limit reached on tokens per minute"),
        (400, "Your credit balance is too low"),
        (403, "Bad Request"),
        (503, "overloaded"),
    ],
)
def test_near_the_window_a_limit_of_time_or_money_stays_what_it_is(status, text):
    assert not is_too_long(ProviderAnswer(status, text, ""), 0.9)


WIRES = ["openai", "anthropic", "responses"]


@pytest.mark.parametrize("kind", WIRES)
async def test_l6_a_refusal_without_a_reason_near_the_window_is_too_long(kind, model_server):
    wire = Wire(kind, model_server)
    spec = ModelSpec(wire.spec.name, window=4_000)
    wire.server.script([Raw(400, {"error": "Bad Request"})])
    error, _ = await wire.failure(user("word " * 4_000), spec=spec)
    assert type(error) is ContextTooLong


@pytest.mark.parametrize("kind", WIRES)
async def test_the_same_refusal_of_a_small_request_is_what_it_is(kind, model_server):
    wire = Wire(kind, model_server)
    wire.server.script([Raw(400, {"error": "Bad Request"})])
    error, _ = await wire.failure(user("hello"))
    assert type(error) is RequestRefused
    assert len(wire.server.requests) == 1


@pytest.mark.parametrize("status", [413, 429])
async def test_a_request_above_a_rate_limit_is_not_repeated(status, wire):
    text = "Request too large on tokens per minute (TPM): Limit 6000, Requested 9,120."
    wire.server.script([failure(status, text, code="rate_limit_exceeded")] * 2)
    error, _ = await wire.failure()
    assert type(error) is RequestRefused
    assert "/compact" in error.hint
    assert len(wire.server.requests) == 1


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_a_body_that_is_too_large_is_sent_without_its_newest_picture(kind, model_server):
    wire = Wire(kind, model_server)
    picture = Message("user", (Text("Look."), Image("image/png", b"\x89PNG" * 50, "big.png")))
    wire.server.script([Raw(413, "Request Entity Too Large"), "seen"])
    assert (await wire.ask(picture)).text == "seen"
    assert "big.png: the server refused it" in wire.server.requests[1].raw.decode()


@pytest.mark.parametrize(
    ("text", "size", "window"),
    [
        ("This model's maximum context length is 32768 tokens.", 40_000, 32_768),
        ("maximum context length is 8,192 tokens, and your messages have 9,000", 7_000, 8_192),
        ("prompt is too long: 212230 tokens > 200000 maximum", 180_000, 200_000),
        ("the request (9000 tokens) exceeds the context size (8192), see #40123", 9_500, 8_192),
        ("Error 2013: the prompt is longer than the context of 65536", 70_000, 65_536),
        ("context window exceeds limit (2013)", 150_000, None),
        ("Request Entity Too Large: at most 33554432 bytes", 20_000_000, None),
        ("Prompt 超长", 9_000, None),
    ],
)
def test_the_window_that_a_refusal_names_is_found(text, size, window):
    assert find_window(text, size) == window


@pytest.mark.parametrize("kind", WIRES)
async def test_l6_a_named_window_holds_for_the_session(kind, model_server):
    wire = Wire(kind, model_server)
    model = wire.model(spec=ModelSpec(wire.spec.name, window=100_000))
    refusal = "This model's maximum context length is 8192 tokens: the messages have 9000."
    wire.server.script([failure(400, refusal), "fine"])
    with pytest.raises(ContextTooLong):
        await chunks_of(model, user("word " * 8_000))
    assert model.spec.window == 8_192
    await chunks_of(model, user("hello"))
    assert model.spec.window == 8_192
