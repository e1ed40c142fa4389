"""Errors of providers as ModelError; keys in their messages are hidden."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

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
PAYMENT_REQUIRED = 402
NOT_FOUND = 404
TOO_MANY_REQUESTS = 429
MAX_ANSWER_TEXT = 8_000
"""Characters of a provider's answer that are kept to find its reason."""
MAX_MESSAGE = 600
"""Characters of a provider's message that are shown."""
RATE_TOO_SMALL = (
    "No wait helps: this request alone is more than the account may send at once. `/compact` makes"
    " it smaller; `/model` chooses another model."
)
"""The hint for a request that a rate limit never lets through."""
NOT_FROM_A_MODEL = (
    "The answer is a web page: a proxy or a firewall before the server seems to have blocked the"
    " request."
)
"""The hint for a page with the status of a wrong key."""
NO_CREDIT = "The account has no credit left: see the provider's billing page."
"""The hint for an account without money."""

_NO_MONEY = late_pattern(
    r"insufficient[_ ](?:quota|balance|funds|credits?)|exceeded your current quota|credit balance|billing",
    re.IGNORECASE,
)
"""Matches an error about an account without credit."""
_REQUEST_FAULT = late_pattern(
    r"invalid[_ ](?:json|schema|payload|argument|param|function|tool|value|type|message|image)"
    r"|schema|unsupported|not support|unknown (?:name|field|param\w*|variant|key|property)"
    r"|unrecogni[sz]ed|extra inputs|not permitted|cannot find field|deserializ|field required"
    r"|malformed|bad request|\b(?:tools?|messages?|contents)(?:\[\d|\.\d)|missing (?:field|param)"
    r"|must (?:be|not be|have|follow|match) (?!on |a paid|upgrad)|reasoning_content|tool_call_id"
    r"|不支持|参数(?:错误|无效|不合法)|无效的?参数|格式错误|パラメータ|no admite|nicht unterst",
    re.IGNORECASE,
)
"""Matches words about a fault in a request, which a wait does not change."""
_INNER_STATUS = late_pattern(
    r"(?:error|status|http|code|upstream|错误码|状态码)\W{0,6}(?:code\W{0,3})?(?:400|413|422)\b"
    r"|\[(?:400|413|422)\]|<(?:400|413|422)>",
    re.IGNORECASE,
)
"""Matches the status of another server in a text: `upstream error 400`."""
_BUSY_SERVER = late_pattern(
    r"overload|capacity|\bbusy|exhaust|again|later|\bwait\b|throttl|too many (?:requests|tokens)"
    r"|cool.?down|\brate|\bslow|temporar|\bplan\b|\btier\b|subscri|upgrade|available"
    r"|饱和|稍后|繁忙|频繁|混雑|サーバー|перегруж|позже|später|plus tard|más tarde",
    re.IGNORECASE,
)
"""Matches words about a server that may answer later."""
_RATE_CODES = ("429", "rate_limit_error", "rate_limit_exceeded", "usage_limit_reached")
"""The codes of an error inside of a stream that is about a limit in time."""
_PERMANENT_CODE = late_pattern(r"invalid_|.*image|.*_policy|data_residency|.*not_included")
"""Matches the code of an error inside of a stream that comes again for the same request."""
_KEY_SHAPES = late_pattern(
    r"(?i:bearer\s+)[^\s\"',}]+"
    r"|\b(?:sk|pk|rk|gsk|xai|hf|r8|nvapi|AIza|AKIA|ghp|glpat|key|api|tok|csk|fw|tgp)[-_]?[A-Za-z0-9*_\-.]{12,}"
    # Each run of characters is read once: 50 KB of `a-` took 8 s.
    r"|(?<![A-Za-z0-9_\-])(?=[A-Za-z_\-]*[0-9])[A-Za-z0-9_\-]{32,}"
)
"""Matches what looks like a key: `sk-…`, `Bearer …`, or a long run of letters and digits."""


