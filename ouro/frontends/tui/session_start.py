"""SessionStart: opens the first session and sends its first message before Textual is imported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from ouro.errors import OuroError
from ouro.session.opening import PICK, OpenRequest

if TYPE_CHECKING:
    from ouro.events import Event
    from ouro.session import Session

OpenSession = Callable[[OpenRequest], Awaitable["Session"]]

OPEN_TIMEOUT = 0.5
"""Seconds that Textual waits for the session, and for a first request."""
SEND_TIMEOUT = 0.1
"""Seconds that Textual waits for the first answer, so that its import does not delay the request."""


class SessionStart:
    """Opens the session and sends what was already typed, so that the request does not wait for Textual.

    Args:
        message: a first message of the command line.
        take_message: returns the first message that was entered, and not again; empty if there is none.
    """

    def __init__(
        self,
        open_session: OpenSession,
        request: OpenRequest,
        message: str = "",
        take_message: Callable[[], str] = str,
    ) -> None:
        self.request = request
        self.message = message
        """The message that is still to be sent."""
        self.typed = ""
        """The typed message that was sent."""
        self._open_session = open_session
        self._take_message = take_message
        self._opening: asyncio.Future[Session] | None = None
        self._turn: AsyncGenerator[Event, None] | None = None

    async def begin(self) -> None:
        """Open a session and send the first message, unless the user has to be asked something."""
        if self.request.resume == PICK:
            return
        opening = self._opening = asyncio.ensure_future(self._open_session(self.request))
        await asyncio.wait([opening], timeout=OPEN_TIMEOUT)
        if not opening.done() or opening.cancelled() or opening.exception() or opening.result().resumed is not None:
            return
        if self.message.startswith(("/", "#", "!")):
            return
        if not self.message:
            self.message = self.typed = self._take_message()
        if self.message:
            events = opening.result().send(self.message)
            self.message = ""
            heads = []
            for timeout in (OPEN_TIMEOUT, SEND_TIMEOUT):  # until the message is on disk; until the answer begins
                heads.append(asyncio.ensure_future(anext(events)))
                await asyncio.wait(heads[-1:], timeout=timeout)
                if not heads[-1].done():
                    break
            self._turn = _chain(heads, events)

    async def open(self, request: OpenRequest) -> Session:
        """As `open_session`; the first call returns the session that was begun."""
        opening, self._opening = self._opening, None
        return await (opening or self._open_session(request))

    def take_turn(self) -> AsyncGenerator[Event, None] | None:
        """Return the events of the turn that was begun; None the second time."""
        turn, self._turn = self._turn, None
        return turn

    async def close(self) -> None:
        """Close the session, unless it was taken by `open`."""
        opening, self._opening = self._opening, None
        if opening is None:
            return
        opening.cancel()
        with suppress(OuroError, OSError, asyncio.CancelledError):
            session = await opening
            if (turn := self.take_turn()) is not None:
                await turn.aclose()
            await session.close()


async def _chain(
    heads: Sequence[asyncio.Future[Event]], events: AsyncGenerator[Event, None]
) -> AsyncGenerator[Event, None]:
    """The events of `heads`, which were requested before, and then the rest of `events`."""
    async with aclosing(events):
        for head in heads:
            try:
                event = await head
            except StopAsyncIteration:
                return
            yield event
        async for event in events:
            yield event
