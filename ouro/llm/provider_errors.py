"""Errors of providers as ModelError; keys in their messages are hidden."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from ouro.errors import (
    AuthenticationFailed,
    ContextTooLong,
    ModelError,
    ModelUnavailable,
    ProviderAnswer,
    RateLimited,
    RequestRefused,
)
from ouro.llm.model import Endpoint
from ouro.llm.overflow import exceeds_rate, is_rate_limit, names_overflow
from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import dictionary

BAD_REQUEST = 400
TOO_MANY_REQUESTS = 429
MAX_ANSWER_TEXT = 8_000
"""Characters of a provider's answer that are kept to find its reason."""
MAX_MESSAGE = 600
"""Characters of a provider's message that are shown."""
RATE_TOO_SMALL = (
    "No wait helps: this request alone is more than the account may send at once. `/compact` makes"
    " it smaller; `/model` chooses another model."
)

_NO_MONEY = late_pattern(
    r"insufficient_quota|exceeded your current quota|credit balance|billing", re.IGNORECASE
)
_FAULT = late_pattern(
    r"invalid[_ ](?:json|schema|payload|argument|param|function|tool|value|type|message|image)"
    r"|schema|unsupported|not support|unknown (?:name|field|param\w*|variant|key|property)"
    r"|unrecogni[sz]ed|extra inputs|not permitted|cannot find field|deserializ|field required"
    r"|malformed|bad request|\b(?:tools?|messages?|contents)(?:\[\d|\.\d)|missing (?:field|param)"
    r"|must (?:be|not be|have|follow|match) (?!on |a paid|upgrad)|reasoning_content|tool_call_id"
    r"|不支持|参数(?:错误|无效|不合法)|无效的?参数|格式错误|パラメータ|no admite|nicht unterst",
    re.IGNORECASE,
)
"""A fault in a request, which a wait does not change."""
_INNER_STATUS = late_pattern(
    r"(?:error|status|http|code|upstream|错误码|状态码)\W{0,6}(?:code\W{0,3})?(?:400|413|422)\b"
    r"|\[(?:400|413|422)\]|<(?:400|413|422)>",
    re.IGNORECASE,
)
_BUSY = late_pattern(
    r"overload|capacity|\bbusy|exhaust|again|later|\bwait\b|throttl|too many (?:requests|tokens)"
    r"|cool.?down|\brate|\bslow|temporar|\bplan\b|\btier\b|subscri|upgrade|available"
    r"|饱和|稍后|繁忙|频繁|混雑|サーバー|перегруж|позже|später|plus tard|más tarde",
    re.IGNORECASE,
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
    """The error for an HTTP answer that is not a success, with the answer; `headers` have names in
    lower case.
    """
    is_fault = status == TOO_MANY_REQUESTS and describes_fault(_body_as_text(body))
    read_as = BAD_REQUEST if is_fault else status
    error = _error_from_status(status, body, headers, endpoint, read_as)
    error.answer = _provider_answer(read_as, body, endpoint)
    return error


def describes_fault(text: str) -> bool:
    """Whether the text of a 429 is about a fault in the request, not about a rate limit.

    Relays with many accounts answer 429 when each of them has failed, whatever the reason was: the
    same request was sent eleven times within minutes. Such a text often names the status of the
    last account.
    """
    is_fault = bool(_FAULT.search(text)) or names_overflow(BAD_REQUEST, text)
    is_about_rate = is_rate_limit(text) or bool(_BUSY.search(text))
    return is_fault and (not is_about_rate or bool(_INNER_STATUS.search(text)))


def _provider_answer(status: int, body: str, endpoint: Endpoint) -> ProviderAnswer:
    """What the provider answered, to look for the reason in; the key is removed."""
    data = _parse_json(body)
    param = dictionary(dictionary(data).get("error", data)).get("param")
    shown = redact(_body_as_text(body), endpoint.api_key)
    return ProviderAnswer(status, shown, str(param or ""))


def _parse_json(body: str) -> Any:
    """A body as JSON; None if it is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _body_as_text(body: str) -> str:
    """A body as text, not as JSON: its quotes and letters of other languages are not escaped there."""
    data = _parse_json(body)
    text = body if data is None else " ".join(_list_texts(data))
    return text[:MAX_ANSWER_TEXT]


def _list_texts(value: Any) -> Iterator[str]:
    """The texts and numbers of JSON, with the keys; JSON inside of a text is read, too."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"{key}:"
            yield from _list_texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _list_texts(item)
    elif value is not None:
        yield str(value)


def _error_from_status(
    status: int, body: str, headers: Mapping[str, str], endpoint: Endpoint, read_as: int
) -> ModelError:
    """The error for a status; `read_as` is what it means by its text."""
    words, code = _parse_error(body)
    server = endpoint.address or "The provider"
    said = _clean_message(words, endpoint)
    message = f"{server} answered {status}" + (f": {said}" if said else ".")
    if status in (401, 403):
        return _key_error(f"{server} does not accept the key ({status}). {said}", endpoint)
    if 300 <= status < 400:
        where = redact(headers.get("location", "nowhere"), endpoint.api_key)
        return RequestRefused(
            f"{server} redirects to {where}; ouro does not follow redirects.",
            "Correct the address in models.yaml.",
        )
    text = f"{code} {words}"
    if exceeds_rate(text):
        return RequestRefused(message, RATE_TOO_SMALL)
    if names_overflow(read_as, text):
        return ContextTooLong(message)
    if status == 402 or (status in (400, 429) and _NO_MONEY.search(text)):
        return RequestRefused(
            message, "The account has no credit left: see the provider's billing page."
        )
    return _other_error(read_as, message, headers, endpoint)


def _key_error(message: str, endpoint: Endpoint) -> AuthenticationFailed:
    """The error about a key that is not accepted, with its source."""
    hint = f"The key is from {endpoint.key_source or 'the settings'}. Correct it there."
    if not endpoint.api_key:
        hint = "No key was given. Set one in the environment or in models.yaml; see `ouro models`."
    return AuthenticationFailed(message.strip(), hint)


def _other_error(
    status: int, message: str, headers: Mapping[str, str], endpoint: Endpoint
) -> ModelError:
    """The error for a status that says everything by its number."""
    if status == 429:
        return RateLimited(message, retry_after=retry_after(headers))
    if status in (408, 409, 425) or status >= 500:
        return ModelUnavailable(message, retry_after=retry_after(headers))
    hint = ""
    if status == 404:
        hint = (
            f"Check the model name and the address {endpoint.base_url}. `ouro models` lists usable"
            " models."
        )
    return RequestRefused(message, hint)


def error_from_stream(error: Any, endpoint: Endpoint) -> ModelError:
    """The error inside of a stream that began with status 200, with the answer."""
    made = _error_from_stream(error, endpoint)
    _, code = _parse_error(json.dumps({"error": error}))
    status = int(code) if code.isdecimal() and len(code) == 3 else BAD_REQUEST
    if status == TOO_MANY_REQUESTS and isinstance(made, RequestRefused):
        status = BAD_REQUEST
    made.answer = _provider_answer(status, json.dumps(error), endpoint)
    return made


def _error_from_stream(error: Any, endpoint: Endpoint) -> ModelError:
    """The error by its code and words; one that nothing is known about may pass with another
    attempt.
    """
    words, code = _parse_error(json.dumps({"error": error}))
    reason = _clean_message(words, endpoint) or "it gives no reason."
    message = f"{endpoint.address or 'The provider'} ended the answer with an error: {reason}"
    if exceeds_rate(words):
        return RequestRefused(message, RATE_TOO_SMALL)
    if names_overflow(400, f"{code} {words}"):
        return ContextTooLong(message)
    if code in ("429", "rate_limit_error", "rate_limit_exceeded"):
        is_fault = describes_fault(f"{code} {words}")
        return RequestRefused(message) if is_fault else RateLimited(message)
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
    """The seconds that a provider asks to wait; None if it does not say."""
    milliseconds, seconds = headers.get("retry-after-ms"), headers.get("retry-after")
    try:
        if milliseconds is not None:
            return max(0.0, float(milliseconds) / 1000)
        return None if seconds is None else max(0.0, float(seconds))
    except ValueError:
        pass
    from email.utils import parsedate_to_datetime  # imported late: 15 modules, for a rare date

    try:
        moment = parsedate_to_datetime(seconds or "")
    except ValueError:
        return None
    return max(0.0, (moment.astimezone(UTC) - datetime.now(UTC)).total_seconds())


def _parse_error(body: str) -> tuple[str, str]:
    """The message and the code of an error body, which may be JSON, text or a page; empty without
    one.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return _strip_tags(body), ""
    if isinstance(data, list) and data:
        data = data[0]
    error = dictionary(data).get("error", data)
    if not isinstance(error, dict):
        return str(error or ""), ""
    words = _first_of(error, "message", "detail", "msg")
    if raw := dictionary(error.get("metadata")).get("raw"):
        words = f"{words} ({raw})"
    return str(words or json.dumps(error)), str(_first_of(error, "code", "type", "status"))


def _first_of(error: Mapping[str, Any], *keys: str) -> Any:
    """The first of these values that is not empty."""
    return next(filter(None, map(error.get, keys)), "")


def _strip_tags(page: str) -> str:
    """The title of a web page; any other text as it is."""
    if "<" not in page:
        return page
    # The limits keep it linear: 60 KB of `<title>` took 4 s.
    title = re.search(r"<title[^>]{0,200}>([^<]*)</title>", page, re.IGNORECASE)
    return title[1] if title else "a web page"


def _clean_message(words: str, endpoint: Endpoint) -> str:
    """A provider's message as a sentence, without keys."""
    words = " ".join(redact(words, endpoint.api_key).split())
    if len(words) > MAX_MESSAGE:
        return words[:MAX_MESSAGE] + "…"
    return words + "." if words and words[-1] not in ".!?…" else words