def redact(text: str, *keys: str) -> str:
    """`text` without these keys, which may be empty, and without other text that looks like a key."""
    for key in keys:
        if len(key) >= 4:  # a shorter one, or an empty one, would match ordinary text
            text = text.replace(key, "[key]")
    return _KEY_SHAPES.sub("[key]", text)


def error_from_status(
    status: int, body: str, headers: Mapping[str, str], endpoint: Endpoint
) -> ModelError:
    """The error for an HTTP answer that is not a success; its `answer` is what the provider said.
    The names of `headers` are in lower case.

    A 429 whose text is about a fault in the request counts as a 400; see `describes_fault`.
    """
    is_request_fault = status == TOO_MANY_REQUESTS and describes_fault(_body_as_text(body))
    meant_status = BAD_REQUEST if is_request_fault else status
    error = _classify_status(status, meant_status, body, headers, endpoint)
    error.answer = _provider_answer(meant_status, body, endpoint)
    return error


def describes_fault(text: str) -> bool:
    """Whether the text of a 429 is about a fault in the request, not about a rate limit.

    Relays with many accounts answer 429 when each of them has failed, whatever the reason was.
    Without this check the same request would be sent eleven times within minutes. Such a text often
    names the status of the last account.
    """
    is_fault = bool(_REQUEST_FAULT.search(text)) or names_overflow(BAD_REQUEST, text)
    is_about_rate = is_rate_limit(text) or bool(_BUSY_SERVER.search(text))
    return is_fault and (not is_about_rate or bool(_INNER_STATUS.search(text)))


def _provider_answer(status: int, body: str, endpoint: Endpoint) -> ProviderAnswer:
    """What the provider answered, without the key, to search it for the reason."""
    data = _parse_json(body)
    param = dictionary(dictionary(data).get("error", data)).get("param")
    text = redact(_body_as_text(body), *endpoint.secrets)
    return ProviderAnswer(status, text, str(param or ""))


def _parse_json(body: str) -> Any:
    """The value of a body in JSON; None if it is not JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _asked_wait(headers: Mapping[str, str], body: str) -> float | None:
    """The seconds that an answer asks to wait; None if it does not: see `wait_seconds`."""
    from ouro.llm.waits import wait_seconds  # imported late: most answers are no errors

    return wait_seconds(headers, _body_as_text(body))


def _body_as_text(body: str) -> str:
    """The texts of a body. They are not escaped, as quotes and letters of other languages are in
    JSON.
    """
    data = _parse_json(body)
    text = body if data is None else " ".join(_list_texts(data))
    return text[:MAX_ANSWER_TEXT]


def _list_texts(value: Any) -> Iterator[str]:
    """Yield the keys, texts and numbers of a JSON value."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"{key}:"  # `Refused.names` reads a word before a colon as a field
            yield from _list_texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _list_texts(item)
    elif value is not None:
        yield str(value)


def _classify_status(
    status: int, meant_status: int, body: str, headers: Mapping[str, str], endpoint: Endpoint
) -> ModelError:
    """The error for an HTTP answer, without its `answer`. Usually the status decides which error it
    is. A request that is too large and an account without money are recognized by the words of the
    body, because servers answer them with different statuses.

    Args:
        status: the status of the answer, for the message.
        meant_status: the status by which the request is judged; see `describes_fault`.
    """
    text, code = _parse_error(body)
    server = endpoint.address or "The provider"
    reason = _clean_message(text, endpoint)
    message = f"{server} answered {status}" + (f": {reason}" if reason else ".")
    if status == 403 and "<html" in body[:MAX_MESSAGE].lower():
        return RequestRefused(message, NOT_FROM_A_MODEL)
    if status in (401, 403):
        return _key_error(f"{server} does not accept the key ({status}). {reason}", endpoint)
    if 300 <= status < 400:
        where = redact(headers.get("location", "nowhere"), *endpoint.secrets)
        return RequestRefused(
            f"{server} redirects to {where}; ouro does not follow redirects.",
            "Correct the address in models.yaml.",
        )
    code_and_text = f"{code} {text}"
    if exceeds_rate(code_and_text):
        return RequestRefused(message, RATE_TOO_SMALL)
    if names_overflow(meant_status, code_and_text):
        return ContextTooLong(message)
    wait = _asked_wait(headers, body)
    if _means_no_credit(status, code_and_text, wait):
        return RequestRefused(message, NO_CREDIT)
    if status >= 500 and code == "model_not_found":
        # Relays with many servers say so if none of them has the model.
        return _other_error(NOT_FOUND, message, wait, endpoint)
    return _other_error(meant_status, message, wait, endpoint)


