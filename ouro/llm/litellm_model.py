"""LiteLLMModel and LiteLLMEmbeddings: all other providers, through litellm in one process that all models share."""

from __future__ import annotations

import asyncio
import itertools
import json
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, suppress
from typing import Any

from ouro.errors import ContextTooLong, ModelError, ModelUnavailable, StreamCut
from ouro.llm.anthropic import MARKED_MESSAGES, marked, thinking_block
from ouro.llm.embeddings import Embedded, embedded
from ouro.llm.model import (
    Chunk,
    Effort,
    Endpoint,
    ModelSpec,
    ThinkingChunk,
    Timeouts,
    ToolSpec,
    timeouts_for,
    timeouts_for_vectors,
)
from ouro.llm.openai import OpenAIChunks, OpenAIFormat, tools_as_openai
from ouro.llm.portable import encoded
from ouro.llm.provider_errors import error_from_status, redact
from ouro.llm.wire import chunks_from
from ouro.messages import Message, Thinking
from ouro.utils.json_types import dictionaries, dictionary, string

TOO_LONG = "ContextWindowExceededError"
STARTING = 120.0
"""Seconds for the import of litellm, which takes 4 on an idle machine."""
WORKER = ("-m", "ouro.llm.litellm_worker")
MAX_STDERR = 40
"""Lines."""
LAST_WORDS = 1.0
"""Seconds to wait for the last output of a dead process."""
Line = dict[str, Any]


