"""litellm in a separate process (`utils/worker_process.py`): `ask` takes the arguments of
litellm.acompletion, `embed` those of litellm.aembedding.

Events are those that chat completions stream; vectors come as one event, in OpenAI's format.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from ouro.utils.json_object import JsonObject
from ouro.utils.worker_process import Handler, run_worker

CALL_OPTIONS: dict[str, Any] = {"num_retries": 0, "max_retries": 0, "drop_params": True}
"""The options of every call: ouro itself retries."""
STREAM_OPTIONS: dict[str, Any] = CALL_OPTIONS | {
    "stream": True,
    "stream_options": {"include_usage": True},
    # With tools, litellm imports a package that it does not install.
    "_skip_mcp_handler": True,
}
"""The options of a call whose answer is streamed."""
CREDENTIALS, MISSING_MODULE = "Credentials", "MissingModule"
"""The kinds of errors before any request: credentials that cannot be used, and a Python module that
is not installed; the message is then its name.
"""
_CREDENTIAL_PACKAGES = ("botocore.", "google.auth.", "azure.")
"""The packages that find credentials."""
_CREDENTIAL_ERROR = re.compile(r"Credential|SSO|Token|Auth|Profile|Login|Refresh")
"""Matches the name of an error about credentials; the others of these packages are about the network."""
DELTA_KEYS = {"content", "reasoning_content", "thinking_blocks", "tool_calls", "refusal"}
"""The keys of a delta that are sent on."""


def load_litellm() -> Any:
    """Import litellm so that it does nothing beside its requests: it fetches no price map, reads no
    `.env` file, follows no redirects, and sends no telemetry.
    """
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # the packaged price map
    os.environ["LITELLM_MODE"] = "PRODUCTION"  # else a `.env` above litellm's folder is read
    _forbid_redirects()
    import litellm

    litellm.suppress_debug_info = True
    litellm.telemetry = False
    litellm.disable_aiohttp_transport = True
    litellm.callbacks = []
    return litellm


def main() -> None:
    """Answer requests until standard input ends."""
    run_worker(_load_handler, _error_fields)


def _load_handler() -> Handler:
    """Import litellm; returns the function that answers the requests `ask` and `embed` of
    `utils/worker_process.py`.
    """
    litellm = load_litellm()

    def answer(name: str, *request: Any) -> Any:
        run = _stream if name == "ask" else _embed
        return run(litellm, *request)

    return answer


async def _stream(litellm: Any, request: JsonObject, emit: Callable[[JsonObject], None]) -> None:
    """Answer `ask`: emit the events of a chat completion."""
    stream = await litellm.acompletion(**_set_timeout(request), **STREAM_OPTIONS)
    async with contextlib.aclosing(stream):
        async for chunk in stream:
            emit(_to_event(chunk, stream))


async def _embed(litellm: Any, request: JsonObject, emit: Callable[[JsonObject], None]) -> None:
    """Answer `embed`: emit one event with the vectors, and the usage with its cost if litellm knows it."""
    answer = await litellm.aembedding(**_set_timeout(request), **CALL_OPTIONS)
    data = answer.model_dump(exclude_none=True)
    cost = (getattr(answer, "_hidden_params", None) or {}).get("response_cost")
    emit({"data": data.get("data"), "usage": {**(data.get("usage") or {}), "cost": cost}})


def _set_timeout(request: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call with its timeouts as litellm takes them."""
    import httpx

    timeout = httpx.Timeout(request.pop("first"), connect=request.pop("connect"))
    return {**request, "timeout": timeout}


def _to_event(chunk: Any, stream: Any) -> dict[str, Any]:
    """A chunk as plain data. litellm ends each stream with a finish reason, even if the provider
    sent none: then the reason is left out.
    """
    data = chunk.model_dump(exclude_none=True)
    # These attributes are not public. In a version without them each reason counts as one that the
    # provider sent.
    is_ended_by_provider = bool(
        getattr(stream, "received_finish_reason", "stop")
        or getattr(stream, "intermittent_finish_reason", None)
    )
    choices = []
    for choice in data.get("choices") or ():
        delta = choice.get("delta") or {}
        finish = choice.get("finish_reason") if is_ended_by_provider else None
        delta_fields = {key: delta[key] for key in DELTA_KEYS & delta.keys()}
        choices.append({"delta": delta_fields, "finish_reason": finish})
    return {"choices": choices, "usage": data.get("usage")}


def _error_fields(error: BaseException) -> dict[str, Any]:
    """An error as plain data. Status and headers are those of the HTTP answer that caused it, which
    the deepest cause has; the status is None if there was no answer.
    """
    import httpx

    from ouro.llm.provider_errors import causes_of, describe_connection_error

    causes = causes_of(error)
    local = _local_error(causes)
    if local:
        kind, message = local
        return {"kind": kind, "status": None, "message": message, "headers": {}}
    connection_errors = [
        describe_connection_error(cause)
        for cause in causes
        if isinstance(cause, httpx.TransportError)
    ]
    statuses: list[int] = []
    headers: dict[str, str] = {}
    for cause in causes:
        status = getattr(cause, "status_code", None)
        if isinstance(status, int):
            statuses.append(status)
        cause_headers = getattr(getattr(cause, "response", None), "headers", None) or {}
        headers |= {name.lower(): value for name, value in dict(cause_headers).items()}
    return {
        "kind": type(error).__name__,
        # litellm reports 500 if there was no answer.
        "status": statuses[-1] if statuses and not connection_errors else None,
        "message": connection_errors[-1] if connection_errors else _without_traceback(error),
        "headers": headers,
    }


def _local_error(causes: Sequence[BaseException]) -> tuple[str, str] | None:
    """The kind and the message of an error before any request; None if it is none. litellm reports
    such an error as one of the connection, with a traceback.
    """
    for cause in causes:
        name, package = type(cause).__name__, type(cause).__module__
        if package.startswith(_CREDENTIAL_PACKAGES) and _CREDENTIAL_ERROR.search(name):
            return CREDENTIALS, str(cause)
        if isinstance(cause, ModuleNotFoundError) and cause.name:
            return MISSING_MODULE, cause.name
    return None


def _without_traceback(error: BaseException) -> str:
    """The message of an error, without the traceback that litellm adds."""
    return str(error).partition("Traceback (most recent call last)")[0].strip()


def _forbid_redirects() -> None:
    """Make httpx follow no redirect: a request must not reach another server."""
    import httpx

    def without_redirects(send: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **options: send(*args, **{**options, "follow_redirects": False})

    httpx.AsyncClient.send = without_redirects(httpx.AsyncClient.send)  # type: ignore[method-assign]
    httpx.Client.send = without_redirects(httpx.Client.send)  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
