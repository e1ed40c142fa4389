"""A worker: a separate process for a heavy package. Requests and answers are JSON objects, one on
each line.

In:  {"id": 1, "do": "NAME", "with": {…}}  {"id": 1, "cancel": true}
Out: {"ready": true}  {"id": 1, "event": {…}}  {"id": 1, "error": {…}}  {"id": 1, "end": true}
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import IO

from ouro.errors import OuroError
from ouro.utils.json_object import JsonObject
from ouro.utils.standard_output import take_stdout

Handler = Callable[[str, JsonObject, Callable[[JsonObject], None]], Awaitable[None]]
"""A function that answers a request. Its arguments are the name of the request, its fields, and a
function that sends an event.
"""
START_TIMEOUT = 120.0
"""Seconds for the imports of the worker, which take 4 s on an idle machine."""
MAX_STDERR = 40
"""Lines of stderr that are kept."""
STDERR_TIMEOUT = 1.0
"""Seconds to wait for the last output of a dead process."""


class WorkerStopped(OuroError):
    """The worker died (`died`), or was silent for too long. `begun`: it was in the middle of an
    answer.
    """

    def __init__(self, message: str, *, begun: bool, died: bool) -> None:
        super().__init__(message)
        self.begun = begun
        self.died = died


class WorkerProcess:
    """One worker. The last lines of its stderr are for the error message if it dies.

    Args:
        arguments: the arguments of the Python that runs it.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        """The numbers of the requests."""
        self._inboxes: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Queue[JsonObject]]] = {}
        """Where the answers of each open request go, by its number."""
        self._outbox: queue.SimpleQueue[JsonObject | None] = queue.SimpleQueue()
        """The requests to write; None ends the thread that writes them."""
        self._ready = self._dead = False
        """Whether it has loaded its package, and whether it has ended."""
        self._stderr: deque[str] = deque(maxlen=MAX_STDERR)
        self._process = subprocess.Popen(
            # -P: the current folder may contain a file with the name of a module.
            [sys.executable, "-P", *arguments],
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

    async def ask(
        self,
        name: str,
        request: JsonObject,
        *,
        first: float | None = None,
        idle: float | None = None,
    ) -> AsyncGenerator[JsonObject, None]:
        """Yield the answers to a request; `end` or `error` is the last. Closing the generator
        cancels the request.

        Args:
            first: seconds until the first answer, counted from when the worker is ready; None sets no limit.
            idle: maximum seconds between two answers; None sets no limit.

        Raises:
            WorkerStopped: it died, could not start, or is silent.
        """
        number = next(self._numbers)
        inbox: asyncio.Queue[JsonObject] = asyncio.Queue()
        with self._lock:
            self._inboxes[number] = (asyncio.get_running_loop(), inbox)
            ready, dead = self._ready, self._dead
        if dead:
            inbox.put_nowait({"died": True})
        self._outbox.put({"id": number, "do": name, "with": request})
        ended = begun = False
        try:
            while not ended:
                limit = idle if begun else first
                if not ready:
                    limit = START_TIMEOUT
                line = await self._receive(inbox, limit, begun=begun)
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

    async def _receive(
        self, inbox: asyncio.Queue[JsonObject], limit: float | None, *, begun: bool
    ) -> JsonObject:
        """Wait for the next line for a request. `limit`: seconds to wait (None: no limit); `begun`:
        whether it had an answer before. Raises WorkerStopped.
        """
        try:
            async with asyncio.timeout(limit):
                line = await inbox.get()
        except TimeoutError as error:
            raise WorkerStopped(f"no data for {limit:g} s", begun=begun, died=False) from error
        if "died" in line:
            last = next((line for line in reversed(self._stderr) if line.strip()), "")
            raise WorkerStopped(last, begun=begun, died=True)
        return line

    def close(self) -> None:
        """End the worker by closing its input."""
        self._outbox.put(None)

    def stop(self) -> None:
        """Kill the worker, and wait for its end."""
        self._process.kill()
        self._process.wait()

    def _write_requests(self) -> None:
        """Write what is in the outbox to the worker, until None comes or the worker has ended."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError), self._process.stdin as pipe:
            while (line := self._outbox.get()) is not None:
                pipe.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
                pipe.flush()

    def _read_answers(self) -> None:
        """Deliver each answer to its request until the worker ends; then deliver its end to all requests
        that are open.
        """
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            for line in _whole_lines(pipe):
                if "ready" in line:
                    self._ready = True
                    self._deliver(line)
                else:
                    self._deliver(line, line["id"])
        self._process.wait()
        # A child may hold its stderr open: use what was read so far.
        self._stderr_reader.join(STDERR_TIMEOUT)
        with self._lock:
            self._dead = True
        self._outbox.put(None)
        self._deliver({"died": True})

    def _read_stderr(self) -> None:
        """Keep the last lines of stderr, until it ends: they say why the process died."""
        assert self._process.stderr is not None
        with self._process.stderr as pipe:
            for data in pipe:
                self._stderr.append(data.decode("utf-8", "replace").rstrip())

    def _deliver(self, line: JsonObject, number: int | None = None) -> None:
        """Put a line into the inbox of a request, or of all requests if it has no number."""
        with self._lock:
            inboxes = [inbox for key, inbox in self._inboxes.items() if number in (None, key)]
        for loop, inbox in inboxes:
            # The waiting task and its loop may have ended.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(inbox.put_nowait, line)


def _whole_lines(pipe: IO[bytes]) -> Iterator[JsonObject]:
    """Yields the lines of a pipe until it ends. A last line without its end is left out: the other
    side was killed while it wrote it.
    """
    for line in pipe:
        if line.endswith(b"\n"):
            yield json.loads(line)


def run_worker(
    load: Callable[[], Handler],
    error_fields: Callable[[BaseException], JsonObject],
    on_end: Callable[[], None] = lambda: None,
) -> None:
    """Serve requests until the input closes; for the `main` of a worker.

    Args:
        load: imports the heavy package and returns the functions that answer requests.
        error_fields: converts an error to plain data; `begun` is added.
        on_end: called in a thread when the input has closed; the process ends when it returns.
    """
    _Server(error_fields, on_end).run(load)


class _Server:
    """The inside of a worker: serves the requests on stdin, each in its own task."""

    def __init__(
        self, error_fields: Callable[[BaseException], JsonObject], on_end: Callable[[], None]
    ) -> None:
        """Take over stdout for the answers. For the arguments see `run_worker`."""
        self._error_fields = error_fields
        self._on_end = on_end
        self._output = os.fdopen(take_stdout(), "w", encoding="utf-8")
        self._lines: asyncio.Queue[JsonObject] = asyncio.Queue()
        """The lines of stdin that were not looked at yet."""
        self._running: dict[int, asyncio.Task[None]] = {}
        """The tasks that answer, by the numbers of their requests."""
        self._loop = asyncio.new_event_loop()

    def run(self, load: Callable[[], Handler]) -> None:
        """Serve requests until the process ends. Stdin is read while `load` imports the package."""
        threading.Thread(target=self._read_lines, daemon=True).start()
        self._loop.run_until_complete(self._serve(load()))

    def _read_lines(self) -> None:
        """Queue the lines of stdin; end the process when it closes."""
        for line in _whole_lines(sys.stdin.buffer):
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
        self._on_end()
        os._exit(0)

    async def _serve(self, handler: Handler) -> None:
        """Start a task for each request, and cancel it if the other side asks for it."""
        self._send({"ready": True})
        while True:
            line = await self._lines.get()
            number = line["id"]
            if "do" in line:
                self._running[number] = asyncio.create_task(self._answer(handler, number, line))
            elif number in self._running:
                self._running[number].cancel()

    async def _answer(self, handler: Handler, number: int, line: JsonObject) -> None:
        """Answer one request: send its events, then `end` or `error`."""
        begun = False

        def emit(event: JsonObject) -> None:
            """Send an event of the answer. An error after it is marked as one in a begun answer."""
            nonlocal begun
            begun = True
            self._send({"id": number, "event": event})

        try:
            await handler(line["do"], line["with"], emit)
            self._send({"id": number, "end": True})
        except Exception as error:  # noqa: BLE001 (whatever a package raises is reported to the other side)
            self._send({"id": number, "error": {**self._error_fields(error), "begun": begun}})
        finally:
            self._running.pop(number, None)

    def _send(self, message: JsonObject) -> None:
        """Write a line to the other side."""
        self._output.write(json.dumps(message, default=str) + "\n")
        self._output.flush()
