"""Scrollback: a session from its end, as the events that showed it; earlier ones when the user scrolls."""

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
"""Messages that are read when the user scrolls to the top."""


class Reached(msgspec.Struct, frozen=True):
    """Where a message is that the user wants to see."""

    prompts: int
    """The number of user messages from there to the end, the one of its turn included."""
    is_left: bool = False
    """On a branch that a rewind has left."""


class Scrollback:
    """The shown part of a session, and access to earlier messages.

    Args:
        memory: the session's messages.
        title: returns the title of a tool call.
    """

    def __init__(self, memory: MemoryManager, title: Callable[[ToolCall], str]) -> None:
        self._memory = memory
        self._title = title

    @property
    def has_more(self) -> bool:
        return self._memory.pager.has_hidden

    def shown(self) -> Iterator[Event]:
        return replay(self._memory.pager.shown(), self._title)

    async def more(self, count: int = PAGE) -> list[Event]:
        """What is before it; it is shown then.

        Raises:
            SessionError: it cannot be read.
        """
        return list(replay(await self._memory.pager.show_more(count), self._title))

    def last_said(self, count: int) -> list[tuple[int, str]]:
        """The numbers and texts of the user's last messages, as far as they are loaded."""
        entries = [entry for entry in self._memory.transcript.entries if _is_prompt(entry)]
        return [(entry.number, entry.message.text) for entry in entries[-count:]]

    def begin_at(self, number: int) -> bool:
        """Whether a screen may drop what it shows before that message: `more` reads it again."""
        return self._memory.pager.show_from(number)

    async def reach(self, number: int) -> Reached:
        """Show the session from message `number` on, or from further back.

        A session that is open read-only goes to the branch that holds the message.

        Raises:
            UsageError: the session has no such message, or it is on another branch.
            SessionError: it cannot be read.
        """
        memory = self._memory
        await memory.pager.loaded()
        if prompts := await self._reached(number):
            return Reached(prompts)
        left = next((branch for branch in memory.transcript.branches if _has(branch.entries, number)), None)
        if left is None:
            raise UsageError(f"Message {number} is not in this session any more.")
        if not memory.read_only:
            raise UsageError(f"Message {number} is on a branch that a rewind has left.", commands=["rewind"])
        await memory.record(RewindRecord(left.entries[-1].number, memory.now()))
        return Reached(await self._reached(number), is_left=True)

    async def _reached(self, number: int) -> int:
        """How many user messages are there from it on, once it is shown; 0: it is not on this branch."""
        shown = self._entries()
        while not _has(shown, number) and self._memory.pager.has_hidden:
            await self._memory.pager.show_more(PAGE)
            shown = self._entries()
        places = [place for place, entry in enumerate(shown) if _is_prompt(entry)]
        at = next((place for place, entry in enumerate(shown) if entry.number == number), -1)
        before = sum(place <= at for place in places)
        return len(places) - max(0, before - 1) if at >= 0 else 0

    def _entries(self) -> list[TranscriptEntry]:
        return [item for item in self._memory.pager.shown() if isinstance(item, TranscriptEntry)]


def _has(entries: Iterable[TranscriptEntry], number: int) -> bool:
    return any(entry.number == number for entry in entries)


def _is_prompt(entry: TranscriptEntry) -> bool:
    """Whether it is shown as a message of the user: see `replay`."""
    return entry.message.role == "user" and bool(entry.message.text or entry.message.parts_of(Image))
