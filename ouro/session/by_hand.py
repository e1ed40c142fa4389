"""What a person does with memory by hand, in a session: their commands get a MemoryEditor to work at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ouro.errors import UsageError
from ouro.events import CoreChanged
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.scope_memory import Moment, ScopeMemory
from ouro.safety.trust import TrustStore, acting_files
from ouro.session.session import Session
from ouro.utils.repository import find_root
from ouro.utils.runtime import get_trust_path

_Done = TypeVar("_Done")
_OF_AGENTS = (".claude/projects", ".codex/memories", ".letta/agents")
"""Below the person's home: where other agents keep what they learned from them."""


async def at_desk(session: Session, act: Callable[[MemoryEditor], _Done], *, says_it: bool = False) -> _Done:
    """Do in a thread what the person asks of memory, while nothing else here writes; what it changed is told.

    Args:
        session: the conversation in which they ask.
        act: what they ask for.
        says_it: whoever calls says what it changed: no event does.

    Raises:
        UsageError: memory is off here.
    """
    if session.knowledge is None:
        raise UsageError("Memory is off here.", "By `memory.enabled`, --no-memory or --ephemeral.")
    lookup = session.lookup
    index = None if lookup is None else lambda: lookup.search().index

    def work(scopes: tuple[ScopeMemory, ...], moment: Moment) -> tuple[_Done, Sequence[CoreChanged]]:
        desk = MemoryEditor(scopes, index, moment)
        return act(desk), desk.told

    return await session.knowledge.by_hand(work, says_it=says_it)


def is_trusted_text(path: Path) -> bool:
    """Whether what a file says counts as the person's: it lies in no repository, or in one that they trust.

    What a repository brings along are the words of whoever wrote it (M1). The folders in which agents keep what they
    learned from the person are that person's, also where they are git repositories. Blocks.
    """
    if any((Path.home() / each).resolve() in path.resolve().parents for each in _OF_AGENTS):
        return True
    root = find_root(path if path.is_dir() else path.parent)
    if not (root / ".git").exists():
        return True
    trust = TrustStore(get_trust_path())
    return trust.was_trusted(root) and trust.is_trusted(root, acting_files(root))
