"""What the settings say of capture, and how a session is made to learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ouro.memory.backend import MemoryStore
from ouro.memory.long_term.block import mark_of
from ouro.memory.long_term.briefing import MARK
from ouro.memory.long_term.capture.backlog import Missed
from ouro.memory.long_term.capture.observer import IDLE_SECONDS, Learning, LearningParts
from ouro.memory.long_term.scope_memory import ScopeMemory
from ouro.memory.side_calls import beside
from ouro.session.parts import SessionParts
from ouro.utils.runtime import get_history_dir

if TYPE_CHECKING:
    from ouro.memory.long_term.capture.learner import Learner
    from ouro.memory.long_term.git.values import Scope

_CADENCE = range(1, 11)


class LearningRules(msgspec.Struct, frozen=True):
    """What the settings say of capture."""

    cadence: int = 5
    """Turns between two captures: 1 to 10."""
    write: str = "tell"
    half_life_days: float = 30
    categories: Mapping[str, Sequence[str]] = {}
    """Beside the built-in ones, with the scopes that notes of them live in; the first is the usual one."""
    idle: float = IDLE_SECONDS


def with_learning(
    parts: SessionParts, store: MemoryStore, scopes: tuple[ScopeMemory, ...], root: Path, rules: LearningRules
) -> SessionParts:
    """The session captures what is said in it, and what was missed in earlier ones. Nothing is made or read yet."""
    knowledge, lookup, memory = parts.knowledge, parts.lookup, parts.memory
    if knowledge is None or lookup is None or not scopes:
        return parts

    def learner() -> Learner:
        from ouro.memory.long_term.capture.learner import Learner, LearnerParts

        return Learner(
            LearnerParts(
                knowledge=knowledge,
                scopes=scopes,
                lookup=lookup,
                ask=beside(parts.models, memory, "classify", "capture"),
                root=root,
                cwd=parts.cwd,
                mark=mark_of(memory.began_with.get(MARK) or memory.session_id),
                categories=categories_of(rules.categories),
                asks=rules.write == "ask",
                half_life_days=rules.half_life_days,
            )
        )

    learning = Learning(
        LearningParts(
            memory=memory,
            knowledge=knowledge,
            learner=learner,
            missed=Missed(store, memory.session_id, memory.project, get_history_dir() / "capture.lock"),
            cadence=min(max(rules.cadence, _CADENCE[0]), _CADENCE[-1]),
            silent=rules.write == "silent",
            idle=rules.idle,
        )
    )
    return replace(parts, learning=learning)


def categories_of(own: Mapping[str, Sequence[str]]) -> dict[str, Scope]:
    """All categories of notes, each with the scope that it usually lives in."""
    from ouro.memory.long_term.notes.note import CATEGORIES

    named = {" ".join(name.split()).casefold().replace(" ", "-").replace("_", "-"): each for name, each in own.items()}
    added: dict[str, Scope] = {name: "user" if "user" in scopes[:1] else "repo" for name, scopes in named.items()}
    return {**CATEGORIES, **added}
