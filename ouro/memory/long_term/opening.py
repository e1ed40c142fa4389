"""Which scopes of long-term memory a session works with."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ouro.errors import OuroError
from ouro.memory.long_term.scope_memory import ScopeMemory
from ouro.memory.long_term.store import GitMemoryStore

_OFF = "off"
"""Under this name it is kept beside a history that its memory is switched off."""


class MemoryScopes(msgspec.Struct, frozen=True):
    """The long-term memory that a session works with."""

    opened: tuple[ScopeMemory, ...] = ()
    """In use, user before repo."""
    stores: tuple[GitMemoryStore, ...] = ()
    """Of all scopes that the settings allow, also of one that was switched off."""
    problems: tuple[str, ...] = ()
    """Why a scope could not be opened, for the user."""


def open_scopes(stores: Sequence[GitMemoryStore]) -> MemoryScopes:
    """Open the scopes that can be read and are not switched off. Blocks; never fails."""
    opened: list[ScopeMemory] = []
    problems: list[str] = []
    for store in stores:
        if store.repository.own(_OFF):
            continue
        scope = ScopeMemory(store)
        try:
            scope.open()
        except (OuroError, OSError) as error:
            problems.append(f"The {store.scope} memory cannot be read: {reason_of(error)}")
        else:
            opened.append(scope)
    return MemoryScopes(tuple(opened), tuple(stores), tuple(problems))


def switch(store: GitMemoryStore, *, on: bool) -> None:
    """Use a memory from the next session on, or do not. Blocks."""
    store.repository.create()
    store.repository.keep(_OFF, "" if on else "off")


def reason_of(error: Exception) -> str:
    """What went wrong, for the person."""
    return str(error) if isinstance(error, OuroError) else getattr(error, "strerror", None) or str(error)
