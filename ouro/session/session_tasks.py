"""SessionTasks: runs the work of a session: turns, the user's shell lines, background tasks, and their questions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import Any

from ouro.display import Question
from ouro.errors import UsageError
from ouro.events import Emit, Event, Notice, PermissionAsked, QuestionAsked, QuestionClosed, TurnFinished, UserAnswer
from ouro.utils.log import log

Work = Callable[[Emit], Awaitable[TurnFinished | None]]
"""Emits what happens; returns how it ended, None: as it should."""


class SessionTasks:
    """Runs one turn at a time, and other work at the same time. Owned by one Session, which closes it."""

    def __init__(self) -> None:
        self.running = False
        self._turns: set[asyncio.Task[TurnFinished]] = set()
        self._background: set[asyncio.Task[None]] = set()
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._questions: dict[str, asyncio.Future[UserAnswer]] = {}

    async def run(self, work: Work) -> AsyncGenerator[Event, None]:
        """The events of a turn; TurnFinished comes last, exactly once. Closing the stream interrupts the turn.

        Raises UsageError if a turn runs already.
        """
        if self.running:
            raise UsageError("The agent is still at work.", "Steer it, or interrupt it first.")
        self.running = True
        try:
            async with aclosing(self._run(work)) as events:
                async for event in events:
                    yield event
        finally:
            self.running = False

    def run_as_turn(self, events: Callable[[], AsyncGenerator[Event, None]]) -> AsyncGenerator[Event, None]:
        """Run a stream of events as a turn; yields its events, and a TurnFinished at its end."""

        async def work(emit: Emit) -> TurnFinished | None:
            finished = None
            async with aclosing(events()) as stream:
                async for event in stream:
                    if isinstance(event, TurnFinished):
                        finished = event
                    else:
                        emit(event)
            return finished

        return self.run(work)

    async def run_alongside(self, work: Work) -> AsyncGenerator[Event, None]:
        """The events of other work that may run during a turn."""
        async with aclosing(self._run(work)) as events:
            async for event in events:
                if not isinstance(event, TurnFinished):
                    yield event

    async def _run(self, work: Work) -> AsyncGenerator[Event, None]:
        events: asyncio.Queue[Event] = asyncio.Queue()

        async def finish() -> TurnFinished:
            try:
                return await work(events.put_nowait) or TurnFinished("answered")
            except Exception as error:  # noqa: BLE001  # a defect ends the turn, not the program
                log.exception("the turn failed")
                return TurnFinished("failed", f"ouro failed: {type(error).__name__}: {error}. See `ouro.log`.")

        def on_end(task: asyncio.Task[TurnFinished]) -> None:
            events.put_nowait(TurnFinished("interrupted") if task.cancelled() else task.result())

        task = asyncio.create_task(finish())
        task.add_done_callback(on_end)  # not in `finish`, which a task that is cancelled early never reaches
        self._turns.add(task)
        try:
            while True:
                event = await events.get()
                yield event
                if isinstance(event, TurnFinished):
                    return
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._turns.discard(task)

    def interrupt(self) -> bool:
        for task in self._turns:
            task.cancel()
        return bool(self._turns)

    async def ask_user(self, question: PermissionAsked | QuestionAsked, emit: Emit) -> UserAnswer:
        """Emit a question, wait for its answer, emit that it is closed."""
        waiting = self._questions[question.question_id] = asyncio.get_running_loop().create_future()
        emit(question)
        try:
            answer: UserAnswer = await waiting
            return answer
        finally:
            self._questions.pop(question.question_id, None)
            emit(QuestionClosed(question.question_id))

    def answer(self, question_id: str, answer: UserAnswer) -> None:
        waiting = self._questions.get(question_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run a background task; a failure is logged under `name`."""
        task = asyncio.create_task(work, name=name)
        self._background.add(task)
        task.add_done_callback(self._on_background_end)

    def _on_background_end(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("%s: %s", task.get_name(), error, exc_info=error)

    def emit(self, event: Event) -> None:
        self._events.put_nowait(event)

    def warn(self, text: str) -> None:
        self.emit(Notice(text, "warning"))

    async def ask(self, question_id: str, question: Question) -> UserAnswer:
        """Ask the user outside of a turn, and wait for the answer."""
        return await self.ask_user(QuestionAsked(question_id, question, of_turn=False), self.emit)

    async def events(self) -> AsyncGenerator[Event, None]:
        while (event := await self._events.get()) is not None:
            yield event

    async def close_turns(self) -> None:
        """End the turn and the shell lines, and wait until they have cleaned up: a turn saves what was streamed."""
        if self.interrupt():
            await asyncio.wait(self._turns)

    async def close(self) -> None:
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self._events.put_nowait(None)
