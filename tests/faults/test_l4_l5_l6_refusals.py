"""L4, L5, L6: kinds of errors are distinguished, keys are hidden, only retry.py repeats a request."""

import pytest
from fakes.model_server import Raw, failure
from fakes.wires import KEY

from ouro.errors import (
    AuthenticationFailed,
    ContextTooLong,
    ModelUnavailable,
    RateLimited,
    RequestRefused,
)

LEAK = {
    "error": {
        "message": f"Incorrect API key provided: {KEY}. Or sk-proj-9aZ8bY7cX6dW5eV4fU3g?",
        "type": "invalid_request_error",
    }
}
TOO_LONG = [
    failure(
        400, "This model's maximum context length is 8192 tokens.", code="context_length_exceeded"
    ),
    failure(
        400, "prompt is too long: 210000 tokens > 200000 maximum", kind="invalid_request_error"
    ),
    failure(
        400,
        "the request exceeds the available context size, try increasing it",
        kind="exceed_context_size_error",
    ),
    failure(400, "input length and `max_tokens` exceed context limit: 198000 + 8192 > 200000"),
    failure(413, "Request exceeds the maximum size", kind="request_too_large"),
]


async def test_l4_wrong_key_error_names_its_source_without_the_key(wire):
    wire.server.script([Raw(401, LEAK)] * 3)
    error, _ = await wire.failure()
    assert type(error) is AuthenticationFailed
    assert KEY not in str(error)
    assert "9aZ8bY7cX6dW5eV4fU3g" not in str(error)
    assert "TEST_KEY" in error.hint
    assert len(wire.server.requests) == 1


async def test_l4_a_key_is_hidden_in_every_error(wire):
    answers = [failure(status, f"failed with {KEY}") for status in (400, 403, 404, 429, 500)]
    wire.server.script(answers)
    for _ in answers:
        error, _ = await wire.failure()
        assert KEY not in str(error)
        assert KEY not in repr(error)


async def test_l5_rate_limit_error_has_the_wait_time(wire):
    wire.server.script(
        [failure(429, "slow down", retry_after=wait) for wait in (1, 3600)]
        + [failure(429, "slow down")]
    )
    errors = [(await wire.failure())[0] for _ in range(3)]
    assert [(type(error), error.retry_after) for error in errors] == [
        (RateLimited, 1),
        (RateLimited, 3600),
        (RateLimited, None),
    ]
    assert len(wire.server.requests) == 3


@pytest.mark.parametrize(
    "answer",
    [
        failure(500, "oops"),
        Raw(502, "<html><title>Bad gateway</title></html>"),
        failure(529, "Overloaded"),
    ],
)
async def test_l5_server_error_is_unavailable_and_sent_once(wire, answer):
    wire.server.script([answer] * 3)
    error, _ = await wire.failure()
    assert type(error) is ModelUnavailable, error
    assert "<html>" not in str(error)
    assert len(wire.server.requests) == 1


async def test_l5_exhausted_quota_is_not_a_rate_limit(wire):
    wire.server.script(
        [
            failure(
                429,
                "You exceeded your current quota",
                code="insufficient_quota",
                kind="insufficient_quota",
            )
        ]
    )
    assert type((await wire.failure())[0]) is RequestRefused


async def test_l5_an_unknown_model_is_refused(wire):
    wire.server.script([failure(404, "The model `x` does not exist", kind="not_found_error")])
    error, _ = await wire.failure()
    assert type(error) is RequestRefused
    assert "does not exist" in str(error)


@pytest.mark.parametrize("answer", TOO_LONG, ids=range(len(TOO_LONG)))
async def test_l6_too_long_context_is_recognized_for_each_provider(wire, answer):
    wire.server.script([answer])
    assert type((await wire.failure())[0]) is ContextTooLong
