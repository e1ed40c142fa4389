"""Knowing: what a session tells its long-term memory of, and asks it for."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from ouro.events import Event, NotesRecalled, Prompted, ToolFinished
from ouro.llm.model import ModelSpec
from ouro.memory.long_term.block import mark_of
from ouro.memory.long_term.briefing import MARK
from ouro.memory.long_term.capture.observer import Learning
from ouro.memory.long_term.consolidator import LongTermMemoryConsolidator
from ouro.memory.long_term.knowledge_parts import KnowledgeParts
from ouro.memory.long_term.learned import Learned
from ouro.memory.long_term.maintenance.background import Digest
from ouro.memory.long_term.manager import LongTermMemoryManager
from ouro.memory.long_term.recall.finder import FinderParts, NoteFinder
from ouro.memory.long_term.recall.turn_recall import Recalling, RecallParts, Retrieval
from ouro.memory.long_term.scope_memory import ScopeMemory
from ouro.memory.long_term.store import GitMemoryStore
from ouro.memory.long_term.trust.teller import Wires
from ouro.memory.long_term.trust.turn_marks import TurnMarks
from ouro.memory.manager import MemoryManager
from ouro.memory.side_calls import beside
from ouro.memory.transcript import is_turn
from ouro.messages import Usage
from ouro.session.parts import SessionParts
from ouro.utils.repository import find_root
from ouro.utils.runtime import get_history_dir

if TYPE_CHECKING:
    from ouro.memory.long_term.recall.recall import Tuning

_WRITING = {"write", "edit", "apply_patch", "shell"}


class Knowing:
    """Stands between the turns of a session and its long-term memory, where it has one."""

    def __init__(
        self,
        knowledge: LongTermMemoryManager | None,
        memory: MemoryManager,
        recalling: Recalling | None = None,
        learning: Learning | None = None,
        digest: Digest | None = None,
    ) -> None:
        self._knowledge = knowledge
        self._memory = memory
        memory.is_private = knowledge is None
        self._recalling = recalling
        self._learning = learning
        self._digest = digest

    def connect(self, wires: Wires) -> None:
        """The session is there: who tells and asks, and works beside it."""
        if self._knowledge:
            self._knowledge.connect(wires)
        if self._learning:
            self._learning.connect(wires)
        if self._digest:
            self._digest.connect(wires)

    def compacted(self) -> None:
        """A summary stands for older messages from here on."""
        if self._learning:
            self._learning.compacted()

    @property
    def recalled(self) -> NotesRecalled:
        """The receipt of the last message."""
        return self._recalling.last if self._recalling else NotesRecalled((), "off")

    @property
    def count(self) -> int:
        """Notes that went to the model with the last message."""
        return self._recalling.count if self._recalling else 0

    async def context(self, text: str) -> str:
        """A turn begins: what is to go with the person's message, how the core changed before what was recalled."""
        changes = await self._knowledge.context(self._memory.context()) if self._knowledge else ""
        notes = await self._recalling.before(text) if self._recalling else ""
        return "\n\n".join(filter(None, (changes, notes)))

    async def watch(self, events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
        """The events of a turn as they come, and behind its message what was recalled for it.

        Memory is told when a tool may have written into it, and of the end.
        """
        is_told = False
        try:
            async with aclosing(events):
                async for event in events:
                    if self._knowledge and isinstance(event, ToolFinished) and event.name in _WRITING:
                        await self._knowledge.tool_ended(self._memory.known(), self._is_whole)
                    yield event
                    if not is_told and isinstance(event, Prompted):
                        is_told = True
                        for each in self._recalled():
                            yield each
        finally:
            if self._knowledge:
                self._knowledge.turn_ended(self._memory.known(), self._is_whole, self._memory.transcript.turns)
            if self._learning:
                self._learning.turn_ended()
            if self._digest:
                self._digest.after_turn()

    async def settled(self) -> None:
        """Wait until what the last turn wrote into memory is committed, or waits for the person."""
        if self._knowledge:
            await self._knowledge.settled()

    async def once_settled(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do what reads the files of memory when what the last turn wrote is as it stays."""
        await self.settled()
        await work()

    async def close(self) -> None:
        """Wait for what is being written."""
        if self._knowledge:
            await self._knowledge.close()

    def _recalled(self) -> Iterator[Event]:
        """What is to be told of recall, once the message is in the transcript."""
        if self._recalling is None:
            return
        yield from self._recalling.troubles()
        if self._recalling.last.items:
            self._recalling.keep(self._memory.transcript.last_number)
            yield self._recalling.last

    @property
    def _is_whole(self) -> bool:
        return not self._memory.has_earlier


class RecallRules(msgspec.Struct, frozen=True):
    """What the settings say of recall."""

    retrieval: Retrieval = "auto"
    top_k: int = 10
    hops: int = 1
    hypotheses: int = 5
    budget: int = 1_500
    half_life_days: float = 30
    has_embedding_model: bool = False


class KnowledgeRules(msgspec.Struct, frozen=True):
    """What the settings say of long-term memory."""

    write: Literal["tell", "ask", "silent"] = "tell"
    threshold: int = 5_000
    """Tokens above which it is consolidated."""
    recall: RecallRules = RecallRules()


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
            said=lambda: _last_said(memory),
            write=rules.write,
            threshold=rules.threshold,
            is_quiet=lambda: not any(job.running for job in parts.jobs.list()),
            price=lambda tokens: _price(models.current()[0].spec, tokens),
            half_life_days=rules.recall.half_life_days,
        )
    )
    instructions = "\n\n".join(filter(None, (parts.instructions, knowledge.load_and_format())))
    learned = Learned(parts.memory, [each.store for each in scopes], knowledge.undo)
    undoers = {**parts.undoers, "memory": learned}
    recalling = _recalling(parts, scopes, rules.recall)
    return replace(parts, instructions=instructions, knowledge=knowledge, undoers=undoers, recalling=recalling)


def _recalling(parts: SessionParts, scopes: tuple[ScopeMemory, ...], rules: RecallRules) -> Recalling | None:
    if parts.lookup is None or not scopes:
        return None
    memory, models = parts.memory, parts.models
    mark = mark_of(memory.began_with.get(MARK) or memory.session_id)

    def tuning() -> Tuning:
        from ouro.memory.long_term.recall.recall import Tuning

        return Tuning(rules.top_k, rules.hops, rules.budget, rules.half_life_days)

    return Recalling(
        RecallParts(
            memory=memory,
            finder=NoteFinder(FinderParts(parts.lookup, scopes, find_root(parts.cwd), mark, tuning)),
            mark=mark,
            ask=beside(models, memory, "retrieve", "recall") if models.is_given("retrieve") else None,
            retrieval=rules.retrieval,
            hypotheses=rules.hypotheses,
            has_embedding_model=rules.has_embedding_model,
        )
    )


def _last_said(memory: MemoryManager) -> int:
    """The number of what the person said last on the line; 0: nothing."""
    said = (each.number for each in reversed(memory.transcript.entries) if is_turn(each.message))
    return next(said, 0)


def _price(spec: ModelSpec, tokens: int) -> float | None:
    return spec.prices.cost(Usage(input=tokens, cached=tokens)) if spec.prices else None
