"""Knowing: what a session tells its long-term memory of, and asks it for."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Literal

import msgspec
from msgspec.structs import replace

from ouro.agent.beside import beside
from ouro.events import Event, ToolFinished
from ouro.llm.model import ModelSpec
from ouro.memory.long_term.briefing import MARK
from ouro.memory.long_term.consolidator import LongTermMemoryConsolidator
from ouro.memory.long_term.manager import KnowledgeParts, LongTermMemoryManager
from ouro.memory.long_term.scope_memory import ScopeMemory
from ouro.memory.long_term.store import GitMemoryStore
from ouro.memory.long_term.turn_marks import TurnMarks
from ouro.memory.manager import MemoryManager
from ouro.messages import Usage
from ouro.session.learned import Learned
from ouro.session.parts import SessionParts
from ouro.utils.runtime import get_history_dir

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


class KnowledgeRules(msgspec.Struct, frozen=True):
    """What the settings say of the core."""

    write: Literal["tell", "ask", "silent"] = "tell"
    threshold: int = 5_000
    """Tokens above which it is consolidated."""


def begins_with(scopes: Sequence[ScopeMemory]) -> dict[str, str]:
    """What a new session keeps of the memory it starts from, in its header."""
    return {**{scope.scope: scope.version for scope in scopes}, MARK: secrets.token_hex(16)} if scopes else {}


def with_knowledge(
    parts: SessionParts,
    stores: Sequence[GitMemoryStore],
    scopes: tuple[ScopeMemory, ...],
    complaints: tuple[str, ...],
    rules: KnowledgeRules,
    finds_secret: Callable[[str], str],
) -> SessionParts:
    """The session knows what is remembered: the block stands at the end of its system prompt. Blocks."""
    memory, models = parts.memory, parts.models
    knowledge = LongTermMemoryManager(
        KnowledgeParts(
            scopes=scopes,
            stores=tuple(stores),
            cwd=parts.cwd,
            session_id=memory.session_id,
            complaints=complaints,
            began_with=memory.began_with,
            marks=TurnMarks(get_history_dir() / "turns", memory.session_id),
            consolidator=LongTermMemoryConsolidator(beside(models, memory, "compact", "consolidation"), finds_secret),
            write=rules.write,
            threshold=rules.threshold,
            is_quiet=lambda: not any(job.running for job in parts.jobs.list()),
            price=lambda tokens: _price(models.current()[0].spec, tokens),
        )
    )
    instructions = "\n\n".join(filter(None, (parts.instructions, knowledge.load_and_format())))
    learned = Learned(parts.memory, [each.store for each in scopes], knowledge.undo)
    undoers = {**parts.undoers, "memory": learned}
    return replace(parts, instructions=instructions, knowledge=knowledge, undoers=undoers)


def _price(spec: ModelSpec, tokens: int) -> float | None:
    return spec.prices.cost(Usage(input=tokens, cached=tokens)) if spec.prices else None
