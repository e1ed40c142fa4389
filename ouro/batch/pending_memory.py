"""What the sessions of a batch would remember: waiting changes of memory; equal ones are asked once."""

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
    """The repository whose memory has it; None for the memory of the user, or the state of the batch."""
    is_kept_here: bool = False
    """Whether it waits in the state of the batch, because its repository is an address and has no
    memory here.
    """


class SharedChange(NamedTuple):
    """Equal changes of one task or more, about which the user is asked once."""

    scope: str
    rows: tuple[str, ...]
    """The new lines, or a line for each file that would be removed."""
    changes: tuple[WaitingChange, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(change.task for change in self.changes))


def move_pending_out(
    repository: Path, session: str, keep: Callable[[Sequence[Proposal]], None]
) -> None:
    """Move the pending changes of one session out of the memories that it used. These are the
    user's memory, and the memory in the repository, which is a clone that will be removed.

    Args:
        session: its id. Empty if the task had no session; then nothing is moved.
        keep: saves the changes elsewhere, before they are removed.
    """
    if session:
        # No text is written here, so none is searched for secrets.
        for store in long_term.memory_stores(MemorySettings(), repository, lambda _text: ""):
            long_term.hand_over_proposals(store, session, keep)


def merge_changes(changes: Iterable[WaitingChange]) -> list[SharedChange]:
    """Join the changes that have the same lines in the same scope; case and spaces do not count. A
    joined change has the place and the lines of the first of its changes.
    """
    merged: dict[tuple[str, tuple[str, ...]], list[WaitingChange]] = {}
    rows_of: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}
    for change in changes:
        rows = long_term.changed_rows(change.proposal)
        words = tuple(" ".join(row.casefold().split()) for row in rows)
        key = (change.proposal.scope, words)
        rows_of.setdefault(key, rows)
        merged.setdefault(key, []).append(change)
    return [
        SharedChange(scope, rows_of[scope, words], tuple(equal_changes))
        for (scope, words), equal_changes in merged.items()
    ]


def propose_again(editor: MemoryEditor, proposals: Sequence[Proposal]) -> list[Proposal]:
    """Propose in the memories of `editor` what other sessions proposed elsewhere. Returns the proposals
    for a scope that `editor` does not have.
    """
    scopes = {scope.store.scope: scope for scope in editor.scopes}
    undelivered = []
    for proposal in proposals:
        scope = scopes.get(proposal.scope)
        if scope is None:
            undelivered.append(proposal)
            continue
        moment = msgspec.structs.replace(
            editor.moment, session=proposal.session, turn=proposal.turn
        )
        scope.propose(proposal.edits, proposal.reason, proposal.sources, moment)
    return undelivered
