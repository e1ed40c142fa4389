"""The process that runs litellm: started once, shared by all models, replaced when it dies."""

from __future__ import annotations

import asyncio
import itertools
import json
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from ouro.errors import ModelUnavailable, StreamCut
from ouro.llm.endpoint import Timeouts
from ouro.llm.provider_errors import redact
from ouro.llm.sse import encoded

STARTING = 120.0
"""Seconds for the import of litellm, which takes 4 on an idle machine."""
WORKER = ("-m", "ouro.llm.litellm_worker")
KEPT_NOISE = 40
LAST_WORDS = 1.0
"""Seconds to wait for the last output of a dead process."""
Line = dict[str, Any]


class LiteLLMProcess:
    """One worker process. Its stderr is kept for the error message if it dies."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._inboxes: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Queue[Line]]] = {}
        self._outbox: queue.SimpleQueue[Line | None] = queue.SimpleQueue()
        self._ready = self._dead = False
        self._noise: deque[str] = deque(maxlen=KEPT_NOISE)
        self._process = subprocess.Popen(
            # -P: the folder we are in may hold a file named like any module.
            [sys.executable, "-P", *WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            start_new_session=True,
        )
        self._noise_reader = threading.Thread(target=self._read_noise, daemon=True)
        self._noise_reader.start()
        for work in (self._write_requests, self._read_answers):
            threading.Thread(target=work, daemon=True).start()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ask(self, request: Line, timeouts: Timeouts, what: str = "ask") -> AsyncGenerator[Line, None]:
        """Yield the answers to `request`; `end` or `error` is the last. Closing the generator cancels the request.

        Args:
            request: the arguments for litellm.
            timeouts: how long to wait for it.
            what: `ask` for text, `embed` for vectors.

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
                    raise _died(begun, self._last_words())
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
                    self._tell_all(line)
                else:
                    self._tell(line["id"], line)
        self._process.wait()
        # A child may hold its stderr open: use what was read so far.
        self._noise_reader.join(LAST_WORDS)
        with self._lock:
            self._dead = True
        self._outbox.put(None)
        self._tell_all({"died": True})

    def _read_noise(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as pipe:
            for data in pipe:
                self._noise.append(data.decode("utf-8", "replace").rstrip())

    def _tell(self, number: int, line: Line) -> None:
        with self._lock:
            loop, inbox = self._inboxes.get(number, (None, None))
        if loop is not None and inbox is not None:
            # The waiting task and its loop may have ended.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(inbox.put_nowait, line)

    def _tell_all(self, line: Line) -> None:
        with self._lock:
            numbers = list(self._inboxes)
        for number in numbers:
            self._tell(number, line)

    def _last_words(self) -> str:
        return next((line for line in reversed(self._noise) if line.strip()), "")


async def _next(inbox: asyncio.Queue[Line], limit: float, begun: bool) -> Line:
    try:
        async with asyncio.timeout(limit):
            return await inbox.get()
    except TimeoutError as error:
        if begun:
            raise StreamCut(f"The answer stopped: nothing came for {limit:g} s.") from error
        raise ModelUnavailable(f"The provider is silent: nothing came for {limit:g} s.") from error


def _died(begun: bool, last_words: str) -> StreamCut | ModelUnavailable:
    message = f"litellm stopped working. {redact(last_words)}".strip()
    return StreamCut(message) if begun else ModelUnavailable(message)


_shared: LiteLLMProcess | None = None
_users = 0
_sharing = threading.RLock()
"""Text is requested on the event loop, vectors in threads."""


def shared_process() -> LiteLLMProcess:
    global _shared
    with _sharing:
        if _shared is None or not _shared.alive:
            _shared = LiteLLMProcess()
        return _shared


def join() -> None:
    """Add a user of the shared process."""
    global _users
    with _sharing:
        _users += 1


def leave() -> None:
    global _shared, _users
    with _sharing:
        _users -= 1
        if _users == 0 and _shared is not None:
            _shared.stop()
            _shared = None


class Seat:
    """One user of the shared process; it joins at its first request."""

    def __init__(self) -> None:
        self._is_taken = False

    def take(self) -> LiteLLMProcess:
        """The shared process; it runs as long as there is a seat."""
        with _sharing:
            if not self._is_taken:
                self._is_taken = True
                join()
            return shared_process()

    def leave(self) -> None:
        with _sharing:
            if self._is_taken:
                self._is_taken = False
                leave()
