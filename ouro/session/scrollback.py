"""Scrollback: the conversation from its end, as the events that would have shown it; more when someone scrolls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from ouro.agent.replay import replay
from ouro.errors import UsageError
from ouro.events import Event
from ouro.memory.backend import RewindRecord
from ouro.memory.manager import MemoryManager
from ouro.memory.message_tree import TranscriptEntry
from ouro.messages import Image, ToolCall

PAGE = 100
"""Messages that come at once when someone scrolls to the top."""


class Reached(msgspec.Struct, frozen=True):
    """Where a message stands that somebody wants to see."""

    prompts: int
    """So many messages of the person stand from there to the end, the one that it belongs to among them."""
    is_left: bool = False
    """On a branch that was left by going back."""


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
        return self._memory.pager.has_hidden

    def shown(self) -> Iterator[Event]:
        """The end of the conversation, and what was scrolled to."""
        return replay(self._memory.pager.shown(), self._title)

    async def more(self, count: int = PAGE) -> list[Event]:
        """What stands before it; it is shown then.

        Raises:
            SessionError: it cannot be read.
        """
        return list(replay(await self._memory.pager.show_more(count), self._title))

    def last_said(self, count: int) -> list[tuple[int, str]]:
        """The numbers and words of the person's last messages, as far as memory holds them."""
        entries = [each for each in self._memory.transcript.entries if _is_prompt(each)]
        return [(each.number, each.message.text) for each in entries[-count:]]

    def begin_at(self, number: int) -> bool:
        """Whether the screen may let go of what it shows before that message: memory has, and `more` reads it again."""
        return self._memory.pager.show_from(number)

    async def reach(self, number: int) -> Reached:
        """Show the conversation from message `number` on, or from further back.

        A session that is only looked at goes to the branch that holds it, where that was left.

        Raises:
            UsageError: the session has no such message, or goes on elsewhere now.
            SessionError: it cannot be read.
        """
        memory = self._memory
        await memory.pager.loaded()
        if prompts := await self._reached(number):
            return Reached(prompts)
        left = next((each for each in memory.transcript.branches if _has(each.entries, number)), None)
        if left is None:
            raise UsageError(f"Message {number} is not in this session any more.")
        if not memory.read_only:
            raise UsageError(f"Message {number} is on a branch that was left by going back.", commands=["rewind"])
        await memory.record(RewindRecord(left.entries[-1].number, memory.now()))
        return Reached(await self._reached(number), is_left=True)

    async def _reached(self, number: int) -> int:
        """How many messages of the person stand from there on, once it is shown; 0: it is not on the line."""
        shown = self._entries()
        while not _has(shown, number) and self._memory.pager.has_hidden:
            await self._memory.pager.show_more(PAGE)
            shown = self._entries()
        places = [place for place, each in enumerate(shown) if _is_prompt(each)]
        at = next((place for place, each in enumerate(shown) if each.number == number), -1)
        before = sum(place <= at for place in places)
        return len(places) - max(0, before - 1) if at >= 0 else 0

    def _entries(self) -> list[TranscriptEntry]:
        return [each for each in self._memory.pager.shown() if isinstance(each, TranscriptEntry)]


def _has(entries: Iterable[TranscriptEntry], number: int) -> bool:
    return any(each.number == number for each in entries)


def _is_prompt(entry: TranscriptEntry) -> bool:
    """Whether it is shown as a message of the person: see `replay`."""
    return entry.message.role == "user" and bool(entry.message.text or entry.message.parts_of(Image))
