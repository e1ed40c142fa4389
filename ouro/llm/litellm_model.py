"""LiteLLMModel and LiteLLMEmbeddings: all other providers, through litellm in one process that all
models share.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Any

from ouro.errors import (
    AuthenticationFailed,
    ContextTooLong,
    ModelError,
    ModelUnavailable,
    RequestRefused,
    StreamCut,
)
from ouro.llm.adaptive_model import AdaptiveModel, ModelRequest
from ouro.llm.anthropic import MARKED_MESSAGES, mark_for_cache, signed_thinking
from ouro.llm.litellm_worker import CREDENTIALS, MISSING_MODULE
from ouro.llm.model import Chunk, Effort, Embedded, Endpoint, ModelSpec, ThinkingChunk, ToolSpec
from ouro.llm.openai import OpenAIChunks, OpenAIFormat, format_tools
from ouro.llm.openai_embeddings import parse_vectors
from ouro.llm.portable import join_all_surrogates
from ouro.llm.provider_errors import error_from_status, redact
from ouro.llm.providers import provider_of
from ouro.llm.server_facts import ServerFacts
from ouro.llm.wire import read_chunks
from ouro.messages import Message
from ouro.utils.json_object import JsonObject
from ouro.utils.lenient_json import dictionaries, string
from ouro.utils.worker_process import WorkerProcess, WorkerStopped

TOO_LONG = "ContextWindowExceededError"
"""The name of the error of litellm for a request that is too long."""
FRESH_SECONDS = 30.0
"""A process that is not older has read the present credentials."""
PACKAGES = {"google": "google-auth", "botocore": "boto3"}
"""A module that litellm needs -> the package with it, if that has another name."""
WORKER = ("-m", "ouro.llm.litellm_worker")
"""How Python runs the process of litellm."""


class LiteLLMModel(AdaptiveModel):
    """A model behind litellm, which translates chat completions for its provider. A refusal of the
    server changes later requests, as on the wires.
    """

    limit_names = ("max_tokens", "max_completion_tokens")
    """The names of the field that limits an answer, the usual one first."""

    def __init__(
        self,
        spec: ModelSpec,
        endpoint: Endpoint,
        *,
        effort: Effort = "off",
        facts: ServerFacts | None = None,
    ) -> None:
        super().__init__(spec, endpoint, effort=effort, facts=facts)
        self._model = _litellm_name(spec.name)
        self._is_claude = "claude" in self._model
        self._rebuild_format()

    async def warm(self) -> None:
        """Start litellm in the background, so that the first request waits less for it."""
        share_process(self)

    async def close(self) -> None:
        """Leave the process of litellm."""
        leave_process(self)

    async def _renew_key(self) -> bool:
        """Read the key again; see AdaptiveModel. Without a key litellm itself finds the credentials,
        such as those of AWS: its process is started again, because it keeps what it has read. One
        that has just read them is only started for the next message.
        """
        if self._endpoint.api_key:
            return await super()._renew_key()
        return await asyncio.to_thread(restart_process) > FRESH_SECONDS

    def _rebuild_format(self) -> None:
        super()._rebuild_format()
        returns_thinking = self.facts.get("thinking_back")
        self._format = OpenAIFormat(self.spec, returns_thinking=returns_thinking, longest_id=0)

    async def _stream_answer(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """The chunks of an answer, which the process of litellm streams."""
        reader = _LiteLLMChunks(self.spec)
        arguments = {**_call_arguments(self._model, self._endpoint), **request.body}
        events = stream_events(self, name="ask", request=arguments, endpoint=self._endpoint)
        async with aclosing(read_chunks(events, reader, self._endpoint.timeouts.content)) as chunks:
            async for chunk in chunks:
                yield chunk

    def _request(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> ModelRequest:
        """The request in the format of chat completions. Path and headers are empty, because
        litellm sets them.
        """
        body: JsonObject = {
            "messages": join_all_surrogates(self._format_messages(messages)),
            "max_tokens": self.spec.max_output,
        }
        if tools and self.spec.tools:
            body["tools"] = format_tools(tools)
        if self._effort != "off" and self.spec.thinking:
            # For higher levels litellm knows the models that have them only with some providers.
            lowered = {"xhigh": "high", "max": "high"}
            body["reasoning_effort"] = lowered.get(self._effort, self._effort)
        return ModelRequest(path="", headers={}, body=body)

    def _format_messages(self, messages: Sequence[Message]) -> list[JsonObject]:
        """The messages in the format of chat completions. For Claude they also have its thinking, with
        signatures, and cache marks.
        """
        if not self._is_claude:
            return self._format.messages(messages)
        formatted: list[JsonObject] = []
        sends_thinking = not self.facts.refuses_signatures
        for message in messages:
            # The model requires its thinking with the signatures in later requests.
            blocks = signed_thinking(message, self.spec.name) if sends_thinking else []
            thinking = {"thinking_blocks": blocks} if blocks else {}
            formatted += [{**item, **thinking} for item in self._format.messages([message])]
        for index in _indexes_to_mark([message["role"] for message in formatted]):
            formatted[index] = _mark_message(formatted[index])
        return formatted


def _indexes_to_mark(roles: Sequence[str]) -> list[int]:
    """The indexes of the messages that get a cache mark: the last system message, and the last
    MARKED_MESSAGES messages of the user or of a tool.

    Args:
        roles: the roles of all messages, in their order.
    """
    system = [index for index, role in enumerate(roles) if role == "system"]
    answered = [index for index, role in enumerate(roles) if role in ("user", "tool")]
    return [*system[-1:], *answered[-MARKED_MESSAGES:]]


class LiteLLMEmbeddings:
    """An embedding model behind litellm. The first call starts the process."""

    def __init__(self, spec: ModelSpec, endpoint: Endpoint) -> None:
        self._spec = spec
        self._endpoint = endpoint.for_vectors()
        self._model = _litellm_name(spec.name)

    def embed(self, texts: Sequence[str]) -> Embedded:
        """The vectors of the texts. Blocks. Raises ModelError."""
        return asyncio.run(self._request_vectors(list(texts)))

    def close(self) -> None:
        """Leave the process of litellm."""
        leave_process(self)

    async def _request_vectors(self, texts: list[str]) -> Embedded:
        """The vectors of the texts. Raises ModelError if the provider returns none."""
        request = {**_call_arguments(self._model, self._endpoint), "input": texts}
        answer: Any = None
        async for event in stream_events(
            self, name="embed", request=request, endpoint=self._endpoint
        ):
            answer = event  # there is only one
        if answer is None:
            raise ModelError(f"{self._model} returned no vectors.")
        return parse_vectors(answer, count=len(texts), spec=self._spec, server=self._model)


def _litellm_name(name: str) -> str:
    """The name of a model in litellm, where its provider may have another prefix."""
    provider = provider_of(name)
    if provider is None or not provider.litellm_prefix:
        return name
    return f"{provider.litellm_prefix}/{name.partition('/')[2]}"


def _call_arguments(model: str, endpoint: Endpoint) -> JsonObject:
    """The arguments of each call of litellm. URL and key are left out if they are empty: then
    litellm knows them.
    """
    arguments: JsonObject = {
        "model": model,
        "first": endpoint.timeouts.first,
        "connect": endpoint.timeouts.connect,
    }
    if endpoint.api_key:
        arguments["api_key"] = endpoint.api_key
    if endpoint.base_url:
        arguments["api_base"] = endpoint.base_url
    headers = endpoint.add_headers({})
    if headers:
        arguments["extra_headers"] = headers
    return arguments


def _make_error(error: JsonObject, endpoint: Endpoint, model: str) -> ModelError:
    """The error for a failure that the worker process reported. Its message is without the key.

    Args:
        error: what the worker reported. `kind` is the name of litellm's exception. `status` and
            `headers` are those of the HTTP answer; the status is None if no answer came. `begun`
            is whether a part of the answer had come before the failure.
    """
    text = error["message"]
    # `litellm.BadRequestError: OpenAIException - the message of the provider`
    class_names, _, provider_text = text.partition(" - ")
    if provider_text and "litellm." in class_names:
        text = provider_text.strip()
    message = redact(text, *endpoint.secrets)
    if error["kind"] == CREDENTIALS:
        return AuthenticationFailed(
            f"The credentials for {model} cannot be used: {' '.join(message.split())}",
            "Renew them, and send the message again.",
        )
    if error["kind"] == MISSING_MODULE:
        package = PACKAGES.get(message, message)
        return RequestRefused(
            f"{model} needs the Python package {package}, which is not installed.",
            "Install it into the environment of ouro.",
        )
    if error["kind"] == TOO_LONG:
        return _too_long_error(error, message, endpoint)
    if error["begun"]:
        return StreamCut(f"The provider ended the answer with an error: {message}")
    if error["status"] is None:
        return ModelUnavailable(
            f"{endpoint.address or model} cannot be reached: {message or 'no answer came'}."
        )
    return error_from_status(
        error["status"], body=message, headers=error["headers"], endpoint=endpoint
    )


def _too_long_error(error: JsonObject, message: str, endpoint: Endpoint) -> ContextTooLong:
    """The error for a request that is too long, with the answer of the provider. If litellm names
    no status, it is 400, as other servers answer such a request.
    """
    too_long = ContextTooLong(message)
    too_long.answer = error_from_status(
        error["status"] or 400, message, headers={}, endpoint=endpoint
    ).answer
    return too_long


class _LiteLLMChunks(OpenAIChunks):
    """Parses chat completions of litellm, in which Anthropic's thinking has separate blocks."""

    def _implied_reason(self) -> None:
        """None, so that an answer without a reason counts as cut: litellm ends a stream also if that
        of the provider broke.
        """

    def _read_delta(self, delta: JsonObject) -> Iterator[Chunk]:
        """Yield the chunks of a delta, with the signatures of Anthropic's thinking."""
        yield from super()._read_delta(delta)
        for block in dictionaries(delta.get("thinking_blocks")):
            signature = string(block.get("signature"))
            if block.get("type") == "redacted_thinking":
                yield ThinkingChunk(text="", signature=string(block.get("data")), redacted=True)
            elif signature:
                yield ThinkingChunk(text="", signature=signature)