class LiteLLMModel:
    """A model behind litellm."""

    def __init__(
        self,
        spec: ModelSpec,
        endpoint: Endpoint,
        *,
        model: str = "",
        effort: Effort = "off",
        timeouts: Timeouts | None = None,
    ) -> None:
        """`model` is the name for litellm; empty: that of the spec."""
        self.spec = spec
        self._endpoint = endpoint
        self._model = model or spec.name
        self._effort = effort
        self._timeouts = timeouts or timeouts_for(endpoint)
        self._is_claude = "claude" in self._model
        self._format = OpenAIFormat(spec, longest_id=0)

    async def warm(self) -> None:
        """Start litellm in the background, so that the first request waits less for it."""
        process_for(self)

    async def stream(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> AsyncGenerator[Chunk, None]:
        reader = _LiteLLMChunks(self.spec)
        events = self._events(self._request(messages, tools))
        async with aclosing(chunks_from(events, reader, self._timeouts.content)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def close(self) -> None:
        leave(self)

    async def _events(self, request: Line) -> AsyncGenerator[Line, None]:
        async with aclosing(process_for(self).ask("ask", request, self._timeouts)) as lines:
            async for line in lines:
                if "error" in line:
                    raise _error_of(line["error"], self._endpoint, self._model)
                yield dictionary(line.get("event"))

    def _request(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Line:
        request = _arguments(self._model, self._endpoint, self._timeouts)
        request |= {"messages": self._messages(messages), "max_tokens": self.spec.max_output}
        if tools and self.spec.tools:
            request["tools"] = tools_as_openai(tools)
        if self._effort != "off" and self.spec.thinking:
            request["reasoning_effort"] = self._effort
        return request

    def _messages(self, messages: Sequence[Message]) -> list[Line]:
        if not self._is_claude:
            return self._format.messages(messages)
        sent = [part for message in messages for part in self._with_thinking(message)]
        places = [place for place, message in enumerate(sent) if message["role"] == "system"][-1:]
        asked = [place for place, message in enumerate(sent) if message["role"] in ("user", "tool")]
        for place in (*places, *asked[-MARKED_MESSAGES:]):
            sent[place] = _marked(sent[place])
        return sent

    def _with_thinking(self, message: Message) -> Iterator[Line]:
        """The message with the thinking and signatures of this model, which it requires in later requests."""
        blocks = [
            thinking_block(part)
            for part in message.parts_of(Thinking)
            if part.signature and not message.cut and message.model == self.spec.name
        ]
        for sent in self._format.messages([message]):
            yield {**sent, "thinking_blocks": blocks} if blocks else sent


class LiteLLMEmbeddings:
    """An embedding model behind litellm. The first call starts the process."""

    def __init__(self, spec: ModelSpec, endpoint: Endpoint, model: str) -> None:
        """`model` is the name for litellm."""
        self._spec = spec
        self._endpoint = endpoint
        self._model = model

    def embed(self, texts: Sequence[str]) -> Embedded:
        return asyncio.run(self._embed(list(texts)))

    def close(self) -> None:
        leave(self)

    async def _embed(self, texts: list[str]) -> Embedded:
        limits = timeouts_for_vectors(self._endpoint)
        request = {**_arguments(self._model, self._endpoint, limits), "input": texts}
        answer: Any = None
        async for line in process_for(self).ask("embed", request, limits):
            if "error" in line:
                raise _error_of(line["error"], self._endpoint, self._model)
            answer = line.get("event", answer)
        if answer is None:
            raise ModelError(f"{self._model} gave no vectors.")
        return embedded(answer, len(texts), self._spec, self._model)


def _arguments(model: str, endpoint: Endpoint, timeouts: Timeouts) -> Line:
    """The arguments of each call of litellm; URL and key are left out where litellm knows them."""
    given = {"api_key": endpoint.api_key, "api_base": endpoint.base_url}
    known = {name: value for name, value in given.items() if value}
    return {"model": model, "first": timeouts.first, "connect": timeouts.connect, **known}


def _error_of(error: Line, endpoint: Endpoint, model: str) -> ModelError:
    """The ModelError for a failure that the process reported; the key is removed."""
    head, _, rest = error["message"].partition(" - ")
    message = rest.strip() if rest and "litellm." in head else error["message"]  # without litellm's class names
    message = redact(message, endpoint.api_key)
    if error["kind"] == TOO_LONG:
        return ContextTooLong(message)
    if error["begun"]:
        return StreamCut(f"The answer broke off: {message}")
    if error["status"] is None:
        return ModelUnavailable(f"{endpoint.host or model} cannot be reached: {message or 'no answer came'}.")
    return error_from_status(error["status"], message, error["headers"], endpoint)


class _LiteLLMChunks(OpenAIChunks):
    """Parses chat completions of litellm, where Anthropic's thinking has blocks of its own."""

    def _delta(self, delta: Line) -> Iterator[Chunk]:
        yield from super()._delta(delta)
        for block in dictionaries(delta.get("thinking_blocks")):
            if block.get("type") == "redacted_thinking":
                yield ThinkingChunk("", string(block.get("data")), redacted=True)
            elif signature := string(block.get("signature")):
                yield ThinkingChunk("", signature)


def _marked(message: Line) -> Line:
    """The message with a cache mark."""
    if message["role"] == "tool":
        return marked([message])[0]
    content = message["content"]
    return {**message, "content": marked([{"type": "text", "text": content}] if isinstance(content, str) else content)}


class LiteLLMProcess:
    """One worker process. The last lines of its stderr are for the error message if it dies."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._inboxes: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Queue[Line]]] = {}
        self._outbox: queue.SimpleQueue[Line | None] = queue.SimpleQueue()
        self._ready = self._dead = False
        self._stderr: deque[str] = deque(maxlen=MAX_STDERR)
        self._process = subprocess.Popen(
            # -P: the folder we are in may hold a file named like any module.
            [sys.executable, "-P", *WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            start_new_session=True,
        )
        self._stderr_reader = threading.Thread(target=self._read_stderr, daemon=True)
        self._stderr_reader.start()
        for work in (self._write_requests, self._read_answers):
            threading.Thread(target=work, daemon=True).start()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ask(self, what: str, request: Line, timeouts: Timeouts) -> AsyncGenerator[Line, None]:
        """Yield the answers to `request`; `end` or `error` is the last. Closing the generator cancels the request.

        `what` is `ask` for text, `embed` for vectors; `request` has the arguments for litellm.

        Raises:
            ModelUnavailable: the process died, could not start, or is silent.
            StreamCut: it died or fell silent in the middle.
        """
        number = next(self._numbers)
        inbox: asyncio.Queue[Line] = asyncio.Queue()
        with self._lock:
            self._inboxes[number] = (asyncio.get_running_loop(), inbox)
            ready, dead = self._ready, self._dead
        if dead:
            inbox.put_nowait({"died": True})
        self._outbox.put({"id": number, what: request})
        ended = begun = False
        try:
            while not ended:
                limit = STARTING if not ready else timeouts.idle if begun else timeouts.first
                line = await _next(inbox, limit, begun)
                if "died" in line:
                    last = next((line for line in reversed(self._stderr) if line.strip()), "")
                    message = f"litellm stopped working. {redact(last)}".strip()
                    raise StreamCut(message) if begun else ModelUnavailable(message)
                if "ready" in line:
                    ready = True
                    continue
                ended, begun = "end" in line or "error" in line, True
                yield line
        finally:
            with self._lock:
                self._inboxes.pop(number, None)
            if not ended:
                self._outbox.put({"id": number, "cancel": True})

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _write_requests(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError), self._process.stdin as pipe:
            while (line := self._outbox.get()) is not None:
                pipe.write(encoded(line) + b"\n")
                pipe.flush()

    def _read_answers(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            for data in pipe:
                line = json.loads(data)
                if "ready" in line:
                    self._ready = True
                    self._deliver(line)
                else:
                    self._deliver(line, line["id"])
        self._process.wait()
        # A child may hold its stderr open: use what was read so far.
        self._stderr_reader.join(LAST_WORDS)
        with self._lock:
            self._dead = True
        self._outbox.put(None)
        self._deliver({"died": True})

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as pipe:
            for data in pipe:
                self._stderr.append(data.decode("utf-8", "replace").rstrip())

    def _deliver(self, line: Line, number: int | None = None) -> None:
        """Put a line into the inbox of a request; of all where no number is given."""
        with self._lock:
            inboxes = [inbox for key, inbox in self._inboxes.items() if number in (None, key)]
        for loop, inbox in inboxes:
            # The waiting task and its loop may have ended.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(inbox.put_nowait, line)


async def _next(inbox: asyncio.Queue[Line], limit: float, begun: bool) -> Line:
    try:
        async with asyncio.timeout(limit):
            return await inbox.get()
    except TimeoutError as error:
        if begun:
            raise StreamCut(f"The answer stopped: nothing came for {limit:g} s.") from error
        raise ModelUnavailable(f"The provider is silent: nothing came for {limit:g} s.") from error


_process: LiteLLMProcess | None = None
_users: set[object] = set()
_sharing = threading.Lock()
"""Text is requested on the event loop, vectors in threads."""


def process_for(user: object) -> LiteLLMProcess:
    """The shared process, replaced if it died. It runs until each of its users has called `leave`."""
    global _process
    with _sharing:
        _users.add(user)
        if _process is None or not _process.alive:
            _process = LiteLLMProcess()
        return _process


def leave(user: object) -> None:
    global _process
    with _sharing:
        _users.discard(user)
        if not _users and _process is not None:
            _process.stop()
            _process = None
