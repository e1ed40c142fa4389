"""Scrollback: the conversation from its end, as the events that would have shown it; more when someone scrolls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ouro.events import Event
from ouro.memory.manager import MemoryManager
from ouro.messages import Message

Replay = Callable[[Iterable[Message]], Iterator[Event]]
"""The events that messages were told with."""

PAGE = 100
"""Messages that come at once when someone scrolls to the top."""


class Scrollback:
    """What of a session is on the screen, and what stands before it.

    Args:
        memory: the session's messages.
        replay: gives the events that messages were told with.
    """

    def __init__(self, memory: MemoryManager, replay: Replay) -> None:
        self._memory = memory
        self._replay = replay

    @property
    def has_more(self) -> bool:
        """Whether there are messages before those that are shown."""
        return self._memory.has_hidden

    def shown(self) -> Iterator[Event]:
        """The end of the conversation, and what was scrolled to."""
        return self._replay(self._memory.shown())

    async def more(self, count: int = PAGE) -> list[Event]:
        """What stands before it; it is shown then.

        Raises:
            SessionError: it cannot be read.
        """
        return list(self._replay(await self._memory.show_more(count)))