def _mark_message(message: JsonObject) -> JsonObject:
    """A message with a cache mark at its end. A tool result has the mark itself; in other messages
    it is in the last part of the content.
    """
    if message["role"] == "tool":
        return mark_for_cache([message])[0]
    content = message["content"]
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    return {**message, "content": mark_for_cache(content)}


async def stream_events(
    user: object, name: str, request: JsonObject, endpoint: Endpoint
) -> AsyncGenerator[Any, None]:
    """Yield the events that the litellm process streams for a request. Closing the generator
    cancels the request.

    Args:
        user: who uses the process; see `share_process`.
        name: `ask` for text, `embed` for vectors.
        request: the arguments for litellm.

    Raises:
        ModelUnavailable: the process died, could not start, or is silent.
        StreamCut: it died or became silent in the middle of the answer.
        ModelError: the provider refused, or ended the answer early.
    """
    timeouts = endpoint.timeouts
    answer = share_process(user).ask(name, request, first=timeouts.first, idle=timeouts.idle)
    try:
        async with aclosing(answer) as lines:
            async for line in lines:
                if "error" in line:
                    raise _make_error(line["error"], endpoint, request["model"])
                if "event" in line:
                    yield line["event"]
    except WorkerStopped as stopped:
        message = f"The provider does not answer: {stopped.message}."
        if stopped.died:
            message = f"The litellm process ended. {redact(stopped.message)}".strip()
        error_type = StreamCut if stopped.begun else ModelUnavailable
        raise error_type(message) from stopped


_process: WorkerProcess | None = None
"""The process that all models share; None if no model uses it."""
_started_at = 0.0
"""When it was started, as `time.monotonic`."""
_users: set[object] = set()
"""The models that use the process."""
_process_lock = threading.Lock()
"""Guards both: text is requested on the event loop, vectors in threads."""


def share_process(user: object) -> WorkerProcess:
    """The shared process; it is started if there is none, or if it died. It runs until each of its
    users has called `leave_process`.
    """
    global _process, _started_at
    with _process_lock:
        _users.add(user)
        if _process is None or not _process.alive:
            _process, _started_at = WorkerProcess(WORKER), time.monotonic()
        return _process


def restart_process() -> float:
    """Stop the shared process; the next use starts a new one. Returns its age in seconds."""
    global _process
    with _process_lock:
        if _process is not None:
            _process.stop()
            _process = None
        return time.monotonic() - _started_at


def leave_process(user: object) -> None:
    """End the use of the process by this user. It is stopped when no other user is left."""
    global _process
    with _process_lock:
        _users.discard(user)
        if not _users and _process is not None:
            _process.stop()
            _process = None
