"""Background: tasks that no turn waits for, their events and questions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from ouro.display import Question
from ouro.events import Answer, Event, QuestionAsked, Said
from ouro.session.turn import OpenQuestions, TurnRunner
from ouro.utils.log import log


class Background:
    """Runs what the user does not wait for: titles, capture, commits. Owned by one Session, which closes it."""

    def __init__(self, questions: OpenQuestions, turns: TurnRunner) -> None:
        self._questions = questions
        self._turns = turns
        self._tasks: set[asyncio.Task[None]] = set()
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run a task; a failure is logged under `name`."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def run_as_turn(self, events: Callable[[], AsyncGenerator[Event, None]]) -> AsyncGenerator[Event, None]:
        """Run a stream of events as a turn, for the user to see and to interrupt.

        Raises:
            UsageError: a turn runs already.
        """
        return self._turns.run_stream(events)

    def emit(self, event: Event) -> None:
        """Hand an event to the reader of `events`."""
        self._events.put_nowait(event)

    def warn(self, text: str) -> None:
        self.emit(Said(text, "warning"))

    async def ask(self, question_id: str, question: Question) -> Answer:
        """Ask the user outside of a turn, and wait for the answer."""
        return await self._questions.ask(QuestionAsked(question_id, question, of_turn=False), self.emit)

    async def events(self) -> AsyncGenerator[Event, None]:
        """What happens in the background; ends when the session is closed. For one reader."""
        while (event := await self._events.get()) is not None:
            yield event

    async def settle(self, seconds: float) -> None:
        """Wait at most that long until nothing runs, tasks that start meanwhile included."""
        deadline = asyncio.get_running_loop().time() + seconds
        while self._tasks and (left := deadline - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(self._tasks, timeout=left)

    async def close(self) -> None:
        """End what still runs, and the events."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._events.put_nowait(None)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("%s: %s", task.get_name(), error, exc_info=error)