def _means_no_credit(status: int, code_and_text: str, wait: float | None) -> bool:
    """Whether an answer says that the account has no money left. `wait`: the seconds that it asks
    to wait; None: it does not.
    """
    # Gemini's words for a limit of one minute are those of OpenAI for no money: it names a wait.
    is_limit_in_time = status == TOO_MANY_REQUESTS and wait is not None
    if status == PAYMENT_REQUIRED:
        return True
    if is_limit_in_time:
        return False
    return status in (BAD_REQUEST, TOO_MANY_REQUESTS) and bool(_NO_MONEY.search(code_and_text))


def _key_error(message: str, endpoint: Endpoint) -> AuthenticationFailed:
    """The error for a key that is not accepted; it names where the key is from."""
    hint = f"The key is from {endpoint.key_source or 'the settings'}. Correct it there."
    if not endpoint.api_key:
        hint = "No key was given. Set one in the environment or in models.yaml; see `ouro models`."
    if not endpoint.api_key and not endpoint.base_url:  # litellm finds the credentials
        hint = (
            "If the credentials have expired (AWS, Google), renew them, and send the message again."
        )
    return AuthenticationFailed(message.strip(), hint)


def _other_error(status: int, message: str, wait: float | None, endpoint: Endpoint) -> ModelError:
    """The error for a status that needs no look at the words of the body. A status that another
    attempt does not change is RequestRefused. The others have the wait that the provider asks for
    (`retry_after`; None: it asks for none).
    """
    if status == 429:
        return RateLimited(message, retry_after=wait)
    if status in (408, 409, 425) or status >= 500:
        return ModelUnavailable(message, retry_after=wait)
    hint = ""
    if status == NOT_FOUND:
        hint = (
            f"Check the model name and the address {endpoint.base_url}. `ouro models` lists usable"
            " models."
        )
        if not urlsplit(endpoint.base_url).path.strip("/"):
            hint += f" Most servers need {endpoint.base_url}/v1 there."
    return RequestRefused(message, hint)


def error_from_stream(error: Any, endpoint: Endpoint) -> ModelError:
    """The error to raise for an error that a server sent inside of a stream, which began with
    status 200. Its `answer` is what the provider said.
    """
    model_error = _classify_stream_error(error, endpoint)
    _, code = _parse_error(json.dumps({"error": error}))
    # The code may be the status that the answer would have had.
    status = int(code) if code.isdecimal() and len(code) == 3 else BAD_REQUEST
    if status == TOO_MANY_REQUESTS and isinstance(model_error, RequestRefused):
        status = BAD_REQUEST  # see `describes_fault`
    model_error.answer = _provider_answer(status, json.dumps(error), endpoint)
    return model_error


def _classify_stream_error(error: Any, endpoint: Endpoint) -> ModelError:
    """The error to raise for an error that a server sent inside of a stream, without its `answer`.
    The code and the text decide which one it is. If they say nothing known, it is ModelUnavailable:
    another attempt may help.
    """
    text, code = _parse_error(json.dumps({"error": error}))
    reason = _clean_message(text, endpoint) or "it gives no reason."
    message = f"{endpoint.address or 'The provider'} ended the answer with an error: {reason}"
    if exceeds_rate(text):
        return RequestRefused(message, RATE_TOO_SMALL)
    if names_overflow(400, f"{code} {text}"):
        return ContextTooLong(message)
    wait = _asked_wait({}, json.dumps(error))
    if code in _RATE_CODES:
        is_fault = describes_fault(f"{code} {text}")
        return RequestRefused(message) if is_fault else RateLimited(message, retry_after=wait)
    if wait is None and _NO_MONEY.search(f"{code} {text}"):
        return RequestRefused(message, NO_CREDIT)
    if code in ("400", "422") or _PERMANENT_CODE.match(code):
        return RequestRefused(message)
    return ModelUnavailable(message, retry_after=wait)


