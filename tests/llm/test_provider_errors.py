"""Errors of providers: what is masked, what is read from them, how long to wait."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from ouro.errors import (
    AuthenticationFailed,
    ContextTooLong,
    ModelUnavailable,
    RateLimited,
    RequestRefused,
)
from ouro.llm import Endpoint
from ouro.llm.provider_errors import error_from_status, error_from_stream, redact
from ouro.llm.waits import NO_WAIT_HELPS, describe_wait, wait_seconds

HERE = Endpoint("https://api.example.invalid/v1", "my-own-key", key_source="MY_KEY")


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-abcDEF123456789012345",
        "sk-ant-api03-abcDEF-12345_6789",
        "AIzaSyA1234567890abcdefghijklmnopqrstu",
        "gsk_abcdefghij1234567890",
        "xai-abcdefghij1234567890",
        "Bearer abc.def-ghi",
        "sk-abc***************xyz9",
        "0123456789abcdef0123456789abcdef",
        "my-own-key",
    ],
)
def test_keys_are_redacted(secret):
    assert redact(f"wrong key: {secret}, sorry", "my-own-key") == "wrong key: [key], sorry"


@pytest.mark.parametrize(
    "text",
    [
        "The model `claude-sonnet-4-5-20250929` is overloaded",
        "maximum context length is 8192 tokens",
        "req_12345",
    ],
)
def test_other_text_is_not_redacted(text):
    assert redact(text, "my-own-key", "") == text


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ('{"error": {"message": "no"}}', ": no."),
        ('[{"error": {"message": "no"}}]', ": no."),
        ('{"detail": "no"}', ": no."),
        ('{"error": "no"}', ": no."),
        ('{"error": {"message": "no", "metadata": {"raw": "really"}}}', ": no (really)."),
        ("<html><head><title>Gone\nfishing</title>", ": Gone fishing."),
        ("<p>", ": a web page."),
        ("<title>" * 1_000_000, ": a web page."),
        ("", "."),
        ("x" * 2000, ": " + "x" * 600 + "…"),
        ("[" * 100_000, ": " + "[" * 600 + "…"),
    ],
)
def test_provider_message_is_extracted_from_any_body(body, shown):
    error = error_from_status(418, body, {}, HERE)
    assert (type(error), error.message) == (
        RequestRefused,
        f"api.example.invalid answered 418{shown}",
    )


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, AuthenticationFailed),
        (403, AuthenticationFailed),
        (402, RequestRefused),
        (404, RequestRefused),
        (408, ModelUnavailable),
        (413, ContextTooLong),
        (429, RateLimited),
        (503, ModelUnavailable),
        (301, RequestRefused),
    ],
)
def test_each_status_has_its_error(status, kind):
    assert type(error_from_status(status, "{}", {}, HERE)) is kind


def test_not_found_error_names_the_address():
    assert HERE.base_url in error_from_status(404, "{}", {}, HERE).hint


def test_not_found_error_asks_for_v1_if_the_address_has_no_path():
    bare = Endpoint("http://127.0.0.1:8080", "k")
    assert "http://127.0.0.1:8080/v1" in error_from_status(404, "{}", {}, bare).hint
    assert "Most servers" not in error_from_status(404, "{}", {}, HERE).hint


def test_a_model_that_no_server_of_a_relay_has_is_not_asked_for_again():
    words = {"error": {"message": "No available channel for m1", "code": "model_not_found"}}
    error = error_from_status(503, json.dumps(words), {}, HERE)
    assert isinstance(error, RequestRefused)
    assert "model name" in error.hint


def test_a_web_page_with_status_403_is_not_about_the_key():
    page = "<!DOCTYPE html><html><head><title>Attention Required!</title></head></html>"
    error = error_from_status(403, page, {}, HERE)
    assert isinstance(error, RequestRefused)
    assert "firewall" in error.hint
    assert isinstance(error_from_status(403, '{"error": "no"}', {}, HERE), AuthenticationFailed)


def test_missing_key_is_reported():
    assert error_from_status(401, "{}", {}, Endpoint("http://x")).hint.startswith(
        "No key was given"
    )
    assert "MY_KEY" in error_from_status(401, "{}", {}, HERE).hint


def test_retry_after_is_parsed_in_every_form():
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    assert wait_seconds({"retry-after": "2.5"}) == 2.5
    assert wait_seconds({"retry-after-ms": "1500", "retry-after": "2"}) == 1.5
    assert 90 < wait_seconds({"retry-after": later}) <= 100
    assert [
        wait_seconds(headers) for headers in ({}, {"retry-after": "soon"}, {"retry-after": "-1"})
    ] == [None, None, 0]


@pytest.mark.parametrize(
    ("reset", "wait"),
    [("12ms", 0.012), ("6m0s", 360), ("1h2m", 3_720), ("59.5", 59.5), ("0", 0), ("soon", None)],
)
def test_end_of_a_used_up_limit_is_the_wait_if_nothing_else_names_one(reset, wait):
    used_up = {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": reset}
    has_room = {"x-ratelimit-remaining-requests": "9", "x-ratelimit-reset-requests": "2h"}
    assert wait_seconds(used_up | has_room) == wait
    assert wait_seconds(has_room) is None
    assert wait_seconds(used_up | {"retry-after": "7"}) == 7
    assert wait_seconds(used_up, "message: try again in 8 seconds") == 8


@pytest.mark.parametrize("per_second", [1, 1_000])
def test_end_of_a_limit_may_be_a_time(per_second):
    end = int((datetime.now(UTC).timestamp() + 100) * per_second)
    headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(end)}
    assert 90 < wait_seconds(headers) <= 100


@pytest.mark.parametrize("used_up", ["-remaining", "-status"])
@pytest.mark.parametrize("as_date", [True, False])
def test_end_of_a_limit_of_anthropic_is_the_wait(used_up, as_date):
    end = datetime.now(UTC) + timedelta(hours=5)
    value = end.strftime("%Y-%m-%dT%H:%M:%SZ") if as_date else str(int(end.timestamp()))
    name = "anthropic-ratelimit-unified"
    headers = {f"{name}-reset": value, f"{name}{used_up}": "0" if "rem" in used_up else "rejected"}
    assert 17_900 < wait_seconds(headers) <= 18_000
    assert wait_seconds({**headers, f"{name}{used_up}": "allowed"}) is None


def test_expired_credentials_without_a_key_are_to_be_renewed():
    error = error_from_status(403, "The security token is expired", {}, Endpoint())
    assert "renew them" in error.hint


def test_quota_of_a_day_does_not_end_after_seconds():
    """Google asks for a wait of seconds, whichever quota is used up (google-gemini/gemini-cli#10925)."""
    quota = "quotaId: GenerateRequestsPer{}PerProjectPerModel-FreeTier retryDelay: {}"
    assert wait_seconds({}, quota.format("Minute", "20s")) == 20
    assert wait_seconds({}, quota.format("Day", "20s")) == NO_WAIT_HELPS
    assert wait_seconds({}, quota.format("Day", "33123s")) == 33_123


def test_longest_of_the_used_up_limits_is_the_wait():
    headers = {
        "x-ratelimit-remaining-tokens-minute": "0",
        "x-ratelimit-reset-tokens-minute": "12.5",
        "x-ratelimit-remaining-requests-day": "0",
        "x-ratelimit-reset-requests-day": "3600",
    }
    assert wait_seconds(headers) == 3600


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, ModelUnavailable),
        ({"code": 429, "message": "slow"}, RateLimited),
        ({"type": "invalid_request_error", "message": "prompt is too long"}, ContextTooLong),
        ({"type": "invalid_request_error", "message": "bad"}, RequestRefused),
        ("something", ModelUnavailable),
        (None, ModelUnavailable),
    ],
)
def test_errors_in_a_stream_are_distinguished(error, kind):
    assert type(error_from_stream(error, HERE)) is kind


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:1", True),
        ("http://127.0.0.1:1/v1", True),
        ("http://[::1]:1", True),
        ("http://192.168.0.7", True),
        ("https://api.openai.com", False),
        ("", False),
    ],
)
def test_local_server_gets_a_longer_first_timeout(url, local):
    assert (Endpoint(url).is_local, Endpoint(url).timeouts.first > 600) == (local, local)


