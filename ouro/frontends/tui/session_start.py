"""SessionStart: the session of the full screen is opened while Textual is still being imported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from ouro.errors import OuroError
from ouro.session.opening import PICK, OpenRequest

if TYPE_CHECKING:
    from ouro.events import Event
    from ouro.session import OpenSession, Session

OPEN_TIMEOUT = 0.5
"""Seconds that Textual waits for the session, and for a first request."""
SEND_TIMEOUT = 0.1
"""Seconds that Textual waits for the first answer, so that its import does not delay the request.
"""


class SessionStart:
    """Opens the session and sends the first message while Textual is still being imported.

    Args:
        request: which session is opened at the start.
        message: a first message of the command line; empty if there is none.
        take_message: returns the first message that was typed, each only once; empty if
            there is none.
    """

    def __init__(
        self,
        open_session: OpenSession,
        request: OpenRequest,
        message: str = "",
        take_message: Callable[[], str] = lambda: "",
    ) -> None:
        self.request = request
        self.message = message
        """The message that is still to be sent."""
        self.typed_message = ""
        """The typed message that was sent."""
        self.sent_message = ""
        """The message that begins the turn of `take_turn`."""
        self._open_session = open_session
        self._take_message = take_message
        self._opening: asyncio.Future[Session] | None = None
        """The session that `begin` opens; None before it, and once `open` has taken it."""
        self._begun_turn: AsyncGenerator[Event, None] | None = None
        """The events of the turn that `begin` has started, until `take_turn` takes them."""

    async def begin(self) -> None:
        """Begin to open a session. If it is open within OPEN_TIMEOUT and is a new one, send the
        first message, unless the message is a command. Does nothing if the user must first pick a
        session.
        """
        if self.request.resume == PICK:
            return

        # Open the session.
        opening = self._opening = asyncio.ensure_future(self._open_session(self.request))
        await asyncio.wait([opening], timeout=OPEN_TIMEOUT)
        is_open = opening.done() and not opening.cancelled() and not opening.exception()
        if not is_open:
            return  # `open` waits for it, or raises its error

        # Find the message to send.
        session = opening.result()
        # A session of another process, as of `ouro attach`, has no `resumed`, but was asked for.
        is_new = session.resumed is None and not self.request.resume
        is_command = self.message.startswith(("/", "#", "!"))
        if is_command or not is_new:
            return
        if not self.message:
            self.message = self.typed_message = self._take_message()
        if not self.message:
            return

        # Send it, and take the first events of its turn.
        events = session.send(self.message)
        self.sent_message, self.message = self.message, ""
        first_events = []
        # The first event comes when the message is on disk, the second when the answer begins.
        for timeout in (OPEN_TIMEOUT, SEND_TIMEOUT):
            first_events.append(asyncio.ensure_future(anext(events)))
            await asyncio.wait(first_events[-1:], timeout=timeout)
            if not first_events[-1].done():
                break
        self._begun_turn = _join_events(first_events, events)

    async def open(self, request: OpenRequest) -> Session:
        """Open a session. The first call returns the session that `begin` opens, whatever its
        request is.
        """
        opening, self._opening = self._opening, None
        return await (opening or self._open_session(request))

    def take_turn(self) -> AsyncGenerator[Event, None] | None:
        """The events of the turn that `begin` has started. None if it has started none, and for
        each further call.
        """
        turn, self._begun_turn = self._begun_turn, None
        return turn

    async def close(self) -> None:
        """Close the session that `begin` has opened, and end its turn. Does nothing if `open` was
        called, because then they belong to the caller.
        """
        opening, self._opening = self._opening, None
        if opening is None:
            return
        opening.cancel()  # without effect on a session that is open already
        with suppress(OuroError, OSError, asyncio.CancelledError):
            session = await opening
            if (turn := self.take_turn()) is not None:
                await turn.aclose()
            await session.close()


async def _join_events(
    first_events: Sequence[asyncio.Future[Event]], events: AsyncGenerator[Event, None]
) -> AsyncGenerator[Event, None]:
    """Yield the events of `first_events`, which were requested already, then the rest of `events`."""
    async with aclosing(events):
        for first_event in first_events:
            try:
                event = await first_event
            except StopAsyncIteration:
                return
            yield event
        async for event in events:
            yield event
