"""Scrollback: the conversation from its end, as the events that would have shown it; more when someone scrolls."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ouro.agent.replay import replay
from ouro.events import Event, NotesRecalled
from ouro.memory.manager import MemoryManager
from ouro.messages import Message, ToolCall

Receipts = Callable[[Message], NotesRecalled | None]

PAGE = 100
"""Messages that come at once when someone scrolls to the top."""


class Scrollback:
    """What of a session is on the screen, and what stands before it.

    Args:
        memory: the session's messages.
        title: what a tool call is called.
        receipts: gives what was recalled for each message.
    """

    def __init__(
        self, memory: MemoryManager, title: Callable[[ToolCall], str], receipts: Callable[[], Receipts]
    ) -> None:
        self._memory = memory
        self._title = title
        self._receipts = receipts

    @property
    def has_more(self) -> bool:
        """Whether there are messages before those that are shown."""
        return self._memory.has_hidden

    def shown(self) -> Iterator[Event]:
        """The end of the conversation, and what was scrolled to."""
        return replay(self._memory.shown(), self._title, self._receipts())

    async def more(self, count: int = PAGE) -> list[Event]:
        """What stands before it; it is shown then.

        Raises:
            SessionError: it cannot be read.
        """
        messages = await self._memory.show_more(count)
        return list(replay(messages, self._title, self._receipts()))
