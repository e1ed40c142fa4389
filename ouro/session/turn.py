"""Turn: work that emits events, as a task that can be interrupted; TurnRunner; OpenQuestions to the user."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from ouro.errors import UsageError
from ouro.events import Answer, Emit, Event, PermissionAsked, QuestionAsked, QuestionClosed, TurnFinished
from ouro.utils.log import log

Work = Callable[[Emit], Awaitable[TurnFinished]]
"""Emits what happens; returns how it ended."""


class OpenQuestions:
    """The open questions to the user. An answer that comes before its question is dropped."""

    def __init__(self) -> None:
        self._open: dict[str, asyncio.Future[Answer]] = {}

    async def ask(self, question: PermissionAsked | QuestionAsked, emit: Emit) -> Answer:
        waiting = self._open[question.question_id] = asyncio.get_running_loop().create_future()
        emit(question)
        try:
            answer: Answer = await waiting
            return answer
        finally:
            self._open.pop(question.question_id, None)
            emit(QuestionClosed(question.question_id))

    def answer(self, question_id: str, answer: Answer) -> bool:
        """Answer a question; return False if it is not open (any more)."""
        waiting = self._open.get(question_id)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(answer)
        return True


class Turn:
    """Runs work in a task of its own, so that it can be interrupted wherever it waits."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._queue: asyncio.Queue[Event] = asyncio.Queue()
        self._task: asyncio.Task[TurnFinished] | None = None

    def interrupt(self) -> None:
        """End the turn; its events end with `TurnFinished("interrupted")`."""
        if self._task is not None:
            self._task.cancel()

    async def events(self) -> AsyncGenerator[Event, None]:
        """All events; TurnFinished comes last, exactly once. Closing the stream interrupts the turn."""
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._finish)  # not in `_run`: a task cancelled early never gets there
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
        if self._task is not None:
            await asyncio.wait([self._task])

    def _finish(self, task: asyncio.Task[TurnFinished]) -> None:
        self._queue.put_nowait(TurnFinished("interrupted") if task.cancelled() else task.result())

    async def _run(self) -> TurnFinished:
        try:
            return await self._work(self._queue.put_nowait)
        except Exception as error:  # noqa: BLE001  # a defect ends the turn, not the program
            log.exception("the turn failed")
            return TurnFinished("failed", f"ouro failed: {type(error).__name__}: {error}. See `ouro.log`.")


class TurnRunner:
    """Runs one turn at a time, and shell lines of the user beside it. Owned by one Session, which closes it."""

    def __init__(self) -> None:
        self._turn: Turn | None = None
        self._lines: set[Turn] = set()

    @property
    def running(self) -> bool:
        return self._turn is not None

    async def run(self, work: Work) -> AsyncGenerator[Event, None]:
        """The events of a turn; TurnFinished comes last, exactly once.

        Raises:
            UsageError: a turn runs already.
        """
        if self._turn is not None:
            raise UsageError("The agent is still at work.", "Steer it, or interrupt it first.")
        self._turn = Turn(work)
        try:
            async with aclosing(self._turn.events()) as events:
                async for event in events:
                    yield event
        finally:
            self._turn = None

    def run_stream(self, events: Callable[[], AsyncGenerator[Event, None]]) -> AsyncGenerator[Event, None]:
        """Run a stream of events as a turn; what it yields comes out, and a TurnFinished at its end."""

        async def work(emit: Emit) -> TurnFinished:
            finished = TurnFinished("answered")
            async with aclosing(events()) as stream:
                async for event in stream:
                    if isinstance(event, TurnFinished):
                        finished = event
                    else:
                        emit(event)
            return finished

        return self.run(work)

    async def run_beside(self, work: Work) -> AsyncGenerator[Event, None]:
        line = Turn(work)
        self._lines.add(line)
        try:
            async with aclosing(line.events()) as events:
                async for event in events:
                    if not isinstance(event, TurnFinished):
                        yield event
        finally:
            self._lines.discard(line)

    def interrupt(self) -> bool:
        """End what runs; return whether something did."""
        running = [turn for turn in (self._turn, *self._lines) if turn is not None]
        for turn in running:
            turn.interrupt()
        return bool(running)

    async def close(self) -> None:
        """End what runs, and wait until it has cleaned up: it saves what was streamed."""
        running = [turn for turn in (self._turn, *self._lines) if turn is not None]
        self.interrupt()
        for turn in running:
            await turn.ended()
