"""SessionTasks: the turn that runs, its questions, and other tasks. Steering: what the user
sends to that turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from ouro.agent.environment import Environment
from ouro.agent.loop import Prompt
from ouro.display import Question
from ouro.errors import LimitReached, OuroError, UsageError
from ouro.events import (
    Emit,
    Event,
    Notice,
    PermissionAsked,
    QuestionAsked,
    QuestionClosed,
    TurnFinished,
    UserAnswer,
)
from ouro.messages import Image
from ouro.utils.log import log

Work = Callable[[Emit], Awaitable[TurnFinished | None]]
"""Emits what happens, and returns how it ended; None if it ended without a problem."""


class TurnWatcher(Protocol):
    """Sees the events of turns when they happen. Neither method may wait."""

    def add(self, event: Event) -> None: ...

    def close(self) -> None: ...


class SessionTasks:
    """Runs one turn at a time, and other work at the same time. Owned by one Session, which closes
    it.
    """

    def __init__(self, watcher: TurnWatcher | None = None) -> None:
        self._watcher = watcher
        self._has_no_turn = asyncio.Event()
        """Set while no turn runs; shell lines of the user do not count."""
        self._has_no_turn.set()
        self.was_interrupted = False
        """Whether the last turn ended by an interrupt."""
        self._turns: set[asyncio.Task[TurnFinished]] = set()
        """The running turn and the running shell lines of the user."""
        self._background: set[asyncio.Task[None]] = set()
        """Other work, which may continue between turns."""
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        """The events outside of turns, for `events`; None is the end."""
        self._questions: dict[str, asyncio.Future[UserAnswer]] = {}
        """The answer to each open question, by its id."""

    @property
    def running(self) -> bool:
        """Whether a turn runs; shell lines of the user do not count."""
        return not self._has_no_turn.is_set()

    async def wait_until_idle(self) -> None:
        """Wait until no turn runs."""
        await self._has_no_turn.wait()

    async def run(self, work: Work) -> AsyncGenerator[Event, None]:
        """Run a turn; yields its events, of which TurnFinished comes last, exactly once. Closing
        the stream interrupts the turn.

        Raises UsageError if a turn runs already.
        """
        if self.running:
            raise UsageError("The agent is still at work.", "Steer it, or interrupt it first.")
        self._has_no_turn.clear()
        self.was_interrupted = True  # unless it ends in another way
        try:
            async with aclosing(self._stream_events(work, self._watcher)) as events:
                async for event in events:
                    if isinstance(event, TurnFinished):
                        self.was_interrupted = event.outcome == "interrupted"
                    yield event
        finally:
            self._has_no_turn.set()

    async def run_alongside(self, work: Work) -> AsyncGenerator[Event, None]:
        """Run work that may run during a turn; yields its events. A notice about a defect comes
        instead of TurnFinished.
        """
        async with aclosing(self._stream_events(work)) as events:
            async for event in events:
                if not isinstance(event, TurnFinished):
                    yield event
                elif event.outcome == "failed":
                    yield Notice(event.detail, "error")

    async def _stream_events(
        self, work: Work, watcher: TurnWatcher | None = None
    ) -> AsyncGenerator[Event, None]:
        """Run work in a task, and yield its events: TurnFinished last, exactly once, also if the
        task fails or is cancelled. The task is cancelled if the reader closes the stream.
        """
        events: asyncio.Queue[Event] = asyncio.Queue()

        def emit(event: Event) -> None:
            if watcher is not None:
                watcher.add(event)
            events.put_nowait(event)

        async def finish() -> TurnFinished:
            """Do the work. An error becomes the end of the turn; a defect is also logged."""
            try:
                return await work(emit) or TurnFinished("answered")
            except LimitReached as limit:
                return TurnFinished("limit", str(limit))
            except OuroError as error:
                return TurnFinished("failed", str(error))
            except Exception as error:  # noqa: BLE001  # a defect ends the turn, not the program
                log.exception("the turn failed")
                return TurnFinished(
                    "failed", f"ouro failed: {type(error).__name__}: {error}. See `ouro.log`."
                )

        def on_end(task: asyncio.Task[TurnFinished]) -> None:
            emit(TurnFinished("interrupted") if task.cancelled() else task.result())

        task = asyncio.create_task(finish())
        # Not in `finish`, which a task that is cancelled early never reaches.
        task.add_done_callback(on_end)
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
        """Cancel the turn and the shell lines; returns whether there were any."""
        for task in self._turns:
            task.cancel()
        return bool(self._turns)

    async def ask_user(self, question: PermissionAsked | QuestionAsked, emit: Emit) -> UserAnswer:
        """Emit a question, wait for `answer`, and return it. At the end QuestionClosed is emitted,
        also if this is cancelled while it waits.
        """
        answer_future: asyncio.Future[UserAnswer] = asyncio.get_running_loop().create_future()
        self._questions[question.question_id] = answer_future
        emit(question)
        try:
            return await answer_future
        finally:
            self._questions.pop(question.question_id, None)
            emit(QuestionClosed(question.question_id))

    def answer(self, question_id: str, answer: UserAnswer) -> None:
        """Answer an open question; an answer to a closed one is ignored."""
        answer_future = self._questions.get(question_id)
        if answer_future is not None and not answer_future.done():
            answer_future.set_result(answer)

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run a background task; a failure is logged under `name`."""
        task = asyncio.create_task(work, name=name)
        self._background.add(task)
        task.add_done_callback(self._on_background_end)

    def _on_background_end(self, task: asyncio.Task[None]) -> None:
        """Forget a task that has ended, and log its failure."""
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("%s: %s", task.get_name(), error, exc_info=error)

    def emit(self, event: Event) -> None:
        """Show an event outside of turns."""
        self._events.put_nowait(event)

    def warn(self, text: str) -> None:
        self.emit(Notice(text, "warning"))

    async def ask(self, question_id: str, question: Question) -> UserAnswer:
        """Ask the user outside of a turn, and wait for the answer."""
        return await self.ask_user(QuestionAsked(question_id, question, of_turn=False), self.emit)

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yields what `emit` shows outside of turns, until `close`. Only one caller may read it."""
        while (event := await self._events.get()) is not None:
            yield event

    async def close_turns(self) -> None:
        """Interrupt the turn and the shell lines, and wait until they have cleaned up: an
        interrupted turn saves the part of the answer that it has.
        """
        if self.interrupt():
            await asyncio.wait(self._turns)

    async def close(self) -> None:
        """End the background work and the stream of events."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._watcher is not None:
            self._watcher.close()
        self._events.put_nowait(None)


