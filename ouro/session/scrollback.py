"""Scrollback: the conversation from its end, as the events that would have shown it; more when someone scrolls."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ouro.agent.replay import replay
from ouro.events import Event
from ouro.memory.manager import MemoryManager
from ouro.messages import ToolCall

PAGE = 100
"""Messages that come at once when someone scrolls to the top."""


class Scrollback:
    """What of a session is on the screen, and what stands before it.

    Args:
        memory: the session's messages.
        title: what a tool call is called.
    """

    def __init__(self, memory: MemoryManager, title: Callable[[ToolCall], str]) -> None:
        self._memory = memory
        self._title = title

    @property
    def has_more(self) -> bool:
        """Whether there are messages before those that are shown."""
        return self._memory.has_hidden

    def shown(self) -> Iterator[Event]:
        """The end of the conversation, and what was scrolled to."""
        return replay(self._memory.shown(), self._title)

    async def more(self, count: int = PAGE) -> list[Event]:
        """What stands before it; it is shown then.

        Raises:
            SessionError: it cannot be read.
        """
        return list(replay(await self._memory.show_more(count), self._title))
