"""What the sessions of a batch would remember: changes of memory that wait, the same ones as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ouro.memory import long_term
from ouro.memory.long_term import MemoryEditor, Proposal
from ouro.settings import MemorySettings


class WaitingChange(NamedTuple):
    """A change that a task would make, and where it waits."""

    task: str
    proposal: Proposal
    place: Path | None
    """The repository whose memory has it; None: the memory of the user, or the state of the batch."""
    is_kept_here: bool = False
    """It waits in the state of the batch: the repository is an address, and has no memory here."""


class SharedChange(NamedTuple):
    """The same change of one task or more: asked once."""

    scope: str
    rows: tuple[str, ...]
    """The lines that are new, or a line for each file that would go."""
    changes: tuple[WaitingChange, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(change.task for change in self.changes))


def take_pending(
    repository: Path, session: str, keep: Callable[[Sequence[Proposal]], None]
) -> None:
    """Take what one session would remember out of the memories that it used: those of this home and
    of a clone that will be removed. `keep` saves it for a place that asks about it.
    """
    if session:
        for store in long_term.memory_stores(MemorySettings(), repository, lambda _text: ""):
            long_term.take_proposals(store, session, keep)


def merge_changes(changes: Iterable[WaitingChange]) -> list[SharedChange]:
    """The changes with the same lines in the same scope as one, in their order."""
    merged: dict[tuple[str, tuple[str, ...]], list[WaitingChange]] = {}
    rows_of: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}
    for change in changes:
        rows = long_term.changed_rows(change.proposal)
        key = (change.proposal.scope, tuple(" ".join(row.casefold().split()) for row in rows))
        rows_of.setdefault(key, rows)
        merged.setdefault(key, []).append(change)
    return [SharedChange(key[0], rows_of[key], tuple(found)) for key, found in merged.items()]


def propose_again(editor: MemoryEditor, proposals: Sequence[Proposal]) -> list[Proposal]:
    """Let changes that a session elsewhere would make wait in these memories; returns those whose
    scope is not here.
    """
    scopes = {scope.store.scope: scope for scope in editor.scopes}
    left = []
    for found in proposals:
        scope = scopes.get(found.scope)
        if scope is None:
            left.append(found)
            continue
        at = msgspec.structs.replace(editor.moment, session=found.session, turn=found.turn)
        scope.propose(found.edits, found.reason, found.sources, at)
    return left