class Steering(msgspec.Struct, eq=False):
    """The messages and outputs that wait for the next tool call of the running turn."""

    environment: Environment
    warn: Callable[[str], None]
    """Shows the user why an image that a message names cannot be sent."""
    _messages: list[Prompt] = msgspec.field(default_factory=list)
    _outputs: list[Prompt] = msgspec.field(default_factory=list)
    """The outputs of the user's shell lines. These are never moved back to the input."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The messages that wait, in the order of their delivery."""
        return tuple(prompt.text for prompt in self._messages)

    def add(self, text: str, images: Sequence[Image] = ()) -> None:
        self._messages.append(Prompt(text, tuple(images)))

    def add_output(self, text: str) -> None:
        self._outputs.append(Prompt(text))

    def remove(self, index: int) -> Prompt:
        """Remove the message at this index of `texts`, and return it. Raises IndexError."""
        return self._messages.pop(index)

    def change(self, index: int, text: str) -> None:
        """Replace the text of the message at this index; its images stay. Raises IndexError."""
        self._messages[index] = replace(self._messages[index], text=text)

    def move(self, index: int, target: int) -> None:
        """Move the message at this index to the index `target`. Raises IndexError."""
        self._messages.insert(target, self._messages.pop(index))

    def take_next(self) -> list[Prompt]:
        """Take the next prompt that waits: an output if there is one, otherwise a message, to which
        the images that it names are added. Returns a list of one prompt; empty if none waits.
        """
        if self._outputs:
            return [self._outputs.pop(0)]
        if not self._messages:
            return []
        prompt = self._messages.pop(0)
        images, problems = self.environment.read_images(prompt.text)
        for problem in problems:
            self.warn(problem)
        return [replace(prompt, images=(*prompt.images, *images))]
