"""Turns of a session."""

from __future__ import annotations

from ouro.events import Event
from ouro.session import Session


async def say(session: Session, text: str) -> list[Event]:
    """Send a message, and return all events of its turn."""
    return [event async for event in session.send(text)]
