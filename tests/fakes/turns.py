"""Turns of a session."""

from __future__ import annotations

from ouro.events import Event, Notice
from ouro.session import Session


async def say(session: Session, text: str) -> list[Event]:
    """Send a message, and return all events of its turn."""
    return [event async for event in session.send(text)]


def notices_of(session: Session) -> list[str]:
    """The notices that nothing has read yet, such as those of the start; takes all background
    events.
    """
    queue = session.turn.tasks._events
    unread = [queue.get_nowait() for _ in range(queue.qsize())]
    return [event.text for event in unread if isinstance(event, Notice)]