def test_repr_of_an_endpoint_hides_the_key():
    assert "my-own-key" not in repr(HERE)


FAULTS_AS_429 = [
    # tashfeenahmed/freellmapi#422: all accounts are used up, the last one said 400
    "All models exhausted. Last error: Google API error 400: Invalid JSON payload received. Unknown"
    " name \"const\" at 'tools[0].function_declarations[5].parameters': Cannot find field.",
    "All models rate-limited, try again later. Last error: API error 400: Invalid schema for"
    " function 'read'",
    # farion1231/cc-switch#5490, as relays with many channels hand it on
    "Provider: DeepSeek; upstream_status: HTTP 400; cause: Invalid schema for function 'automation':"
    " schema must be a JSON Schema of 'type: \"object\"', got 'type: null'.",
    "Invalid schema for function 'read': In context=(), 'required' is missing.",
    "messages.3.content.0: unexpected `tool_use_id` found in `tool_result` blocks",
    "bad response status code 400, message: Conflict in schema definitions",
    "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
    "该模型不支持 tools 参数",
    "tools.0.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12",
]
LIMITS_AS_429 = [
    "Too many tokens, please wait before trying again.",
    "Service tier capacity exceeded for this model.",
    "当前分组上游负载已饱和，请稍后再试",
    "Rate limit reached for gpt-5 in organization org-1 on tokens per min (TPM)",
    "Resource has been exhausted (e.g. check quota).",
    "Resource exhausted. Please try again later. Please refer to the documents on error code 429.",
    "You must be on a paid plan to use this model.",
    "The engine is currently overloaded, please try again later",
    "This request would exceed your account's rate limit. Please try again later.",
    "Provider returned error",
    "Extra usage is required for long context requests.",
    "No available accounts: all are cooling down",
    "",
]


