"""Knowing: what a session tells its long-term memory of, and asks it for."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from ouro.events import Event, ToolFinished
from ouro.memory.long_term.manager import LongTermMemoryManager
from ouro.memory.manager import MemoryManager

_WRITING = {"write", "edit", "apply_patch", "shell"}


class Knowing:
    """Stands between the turns of a session and its long-term memory, where it has one."""

    def __init__(self, knowledge: LongTermMemoryManager | None, memory: MemoryManager) -> None:
        self._knowledge = knowledge
        self._memory = memory

    async def context(self) -> str:
        """A turn begins: what is to go with the person's message."""
        return await self._knowledge.context(self._memory.context()) if self._knowledge else ""

    async def watch(self, events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
        """The events of a turn as they come; memory is told when a tool may have written into it, and of the end."""
        try:
            async with aclosing(events):
                async for event in events:
                    if self._knowledge and isinstance(event, ToolFinished) and event.name in _WRITING:
                        await self._knowledge.tool_ended(self._memory.messages(), self._is_whole)
                    yield event
        finally:
            if self._knowledge:
                await self._knowledge.turn_ended(self._memory.messages(), self._is_whole)

    async def close(self) -> None:
        """Wait for what is being written."""
        if self._knowledge:
            await self._knowledge.close()

    @property
    def _is_whole(self) -> bool:
        return not self._memory.has_earlier
