"""One turn as a task: its events in a queue, its open questions, its interruption."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from ouro.display import Display
from ouro.errors import ToolError
from ouro.events import Answer, Event, ToolFinished, ToolProgress, ToolStarted, TurnFinished
from ouro.messages import ToolCall
from ouro.tools.shell import Shell
from ouro.tools.tool import ToolResult
from ouro.utils.log import log


class Questions:
    """The questions that wait for the person. An answer that comes before its question is asked is dropped."""

    def __init__(self) -> None:
        self._open: dict[str, asyncio.Future[Answer]] = {}

    async def inquire(self, question_id: str) -> Answer:
        """Wait for the answer."""
        answer = self._open[question_id] = asyncio.get_running_loop().create_future()
        try:
            given: Answer = await answer
            return given
        finally:
            self._open.pop(question_id, None)

    def answer(self, question_id: str, answer: Answer) -> bool:
        """Give the answer; False when nothing waits for it (any more)."""
        waiting = self._open.get(question_id)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(answer)
        return True


class Turn:
    """Runs a stream of events in a task of its own, so that it can be interrupted wherever it waits."""

    def __init__(self, events: Callable[[], AsyncGenerator[Event, None]]) -> None:
        self._source = events
        self._queue: asyncio.Queue[Event] = asyncio.Queue()
        self._task: asyncio.Task[TurnFinished] | None = None

    def interrupt(self) -> None:
        """End the turn; its stream closes with `TurnFinished("interrupted")`."""
        if self._task is not None:
            self._task.cancel()

    async def events(self) -> AsyncGenerator[Event, None]:
        """All events; TurnFinished comes last, exactly once. Closing the stream interrupts the turn."""
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._tell_end)  # not in `_run`: a task cancelled early never gets there
        try:
            while True:
                event = await self._queue.get()
                yield event
                if isinstance(event, TurnFinished):
                    return
        finally:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def ended(self) -> None:
        """Wait until it has tidied up, whoever reads its events."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def _tell_end(self, task: asyncio.Task[TurnFinished]) -> None:
        self._queue.put_nowait(TurnFinished("interrupted") if task.cancelled() else task.result())

    async def _run(self) -> TurnFinished:
        outcome = TurnFinished("failed", "The turn ended without an answer.")
        try:
            async with aclosing(self._source()) as events:
                async for event in events:
                    if isinstance(event, TurnFinished):
                        outcome = event
                    else:
                        self._queue.put_nowait(event)
        except Exception as error:  # noqa: BLE001  # a defect ends the turn, not the program
            log.exception("the turn failed")
            outcome = TurnFinished("failed", f"ouro failed: {type(error).__name__}: {error}. See `ouro.log`.")
        return outcome


class OwnLine:
    """Runs one line; `result` is what came of it."""

    def __init__(self, shell: Shell, line: str) -> None:
        self.result = ToolResult("(it was ended)", Display("ended"), failed=True)
        self._shell = shell
        self._line = line
        self._call = ToolCall(f"own_{uuid.uuid4().hex[:12]}", "shell", {"command": line})
        self._started = time.monotonic()

    async def run(self) -> AsyncGenerator[ToolStarted | ToolProgress, None]:
        """Run it to its end. Closing the stream ends it."""
        events = asyncio.Queue[ToolProgress | None]()
        yield ToolStarted(self._call, self._line)
        work = asyncio.create_task(
            self._shell.run_line(self._line, lambda text: events.put_nowait(ToolProgress(self._call.id, text)))
        )
        work.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            self.result = await work
        except ToolError as error:
            self.result = ToolResult(str(error), Display(str(error)), failed=True)
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    def finished(self) -> ToolFinished:
        """Its end, for the reader."""
        seconds = time.monotonic() - self._started
        return ToolFinished(self._call.id, self._call.name, self.result.display, self.result.failed, seconds)