@pytest.mark.parametrize("text", FAULTS_AS_429)
def test_a_429_about_a_fault_in_the_request_is_a_refusal(text):
    body = json.dumps({"error": {"message": text, "type": "rate_limit_error"}})
    plain = error_from_status(429, text, {"retry-after": "5"}, HERE)
    assert (type(plain), plain.answer.status) == (RequestRefused, 400)
    assert "answered 429" in plain.message
    if "400" in text:
        assert type(error_from_status(429, body, {}, HERE)) is RequestRefused


@pytest.mark.parametrize("text", LIMITS_AS_429)
def test_a_429_about_a_limit_is_a_rate_limit(text):
    body = json.dumps({"error": {"message": text, "type": "invalid_request_error"}})
    assert type(error_from_status(429, text, {}, HERE)) is RateLimited
    assert type(error_from_status(429, body, {}, HERE)) is RateLimited


def test_a_429_for_too_long_a_request_is_an_overflow():
    text = "prompt is too long: 210000 tokens > 200000 maximum"
    assert type(error_from_status(429, text, {}, HERE)) is ContextTooLong


GEMINI_MINUTE = {
    "error": {
        "code": 429,
        "message": "You exceeded your current quota, please check your plan and billing details.\n"
        "* Quota exceeded for metric: free_tier_requests, limit: 10\nPlease retry in 8.1s.",
        "status": "RESOURCE_EXHAUSTED",
        "details": [{"@type": "type.example/RetryInfo", "retryDelay": "8s"}],
    }
}
"""Google's words for a limit of one minute (can1357/oh-my-pi#1254)."""
WAITS_IN_BODIES = [
    (GEMINI_MINUTE, 8.1),
    ({"error": {"message": "Limit reached.", "details": [{"retryDelay": "31s"}]}}, 31),
    ({"error": {"message": "Rate limit reached (TPM). Please try again in 6s. Visit x."}}, 6),
    ({"error": {"message": "Please try again in 6m0s."}}, 360),
    ({"error": {"message": "Please try again in 120ms."}}, 0.12),
    ({"error": {"message": "Wait for 1 minute and 5 seconds."}}, 65),
    ({"error": {"message": "Monthly usage limit reached. Resets in 16 days."}}, 16 * 86_400),
    ({"error": {"type": "usage_limit_reached", "resets_in_seconds": 15000}}, 15_000),
    ({"error": {"message": "slow down", "retry_after_ms": 400}}, 0.4),
    ({"error": {"message": "Usage limit reached for 5 hour. It resets at 23:44."}}, NO_WAIT_HELPS),
    ({"error": {"message": "free-models-per-day"}}, NO_WAIT_HELPS),
    ({"error": {"message": "Too many requests."}}, None),
    ({"error": {"message": "Try again later."}}, None),
]


@pytest.mark.parametrize(("body", "wait"), WAITS_IN_BODIES)
def test_a_429_names_its_wait_in_the_body(body, wait):
    error = error_from_status(429, json.dumps(body), {}, HERE)
    assert isinstance(error, RateLimited)
    assert error.retry_after == (wait if wait is None else pytest.approx(wait))
    header = error_from_status(429, json.dumps(body), {"retry-after": "3"}, HERE)
    assert header.retry_after == 3


@pytest.mark.parametrize(
    "error",
    [
        {"code": "insufficient_quota", "message": "You exceeded your current quota."},
        {"message": "Your credit balance is too low.", "type": "invalid"},
        {"code": "usage_not_included", "message": "Your plan does not include this model."},
    ],
)
def test_an_account_without_money_is_not_asked_again_after_an_error_in_a_stream(error):
    assert isinstance(error_from_stream(error, HERE), RequestRefused)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (61.2, "62 s"),
        (150, "3 minutes"),
        (3_600, "60 minutes"),
        (10_000, "3 hours"),
        (1_382_400, "16 days"),
    ],
)
def test_a_long_wait_is_shown_in_its_largest_unit(seconds, text):
    assert describe_wait(seconds) == text


def test_an_error_in_a_stream_names_its_wait():
    limit = {"code": "rate_limit_exceeded", "message": "Please try again in 1.2s."}
    assert error_from_stream(limit, HERE).retry_after == 1.2
    plan = {"code": "usage_limit_reached", "message": "The usage limit has been reached"}
    assert error_from_stream(plan, HERE).retry_after == NO_WAIT_HELPS
