"""KnowledgeParts: what a LongTermMemoryManager is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from ouro.memory.long_term.consolidator import LongTermMemoryConsolidator
from ouro.memory.long_term.scope_memory import ScopeMemory
from ouro.memory.long_term.store import GitMemoryStore
from ouro.memory.long_term.trust.turn_marks import TurnMarks


class KnowledgeParts(msgspec.Struct, frozen=True):
    """What a LongTermMemoryManager is made of."""

    scopes: tuple[ScopeMemory, ...]
    """User before repo."""
    stores: tuple[GitMemoryStore, ...]
    """Those of all scopes that the settings allow, also where memory was switched off."""
    cwd: Path
    session_id: str
    complaints: tuple[str, ...]
    """What could not be read, for the person."""
    began_with: Mapping[str, str]
    """The versions that the session began with, by scope, and what its mark is made of (`MARK`)."""
    marks: TurnMarks
    consolidator: LongTermMemoryConsolidator
    said: Callable[[], int] = lambda: 0
    """The number, in the session, of what the person said last; 0: nothing."""
    write: Literal["tell", "ask", "silent"] = "tell"
    threshold: int = 5_000
    """Tokens of a scope's core above which it is consolidated."""
    is_quiet: Callable[[], bool] = lambda: True
    """Nothing that the agent started runs in the background."""
    price: Callable[[int], float | None] = lambda _tokens: None
    """Of so many tokens, read from the cache; None where it is not known."""
    half_life_days: float = 30
    """In which the confidence in what was only concluded halves."""
