"""Turns: what the person says goes to the session, one turn after another; what comes back is handed on."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol

from ouro.errors import OuroError
from ouro.events import Event, Said
from ouro.frontends.news import NewsReader
from ouro.frontends.tui.drafts import Draft
from ouro.utils.log import log

if TYPE_CHECKING:
    from ouro.session import Session

SECOND_ESCAPE = 1.0
"""Seconds within which a second Esc kills what the agent runs."""
ENDING = 0.8
"""Seconds that an interrupted turn is given to end."""
CLOSING = 0.7
"""Seconds that a session is given to close, after its turn has ended."""


class View(Protocol):
    """Who is told what happens."""

    def show(self, event: Event) -> None:
        """Something happened in the session."""
        ...

    def turn_began(self) -> None:
        """The agent, or a shell line, is at work."""
        ...

    def turn_ended(self, seconds: float) -> None:
        """It is not any more, after that long."""
        ...

    def waiting_changed(self) -> None:
        """What waits to be said is not what it was."""
        ...

    async def run_command(self, text: str) -> bool:
        """Run a slash command; False where the text is none."""
        ...


class Turns:
    """The conversation between the prompt and the session.

    What is said before there is a session waits for it. Only one turn runs at a time.
    """

    def __init__(self, view: View) -> None:
        self.session: Session | None = None
        self._view = view
        self._later: deque[Draft] = deque()
        self._work: asyncio.Task[None] | None = None
        self._turn: asyncio.Task[None] | None = None
        self._commands: set[asyncio.Task[None]] = set()
        self._escaped_at = float("-inf")
        self._news = NewsReader(view.show)

    @property
    def running(self) -> bool:
        """Whether the agent or a shell line is at work."""
        return self._turn is not None and not self._turn.done()

    @property
    def waiting(self) -> tuple[str, ...]:
        """What was said and has not reached the agent, in the order it will."""
        steering = self.session.waiting if self.session else ()
        return (*steering, *(draft.text for draft in self._later))

    def attach(self, session: Session) -> None:
        """There is a session: what waits is sent to it."""
        self.session = session
        self._news.follow(session)
        self._go_on()

    def say(self, draft: Draft) -> None:
        """Enter: start a turn, or tell the running one."""
        session = self.session
        if session is None or not self.running:
            self.queue(draft)
        elif draft.text.startswith(("/", "#")):
            self._begin_command(draft)
        elif draft.text.startswith("!") or not session.running:
            self.queue(draft)
        else:
            session.steer(draft.text, draft.images)
            self._view.waiting_changed()

    def queue(self, draft: Draft) -> None:
        """Say it with the next turn; at once when nothing runs."""
        self._later.append(draft)
        self._go_on()
        self._view.waiting_changed()

    def take_back(self) -> str | None:
        """The last thing that was said and has not reached the agent, for the prompt; None where there is none."""
        draft = self._later.pop() if self._later else self.session.withdraw() if self.session else None
        taken = draft.text if draft else None
        if taken is not None:
            self._view.waiting_changed()
        return taken

    def interrupt(self) -> bool:
        """Esc: end the turn; the second time in a second kill what it runs. False when nothing ran."""
        if self.session is None or not self.running:
            return False
        now = time.monotonic()
        if now - self._escaped_at < SECOND_ESCAPE:
            self.session.kill_children()
        self._escaped_at = now
        self.session.interrupt()
        return True

    async def finish_turn(self) -> None:
        """Interrupt the turn and wait for its end; what waits, waits on."""
        turn = self._turn
        if self.session is not None and turn is not None and not turn.done():
            self.session.interrupt()
            await asyncio.wait([turn], timeout=ENDING)

    async def close(self) -> None:
        """End the turn and the session; whatever does not end in time is killed or left."""
        self._later.clear()
        session = self.session
        if session is None:
            return
        await self.finish_turn()
        session.kill_children()
        tasks = [task for task in (self._turn, self._work, *self._commands) if task is not None and not task.done()]
        for task in tasks:
            task.cancel()
        try:
            async with asyncio.timeout(CLOSING):
                await asyncio.gather(*tasks, return_exceptions=True)
                await session.close()
        except TimeoutError:
            log.warning("the session did not close within %s s", CLOSING)
        finally:
            await self._news.close()

    def _go_on(self) -> None:
        if self.session is not None and (self._work is None or self._work.done()):
            self._work = asyncio.create_task(self._say_all())

    async def _say_all(self) -> None:
        while self._later:
            draft = self._later.popleft()
            self._view.waiting_changed()
            if not draft.text.startswith(("/", "#")) or not await self._guarded_command(draft):
                await self.run(self._events_of(draft))

    async def run(self, events: AsyncGenerator[Event, None]) -> None:
        """Show what happens as a turn; it has to be the only one."""
        began = time.monotonic()
        self._turn = asyncio.create_task(self._show_all(events))
        self._view.turn_began()
        try:
            await self._turn
        finally:
            self._turn = None
            self._view.turn_ended(time.monotonic() - began)

    def _events_of(self, draft: Draft) -> AsyncGenerator[Event, None]:
        assert self.session is not None
        if draft.text.startswith("!"):
            line = draft.text.lstrip("!").strip()
            return self.session.run_shell(line, share=not draft.text.startswith("!!"))
        return self.session.send(draft.text, draft.images)

    async def _show_all(self, events: AsyncGenerator[Event, None]) -> None:
        try:
            async with aclosing(events):
                async for event in events:
                    self._view.show(event)
        except OuroError as error:
            self._view.show(Said(str(error), "error"))
        except Exception as error:  # noqa: BLE001 (the screen outlives any fault of a turn; the log has all of it)
            log.exception("a turn failed")
            self._view.show(Said(f"{type(error).__name__}: {error} (the log has more)", "error"))

    def _begin_command(self, draft: Draft) -> None:
        task = asyncio.create_task(self._command_or_steer(draft))
        self._commands.add(task)
        task.add_done_callback(self._commands.discard)

    async def _command_or_steer(self, draft: Draft) -> None:
        if not await self._guarded_command(draft) and self.session is not None:
            self.session.steer(draft.text, draft.images)
            self._view.waiting_changed()

    async def _guarded_command(self, draft: Draft) -> bool:
        try:
            return await self._view.run_command(draft.text)
        except OuroError as error:
            self._view.show(Said(str(error), "error"))
        except Exception as error:  # noqa: BLE001 (as above)
            log.exception("a command failed")
            self._view.show(Said(f"{type(error).__name__}: {error} (the log has more)", "error"))
        return True
