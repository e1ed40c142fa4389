"""Turns of the plain prompt: they run while the person goes on typing."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from ouro.errors import OuroError
from ouro.events import Event, QuestionAsked, TurnFinished
from ouro.frontends.news import NewsReader
from ouro.frontends.plain.asker import Asker
from ouro.frontends.plain.printer import Printer
from ouro.frontends.plain.questions import Questions
from ouro.session import Session

BELL_AFTER = 15.0
"""Seconds of a turn after whose end the terminal rings."""


class Turns:
    """Runs one stream of events at a time; what is said meanwhile steers it, or waits for the next."""

    def __init__(
        self,
        printer: Printer,
        questions: Questions,
        ring: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        self._printer = printer
        self._ring = ring
        self._changed = changed
        self._task: asyncio.Task[None] | None = None
        self._asker = Asker(questions)
        self._asker_beside = Asker(questions)
        self._next: list[str] = []
        self._began = 0.0
        self._kills = False
        self._stopped = False
        self._session: Session | None = None
        self._news = NewsReader(self._tell)

    @property
    def has_session(self) -> bool:
        """A session is open."""
        return self._session is not None

    @property
    def session(self) -> Session:
        """The session that is open."""
        assert self._session is not None, "no session is open yet"
        return self._session

    def use(self, session: Session) -> None:
        """Talk to this session from now on."""
        self._asker_beside.close()
        self._session, self._next = session, []
        self._news.follow(session)

    @property
    def is_busy(self) -> bool:
        """A turn or a shell line runs."""
        return self._task is not None and not self._task.done()

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return time.monotonic() - self._began

    @property
    def queued(self) -> int:
        """Messages that wait to be delivered."""
        return len(self._next) + len(self.session.waiting)

    def submit(self, text: str) -> None:
        """Send a message now; while a turn runs, it steers that."""
        if not self.is_busy:
            self._start(self.session.send(text))
        elif self.session.running:
            self.session.steer(text)
        else:
            self.queue(text)

    def queue(self, text: str) -> None:
        """Keep a message for the next turn."""
        self._next.append(text)
        self._printer.say(f"For the next turn: {text.splitlines()[0] if text.strip() else ''}")

    def run_shell(self, line: str, share: bool) -> None:
        """Run the person's own shell line."""
        if self.is_busy:
            self._printer.say("A shell line has to wait until the agent is at rest.", "warning")
        else:
            self._start(self.session.run_shell(line, share))

    def run(self, events: AsyncGenerator[Event, None]) -> None:
        """Show what happens, as a turn; the agent is at rest."""
        self._start(events)

    def take_back(self) -> str | None:
        """The last message that was not delivered yet."""
        if self._next:
            return self._next.pop()
        draft = self.session.withdraw()
        return draft.text if draft else None

    def interrupt(self) -> None:
        """End the turn; asked again, kill what it has started."""
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
        """End what runs, and send nothing more."""
        self._stopped = True
        if self.is_busy:
            self.interrupt()

    async def finish(self) -> None:
        """Wait until nothing runs any more, the turns that wait among it."""
        while self._task is not None and not self._task.done():
            await asyncio.gather(self._task, return_exceptions=True)

    async def close(self) -> None:
        """The session was closed: tell what it had to tell to its end."""
        self._asker_beside.close()
        await self._news.close(patience=1.0)

    def _tell(self, event: Event) -> None:
        """Something happened beside the turns. The lines of a script are not answers to what it cannot know of."""
        if not (isinstance(event, QuestionAsked) and not sys.stdin.isatty()):
            self._printer.event(event)
            self._asker_beside.take(event, self.session)
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
                    if self._asker.take(event, self.session) and self.seconds > BELL_AFTER:
                        self._ring()
                    if isinstance(event, TurnFinished):
                        outcome = event.outcome
        except OuroError as error:
            self._printer.say(str(error), "error")
        finally:
            self._asker.close()
        if self.seconds > BELL_AFTER:
            self._ring()
        self._go_on(outcome)

    def _go_on(self, outcome: str) -> None:
        """Send what came too late to steer the turn, and what was kept for the next; not after an interrupt."""
        late: list[str] = []
        while (draft := self.session.withdraw()) is not None:
            late.insert(0, draft.text)
        self._next = [*late, *self._next]
        if not self._next or self._stopped:
            return
        if outcome == "interrupted":
            self._printer.say(f"{len(self._next)} messages wait: Up takes them back, the next message sends them too.")
            return
        self._start(self.session.send(self._next.pop(0)))
