"""PlainTurns: runs turns while the user types."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from ouro.errors import OuroError
from ouro.events import Event, QuestionAsked, TurnFinished
from ouro.frontends.news import NewsReader
from ouro.frontends.plain.printer import Printer
from ouro.frontends.plain.questions import LineQuestions, TurnQuestions
from ouro.session import Session

BELL_AFTER = 15.0
"""Seconds: a longer turn rings the terminal when it ends."""


class PlainTurns:
    """Runs one stream of events at a time; messages sent meanwhile steer it or wait for the next turn."""

    def __init__(
        self,
        printer: Printer,
        questions: LineQuestions,
        ring: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        self._printer = printer
        self._ring = ring
        self._changed = changed
        self._task: asyncio.Task[None] | None = None
        self._turn_questions = TurnQuestions(questions)
        self._background_questions = TurnQuestions(questions)
        self._next: list[str] = []
        self._began = 0.0
        self._kills = False
        self._stopped = False
        self._session: Session | None = None
        self._news = NewsReader(self._show_background)

    @property
    def has_session(self) -> bool:
        return self._session is not None

    @property
    def session(self) -> Session:
        assert self._session is not None, "no session is open yet"
        return self._session

    def use(self, session: Session) -> None:
        self._background_questions.close()
        self._session, self._next = session, []
        self._news.follow(session)

    @property
    def is_busy(self) -> bool:
        """Whether a turn or a shell line runs."""
        return self._task is not None and not self._task.done()

    @property
    def seconds(self) -> float:
        """How long the turn has run."""
        return time.monotonic() - self._began

    @property
    def queued(self) -> int:
        """How many messages wait to be delivered."""
        return len(self._next) + len(self.session.waiting)

    def submit(self, text: str) -> None:
        """Send a message; while a turn runs, steer it."""
        if not self.is_busy:
            self._start(self.session.send(text))
        elif self.session.running:
            self.session.steer(text)
        else:
            self.queue(text)

    def queue(self, text: str) -> None:
        """Queue a message for the next turn."""
        self._next.append(text)
        self._printer.say(f"Queued for the next turn: {text.splitlines()[0] if text.strip() else ''}")

    def run_shell(self, line: str, share: bool) -> None:
        if self.is_busy:
            self._printer.say("A turn is running. Run the shell line when it has ended.", "warning")
        else:
            self._start(self.session.run_shell(line, share))

    def run(self, events: AsyncGenerator[Event, None]) -> None:
        """Print these events as a turn. Nothing else may run."""
        self._start(events)

    def unqueue(self) -> str | None:
        """Remove and return the newest message that was not delivered yet."""
        if self._next:
            return self._next.pop()
        draft = self.session.withdraw()
        return draft.text if draft else None

    def interrupt(self) -> None:
        """Interrupt the turn; a second call kills the processes it started."""
        if self._task is None:
            return
        if self._kills:
            self.session.kill_children()
        self._kills = True
        if self.session.running:
            self.session.interrupt()
        else:
            self._task.cancel()

    def stop(self) -> None:
        """Interrupt the turn and send no queued message."""
        self._stopped = True
        if self.is_busy:
            self.interrupt()

    async def finish(self) -> None:
        """Wait until nothing runs, queued turns included."""
        while self._task is not None and not self._task.done():
            await asyncio.gather(self._task, return_exceptions=True)

    async def close(self) -> None:
        """Print the last background events of the closed session."""
        self._background_questions.close()
        await self._news.close(patience=1.0)

    def _show_background(self, event: Event) -> None:
        """Print a background event. LineQuestions are skipped for piped input: its lines are not answers to them."""
        if not (isinstance(event, QuestionAsked) and not sys.stdin.isatty()):
            self._printer.event(event)
            self._background_questions.take(event, self.session)
        self._changed()

    def _start(self, events: AsyncGenerator[Event, None]) -> None:
        self._began, self._kills = time.monotonic(), False
        self._task = asyncio.create_task(self._play(events))
        self._task.add_done_callback(lambda _: self._changed())

    async def _play(self, events: AsyncGenerator[Event, None]) -> None:
        outcome = "answered"
        try:
            async with aclosing(events):
                async for event in events:
                    self._printer.event(event)
                    if self._turn_questions.take(event, self.session) and self.seconds > BELL_AFTER:
                        self._ring()
                    if isinstance(event, TurnFinished):
                        outcome = event.outcome
        except OuroError as error:
            self._printer.say(str(error), "error")
        finally:
            self._turn_questions.close()
        if self.seconds > BELL_AFTER:
            self._ring()
        self._go_on(outcome)

    def _go_on(self, outcome: str) -> None:
        """Send what came too late to steer the turn, then what was queued; nothing after an interrupt."""
        late: list[str] = []
        while (draft := self.session.withdraw()) is not None:
            late.insert(0, draft.text)
        self._next = [*late, *self._next]
        if not self._next or self._stopped:
            return
        if outcome == "interrupted":
            self._printer.say(f"{len(self._next)} messages are queued. Up edits them; the next message sends them.")
            return
        self._start(self.session.send(self._next.pop(0)))
