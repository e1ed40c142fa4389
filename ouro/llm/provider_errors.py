"""Errors of providers as ModelError; keys in their messages are hidden."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from ouro.errors import (
    AuthenticationFailed,
    ContextTooLong,
    ModelError,
    ModelUnavailable,
    RateLimited,
    RequestRefused,
)
from ouro.llm.model import Endpoint
from ouro.utils.late_pattern import late_pattern

MAX_MESSAGE = 600
"""Characters of a provider's message that are shown."""

_TOO_LONG = late_pattern(
    r"context[_ ]length|context[_ ]window|context[_ ]size|maximum context|context limit|prompt is"
    r" too long"
    r"|prompt too long|input is too long|maximum prompt length|reduce the length|too many (input"
    r" )?tokens"
    r"|token count .{0,80}exceeds|exceeds? .{0,40}(maximum|max)"
    r" .{0,20}tokens|request_too_large|range of input length",
    re.IGNORECASE,
)
_NO_MONEY = late_pattern(
    r"insufficient_quota|exceeded your current quota|credit balance|billing", re.IGNORECASE
)
_REFUSED = late_pattern(r"invalid_|.*image|.*_policy|data_residency")
"""Codes of errors inside of a stream that come again for the same request."""
_KEY_SHAPES = late_pattern(
    r"(?i:bearer\s+)[^\s\"',}]+"
    r"|\b(?:sk|pk|rk|gsk|xai|hf|r8|nvapi|AIza|AKIA|ghp|glpat|key|api|tok|csk|fw|tgp)[-_]?[A-Za-z0-9*_\-.]{12,}"
    # Each run of characters is read once: 50 KB of `a-` took 8 s.
    r"|(?<![A-Za-z0-9_\-])(?=[A-Za-z_\-]*[0-9])[A-Za-z0-9_\-]{32,}"
)


def redact(text: str, *keys: str) -> str:
    """`text` without these keys and without other text that looks like a key."""
    for key in keys:
        if len(key) >= 4:
            text = text.replace(key, "[key]")
    return _KEY_SHAPES.sub("[key]", text)


def error_from_status(
    status: int, body: str, headers: Mapping[str, str], endpoint: Endpoint
) -> ModelError:
    """The error for an HTTP answer that is not a success; `headers` have names in lower case."""
    words, code = _parse_error(body)
    server = endpoint.address or "The provider"
    said = _shorten(words, endpoint)
    message = f"{server} answered {status}" + (f": {said}" if said else ".")
    if status in (401, 403):
        hint = f"The key is from {endpoint.key_source or 'the settings'}. Correct it there."
        if not endpoint.api_key:
            hint = (
                "No key was given. Set one in the environment or in models.yaml; see `ouro models`."
            )
        return AuthenticationFailed(
            f"{server} does not accept the key ({status}). {said}".strip(), hint
        )
    if 300 <= status < 400:
        where = redact(headers.get("location", "nowhere"), endpoint.api_key)
        return RequestRefused(
            f"{server} redirects to {where}; ouro does not follow redirects.",
            "Correct the address in models.yaml.",
        )
    if status == 413 or (status in (400, 422, 500) and _TOO_LONG.search(f"{code} {words}")):
        return ContextTooLong(message)
    if status == 402 or (status in (400, 429) and _NO_MONEY.search(f"{code} {words}")):
        return RequestRefused(
            message, "The account has no credit left: see the provider's billing page."
        )
    if status == 429:
        return RateLimited(message, retry_after=retry_after(headers))
    if status in (408, 409, 425) or status >= 500:
        return ModelUnavailable(message, retry_after=retry_after(headers))
    hint = (
        f"Check the model name and the address {endpoint.base_url}. `ouro models` lists usable"
        " models."
    )
    return RequestRefused(message, hint if status == 404 else "")


def error_from_stream(error: Any, endpoint: Endpoint) -> ModelError:
    """The error inside of a stream that began with status 200."""
    words, code = _parse_error(json.dumps({"error": error}))
    reason = _shorten(words, endpoint) or "it gives no reason."
    message = f"{endpoint.address or 'The provider'} ended the answer with an error: {reason}"
    if _TOO_LONG.search(f"{code} {words}"):
        return ContextTooLong(message)
    if code in ("429", "rate_limit_error", "rate_limit_exceeded"):
        return RateLimited(message)
    if code in ("400", "422") or _REFUSED.match(code):
        return RequestRefused(message)
    return ModelUnavailable(message)


def describe_connection_error(error: BaseException) -> str:
    """Why a connection failed, for users: messages of libraries name their own functions."""
    causes = causes_of(error)
    for kind, words in _REASONS.items():
        if any(isinstance(cause, kind) for cause in causes):
            return words
    numbers = [cause.errno for cause in causes if isinstance(cause, OSError) and cause.errno]
    if numbers:
        return os.strerror(numbers[-1]).lower()
    return (
        "the server closed it" if _CLOSED.search(" ".join(map(str, causes))) else "no answer came"
    )


_REASONS: Mapping[type[BaseException], str] = {
    ssl.SSLCertVerificationError: "its certificate is not valid",
    ssl.SSLError: "TLS failed",
    socket.gaierror: "no such host",
    ConnectionRefusedError: "the connection was refused",
    ConnectionResetError: "the server reset it",
    BrokenPipeError: "the server closed it",
}
_CLOSED = late_pattern(r"disconnected|closed|incomplete", re.IGNORECASE)


def causes_of(error: BaseException) -> list[BaseException]:
    """The error and all its causes, including the `original_exception` of litellm."""
    found = [error]
    for cause in found:
        inner = cause.exceptions if isinstance(cause, BaseExceptionGroup) else ()
        more = (
            cause.__cause__,
            cause.__context__,
            *inner,
            getattr(cause, "original_exception", None),
        )
        found += [
            one
            for one in more
            if isinstance(one, BaseException) and not any(one is other for other in found)
        ]
    return found


def retry_after(headers: Mapping[str, str]) -> float | None:
    milliseconds, seconds = headers.get("retry-after-ms"), headers.get("retry-after")
    try:
        if milliseconds is not None:
            return max(0.0, float(milliseconds) / 1000)
        return None if seconds is None else max(0.0, float(seconds))
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(seconds or "")
    except ValueError:
        return None
    return max(0.0, (moment.astimezone(UTC) - datetime.now(UTC)).total_seconds())


def _parse_error(body: str) -> tuple[str, str]:
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return _strip_tags(body), ""
    if isinstance(data, list) and data:
        data = data[0]
    error = data.get("error", data) if isinstance(data, dict) else data
    if not isinstance(error, dict):
        return str(error or ""), ""
    words = error.get("message") or error.get("detail") or error.get("msg") or ""
    metadata = error.get("metadata")
    if isinstance(metadata, dict) and metadata.get("raw"):
        words = f"{words} ({metadata['raw']})"
    return str(words or json.dumps(error)), str(
        error.get("code") or error.get("type") or error.get("status") or ""
    )


def _strip_tags(page: str) -> str:
    if "<" not in page:
        return page
    # The limits keep it linear: 60 KB of `<title>` took 4 s.
    title = re.search(r"<title[^>]{0,200}>([^<]*)</title>", page, re.IGNORECASE)
    return title[1] if title else "a web page"


def _shorten(words: str, endpoint: Endpoint) -> str:
    words = " ".join(redact(words, endpoint.api_key).split())
    if len(words) > MAX_MESSAGE:
        return words[:MAX_MESSAGE] + "…"
    return words + "." if words and words[-1] not in ".!?…" else words