def describe_body(body: str, endpoint: Endpoint) -> str:
    """The message in a body that is no answer of a model, as a sentence; the title of a web page."""
    return _clean_message(_parse_error(body)[0], endpoint)


def describe_connection_error(error: BaseException) -> str:
    """Why a connection failed, for users. The messages of libraries are not used: they name their
    own functions.
    """
    causes = causes_of(error)
    for problem, text in _CONNECTION_PROBLEMS.items():
        if any(isinstance(cause, problem) for cause in causes):
            return text
    numbers = [cause.errno for cause in causes if isinstance(cause, OSError) and cause.errno]
    if numbers:
        return os.strerror(numbers[-1]).lower()
    is_closed = _CLOSED_BY_SERVER.search(" ".join(map(str, causes)))
    return "the server closed it" if is_closed else "no answer came"


_CONNECTION_PROBLEMS: Mapping[type[BaseException], str] = {
    ssl.SSLCertVerificationError: "its certificate is not valid",
    ssl.SSLError: "TLS failed",
    socket.gaierror: "no such host",
    ConnectionRefusedError: "the connection was refused",
    ConnectionResetError: "the server reset it",
    BrokenPipeError: "the server closed it",
}
"""An exception -> what it means for users; the first one that fits counts."""
_CLOSED_BY_SERVER = late_pattern(r"disconnected|closed|incomplete", re.IGNORECASE)


def causes_of(error: BaseException) -> list[BaseException]:
    """The error, then all its causes, each once, the nearest first; including the members of groups
    and the `original_exception` of litellm.
    """
    errors = [error]
    for cause in errors:  # grows while it is read
        members = cause.exceptions if isinstance(cause, BaseExceptionGroup) else ()
        deeper = (
            cause.__cause__,
            cause.__context__,
            *members,
            getattr(cause, "original_exception", None),
        )
        for candidate in deeper:
            is_listed = any(candidate is other for other in errors)
            if isinstance(candidate, BaseException) and not is_listed:
                errors.append(candidate)
    return errors


def _parse_error(body: str) -> tuple[str, str]:
    """The message and the code in the body of an error, which may be JSON, text or a web page. If
    there is no field for the code, a type or a status takes its place. Each is empty if there is
    none.
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
    message = _first_of(error, "message", "detail", "msg")
    raw = dictionary(error.get("metadata")).get("raw")  # OpenRouter: what its provider said
    if raw:
        message = f"{message} ({raw})"
    return str(message or json.dumps(error)), str(_first_of(error, "code", "type", "status"))


def _first_of(error: Mapping[str, Any], *keys: str) -> Any:
    """The value of the first of these keys that has one which is not empty; else an empty text."""
    return next(filter(None, map(error.get, keys)), "")


def _strip_tags(page: str) -> str:
    """The title of a web page, `a web page` if it has none; a text without tags as it is."""
    if "<" not in page:
        return page
    # The limits keep it linear: 60 KB of `<title>` took 4 s.
    title = re.search(r"<title[^>]{0,200}>([^<]*)</title>", page, re.IGNORECASE)
    return title[1] if title else "a web page"


def _clean_message(message: str, endpoint: Endpoint) -> str:
    """A provider's message as a sentence on one line, without keys; cut if it is long. An empty message
    stays empty.
    """
    message = " ".join(redact(message, *endpoint.secrets).split())
    if len(message) > MAX_MESSAGE:
        return message[:MAX_MESSAGE] + "…"
    if not message or message.endswith((".", "!", "?", "…")):
        return message
    return message + "."
